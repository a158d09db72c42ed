"""The executor's part in this process: the work of a task on a real broker, without Spark."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient

from tests.fixtures.sandbox import delete_records_before
from tests.fixtures.sparkworker import close_connections
from tests.fixtures.threads import threads_refused
from zkconsumer.decode.buffers import COLUMNS
from zkconsumer.errors import OffsetOutOfRange
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.ranges.rules.spans import OffsetRange
from zkconsumer.spark.rules.microbatch import RangePartition
from zkconsumer.spark.rules.options import parse_options
from zkconsumer.spark.taskreading import read_ranges
from zkconsumer.spark.worker import connections
from zkconsumer.wire.brokerclient import BrokerClient


@pytest.fixture(autouse=True)
def _no_connection_outlives_a_test():
    yield
    close_connections()


def options_for(box, **more):
    return parse_options(
        {"zookeeper.connect": box.zookeeper_connect, "group.id": "unused", "subscribe": "unused", **more}
    )


def task_for(box, *ranges):
    host, _, port = box.bootstrap_servers.partition(":")
    return RangePartition(tuple(OffsetRange(*each) for each in ranges), (Broker(0, host, int(port)),))


def read(box, *ranges, **options):
    """(partition, offset) of every record, in the order of arrival."""
    batches = read_ranges(options_for(box, **options), task_for(box, *ranges), COLUMNS)
    return [row for b in batches for row in zip(b["partition"].to_pylist(), b["offset"].to_pylist(), strict=True)]


def log_end(box, topic):
    host, _, port = box.bootstrap_servers.partition(":")
    client = BrokerClient(lambda: [Broker(0, host, int(port))], client_id="test", timeout_ms=10_000)
    try:
        return client.list_offsets({TopicPartition(topic, 0): -1}).found[TopicPartition(topic, 0)]
    finally:
        client.close()


def no_fetcher_is_left() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name.startswith("range-fetcher")]


def test_a_range_may_begin_and_end_inside_a_record_batch(sandbox, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": n % 2} for n in range(200)], linger_ms=100)
    rows = read(sandbox, (topic, 0, 10, 55), (topic, 1, 99, 100))
    assert sorted(rows) == [*((0, offset) for offset in range(10, 55)), (1, 99)]
    assert no_fetcher_is_left()


@pytest.mark.parametrize("columns", [("value",), ("value", "partition"), ("headers", "offset", "value")])
def test_a_range_ends_where_it_should_whatever_the_columns(sandbox, topic_factory, produce, columns):
    topic = topic_factory()
    produce(topic, [b"%d" % n for n in range(100)], linger_ms=100)
    batches = list(read_ranges(options_for(sandbox), task_for(sandbox, (topic, 0, 10, 55)), columns))
    assert {tuple(batch.schema.names) for batch in batches} == {columns}
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"%d" % n for n in range(10, 55)]


@pytest.fixture
def transactions(sandbox, topic_factory, unique_name):
    """A topic with ten committed and ten aborted records."""
    from confluent_kafka import Producer

    topic = topic_factory()
    producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers, "transactional.id": unique_name})
    producer.init_transactions(120)  # the first one creates the topic of their states
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"v")
        producer.flush(120)  # aborting would discard records that were not sent yet
        end(120)
    return topic


@pytest.mark.parametrize(("isolation", "records"), [("read_uncommitted", 20), ("read_committed", 10)])
def test_a_range_that_ends_in_control_records_ends(sandbox, transactions, isolation, records):
    until = log_end(sandbox, transactions)
    assert until > 20, "control records take offsets"
    rows = read(sandbox, (transactions, 0, 0, until), **{"isolation.level": isolation})
    assert len(rows) == records, "by default aborted records are read, as by the JVM consumer"
    assert rows == sorted(rows)


def test_what_an_open_transaction_holds_back_is_not_skipped(sandbox, topic_factory, produce, unique_name):
    from confluent_kafka import Producer

    topic = topic_factory()
    producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers, "transactional.id": unique_name})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(120)
    produce(topic, [b"after"])
    impatient = {"socket.timeout.ms": "1000", "isolation.level": "read_committed", "failOnDataLoss": "false"}
    with pytest.raises(OffsetOutOfRange, match="a transaction that is open"):
        read(sandbox, (topic, 0, 0, 2), **impatient)
    producer.commit_transaction(120)
    assert read(sandbox, (topic, 0, 0, 2), **impatient) == [(0, 0), (0, 1)]


def test_concurrent_and_repeated_tasks_read_exactly_their_range(sandbox, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [b"v"] * 1000)
    expected = [(0, offset) for offset in range(100, 900)]
    with ThreadPoolExecutor(2) as others:  # as Spark's speculation does, in another worker
        at_once = [others.submit(read_apart, sandbox, (topic, 0, 100, 900)) for _ in range(2)]
        assert [each.result(120) for each in at_once] == [expected, expected]
    for _ in range(2):  # as Spark does after a failure
        assert read(sandbox, (topic, 0, 100, 900)) == expected


def read_apart(box, *ranges):
    """Read with separate connections, as another worker process."""
    return read(box, *ranges, **{"client.id": f"worker-{threading.get_ident()}"})


def test_a_connection_serves_task_after_task_and_only_with_the_same_options(sandbox, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [b"v"] * 10)

    def pooled_connections(**more):
        read(sandbox, (topic, 0, 0, 10), **more)
        options = options_for(sandbox, **more)
        with connections.borrowed(options.config) as lent:
            (kept,) = lent._idle_connections.values()
            return kept

    (first,) = pooled_connections()
    (second,) = pooled_connections()
    assert second.connection is first.connection
    (other,) = pooled_connections(**{"client.id": "another"})
    assert other.connection is not first.connection


def test_a_task_that_spark_stops_reading_leaves_no_thread(sandbox, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [b"x" * 1000] * 5000)
    options = options_for(sandbox, **{"fetch.message.max.bytes": "100000", "queued.max.bytes": "1"})
    batches = read_ranges(options, task_for(sandbox, (topic, 0, 0, 5000)), COLUMNS)
    assert next(batches).num_rows > 0
    batches.close()
    assert no_fetcher_is_left()
    assert len(read(sandbox, (topic, 0, 0, 5000))) == 5000


def test_deleted_offsets_fail_the_task_or_are_skipped(sandbox, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [b"v"] * 100)
    delete_records_before(AdminClient({"bootstrap.servers": sandbox.bootstrap_servers}), topic, 0, 40)
    with pytest.raises(OffsetOutOfRange, match="has lost offsets 10 to 40: its log begins at 40"):
        read(sandbox, (topic, 0, 10, 100))
    rows = read(sandbox, (topic, 0, 10, 100), failOnDataLoss="false")
    assert rows == [(0, offset) for offset in range(40, 100)]
    assert read(sandbox, (topic, 0, 10, 30), failOnDataLoss="false") == []
    assert no_fetcher_is_left()


def test_a_connection_that_died_between_two_tasks_is_replaced(private_sandbox):
    from tests.fixtures.sandbox import Topics, produce_records

    box = private_sandbox()
    Topics(box.bootstrap_servers).create("t", 1)
    produce_records(box.bootstrap_servers, "t", [b"v"] * 10)
    assert len(read(box, ("t", 0, 0, 10))) == 10
    box.brokers[0].kill()
    box.brokers[0].start()
    assert len(read(box, ("t", 0, 0, 10))) == 10


def test_a_fetcher_that_cannot_start_is_tried_again(sandbox, topic_factory, produce):
    topic = topic_factory(partitions=1)
    produce(topic, [{"value": b"v", "partition": 0} for _ in range(10)])
    left = [2]

    def refuse(name):
        left[0] -= name.startswith("range-fetcher")
        return name.startswith("range-fetcher") and left[0] >= 0

    with threads_refused(refuse) as seen:
        assert len(read(sandbox, (topic, 0, 0, 10))) == 10
    assert len(seen.refused) == 2
    assert no_fetcher_is_left()
