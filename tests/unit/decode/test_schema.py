from pyspark.sql.pandas.types import to_arrow_schema
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

from zkconsumer.decode.schema import SCHEMA, SCHEMA_WITH_HEADERS

# "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int,
# headers array<struct<key string, value binary>>"; turning that text into types would need a running JVM.
SPARK = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
    ]
)


def test_the_schema_equals_that_of_spark_s_kafka_source():
    assert to_arrow_schema(SPARK, timezone="UTC").equals(SCHEMA_WITH_HEADERS, check_metadata=True)


def test_without_headers():
    assert to_arrow_schema(StructType(SPARK.fields[:-1]), timezone="UTC").equals(SCHEMA, check_metadata=True)
