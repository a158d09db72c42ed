import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from zkconsumer.decode.schema import SCHEMA, SCHEMA_WITH_HEADERS, schema_of
from zkconsumer.errors import ConfigError
from zkconsumer.spark.rows import choose_columns, spark_schema

ALL = spark_schema(include_headers=True)


def part(*names: str) -> StructType:
    return StructType([ALL[name] for name in names])


def headers_of(*fields: StructField, contains_null: bool = True) -> StructType:
    return StructType([StructField("headers", ArrayType(StructType(list(fields)), contains_null))])


NAME, CONTENT = StructField("key", StringType()), StructField("value", BinaryType())


@pytest.mark.parametrize(("headers", "schema"), [(False, SCHEMA), (True, SCHEMA_WITH_HEADERS)])
def test_fetched_batches_have_exactly_the_schema_that_spark_checks_for(headers, schema):
    assert to_arrow_schema(spark_schema(headers), timezone="UTC").equals(schema)


@pytest.mark.parametrize(
    "names", [("value",), ("timestampType", "key"), ("headers", "offset", "value"), tuple(reversed(ALL.names))]
)
def test_any_columns_in_any_order_can_be_chosen(names):
    chosen = choose_columns(part(*names))
    assert chosen == names
    assert to_arrow_schema(part(*names), timezone="UTC").equals(schema_of(chosen))


def test_comments_of_columns_do_not_matter():
    comment = {"comment": "as produced"}
    name = StructField("key", StringType(), metadata=comment)
    schema = StructType(
        [StructField("value", BinaryType(), metadata=comment), *headers_of(name, CONTENT).fields],
    )
    assert choose_columns(schema) == ("value", "headers")


@pytest.mark.parametrize(
    ("schema", "violation"),
    [
        (StructType([]), "it has no columns"),
        (part("value", "key", "value"), "there is more than one column value"),
        (StructType([StructField("vaule", BinaryType())]), "there is no column vaule"),
        (StructType([StructField("TimestampType", IntegerType())]), "no column TimestampType, write timestampType"),
        (StructType([StructField("value", StringType())]), "value is string, not binary"),
        (StructType([StructField("partition", LongType())]), "partition is bigint, not int"),
        (StructType([StructField("timestamp", TimestampNTZType())]), "timestamp is timestamp_ntz, not timestamp"),
        (StructType([StructField("offset", LongType(), nullable=False)]), "offset is NOT NULL"),
        (headers_of(NAME, CONTENT, contains_null=False), "a part of headers is NOT NULL"),
        (headers_of(StructField("key", StringType(), nullable=False), CONTENT), "a part of headers is NOT NULL"),
        (headers_of(CONTENT, NAME), "headers is array<struct<value:binary,key:string>>, not array<struct<key:string"),
    ],
)
def test_an_unusable_schema_is_refused_with_the_existing_columns(schema, violation):
    with pytest.raises(ConfigError, match=violation) as caught:
        choose_columns(schema)
    for field in ALL.fields:
        assert f"{field.name} {field.dataType.simpleString()}" in str(caught.value)


def test_all_mistakes_of_a_schema_are_named_together():
    schema = StructType([StructField("value", StringType(), nullable=False), StructField("nothing", LongType())])
    with pytest.raises(ConfigError) as caught:
        choose_columns(schema)
    for violation in ("value is NOT NULL", "value is string, not binary", "there is no column nothing"):
        assert violation in str(caught.value)
