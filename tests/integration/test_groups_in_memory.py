"""Groups in memory answer as real brokers do: the same questions to both."""

import pytest

from tests.fixtures.groupsinmemory import BrokersInMemory
from tests.fixtures.waiting import eventually
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.errorcodes import error_name

pytestmark = pytest.mark.integration


class Model:
    """The model, with one topic."""

    def __init__(self, topic, group) -> None:
        self.brokers = BrokersInMemory({TopicPartition(topic, number): LogRange(0, 10) for number in range(2)})
        self.group = group

    def join(self) -> None:
        self.brokers.live.add(self.group)

    def leave(self) -> None:
        self.brokers.live.clear()


class Real:
    """Real brokers, with a consumer of librdkafka."""

    def __init__(self, topic, group, cluster, bootstrap_servers) -> None:
        self.brokers = cluster
        self.group = group
        self._topic = topic
        self._settings = {"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False}
        self._consumer = None

    def join(self) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(self._settings)
        self._consumer.subscribe([self._topic])

        def has_joined():
            self._consumer.poll(0.2)
            return self.brokers.describe(self.group).state == "Stable"

        eventually(has_joined, 120)

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


@pytest.fixture
def filled(topic_factory, produce):
    """A topic of two partitions with ten records each."""
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": number % 2} for number in range(20)])
    return topic


@pytest.fixture(params=["model", "real"])
def asked(request, filled, unique_name):
    """A group and the brokers that have it, of either kind."""
    if request.param == "model":
        yield Model(filled, unique_name)
        return
    cluster, sandbox = map(request.getfixturevalue, ("cluster", "sandbox"))
    real = Real(filled, unique_name, cluster, sandbox.bootstrap_servers)
    yield real
    real.leave()


@pytest.fixture
def both(filled):
    return [TopicPartition(filled, number) for number in range(2)]


def test_committed_offsets_are_read_with_their_marks(asked, both):
    brokers, group = asked.brokers, asked.group
    assert brokers.committed_all(group) == brokers.committed(group, both) == {}
    assert brokers.commit(group, {both[0]: StoredOffset(4, "mark"), both[1]: StoredOffset(7)}) == {}
    stored = {both[0]: StoredOffset(4, "mark"), both[1]: StoredOffset(7, "")}
    assert brokers.committed_all(group) == brokers.committed(group, both) == stored
    assert brokers.committed_known(group, []) == brokers.committed_known(group, both[1:]) == stored
    assert brokers.committed(group, both[1:]) == {both[1]: StoredOffset(7, "")}
    assert brokers.committed(group, []) == {}


def test_a_group_of_simple_commits_is_empty(asked, both):
    assert asked.brokers.describe(asked.group).state == "Dead"
    asked.brokers.commit(asked.group, {both[0]: StoredOffset(4)})
    found = asked.brokers.describe(asked.group)
    assert (found.state, found.protocol_type, found.has_members) == ("Empty", "", False)


def test_a_group_with_members_refuses_other_clients(asked, both):
    brokers, group = asked.brokers, asked.group
    stored = {both[0]: StoredOffset(4, "")}
    brokers.commit(group, stored)
    asked.join()
    assert tuple(brokers.describe(group)) == ("Stable", "consumer", 1)
    assert brokers.commit(group, {both[0]: StoredOffset(5)}) == {both[0]: error_name(25)}
    assert brokers.delete(group, both[:1]) == {both[0]: error_name(86)}
    assert brokers.committed_all(group) == stored
    asked.leave()
    eventually(lambda: brokers.commit(group, {both[0]: StoredOffset(5)}) == {})


def test_deleted_offsets_are_gone(asked, both):
    brokers, group = asked.brokers, asked.group
    brokers.commit(group, dict.fromkeys(both, StoredOffset(4)))
    assert brokers.can_delete(group)
    assert brokers.delete(group, both[:1]) == brokers.delete(group, both[:1]) == {}
    assert brokers.committed_all(group) == {both[1]: StoredOffset(4, "")}


def test_topics_are_described(asked, both, filled):
    brokers = asked.brokers
    assert brokers.partitions([filled, f"{filled}-none"]) == set(both)
    assert brokers.partitions([]) == set()
    assert brokers.log_ranges(both) == dict.fromkeys(both, LogRange(0, 10))
    assert brokers.unwritable(asked.group, [filled]) == []
    assert brokers.releases() == {0: (3, 9)}
    assert isinstance(brokers.cluster_id(), str)
