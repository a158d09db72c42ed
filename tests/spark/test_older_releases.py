"""What Python sources can do differs between releases of Spark; ``tests/native/test_lowest.py`` runs older ones."""

import importlib.util

import pytest
from pyspark.sql import SparkSession

import zkconsumer.spark
from tests.fixtures.spark import DEADLINE_S, in_time

HAS_STREAMS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
GIVEN = {"zookeeper.connect": "h:1", "group.id": "g", "subscribe": "t"}


@pytest.mark.skipif(HAS_STREAMS, reason="this release of Spark has streams")
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "1 second"}], ids=str)
def test_a_stream_is_refused_by_a_release_without(spark, tmp_path, trigger):
    frame = spark.readStream.format("zkconsumer").options(**GIVEN).load()

    def run():
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.trigger(**trigger).start().awaitTermination(DEADLINE_S)

    refused = rf"need Spark 4\.2 or later, but this is {spark.version}, with which batch reads \(spark\.read\) work"
    with pytest.raises(Exception, match=refused) as caught:
        in_time(run)
    assert str(caught.value).count("zkconsumer/spark/") == 1, "without the way through the source"


def test_a_format_that_spark_has_found_can_be_registered(spark):
    session: SparkSession = spark.newSession()
    assert session.read.format("zkconsumer").options(**GIVEN).load().columns[0] == "key"
    monitor = zkconsumer.spark.register(session)
    assert zkconsumer.spark.register(session) is monitor
    session.streams.removeListener(monitor)
