import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from zkconsumer.fetch.schema import SCHEMA, SCHEMA_WITH_HEADERS
from zkconsumer.spark.rows import spark_schema


@pytest.mark.parametrize(("headers", "schema"), [(False, SCHEMA), (True, SCHEMA_WITH_HEADERS)])
def test_fetched_batches_have_exactly_the_schema_that_spark_checks_for(headers, schema):
    assert to_arrow_schema(spark_schema(headers), timezone="UTC").equals(schema)
