"""SimpleConsumer on a real broker; what the JVM's does is in jvm-consumer.md#simpleconsumer."""

import time

import pytest

from tests.fixtures import fetch as fetch_fixtures
from tests.fixtures.fork import in_forked_child, refused_in_forked_child
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.waiting import eventually
from zkconsumer import NotLeader, SimpleConsumer, TopicPartition
from zkconsumer.errors import (
    BrokerUnavailable,
    CoordinatorMoved,
    LeaderUnknown,
    OffsetOutOfRange,
    OffsetsNotStored,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def simple(sandbox):
    (broker,) = fetch_fixtures.brokers_of(sandbox.bootstrap_servers)
    with SimpleConsumer(broker.host, broker.port, client_id="test") as consumer:
        yield consumer


@pytest.fixture
def filled(topic_factory, produce):
    """Partition 1 of a topic, with 200 records in batches of some 1,000 bytes."""
    topic = topic_factory(partitions=2)
    records = [{"key": b"k", "value": b"%d" % n, "partition": 1, "headers": [("h", b"x")]} for n in range(200)]
    produce(topic, records, batch_size=1000)
    return TopicPartition(topic, 1)


def test_records_from_a_given_offset(simple, filled):
    seen, offset = [], 42
    while True:
        fetched = simple.fetch(filled, offset, max_bytes=1500)
        assert fetched.high_watermark == 200
        if fetched.batch is None:
            break
        assert fetched.batch.num_rows == len(list(fetched)) < 150
        seen += fetched
        offset = fetched.next_offset
    assert offset == 200
    assert [(m.offset, int(m.value)) for m in seen] == [(n, n) for n in range(42, 200)]
    assert {(m.topic, m.partition, m.key, m.headers) for m in seen} == {(*filled, b"k", (("h", b"x"),))}


def test_a_record_larger_than_asked_for_comes_anyway(simple, filled):
    assert simple.fetch(filled, 0, max_bytes=10).batch.num_rows > 0


def test_waiting_for_records(simple, filled):
    began = time.monotonic()
    fetched = simple.fetch(filled, 200, min_bytes=1, max_wait_ms=300)
    assert (list(fetched), fetched.next_offset) == ([], 200)
    assert time.monotonic() - began > 0.25


def test_ends_of_a_log(simple, filled):
    empty = filled._replace(partition=0)
    assert (simple.earliest(filled), simple.latest(filled)) == (0, 200)
    assert (simple.earliest(empty), simple.latest(empty)) == (0, 0)
    assert simple.offsets_before(filled, simple.LATEST, 5) == [200, 0]
    assert simple.offsets_before(filled, simple.LATEST) == [200]
    assert simple.offsets_before(filled, simple.EARLIEST, 5) == [0]
    assert simple.offsets_before(filled, 1, 5) == []
    assert simple.offsets_before(filled, int(time.time() * 1000) + 60_000, 5)[-1] == 0


@pytest.mark.parametrize("offset", [-5, 201])
def test_an_offset_out_of_range(simple, filled, offset):
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} of {filled}"):
        simple.fetch(filled, offset)


@pytest.mark.parametrize("where", ["partition", "topic"])
def test_what_does_not_exist(simple, filled, where):
    missing = filled._replace(partition=7) if where == "partition" else TopicPartition("no-such-topic", 0)
    for ask in (simple.earliest, simple.latest, lambda p: simple.fetch(p, 0), lambda p: simple.offsets_before(p, -1)):
        with pytest.raises(LeaderUnknown, match=r"UNKNOWN_TOPIC_OR_PARTITION.*no leader"):
            ask(missing)


def test_metadata(simple, sandbox, filled):
    metadata = simple.metadata(filled.topic, "no-such-topic")
    assert set(metadata.leaders) == {filled, filled._replace(partition=0)}
    assert list(metadata.failed_topics) == ["no-such-topic"]
    (broker,) = metadata.brokers.values()
    assert f"{broker.host}:{broker.port}" == sandbox.bootstrap_servers


def test_offsets_in_zookeeper_by_way_of_the_broker(simple, zookeeper, unique_name, filled):
    empty = filled._replace(partition=0)
    simple.commit_offsets(unique_name, {filled: 17})
    assert zookeeper.get(f"/consumers/{unique_name}/offsets/{filled.topic}/1")[0] == b"17"
    assert simple.fetch_offsets(unique_name, [filled, empty]) == {filled: 17, empty: None}
    with pytest.raises(OffsetsNotStored, match="no-such-topic-0"):
        simple.commit_offsets(unique_name, {TopicPartition("no-such-topic", 0): 1, empty: 5})
    assert simple.fetch_offsets(unique_name, [empty]) == {empty: 5}


def test_offsets_in_kafka(simple, unique_name, filled):
    empty = filled._replace(partition=0)

    def committed():
        try:
            simple.commit_offsets(unique_name, {filled: 17}, storage="kafka")
        except CoordinatorMoved:  # the first commit of all creates the topic of offsets
            return False
        return True

    eventually(committed)
    assert simple.fetch_offsets(unique_name, [filled, empty], storage="kafka") == {filled: 17, empty: None}
    assert simple.fetch_offsets(unique_name, [filled]) == {filled: None}  # the stores know nothing of each other


def test_after_closing_nothing_is_answered(simple, filled):
    assert simple.latest(filled) == 200
    simple.close()
    simple.close()
    with pytest.raises(BrokerUnavailable, match="closed"):
        simple.latest(filled)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_broker_that_does_not_lead_names_the_leader(private_sandbox):
    box = private_sandbox(brokers=2)
    topic = Topics(box.bootstrap_servers).create("t", 2)
    produce_records(box.bootstrap_servers, topic, [{"value": b"v", "partition": n} for n in range(2)])
    one, two = fetch_fixtures.brokers_of(box.bootstrap_servers)
    with SimpleConsumer(one.host, one.port) as simple:
        leaders = simple.metadata(topic).leaders
        other = next(partition for partition, leader in leaders.items() if leader.port == two.port)
        for ask in (simple.latest, lambda p: simple.fetch(p, 0), lambda p: simple.offsets_before(p, -1)):
            with pytest.raises(NotLeader, match=f"the leader is broker .*:{two.port}") as caught:
                ask(other)
            assert caught.value.leader == leaders[other]
    leader = caught.value.leader
    with SimpleConsumer(leader.host, leader.port) as simple:
        assert [message.value for message in simple.fetch(other, 0)] == [b"v"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_ask_over_its_parents_connection(simple, filled):
    assert in_forked_child(lambda: simple.latest(filled))  # there is none yet
    assert simple.latest(filled) == 200
    assert refused_in_forked_child(lambda: simple.latest(filled), "connection to broker .*")
    assert in_forked_child(simple.close)
    assert simple.earliest(filled) == 0
