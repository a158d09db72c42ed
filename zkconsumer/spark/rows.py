"""The schema of the rows, equal to that of Spark's own Kafka source, so that a job only changes its format name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Columns in their order; ``headers`` follows on request."""


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
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)
