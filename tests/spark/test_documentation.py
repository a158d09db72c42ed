"""The Spark examples of the documents, on a real session."""

import re

import pytest

from tests.fixtures.documentexamples import RECORDS, Page
from tests.fixtures.spark import await_until, in_time


@pytest.fixture
def page(sandbox, topic_factory, produce, unique_name, tmp_path, spark):
    """Runs the Spark examples of a page on a topic with records, and returns the names that they define."""

    def run(name):
        topic = topic_factory(partitions=4)
        produce(topic, [{"key": key, "value": value, "partition": n % 4} for n, (key, value) in enumerate(RECORDS)])
        opened = Page(name, sandbox, topic, unique_name)
        blocks = [block for block in opened.blocks("python") if "zkconsumer.spark" in block or "spark.read" in block]
        places = [re.sub(r'"(/[\w/.-]+|checkpoint)"', lambda found: repr(f"{tmp_path}/{found[1]}"), b) for b in blocks]
        return in_time(lambda: opened.run(places, lambda: None, spark=spark))

    return run


def count(frame, tmp_path, name):
    """The rows of a stream, as a run to the ends of its logs has them."""
    rows = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.append(batch.count()))
    query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(rows)


def test_the_readme_reads_a_stream(page, tmp_path):
    clicks = page("README.md")["clicks"]
    named = "key value topic partition offset timestamp timestampType"
    assert clicks.columns == named.split()
    assert in_time(lambda: count(clicks, tmp_path, "readme")) == len(RECORDS)


def test_the_quickstart_counts_every_record_and_ends(page):
    query = page("docs/quickstart.md")["query"]
    assert not query.isActive
    assert query.exception() is None
    assert sum(progress.numInputRows for progress in query.recentProgress) == len(RECORDS)


def test_the_page_of_spark_archives_selects_columns_and_watches(page, spark):
    names = page("docs/spark.md")
    query = names["query"]
    await_until(lambda: query.lastProgress is not None or not query.isActive, "the query has made progress")
    assert query.exception() is None
    query.stop()
    assert names["values"].columns == ["value"]
    assert names["keyed"].columns == ["offset", "key", "value"]
    await_until(lambda: names["monitor"].snapshot() == [], "ended queries are forgotten")
