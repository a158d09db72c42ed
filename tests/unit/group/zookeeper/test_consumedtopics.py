"""Which topics a member has fetched, with ZooKeeper in memory."""

import pytest
from kazoo.protocol.serialization import Create, Delete

from tests.fixtures.kazooinmemory import KazooInMemory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.cluster.brokerznodes import BrokerZnodes
from zkconsumer.cluster.rules.clustercatalog import ClusterSnapshot
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, ShareChanged
from zkconsumer.group.zookeeper.consumedtopics import ConsumedTopics
from zkconsumer.group.zookeeper.topicrecords import TopicRecords
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.session import ZkSession

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def create_again():
    """Create topic t; delete it first if it exists."""

    def create():
        if "/brokers/topics/t" in create.server.nodes:
            create.server.perform(create.session, Delete("/brokers/topics/t", -1))
        create.server.perform(create.session, Create("/brokers/topics/t", b'{"partitions":{"0":[1]}}', [], 0))

    create.server = ZooKeeperInMemory()
    create.session = create.server.open_session(1e9, None)
    return create


@pytest.fixture
def topics(create_again):
    """The topics of a member that fetches t."""
    config = ConsumerConfig(zookeeper_connect="memory:1", group_id="g")
    zk = ZkSession.from_config(config, client=lambda **arguments: KazooInMemory(create_again.server, **arguments))
    zk.open()
    zk.ensure_path("/brokers/topics", b"")
    create_again()
    topics = ConsumedTopics(BrokerZnodes(zk, "PLAINTEXT"), TopicRecords(zk, "g", lambda: "/"), None)
    topics.consume({"t"}, ())
    topics.fetched()
    return topics


def test_what_a_commit_notices_after_the_attempt_began_is_looked_for_by_the_next(topics, create_again):
    """1. An attempt gives up t-0 and keeps t-1; 2. its commit finds that t was created again; 3. it succeeds."""
    assert topics.changed([P0], [P0, P1]) == set()
    create_again()
    assert topics.recreated([P0]) == {P0}
    topics.fetched()
    for _ in range(2):  # also if the next one fails
        assert topics.changed([], [P1]) == {"t"}
    topics.consume({"t"}, {"t"})
    topics.fetched()
    assert topics.changed([], [P1]) == set()
    assert not topics.noticed


def test_an_attempt_that_finds_it_out_at_its_end_fails_and_the_next_one_looks(topics, create_again):
    create_again()
    with pytest.raises(ShareChanged):
        topics.consume({"t"}, ())
    assert topics.changed([], [P1]) == {"t"}


class SilentBrokers:
    """A cluster none of whose brokers has answered."""

    def read(self, topics, *, for_others=True):
        return ClusterSnapshot()


def test_nothing_is_begun_before_a_broker_has_described_the_topics():
    """An offset of an earlier topic would be used, and the first records of the present one skipped."""
    topics = ConsumedTopics(None, None, SilentBrokers())
    with pytest.raises(BrokerUnavailable, match="no broker of bootstrap"):
        topics.consume({"t"}, ())
    assert topics.changed([P0], [P0, P1]) == set()
    assert topics.recreated([P0]) == frozenset()
