"""The Spark examples of the documents, on a real session."""

import re
from contextlib import closing

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


class Database:
    """An embedded database of Spark's own jars, in the JVM of the session."""

    def __init__(self, spark, directory):
        spark._jvm.java.lang.System.setProperty("derby.stream.error.file", f"{directory}/derby.log")
        self.url = f"jdbc:derby:{directory}/clicks"
        self._drivers = spark._jvm.java.sql.DriverManager
        self._drivers.getConnection(f"{self.url};create=true").close()

    def execute(self, statement):
        with closing(self._drivers.getConnection(self.url)) as connection:
            connection.createStatement().executeUpdate(statement)

    def rows(self, question):
        with closing(self._drivers.getConnection(self.url)) as connection:
            found, rows = connection.createStatement().executeQuery(question), []
            while found.next():
                rows.append(tuple(found.getString(n + 1) for n in range(found.getMetaData().getColumnCount())))
            return rows


def test_a_table_of_a_database_has_each_row_once_after_crashes(
    sandbox, topic_factory, produce, unique_name, tmp_path, spark
):
    """One comes inside the transaction, and one between the transaction and the end of the batch."""
    from pyspark.errors import StreamingQueryException

    topic, database = topic_factory(partitions=4), Database(spark, tmp_path)
    opened = Page("docs/recipes.md", sandbox, topic, unique_name)
    (tables,) = opened.blocks("sql")
    for statement in filter(str.strip, tables.split(";")):
        database.execute(statement)
    (code,) = (block for block in opened.blocks("python") if "java.sql" in block)
    for former, there in {
        "jdbc:postgresql://db/web": database.url,
        "/checkpoints/jdbc": str(tmp_path / "checkpoint"),
        "foreachBatch(save)": "foreachBatch(then_crash(save))",
        ".start()": ".trigger(availableNow=True).start()",
    }.items():
        assert former in code
        code = code.replace(former, there)
    crashes = []

    def then_crash(save):
        def saved(batch, batch_id):
            save(batch, batch_id)
            if crashes:
                raise OSError(crashes.pop())

        return saved

    def run(first, last):
        more = RECORDS[first:last]
        produce(topic, [{"value": b"%d" % n, "partition": n % 4} for n in range(first, first + len(more))])
        in_time(lambda: opened.run([code], lambda: None, then_crash=then_crash))

    crashes.append("after the transaction")
    with pytest.raises(StreamingQueryException, match="after the transaction"):
        run(0, 50)
    assert database.rows("SELECT * FROM stored")
    run(0, 0)
    ((newest,),) = database.rows("SELECT max(id) FROM batches")
    database.execute(f"ALTER TABLE batches ADD CONSTRAINT crash CHECK (id <= {newest})")
    with pytest.raises(StreamingQueryException, match="CRASH"):
        run(50, 100)
    assert len(database.rows("SELECT * FROM stored")) == 50
    database.execute("ALTER TABLE batches DROP CONSTRAINT crash")
    run(100, 150)
    assert sorted(int(payload) for (payload,) in database.rows("SELECT payload FROM stored")) == [*range(150)]
    assert len(database.rows("SELECT DISTINCT kafka_partition, kafka_offset FROM stored")) == 150
    assert {name for (name,) in database.rows("SELECT query FROM batches")} == {"clicks-1"}
