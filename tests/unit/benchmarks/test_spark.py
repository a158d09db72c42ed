import pytest

from benchmarks.contest import OURS, Contest
from benchmarks.spark import SparkSizes, beside, by_columns
from benchmarks.sparkfield import (
    CEILING,
    SPARK,
    SPARK_TUNED,
    Endpoints,
    Reading,
    few_row_batches,
    part_of_schema,
    source_options,
)
from zkconsumer.spark.rows import choose_columns
from zkconsumer.spark.rules.options import parse_options

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
    compared = beside(contest, CEILING, "at least 0.85")
    assert compared.ratio(OURS) == pytest.approx(0.9)
    assert compared.target_of(OURS) == "at least 0.85"
    assert SPARK not in compared.measured


def test_fewer_columns_are_compared_with_all_of_them():
    contests = {count: Contest("reading", "rows/s", SPARK, "at least 4.5") for count in (7, 1, 2)}
    for count, contest in contests.items():
        contest.add(OURS, 70.0 / count)
    compared = by_columns(contests, "at least 1.5")
    one, two, seven = compared.measured
    assert [compared.ratio(name) for name in (one, two, seven)] == pytest.approx([7, 3.5, 1])
    assert [compared.target_of(name) for name in (one, two, seven)] == ["at least 1.5", "", ""]


def test_a_schema_of_the_chosen_columns_is_one_that_the_source_accepts():
    assert choose_columns(part_of_schema(("value", "timestamp"))) == ("value", "timestamp")


def test_on_a_cluster_each_source_has_a_task_for_each_worker():
    assert SparkSizes(workers=3).small().partitions == 3, "of Spark's own source"
    assert parse_options(source_options(OURS, READING, ENDPOINTS, "g", 3)).num_streams == 3
    assert source_options(CEILING, READING, ENDPOINTS, "g", 3)["tasks"] == "3"
    assert "numStreams" not in source_options(OURS, READING, ENDPOINTS, "g")


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
