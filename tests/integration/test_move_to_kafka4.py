"""Brokers move from ZooKeeper to Kafka 4 while groups on ZooKeeper consume from them (docs/migration.md)."""

import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from itertools import count, islice

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.fixtures.consumers import consumers
from tests.fixtures.kraftmigration import MovingCluster
from tests.fixtures.sandbox import Topics
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig
from zkconsumer.cluster.brokercatalog import BrokerCatalog

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1200)]

PARTITIONS = 4
PATIENCE_S = 180.0


class Feed(threading.Thread):
    """Produces numbered values to a topic all the time; brokers store each once.

    ``positions`` has the partition and offset of each value that brokers have acknowledged.
    """

    def __init__(self, bootstrap_servers, topic):
        super().__init__(daemon=True)
        self.positions = {}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
        self._topic = topic
        self._ended = threading.Event()
        self.start()

    def run(self):
        numbers = count()
        while not self._ended.wait(0.05):
            for number in islice(numbers, 10):
                self._producer.produce(self._topic, b"%d" % number, on_delivery=self._delivered)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def _delivered(self, error, message):
        assert error is None, error
        self.positions[message.value()] = (message.partition(), message.offset())

    def stop(self):
        self._ended.set()
        self.join()


class Group:
    """Members of a group, each with a thread that reads its stream; ``received`` has the position of each value."""

    def __init__(self, name, make, topic):
        self.name = name
        self.received = {}
        self._make = make
        self._topic = topic
        self._members = {}

    def join(self, name, **properties):
        member = self._members[name] = self._make(consumer_id=name, **properties)
        (stream,) = member.create_message_streams({self._topic: 1})[self._topic]
        threading.Thread(target=self._read, args=[stream], daemon=True).start()
        return member

    def _read(self, stream):
        for message in stream:
            position = (message.partition, message.offset)
            assert self.received.setdefault(message.value, position) == position

    def restart(self, name, **properties):
        self._members[name].shutdown()
        self.join(name, **properties)

    def keeps_up(self, feed):
        """Wait until it has received all that was acknowledged up to now, of which some is newer than this call."""
        before = len(feed.positions)
        eventually(lambda: len(feed.positions) > before, PATIENCE_S)
        produced = set(feed.positions)
        eventually(lambda: produced <= self.received.keys(), PATIENCE_S)


@pytest.fixture
def moving_cluster(tmp_path):
    """A cluster in ZooKeeper mode, started."""
    cluster = MovingCluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def make_group(moving_cluster):
    """Groups that consume a topic; their members leave at the end."""
    with ExitStack() as stack:

        def make(group, topic):
            where = {"zookeeper.connect": moving_cluster.zookeeper.address}
            patient = {"zookeeper_connection_timeout_ms": 60_000, "rebalance_max_retries": 20}
            members = stack.enter_context(consumers(where, group, auto_commit_interval_ms=500, **patient))
            return Group(group, members, topic)

        yield make


@contextmanager
def feeding(bootstrap_servers, topic):
    feed = Feed(bootstrap_servers, topic)
    try:
        yield feed
    finally:
        feed.stop()


def offset_in_kafka(servers, group, partition, store=None):
    """The offset that a group of Kafka's own has stored, after storing one if it is given."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        if store is not None:
            consumer.commit(offsets=[TopicPartition(*partition, store)], asynchronous=False)
        (stored,) = consumer.committed([TopicPartition(*partition)], timeout=PATIENCE_S)
        return stored.offset
    finally:
        consumer.close()


def topic_id(servers, topic):
    config = ConsumerConfig(group_id="unused", zookeeper_connect="unused:1", bootstrap_servers=servers)
    return BrokerCatalog(config).read([topic]).described[topic].identity.topic_id


def offsets_of(client, group, topic):
    paths = [f"/consumers/{group}/offsets/{topic}/{number}" for number in range(PARTITIONS)]
    return {number: int(client.get(path)[0]) for number, path in enumerate(paths)}


def test_groups_lose_nothing_while_brokers_move(moving_cluster, make_group, unique_name):
    cluster, servers = moving_cluster, moving_cluster.bootstrap_servers
    topic = Topics(servers).create(unique_name, PARTITIONS, 2)
    kept = (topic_id(servers, topic), offset_in_kafka(servers, f"{unique_name}-kafka", (topic, 0), store=7))
    assert kept[1] == 7
    group, late = make_group(f"{unique_name}-group", topic), make_group(f"{unique_name}-late", topic)
    with feeding(servers, topic) as feed, connected(cluster.zookeeper.address) as client:
        for name in "ab":
            group.join(name)
        late.join("c")
        for step in (
            cluster.start_controller,
            cluster.connect_brokers_to_controller,
            lambda: group.restart("a", bootstrap_servers=servers),
            lambda: group.restart("b", bootstrap_servers=servers),
            cluster.take_brokers_out_of_zookeeper,
            cluster.finalize,
            cluster.upgrade,
        ):
            step()
            group.keeps_up(feed)
        # It has found no broker since they left ZooKeeper.
        assert client.get_children("/brokers/ids") == []
        assert not set(feed.positions) <= set(late.received)
        late.restart("c", bootstrap_servers=servers)
        feed.stop()
        ends = Counter(partition for partition, _ in feed.positions.values())
        for one in (group, late):
            eventually(lambda one=one: offsets_of(client, one.name, topic) == ends, PATIENCE_S)
            assert one.received == feed.positions
    assert (topic_id(servers, topic), offset_in_kafka(servers, f"{unique_name}-kafka", (topic, 0))) == kept
