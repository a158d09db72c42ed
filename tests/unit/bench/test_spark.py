import pytest

from zkconsumer.bench.contest import OURS, Contest
from zkconsumer.bench.spark import SparkSizes, beside_ceiling
from zkconsumer.bench.sparkfield import CEILING, SPARK, SPARK_TUNED, Endpoints, Reading, few_row_batches, source_options
from zkconsumer.spark.options import parse_options

READING = Reading("t", 100, 1000)
ENDPOINTS = Endpoints("127.0.0.1:1", "127.0.0.1:2")


def test_large_records_are_fewer():
    sizes = SparkSizes()
    assert sizes.small().records == pytest.approx(3_000_000, rel=0.01)
    assert sizes.large().records == pytest.approx(500_000, rel=0.01)


def test_the_ceiling_is_compared_with_the_same_measurements():
    contest = Contest("reading", "rows/s", SPARK, "at least 4.5")
    for name, rows in ((OURS, 90.0), (SPARK, 10.0), (CEILING, 100.0)):
        contest.add(name, rows)
    beside = beside_ceiling(contest, "at least 0.85")
    assert beside.ratio(OURS) == pytest.approx(0.9)
    assert beside.target_of(OURS) == "at least 0.85"
    assert SPARK not in beside.measured


def test_both_kafka_sources_read_the_topic_from_its_beginning():
    ours = parse_options(source_options(OURS, READING, ENDPOINTS, "g"))
    assert (ours.topics, ours.starting, ours.config.group_id) == (("t",), "earliest", "g")
    spark = source_options(SPARK, READING, ENDPOINTS, "g")
    assert spark == {"kafka.bootstrap.servers": "127.0.0.1:2", "subscribe": "t", "startingOffsets": "earliest"}
    tuned = source_options(SPARK_TUNED, READING, ENDPOINTS, "g")
    assert tuned == {**spark, "kafka.fetch.max.wait.ms": "50"}


def test_only_batches_with_rows_count_and_the_first_of_them_do_not():
    progresses = [
        {"numInputRows": rows, "durationMs": {"triggerExecution": duration}}
        for rows, duration in ((0, 1), (5, 900), (5, 200), (0, 2), (3, 100))
    ]
    assert few_row_batches(progresses, skip=1) == [200.0, 100.0]
