"""The whole consumer with brokers of every release, compared with an independent client."""

import contextlib

import pytest

from tests.fixtures.brokers import VersionedBroker
from tests.fixtures.consumers import consumers
from tests.fixtures.decoding import messages_of
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerTimeout, TopicPartition

_FORMAT_2_SINCE = (0, 11)


@pytest.fixture
def consumer(broker: VersionedBroker, unique_name):
    """Create members of one group; all are shut down at the end."""
    connection = broker.sandbox.connection
    patience = {"zookeeper_session_timeout_ms": 30_000, "zookeeper_connection_timeout_ms": 60_000}
    with consumers(connection, unique_name, **patience, consumer_timeout_ms=60_000) as make:
        yield make


def records_for(broker, count=300, *, with_headers=True):
    can = with_headers and broker.release >= _FORMAT_2_SINCE
    headers = {"headers": [("h", b"1"), ("n", None)]} if can else {}
    stamp = {"timestamp": 1_600_000_000_000} if broker.release >= (0, 10) else {}
    for number in range(count):
        key = None if number % 3 else b"key %d" % number
        value = None if number % 11 == 0 and key is not None else b"value %d " % number * (number % 7 + 1)
        yield {"key": key, "value": value, **headers, **stamp}


def as_peer_reads(message):
    kind, stamp = message.timestamp()
    timestamp = (None, None) if kind == 0 else (stamp, kind - 1)
    headers = tuple(message.headers() or ())
    return (message.partition(), message.offset(), *timestamp, message.key(), message.value(), headers)


def as_we_read(message):
    return tuple(message)[1:]


def older_formats(broker):
    """Older message formats that a broker can store, by the first release of each, for a topic's setting."""
    if broker.release >= (3, 0) or broker.release < (0, 10):
        return []
    return ["0.9.0", "0.10.0"] if broker.release >= _FORMAT_2_SINCE else ["0.9.0"]


def topics_for(broker, name, most_in_a_batch):
    """A topic for each codec and format that the broker can store."""
    kinds = [(codec, {}) for codec in broker.codecs]
    kinds += [
        (codec, {"message.format.version": since})
        for since in older_formats(broker)
        for codec in broker.codecs
        if codec != "zstd"
    ]
    topics = []
    for number, (codec, config) in enumerate(kinds):
        topic = broker.create_topic(f"{name[-20:]}-{most_in_a_batch}-{number}-{codec}", config=config)
        records = records_for(broker, with_headers=not config)  # a broker cannot convert headers
        broker.produce(topic, records, compression_type=codec, batch_num_messages=most_in_a_batch)
        topics.append(topic)
    return topics


def rows_of(stream, count):
    """The next ``count`` records, by batches."""
    rows = []
    for batch in stream.batches(headers=True):
        batch.validate(full=True)
        rows += [as_we_read(message) for message in messages_of(batch)]
        if len(rows) >= count:
            return rows
    return rows


@pytest.mark.parametrize("most_in_a_batch", [1, 5, 10_000])
def test_every_record_equals_what_an_independent_client_reads(broker, consumer, unique_name, most_in_a_batch):
    topics = topics_for(broker, unique_name, most_in_a_batch)
    by_record = consumer().create_message_streams(dict.fromkeys(topics, 1))
    by_batch = consumer(group_id=f"{unique_name}-batches").create_message_streams(dict.fromkeys(topics, 1))
    for topic in topics:
        expected = [as_peer_reads(message) for message in broker.consume(topic, 300)]
        assert [as_we_read(next(by_record[topic][0])) for _ in range(300)] == expected
        assert rows_of(by_batch[topic][0], 300) == expected


def test_offsets_committed_to_kafka_are_found_by_the_next_member(broker, consumer, unique_name):
    topic = broker.create_topic(unique_name)
    broker.produce(topic, [b"%d" % number for number in range(20)])
    first = consumer(offsets_storage="kafka", dual_commit_enabled=False)
    (stream,) = first.create_message_streams({topic: 1})[topic]
    assert [next(stream).value for _ in range(10)] == [b"%d" % number for number in range(10)]
    first.commit_offsets({TopicPartition(topic, 0): 10})
    first.shutdown()
    second = consumer(offsets_storage="kafka", dual_commit_enabled=False)
    (stream,) = second.create_message_streams({topic: 1})[topic]
    assert [next(stream).value for _ in range(10)] == [b"%d" % number for number in range(10, 20)]


def test_only_committed_records_arrive_under_read_committed(broker, consumer, unique_name):
    if not broker.has_transactions:
        pytest.skip("this release has no transactions")
    topic = broker.create_topic(unique_name)
    producer = broker.produce_transactions(topic)
    member = consumer(isolation_level="read_committed", consumer_timeout_ms=2000)
    (stream,) = member.create_message_streams({topic: 1})[topic]
    received = []

    def read_on():
        with contextlib.suppress(ConsumerTimeout):
            received.extend(message.value for message in stream)
        return received

    # A pause proves nothing, as a broker may be slow: all committed records were read once none is left before the open
    # one.
    eventually(lambda: read_on() and [state.lag for state in member.partition_states()] == [0])
    committed = [b"%d-%d" % (number, record) for number in (0, 2) for record in range(5)]
    assert received == [message.value() for message in broker.consume(topic, 10)] == committed
    producer.commit_transaction(30)
    eventually(lambda: len(read_on()) >= 15)
    assert received[10:] == [b"3-%d" % record for record in range(5)]


def test_a_record_that_is_longer_than_a_fetch_is_read(broker, consumer, unique_name):
    topic = broker.create_topic(unique_name)
    values = [b"small", b"large" * 20_000, b"small again"]
    broker.produce(topic, values)
    (stream,) = consumer(fetch_message_max_bytes=1000).create_message_streams({topic: 1})[topic]
    assert [next(stream).value for _ in values] == values
