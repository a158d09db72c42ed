"""SimpleConsumer against brokers of every release."""

import pytest

from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import SimpleConsumer, TopicPartition
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, OffsetOutOfRange, ProtocolError, RecordTooLarge

WITHOUT_ZOOKEEPER = (4,)


def connect(broker, **values):
    host, port = broker.sandbox.bootstrap_servers.split(":")
    return SimpleConsumer(
        host, int(port), config=ConsumerConfig(group_id="unused", zookeeper_connect="unused:1", **values)
    )


@pytest.fixture
def offset_node(broker):
    """Read a group's offset znode: ``offset_node(group, partition)``."""
    with connected(broker.sandbox.zookeeper_connect) as client:
        node = "/consumers/{0}/offsets/{1.topic}/{1.partition}"
        yield lambda group, partition: client.get(node.format(group, partition))[0]


def test_records_ends_and_offsets(broker, unique_name, offset_node):
    partition = TopicPartition(broker.create_topic(unique_name[-40:]), 0)
    broker.produce(partition.topic, [b"%d" % number + b"." * 50 for number in range(100)])
    group = unique_name
    with connect(broker) as simple:
        assert (simple.earliest(partition), simple.latest(partition)) == (0, 100)
        fetched = simple.fetch(partition, 40)
        assert [message.offset for message in fetched] == list(range(40, 100))
        assert (fetched.next_offset, fetched.high_watermark) == (100, 100)
        with pytest.raises(OffsetOutOfRange):
            simple.fetch(partition, 101)
        if broker.release < WITHOUT_ZOOKEEPER:
            assert simple.offsets_before(partition, simple.LATEST, 3) == [100, 0]
            simple.commit_offsets(group, {partition: 12})
            assert simple.fetch_offsets(group, [partition]) == {partition: 12}
            assert offset_node(group, partition) == b"12"
        else:
            for ask in (
                lambda: simple.offsets_before(partition, simple.LATEST),
                lambda: simple.commit_offsets(group, {partition: 12}),
                lambda: simple.fetch_offsets(group, [partition]),
            ):
                with pytest.raises(ProtocolError, match="no common version"):
                    ask()


def test_a_fetch_that_is_too_small(broker, unique_name):
    """Since 0.10.1 a broker sends a whole batch anyway."""
    partition = TopicPartition(broker.create_topic(unique_name[-40:]), 0)
    broker.produce(partition.topic, [b"v" * 500])
    with connect(broker) as simple:
        if broker.release >= (0, 10, 1):
            assert len(list(simple.fetch(partition, 0, max_bytes=100))) == 1
        else:
            with pytest.raises(RecordTooLarge, match=f"{partition} at offset 0"):
                simple.fetch(partition, 0, max_bytes=100)


def test_offsets_in_kafka(broker, unique_name):
    partition = TopicPartition(broker.create_topic(unique_name[-40:]), 0)

    def committed():
        try:
            simple.commit_offsets(unique_name, {partition: 7}, storage="kafka")
        except (CoordinatorMoved, BrokerUnavailable):  # the first commit of all creates the topic of offsets
            return False
        return True

    with connect(broker) as simple:
        eventually(committed)
        assert simple.fetch_offsets(unique_name, [partition], storage="kafka") == {partition: 7}


def test_aborted_transactions(broker, unique_name):
    if not broker.has_transactions:
        pytest.skip(f"Kafka {broker.version} has no transactions")
    partition = TopicPartition(broker.create_topic(unique_name[-40:]), 0)
    producer = broker.produce_transactions(partition.topic)
    with connect(broker, isolation_level="read_committed") as simple:
        fetched = simple.fetch(partition, 0)
        assert [message.value for message in fetched] == [b"%d-%d" % (n, r) for n in (0, 2) for r in range(5)]
        assert fetched.next_offset == fetched.high_watermark == simple.latest(partition) == 18
    with connect(broker) as simple:
        assert len(list(simple.fetch(partition, 0))) == 20
        assert simple.latest(partition) == 23
    producer.abort_transaction(30)
