"""What tools read of groups in Kafka, from brokers that answer as badly as a test wants."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.stubbroker import EPOCH_VERSIONS, running_stub_broker
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.cluster import brokercatalog
from zkconsumer.cluster.brokercatalog import UNLISTED, BrokerCatalog, PatientCatalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import TRANSIENT, BrokerUnavailable, LeaderUnknown, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.judgedoffsets import topic_identities
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.zookeeper.absentzookeeper import AbsentZooKeeper

TOPIC, OFFSET = "t", 42
PARTITION = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker():
    with running_stub_broker() as running:
        running.log(PARTITION).end = 1
        yield running


@pytest.fixture
def cluster(broker) -> Iterator[Cluster]:
    """A cluster whose topic of offsets is looked up at the brokers."""
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="tools")
    with closing(Cluster(config, (broker.broker,), None)) as questions:
        yield questions


@pytest.mark.parametrize(
    ("code", "may_pass"), [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, False), (ErrorCode.LEADER_NOT_AVAILABLE, True)]
)
def test_the_coordinator_is_asked_although_the_topic_of_offsets_is_not_described(broker, cluster, code, may_pass):
    """That its leaders are unknown passes, unless an ACL is missing: a first commit has just created the topic."""
    broker.topic_errors[OFFSETS_TOPIC] = code
    broker.coordinator, broker.committed[PARTITION] = broker.broker, OFFSET
    assert cluster.committed("g", [PARTITION])[PARTITION].offset == OFFSET
    with pytest.raises(ZkConsumerError, match=code.name) as raised:
        cluster.offsets_topic_leaders()
    assert (isinstance(raised.value, TRANSIENT), "ACL" in str(raised.value)) == (may_pass, not may_pass)


def test_without_the_topic_of_offsets_no_coordinator_is_asked(broker, cluster):
    """The question would create the topic."""
    broker.topic_errors[OFFSETS_TOPIC] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.committed("g", [PARTITION]) == {}
    assert cluster.offsets_topic_leaders() == {}


def test_whether_kafka_stores_offsets_is_unknown_where_zookeeper_has_no_broker():
    """1. The brokers are of Kafka 4, and are not named; 2. a group is deleted whose offsets they keep."""
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="tools")
    with closing(session_in_memory(ZooKeeperInMemory())) as session, closing(Cluster.of(session, config)) as cluster:
        with pytest.raises(BrokerUnavailable):
            cluster.committed_known("g", [PARTITION])
        session.ensure_path("/brokers/ids/1", b"")
        assert cluster.committed_known("g", [PARTITION]) == {}


def test_topics_are_described_on_the_connections_of_other_questions(monkeypatch):
    """So a broker that is silent at one question is not asked first at the next one."""
    with running_stub_broker() as stub:
        stub.log(PARTITION).end = 7
        config = ConsumerConfig(bootstrap_servers=f"127.0.0.1:{stub.port}", group_protocol="kafka", group_id="tools")
        with closing(Cluster(config, (stub.broker,), None)) as cluster:
            monkeypatch.setattr(BrokerCatalog, "read", None)
            assert cluster.open_reader(AbsentZooKeeper("h:1")).partitions([TOPIC]) == {TOPIC: (0,)}


@pytest.mark.parametrize("is_starting", [True, False])
def test_a_broker_that_denies_what_zookeeper_describes_is_asked_again(broker, monkeypatch, is_starting):
    """1. The only broker starts; 2. it does not know topics yet; 3. a migration would write nothing of them."""
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="tools")
    broker.topic_errors[TOPIC] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    learns_of_topics(broker, monkeypatch, is_starting=is_starting)
    session = session_in_memory(ZooKeeperInMemory())
    session.ensure_path(f"/brokers/topics/{TOPIC}", b'{"version":1,"partitions":{"0":[0]}}')
    with closing(session), closing(Cluster(config, (broker.broker,), session)) as cluster:
        assert cluster.partitions(["gone"]) == set()
        assert len(broker.described) == 1, "a topic that neither knows does not exist"
        assert cluster.partitions([TOPIC, "gone"]) == ({PARTITION} if is_starting else set())


def test_a_topic_that_old_brokers_do_not_list_may_be_hidden(broker, monkeypatch):
    """Brokers before 0.11 leave out what a client may not describe; ZooKeeper shows which topics do not exist."""
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.0)
    named = ConsumerConfig(bootstrap_servers=f"127.0.0.1:{broker.port}", group_protocol="kafka", group_id="tools")
    session = session_in_memory(ZooKeeperInMemory())
    session.ensure_path("/brokers/topics/hidden", b'{"version":1,"partitions":{"0":[0]}}')
    with closing(session), closing(Cluster(named, (broker.broker,), session)) as cluster:
        answer = cluster.existing([TOPIC, "hidden", "gone"])
        assert answer.found.partitions == {PARTITION}
        assert answer.found.undescribed == {"hidden": UNLISTED}
        with pytest.raises(ZkConsumerError, match="hidden not listed, and brokers before 0"):
            cluster.partitions(["hidden"])
        with closing(Cluster(named, (broker.broker,), None)) as elsewhere:
            assert elsewhere.existing([TOPIC, "gone"]).found.undescribed == {"gone": UNLISTED}
            with pytest.raises(ZkConsumerError, match="it is unknown which exist: gone"):
                topic_identities(session, elsewhere, [TOPIC, "gone"])


def learns_of_topics(broker, monkeypatch, *, is_starting):
    """While it is asked, the broker learns of the topics that it denies, if it is starting."""
    broker.versions.update(EPOCH_VERSIONS)
    broker.topic_errors[TOPIC] = broker.topic_errors[OFFSETS_TOPIC] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def sleep(_seconds):
        if is_starting:
            broker.topic_errors.clear()

    monkeypatch.setattr(brokercatalog, "DENIED_S", 60.0 if is_starting else 0.0)
    monkeypatch.setattr(
        PatientCatalog.__init__, "__kwdefaults__", {**PatientCatalog.__init__.__kwdefaults__, "wait": sleep}
    )


@pytest.mark.parametrize("is_starting", [True, False])
def test_a_broker_that_is_named_and_denies_topics_is_asked_again(broker, monkeypatch, is_starting):
    """1. The only broker starts; 2. it does not know topics yet; 3. offsets of them count as those of deleted ones."""
    config = ConsumerConfig(bootstrap_servers=f"127.0.0.1:{broker.port}", group_protocol="kafka", group_id="tools")
    broker.coordinator, broker.committed[PARTITION] = broker.broker, OFFSET
    broker.log(TopicPartition(OFFSETS_TOPIC, 0))
    session = AbsentZooKeeper("h:1")
    for question in (
        lambda cluster: cluster.partitions([TOPIC]) == {PARTITION},
        lambda cluster: cluster.committed("g", [PARTITION]) != {},
        lambda cluster: cluster.open_reader(session).partitions([TOPIC]) != {},
    ):
        learns_of_topics(broker, monkeypatch, is_starting=is_starting)
        with closing(Cluster.of(session, config)) as cluster:
            assert question(cluster) is is_starting


def test_the_leaders_of_a_topic_of_offsets_that_brokers_do_not_know_yet_are_unknown(broker):
    """1. A group's first commit creates the topic, which ZooKeeper has; 2. the broker has no metadata of it yet."""
    broker.topic_errors[OFFSETS_TOPIC] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    session = session_in_memory(ZooKeeperInMemory())
    session.ensure_path(f"/brokers/topics/{OFFSETS_TOPIC}", b'{"version":1,"partitions":{"0":[0]}}')
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="tools")
    with closing(session), closing(Cluster(config, (broker.broker,), session)) as cluster:
        with pytest.raises(LeaderUnknown):
            cluster.offsets_topic_leaders()
        broker.topic_errors.clear()
        broker.coordinator = broker.broker
        broker.log(TopicPartition(OFFSETS_TOPIC, 0))
        assert cluster.offsets_topic_leaders() == {TopicPartition(OFFSETS_TOPIC, 0): broker.broker}
