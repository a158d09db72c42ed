"""What an application prints when an option is wrong: few lines, and the sentence that helps."""

import traceback

import pytest

from tests.fixtures.spark import in_time

OPTIONS = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "subscribe": "t"}
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def at_load(spark, _):
    spark.readStream.format("zkconsumer").options(**OPTIONS, numStreams="0").load()


def at_planning_a_batch_read(spark, _):
    spark.read.format("zkconsumer").options(**OPTIONS, startingOffsets="latest").load().count()


def at_the_start_of_a_stream(spark, directory):
    frame = spark.readStream.format("zkconsumer").options(**OPTIONS, endingOffsets="latest").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(directory))
    writer.start().awaitTermination()


@pytest.mark.parametrize(
    ("fails", "sentence", "most_lines"),
    [
        (at_load, "numStreams must be a positive integer, not '0'", 20),
        (at_planning_a_batch_read, "startingOffsets of a batch read cannot be latest (-1)", 20),
        (at_the_start_of_a_stream, "a stream has no end; use trigger(availableNow=True)", 23),  # of which 6 are ours
    ],
)
def test_a_failing_option_prints_few_lines_without_chained_tracebacks(spark, tmp_path, fails, sentence, most_lines):
    with pytest.raises(Exception, match=r"zkconsumer\.errors\.ConfigError") as caught:
        in_time(lambda: fails(spark, tmp_path))
    error = caught.value
    of_the_job = error.__traceback__
    while of_the_job is not None and of_the_job.tb_frame.f_code is not fails.__code__:
        of_the_job = of_the_job.tb_next
    printed = "".join(traceback.format_exception(error.with_traceback(of_the_job)))
    printed = printed.partition("=== Streaming Query ===")[0]  # Spark describes the query after the error
    assert sentence in printed
    assert not [words for words in CHAINED if words in printed]
    assert len(printed.splitlines()) <= most_lines, printed
