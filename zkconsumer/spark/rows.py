"""The columns of the rows, equal to those of Spark's own Kafka source, so that a job only changes its format name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from zkconsumer.decode.buffers import COLUMNS, HEADERS_COLUMN
from zkconsumer.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def spark_schema(include_headers: bool) -> StructType:
    """Spark's type of the rows; every column is nullable, as Spark's own Kafka source declares it."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    types = (BinaryType(), BinaryType(), StringType(), IntegerType(), LongType(), TimestampType(), IntegerType())
    fields = [StructField(name, kind) for name, kind in zip(COLUMNS, types, strict=True)]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField(HEADERS_COLUMN, ArrayType(header)))
    return StructType(fields)


def choose_columns(schema: StructType) -> tuple[str, ...]:
    """The columns to read for a schema, in its order: :func:`spark_schema`, or one given by ``.schema(...)``.

    Comments and other metadata of columns are ignored.

    Raises:
        ConfigError: naming every column that does not match one of this source, and the columns of this source.
    """
    violations = list(_violations(schema))
    if violations:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in spark_schema(True).fields)
        raise ConfigError(
            f"the schema given by .schema(...) cannot be used: {'; '.join(violations)}. It may have any of these "
            f"columns, in any order, all of them nullable: {columns}. Cast and rename them in a select"
        )
    return tuple(schema.fieldNames())


def _violations(schema: StructType) -> Iterator[str]:
    known = {field.name: field for field in spark_schema(include_headers=True).fields}
    names = schema.fieldNames()
    if not names:
        yield "it has no columns"
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"there is more than one column {name}"
    for field in schema.fields:
        expected = known.get(field.name)
        if expected is None:
            yield f"there is no column {field.name}{_spelled(field.name, known)}"
            continue
        if not field.nullable:
            yield f"{field.name} is NOT NULL"
        if field.dataType.simpleString() != expected.dataType.simpleString():
            yield f"{field.name} is {field.dataType.simpleString()}, not {expected.dataType.simpleString()}"
        elif _without_metadata(field.dataType) != expected.dataType:
            yield f"a part of {field.name} is NOT NULL"


def _spelled(name: str, known: Iterable[str]) -> str:
    """A hint at the right name, if only its case differs."""
    spelled = [column for column in known if column.lower() == name.lower()]
    return f", write {spelled[0]}" if spelled else ""


def _without_metadata(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(_without_metadata(kind.elementType), kind.containsNull)
    if isinstance(kind, StructType):
        return StructType(
            [StructField(field.name, _without_metadata(field.dataType), field.nullable) for field in kind.fields]
        )
    return kind
