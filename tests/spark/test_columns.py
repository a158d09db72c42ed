"""A schema given by the user: any of the columns in any order, in batch reads and streams."""

import pytest

from tests.fixtures.spark import DEADLINE_S

HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
SCHEMAS = [
    "value BINARY",
    "timestamp TIMESTAMP, key BINARY",
    f"{HEADERS}, value BINARY",
    "timestampType INT, topic STRING, partition INT",
    f"{HEADERS}, timestampType INT, timestamp TIMESTAMP, offset LONG, partition INT, topic STRING, value BINARY, "
    "key BINARY",
]


def records(count: int, first: int = 0) -> list[dict]:
    """Records, some without key or value, some with headers."""
    return [
        {
            "key": None if n % 3 == 0 else b"k%d" % n,
            "value": None if n % 5 == 0 else b"v%d" % n,
            "timestamp": 1_700_000_000_000 + n,
            "headers": [("h", b"%d" % n), ("h", None)] if n % 2 else [],
        }
        for n in range(first, first + count)
    ]


@pytest.fixture
def read(spark, sandbox, group):
    """Rows of a batch read; a topic of one partition is read in its order."""

    def frame(topic, schema=None, **options):
        reader = spark.read.format("zkconsumer")
        if schema is not None:
            reader = reader.schema(schema)
        where = {"zookeeper.connect": sandbox.zookeeper_connect, "group.id": group.group, "subscribe": topic}
        return reader.options(**where, startingOffsets="earliest", **options).load()

    return frame


@pytest.fixture
def stream(start_query):
    """Run a query that reads all existing records; returns its rows, and the error of a failing sink."""

    def run(topic, schema, *, checkpoint="checkpoint", fail=False):
        rows: list[tuple] = []

        def sink(frame, _):
            rows.extend(tuple(row) for row in frame.collect())
            if fail:
                raise ValueError("the sink is full")

        query = start_query(topic, sink, checkpoint=checkpoint, trigger={"availableNow": True}, schema=schema)
        if fail:
            with pytest.raises(Exception, match="the sink is full"):
                query.awaitTermination(DEADLINE_S)
        else:
            assert query.awaitTermination(DEADLINE_S)
        return rows

    return run


def names_of(schema: str) -> list[str]:
    return [part.split()[0] for part in schema.replace(HEADERS, "headers").split(", ")]


def selected(frame, schema: str | None) -> list[tuple]:
    return [tuple(row) for row in (frame if schema is None else frame.select(*names_of(schema))).collect()]


def test_a_batch_read_of_some_columns_equals_a_select_of_them(read, topic_factory, produce):
    topic = topic_factory()
    produce(topic, records(300))
    everything = read(topic, includeHeaders="true")
    for schema in SCHEMAS:
        frame = read(topic, schema)
        assert frame.columns == names_of(schema)
        rows = [tuple(row) for row in frame.collect()]
        assert len(rows) == 300
        assert rows == selected(everything, schema)
    assert read(topic, "value BINARY").count() == 300
    assert read(topic, "value BINARY", endingOffsets=f'{{"{topic}":{{"0":77}}}}').count() == 77


def test_the_schema_decides_about_headers_and_not_the_option(read, topic_factory, produce):
    topic = topic_factory()
    produce(topic, records(2))
    assert [row.headers[0].value for row in read(topic, HEADERS).collect() if row.headers] == [b"1"]
    assert read(topic, "offset LONG", includeHeaders="true").columns == ["offset"]
    assert read(topic, "offset LONG", includeHeaders="true").count() == 2


@pytest.mark.parametrize("schema", [SCHEMAS[0], SCHEMAS[-1]])
def test_a_stream_of_some_columns_equals_a_batch_read(stream, read, topic_factory, produce, schema):
    topic = topic_factory()
    produce(topic, records(300))
    expected = selected(read(topic, includeHeaders="true"), schema)
    assert len(expected) == 300
    assert stream(topic, schema) == expected


def test_a_restarted_query_continues_with_other_columns(stream, read, group, topic_factory, produce):
    topic = topic_factory()
    delivered = []
    for number, schema in enumerate(["value BINARY", None, f"{HEADERS}, offset LONG"]):
        produce(topic, records(50, first=50 * number))
        delivered.append((schema, stream(topic, schema)))
    everything = read(topic, includeHeaders="true")
    for number, (schema, rows) in enumerate(delivered):
        part = everything.where(f"offset >= {50 * number} and offset < {50 * number + 50}")
        assert len(rows) == 50
        assert rows == selected(part if schema else part.drop("headers"), schema)
    assert group.offsets(topic) == {0: 150}


def test_an_unfinished_batch_is_repeated_with_other_columns(stream, group, topic_factory, produce):
    topic = topic_factory()
    produce(topic, records(50))
    failed = stream(topic, "offset LONG", fail=True)
    produce(topic, records(50, first=50))
    repeated = stream(topic, "partition INT, offset LONG")
    assert failed == [(offset,) for offset in range(50)]
    assert repeated == [(0, offset) for offset in range(100)]
    assert group.offsets(topic) == {0: 100}


def test_a_wrong_schema_fails_before_any_task(read, start_query, topic_factory, produce):
    topic = topic_factory()
    produce(topic, records(1))

    def message(violation):
        return f"(?s)ConfigError.*{violation}.*any of these columns.*key binary, value binary, .*headers array<struct<"

    for schema, violation in [
        ("vaule BINARY", "there is no column vaule"),
        ("value BINARY, offset LONG NOT NULL", "offset is NOT NULL"),
    ]:
        with pytest.raises(Exception, match=message(violation)):
            read(topic, schema).rdd.getNumPartitions()
    query = start_query(topic, lambda *_: None, trigger={"availableNow": True}, schema="value STRING")
    with pytest.raises(Exception, match=message("value is string, not binary")):
        query.awaitTermination(DEADLINE_S)
    assert query.lastProgress is None
