"""Readers of one group under one Spark driver: joins, unions, several queries, a query that is started again."""

from collections import Counter
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

from tests.fixtures.sourceprocess import SourceProcess
from tests.fixtures.spark import DEADLINE_S, LONG_SESSION, PatientQuery, Sink, await_until
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import UsageError
from zkconsumer.spark.monitor import QueryMonitor
from zkconsumer.spark.rules.offsetsjson import initial_offset

PARTITIONS = 4
AVAILABLE_NOW = {"availableNow": True}
REFUSAL = "another reader of group"


@pytest.fixture
def topic(topic_factory, produce):
    """A topic with 25 records in each of four partitions."""
    name = topic_factory(partitions=PARTITIONS)
    produce(name, [{"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(100)])
    return name


@pytest.fixture
def stream(spark, group, topic):
    """A stream of the test's group, from a ``load()`` of its own."""

    def load(**options):
        named = {**group.connection, "group.id": group.group, "subscribe": topic, "startingOffsets": "earliest"}
        return spark.readStream.format("zkconsumer").options(**{**named, **LONG_SESSION, **options}).load()

    return load


@pytest.fixture
def run(tmp_path):
    """Read what there is; the rows. Its attribute ``progress`` has what Spark has reported of the query."""

    def read(frame):
        sink = Sink()
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
        query = PatientQuery(writer.trigger(**AVAILABLE_NOW).start)
        try:
            assert query.awaitTermination(DEADLINE_S)
        finally:
            query.stop()
        read.progress = query.recentProgress
        return sink.positions()

    return read


def once(partitions=PARTITIONS, count=25, times=1):
    return Counter({(partition, offset): times for partition in range(partitions) for offset in range(count)})


def test_a_stream_joined_with_itself_is_refused(stream, run):
    one = stream()
    joined = one.alias("a").join(one.alias("b"), "value").select("a.partition", "a.offset", "value")
    with pytest.raises(StreamingQueryException, match=REFUSAL):
        run(joined)


def test_a_stream_in_a_union_with_itself_has_one_reader(stream, run):
    one = stream()
    assert run(one.union(one)) == once(times=2)


def test_two_loads_with_names_share_the_group(stream, run):
    assert run(stream(memberName="a").union(stream(memberName="b"))) == once()
    monitor = QueryMonitor()
    for progress in run.progress:
        monitor.onQueryProgress(SimpleNamespace(progress=progress))
    (state,) = monitor.snapshot()
    assert (len(state.owned), state.rows) == (PARTITIONS, 100), "it covers both readers"


def test_two_loads_with_groups_of_their_own_read_everything(stream, run, group):
    other = stream(**{"group.id": f"{group.group}-2"})
    joined = stream().alias("a").join(other.alias("b"), "value").select("a.partition", "a.offset", "value")
    assert run(joined) == once()


def test_a_second_query_of_the_group_is_refused_and_the_first_continues(start_query, topic, produce):
    first, second = Sink(), Sink()
    query = start_query(topic, first, checkpoint="first")
    await_until(lambda: len(first.rows()) == 100, "the first query reads")
    with pytest.raises(StreamingQueryException, match=REFUSAL):
        start_query(topic, second, checkpoint="second").awaitTermination(DEADLINE_S)
    produce(topic, [{"value": b"v", "partition": n % PARTITIONS} for n in range(100)])
    await_until(lambda: len(first.rows()) >= 200, "the first query continues")
    assert (first.positions(), second.positions()) == (once(count=50), Counter())
    assert query.isActive


def test_a_query_that_is_started_again_at_once_reads_everything(stream, tmp_path, group, topic, produce):
    sink = Sink()
    writer = stream().writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
    query = PatientQuery(writer.start)
    await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 25), "the first batch is finished")
    query.stop()
    produce(topic, [{"value": b"v", "partition": n % PARTITIONS} for n in range(100)])
    query = PatientQuery(writer.trigger(**AVAILABLE_NOW).start)  # the former process may still be leaving
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()
    assert sink.positions() == once(count=50)


def test_a_query_that_does_not_share_refuses_members_by_name(group, topic, unique_name):
    options = {
        **group.connection,
        "group.id": group.group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "group.share": "false",
        "zookeeper.session.timeout.ms": "4000",
    }
    start = initial_offset(group.group)
    first, second = SourceProcess(options), SourceProcess(options)
    third = SourceProcess({**options, "group.share": "true"})
    try:
        end = first.ask("latest_offset", start, None)
        with pytest.raises(UsageError, match=f"{first.ask('consumer_id')} are live"):
            second.ask("latest_offset", start, None)
        with pytest.raises(UsageError, match=f"{first.ask('consumer_id')} do not share it"):
            third.ask("latest_offset", start, None)
        assert len(first.read(start, end)) == 100
        assert first.ask("latest_offset", end, None) == end, "it has not noticed anything"
    finally:
        for process in (first, second, third):
            process.stop()


def test_a_query_that_does_not_share_ends_when_a_member_joins(group, topic, sandbox):
    options = {**group.connection, "group.id": group.group, "subscribe": topic, "startingOffsets": "earliest"}
    start = initial_offset(group.group)
    query = SourceProcess({**options, "group.share": "false"})
    config = ConsumerConfig(zookeeper_connect=sandbox.zookeeper_connect, group_id=group.group)
    try:
        query.ask("latest_offset", start, None)
        with ConsumerConnector(config) as member:
            member.create_message_streams({topic: 1})
            with pytest.raises(UsageError, match=f"own a part of its partitions: {member.consumer_id}"):
                query.ask("latest_offset", start, None)
    finally:
        query.stop()
