"""The whole consumer on real servers: what is delivered, what is committed, what a rebalance does to both."""

import threading
from collections import Counter

import pytest

from tests.fixtures.fork import in_forked_child, refused_in_forked_child
from tests.fixtures.sandbox import PATIENT, Topics, produce_records, values
from tests.fixtures.threads import threads_refused
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import cut_off, expire
from zkconsumer import (
    Blacklist,
    ConfigError,
    ConsumerClosed,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerTimeout,
    TopicPartition,
    Whitelist,
)
from zkconsumer.errors import ThreadLimit, UsageError

pytestmark = pytest.mark.integration


def spread(count, start=0):
    """The same over four partitions; without explicit partitions a producer may send all to one."""
    return [{"value": value, "partition": int(value) % 4} for value in values(count, start)]


def take(stream, count):
    return [next(stream).value for _ in range(count)]


class Reader(threading.Thread):
    """Reads a stream to its end and counts the values."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream = stream
        self._seen = Counter()
        self.start()

    def run(self):
        for message in self.stream:
            self._seen[message.value] += 1

    @property
    def seen(self):
        """A copy: what the thread inserts meanwhile would end an iteration over the original."""
        return self._seen.copy()


def test_everything_is_delivered_in_order_and_committed(connect, topic_factory, produce, zookeeper):
    topic = topic_factory(partitions=3)
    produce(topic, [(b"key" + value, value) for value in values(300)])
    connector = connect()
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    messages = [next(stream) for _ in range(300)]
    assert sorted(int(message.value) for message in messages) == list(range(300))
    for partition in range(3):
        offsets = [message.offset for message in messages if message.partition == partition]
        assert offsets == list(range(len(offsets)))
    assert all((m.topic, m.key, m.timestamp_type) == (topic, b"key" + m.value, 0) for m in messages)
    connector.commit_offsets()
    committed = [zookeeper.get(f"/consumers/{connect.group}/offsets/{topic}/{p}")[0] for p in range(3)]
    assert sum(map(int, committed)) == 300
    assert {state.lag for state in connector.partition_states()} == {0}


def test_shutdown_commits_released_records_and_the_next_consumer_continues_there(connect, topic_factory, produce):
    topic = topic_factory()
    produce(topic, values(10))
    with connect() as first:
        (stream,) = first.create_message_streams({topic: 1})[topic]
        assert take(stream, 4) == values(4)
    with pytest.raises(StopIteration):
        next(stream)
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    # The fourth was handed out, but no fifth was requested: its processing may not have been finished.
    assert take(stream, 7) == values(7, start=3)


def test_commit_on_delivery_is_the_jvms_way(connect, topic_factory, produce):
    topic = topic_factory()
    produce(topic, values(10))
    with connect(commit_on="delivery") as first:
        take(first.create_message_streams({topic: 1})[topic][0], 4)
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    assert take(stream, 6) == values(6, start=4)


def test_without_auto_commit_nothing_is_committed_but_by_the_user(connect, topic_factory, produce):
    topic = topic_factory()
    produce(topic, values(10))
    with connect(auto_commit_enable=False) as first:
        (stream,) = first.create_message_streams({topic: 1})[topic]
        take(stream, 4)
        first.commit_offsets()
        take(stream, 4)
    (stream,) = connect(auto_commit_enable=False).create_message_streams({topic: 1})[topic]
    assert take(stream, 6) == values(6, start=4)


def test_timer_commits(connect, topic_factory, produce, zookeeper):
    topic = topic_factory()
    produce(topic, values(10))
    (stream,) = connect(auto_commit_interval_ms=50).create_message_streams({topic: 1})[topic]
    take(stream, 8)
    path = f"/consumers/{connect.group}/offsets/{topic}/0"
    eventually(lambda: zookeeper.exists(path) and zookeeper.get(path)[0] == b"7")


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_join_duplicates_and_loses_nothing(connect, topic_factory, produce, auto_commit):
    """With auto commit off the JVM rewinds every partition at each rebalance; those that stay must not.

    See jvm-consumer.md#attempt.
    """
    topic = topic_factory(partitions=4)
    produce(topic, spread(400))
    first = connect(auto_commit_enable=auto_commit)
    reader = Reader(first.create_message_streams({topic: 1})[topic][0])
    eventually(lambda: reader.seen.total() == 400)
    first.commit_offsets()
    second = connect(auto_commit_enable=auto_commit)
    other = Reader(second.create_message_streams({topic: 1})[topic][0])
    eventually(lambda: len(first.partition_states()) == len(second.partition_states()) == 2)
    produce(topic, spread(400, start=400))
    eventually(lambda: len(reader.seen | other.seen) == 800)
    assert (reader.seen + other.seen).total() == 800
    assert other.seen.total() > 0


def test_a_zookeeper_that_freezes_for_less_than_the_session_changes_nothing(private_sandbox, unique_name):
    sandbox = private_sandbox(**PATIENT)
    topic = Topics(sandbox.bootstrap_servers).create(unique_name, 4)
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect,
        group_id=unique_name,
        auto_offset_reset="smallest",
        zookeeper_session_timeout_ms=60_000,
        auto_commit_interval_ms=100,
        rebalance_backoff_ms=200,
    )
    with ConsumerConnector(config) as first, ConsumerConnector(config) as second:
        both = (first, second)
        readers = [Reader(connector.create_message_streams({topic: 1})[topic][0]) for connector in both]
        eventually(lambda: [len(connector.partition_states()) for connector in both] == [2, 2])

        def deliver(start):
            produce_records(sandbox.bootstrap_servers, topic, spread(200, start=start))
            eventually(lambda: len(readers[0].seen | readers[1].seen) == start + 200)

        deliver(0)
        before = [(one.describe().generation, dict(one.describe().owned)) for one in both]
        sandbox.zookeeper.pause()
        deliver(200)
        cut_off(*both)
        sandbox.zookeeper.resume()
        eventually(lambda: all(one.describe().connected for one in both))
        deliver(400)
        for connector in both:
            connector.commit_offsets()  # served after the read of the group that the reconnect requests
        assert [(one.describe().generation, dict(one.describe().owned)) for one in both] == before
        assert (readers[0].seen + readers[1].seen).total() == 600


def test_a_record_in_the_users_hand_is_not_given_twice_nor_committed_early(connect, topic_factory, produce, zookeeper):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": value, "partition": 0} for value in values(10)])
    first = connect()
    (stream,) = first.create_message_streams({topic: 1})[topic]
    assert take(stream, 5) == values(5)
    second = connect()
    second.create_message_streams({topic: 1})
    eventually(lambda: [state.partition for state in first.partition_states()] == [0])
    assert zookeeper.get(f"/consumers/{connect.group}/offsets/{topic}/0")[0] == b"4"
    second.shutdown()
    eventually(lambda: len(first.partition_states()) == 2)
    assert zookeeper.get(f"/consumers/{connect.group}/offsets/{topic}/0")[0] == b"4"
    assert take(stream, 5) == values(5, start=5)


def test_an_expired_session_redelivers_nothing(connect, topic_factory, produce):
    topic = topic_factory()
    produce(topic, values(100))
    connector = connect(auto_commit_interval_ms=3_600_000)
    reader = Reader(connector.create_message_streams({topic: 1})[topic][0])
    eventually(lambda: reader.seen.total() == 100)
    generation = connector.describe().generation
    expire(connector)
    eventually(lambda: connector.describe().generation > generation)
    produce(topic, values(100, start=100))
    eventually(lambda: len(reader.seen) == 200)
    assert reader.seen.total() == 200


def test_lost_owner_nodes_are_claimed_again(connect, topic_factory, zookeeper):
    """JVM members delete owner znodes without checking the owner (jvm-consumer.md#conflicts)."""
    topic = topic_factory()
    connector = connect(auto_commit_interval_ms=50)
    connector.create_message_streams({topic: 1})
    path = f"/consumers/{connect.group}/owners/{topic}/0"
    zookeeper.delete(path)
    eventually(lambda: zookeeper.exists(path))


def test_several_streams_share_a_topic(connect, topic_factory, produce):
    topic = topic_factory(partitions=4)
    produce(topic, spread(200))
    readers = [Reader(stream) for stream in connect().create_message_streams({topic: 2})[topic]]
    eventually(lambda: sum(reader.seen.total() for reader in readers) == 200)
    assert all(reader.seen for reader in readers)


def test_filters(connect, topics, topic_factory, produce):
    topic = topic_factory()
    produce(topic, values(5))
    (stream,) = connect().create_message_streams_by_filter(Whitelist(f"{topic}.*"), 1)
    assert take(stream, 5) == values(5)
    topics.create(f"{topic}-later", 1)
    produce(f"{topic}-later", values(5, start=5))
    assert take(stream, 5) == values(5, start=5)
    assert Blacklist(f"{topic}.*").allows("other")


def test_batches_are_arrow(connect, topic_factory, produce):
    from zkconsumer.decode.schema import SCHEMA, SCHEMA_WITH_HEADERS

    topic = topic_factory()
    produce(topic, [{"value": b"v", "key": b"k", "headers": [("h", b"1")]} for _ in range(10)])
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    batches = stream.batches(max_rows=4)
    first = next(batches)
    assert first.schema == SCHEMA
    assert first.num_rows <= 4
    rows = first.num_rows
    for batch in stream.batches(headers=True):
        assert batch.schema == SCHEMA_WITH_HEADERS
        rows += batch.num_rows
        if rows == 10:
            break


def test_timeout_leaves_the_stream_usable(connect, topic_factory, produce):
    topic = topic_factory()
    (stream,) = connect(consumer_timeout_ms=200).create_message_streams({topic: 1})[topic]
    for _ in range(2):
        with pytest.raises(ConsumerTimeout):
            next(stream)
    produce(topic, values(1))
    received = []

    def receive():
        try:
            received.append(next(stream).value)
        except ConsumerTimeout:
            return False
        return True

    eventually(receive)
    assert received == values(1)


def test_a_topic_may_be_created_later(connect, topics, produce, unique_name):
    topic = f"{unique_name}-late"
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    topics.create(topic, 2)
    produce(topic, values(3))
    assert sorted(take(stream, 3)) == values(3)


def test_assign_reads_without_a_group(connect, topic_factory, produce, zookeeper):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": value, "partition": 1} for value in values(10)])
    connector = connect()
    stream = connector.assign({TopicPartition(topic, 1): 6})
    assert take(stream, 4) == values(4, start=6)
    assert connector.describe().owned.keys() == {TopicPartition(topic, 1)}
    assert zookeeper.exists(f"/consumers/{connect.group}/ids") is None
    connector.commit_offsets()
    assert zookeeper.get(f"/consumers/{connect.group}/offsets/{topic}/1")[0] == b"10"


def test_misuse_is_reported(connect, topic_factory, produce):
    topic = topic_factory()
    connector = connect()
    with pytest.raises(ConfigError):
        connector.create_message_streams({topic: 0})
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    with pytest.raises(UsageError, match="once"):
        connector.create_message_streams({topic: 1})
    produce(topic, values(3))
    assert take(stream, 3) == values(3)  # the refused call has not affected the first one's streams
    connector.shutdown()
    connector.shutdown()
    with pytest.raises(ConsumerClosed):
        connector.commit_offsets()


def in_zookeeper(zookeeper, group, topic):
    path = f"/consumers/{group}/offsets/{topic}/0"
    return int(zookeeper.get(path)[0]) if zookeeper.exists(path) else None


def in_kafka(sandbox, group, topic):
    """What an independent client reads."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Wanted

    consumer = Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": group})
    (answer,) = consumer.committed([Wanted(topic, 0)], timeout=20)
    consumer.close()
    return None if answer.offset < 0 else answer.offset


@pytest.mark.parametrize("dual", [True, False])
def test_offsets_in_kafka(connect, sandbox, topic_factory, produce, zookeeper, dual):
    topic = topic_factory()
    produce(topic, values(10))
    storage = {"offsets_storage": "kafka", "dual_commit_enabled": dual}
    with connect(**storage) as first:
        (stream,) = first.create_message_streams({topic: 1})[topic]
        take(stream, 4)
        first.commit_offsets()
    assert in_kafka(sandbox, connect.group, topic) == 4
    assert in_zookeeper(zookeeper, connect.group, topic) == (4 if dual else None)
    (stream,) = connect(**storage).create_message_streams({topic: 1})[topic]
    assert take(stream, 6) == values(6, start=4)


@pytest.mark.parametrize(("rule", "expected"), [("max", 8), ("zookeeper", 2), ("kafka", 8)])
def test_dual_read_rules(connect, topic_factory, produce, zookeeper, rule, expected):
    topic = topic_factory()
    produce(topic, values(10))
    with connect(offsets_storage="kafka", commit_on="delivery") as first:
        take(first.create_message_streams({topic: 1})[topic][0], 8)
    zookeeper.set(f"/consumers/{connect.group}/offsets/{topic}/0", b"2")
    (stream,) = connect(offsets_storage="kafka", dual_read=rule).create_message_streams({topic: 1})[topic]
    assert take(stream, 1) == values(1, start=expected)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_shut_down_its_parents_consumer(connect, topic_factory, produce, zookeeper):
    topic = topic_factory()
    produce(topic, values(10))
    connector = connect()
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    assert take(stream, 5) == values(5)
    assert in_forked_child(connector.shutdown)
    for call in (connector.commit_offsets, connector.end_streams, connector.partition_states, connector.metrics):
        assert refused_in_forked_child(call, f"consumer {connector.consumer_id}")
    assert refused_in_forked_child(lambda: next(stream), "stream .*")
    assert take(stream, 5) == values(5, start=5)
    produce(topic, values(5, start=10))
    assert take(stream, 5) == values(5, start=10)
    connector.commit_offsets()
    assert zookeeper.get(f"/consumers/{connect.group}/offsets/{topic}/0")[0] == b"15"


def test_chunks_that_are_decoded_ahead_come_in_order(connect, topic_factory, produce):
    topic = topic_factory(partitions=4)
    produce(topic, spread(8000), batch_size=4000)
    connector = connect(decode_threads=2, fetch_message_max_bytes=8000, queued_max_message_chunks=10)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(f"{connector.consumer_id}-decode-")]
    assert len(threads) == 2
    numbers = [int(value) for value in take(stream, 8000)]
    for partition in range(4):
        assert [number for number in numbers if number % 4 == partition] == list(range(partition, 8000, 4))
    connector.shutdown()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.slow
def test_whichever_thread_cannot_start_nothing_is_left_behind(connect, topic_factory, produce):
    """One thread after the other is refused once, of those that a consumer starts until it has read a record."""
    topic = topic_factory()
    produce(topic, values(1))
    for number in range(1, 30):
        left = [number]

        def is_next(name, left=left):
            left[0] -= 1
            return left[0] == 0

        before = set(threading.enumerate())
        with threads_refused(is_next) as seen:
            try:
                consumer = connect(group_protocol="coordinator", decode_threads=1, auto_offset_reset="smallest")
            except ThreadLimit:
                consumer = None
            else:
                try:
                    stream = consumer.create_message_streams({topic: 1})[topic][0]
                except ThreadLimit:
                    stream = consumer.create_message_streams({topic: 1})[topic][0]
                assert next(stream).value == values(1)[0]
                consumer.shutdown()
        eventually(lambda before=before: not [one for one in set(threading.enumerate()) - before if one.is_alive()])
        if not seen.refused:
            return
        assert len(seen.refused) == 1, "the others were tried again"
    pytest.fail(f"more threads than expected: {seen.started}")
