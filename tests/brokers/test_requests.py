"""Every request of the consumer, to brokers of every release, in the versions that these support."""

from contextlib import closing
from itertools import pairwise

import pytest

from tests.fixtures.brokers import VersionedBroker
from tests.fixtures.fetch import brokers_of
from tests.fixtures.waiting import eventually
from zkconsumer.cluster.brokercatalog import BrokerCatalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import CoordinatorMoved, ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets
from zkconsumer.wire.brokerclient import EARLIEST, LATEST, BrokerClient, list_offsets
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.epochendmessages import EpochEnd, EpochQuestion, epoch_ends
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.fetchmessages import fetch_version, receive_fetch, send_fetch
from zkconsumer.wire.fetchsession import PartitionFetch, without_session


@pytest.fixture
def client(broker: VersionedBroker):
    made = []

    def make(**settings):
        servers = broker.sandbox.bootstrap_servers
        made.append(BrokerClient(lambda: brokers_of(servers), client_id="test", timeout_ms=60_000, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def connection(broker: VersionedBroker):
    host, port = broker.sandbox.bootstrap_servers.split(":")
    made = BrokerConnection(host, int(port), client_id="test", timeout_ms=60_000)
    made.connect()
    yield made
    made.close()


def fetch(connection, topic, *, offset=0, max_bytes=1 << 20, leader_epoch=-1, **settings):
    limits = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 22, **settings}
    wanted = PartitionFetch(topic, 0, offset, max_bytes, leader_epoch)
    correlation_id = send_fetch(connection, without_session([wanted]), **limits)
    isolation = settings.get("isolation", "read_uncommitted")
    (answer,) = receive_fetch(connection, correlation_id, isolation=isolation)
    return answer


def when_coordinated(question):
    """The answer to a question about a group, as soon as the group has a coordinator that has loaded its offsets.

    The first request of all makes the broker create the topic of offsets, and each group is in one of its partitions.
    """
    answers = []

    def answered():
        try:
            answers.append(question())
        except CoordinatorMoved:
            return False
        return True

    eventually(answered)
    return answers[0]


def test_the_question_for_the_topic_of_offsets_does_not_create_it(broker, unique_name):
    """The first test of a broker, which has no such topic yet: those before 2.8 create it when it is named."""
    broker.create_topic(unique_name)  # a broker 0.8.2 without topics lists no brokers
    servers = broker.sandbox.bootstrap_servers
    config = ConsumerConfig(group_id="unused", zookeeper_connect="unused:1", bootstrap_servers=servers)
    existed = OFFSETS_TOPIC in BrokerCatalog(config).read(None).described
    with closing(BrokerOffsets(config, lambda: brokers_of(servers))) as offsets:
        assert offsets.has_offsets_topic() == existed
    assert (OFFSETS_TOPIC in BrokerCatalog(config).read(None).described) == existed


def test_the_newest_common_version_of_fetch(broker, connection):
    newest = {"0.8.2.2": 0, "0.9.0.1": 1, "0.10.2.2": 3, "1.1.1": 7, "2.4.1": 11, "3.9.1": 12, "4.2.0": 12}
    assert fetch_version(connection) == newest[broker.version]


def test_leaders(broker, client, unique_name):
    topic = broker.create_topic(unique_name, partitions=3)
    metadata = client().metadata([topic, "no-such-topic"])
    assert metadata.leaders.keys() == {TopicPartition(topic, number) for number in range(3)}
    assert {(leader.host, leader.port) for leader in metadata.leaders.values()} == {
        (one.host, one.port) for one in brokers_of(broker.sandbox.bootstrap_servers)
    }
    assert metadata.failed_topics == {"no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_the_brokers_themselves_describe_the_cluster(broker, unique_name):
    topic = broker.create_topic(unique_name, partitions=3)
    config = ConsumerConfig(
        group_id="unused", zookeeper_connect="unused:1", bootstrap_servers=broker.sandbox.bootstrap_servers
    )
    named, every = (BrokerCatalog(config).read(topics) for topics in ([topic, "no-such-topic"], None))
    assert named.describe_topics(["no-such-topic"]) == {}
    (described,) = named.describe_topics([topic]).values()
    assert described.partitions == (0, 1, 2)
    assert (described.identity.topic_id is not None) is (broker.release >= (2, 8))
    assert every.describe_topics([topic]) == {topic: described}
    assert [(b.host, b.port) for b in named.live_brokers()] == [
        (b.host, b.port) for b in brokers_of(broker.sandbox.bootstrap_servers)
    ]


def test_beginning_and_end_of_a_log(broker, client, unique_name):
    topic = broker.create_topic(unique_name)
    broker.produce(topic, [b"x"] * 7)
    partition, missing = TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)
    latest = client().list_offsets({partition: LATEST, missing: LATEST})
    assert (latest.found, latest.errors.keys()) == ({partition: 7}, {missing})
    assert client().list_offsets({partition: EARLIEST}).found == {partition: 0}


def test_leader_epochs(broker, client, connection, unique_name):
    topic = broker.create_topic(unique_name)
    broker.produce(topic, [b"x"] * 7)
    partition = TopicPartition(topic, 0)
    epochs = client().metadata([topic]).epochs
    if broker.release < (2, 1):
        assert epochs == {}
        assert epoch_ends(connection, {partition: EpochQuestion(-1, 0)}).unknown.keys() == {partition}
        return
    (epoch,) = epochs.values()
    assert epochs == {partition: epoch} == client().list_offsets({partition: LATEST}).epochs
    assert epoch_ends(connection, {partition: EpochQuestion(epoch, epoch)}).found == {partition: EpochEnd(epoch, 7)}
    too_new, refused = {partition: epoch + 1}, {partition: ErrorCode.UNKNOWN_LEADER_EPOCH}
    assert epoch_ends(connection, {partition: EpochQuestion(epoch + 1, epoch)}).errors == refused
    assert list_offsets(connection, {partition: LATEST}, epochs=too_new).errors == refused
    assert fetch(connection, topic, leader_epoch=epoch).error == ErrorCode.NONE
    assert fetch(connection, topic, leader_epoch=epoch + 1).error == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_records_and_errors_of_a_fetch(broker, connection, unique_name):
    topic = broker.create_topic(unique_name)
    broker.produce(topic, [b"needle"] * 5)
    answer = fetch(connection, topic)
    assert (answer.topic, answer.partition, answer.error, answer.high_watermark) == (topic, 0, 0, 5)
    assert bytes(answer.records).count(b"needle") == 5
    assert fetch(connection, topic, offset=6).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(connection, "no-such-topic").error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_of_a_group_in_kafka(broker, client, unique_name):
    topic = broker.create_topic(unique_name)
    partition, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    coordinator = OffsetCoordinator(client(), unique_name)

    first = {partition: StoredOffset(41, "first")}
    eventually(lambda: when_coordinated(lambda: coordinator.commit(first)).accepted == {partition})
    assert OffsetCoordinator(client(), unique_name).fetch([partition]).found == {partition: StoredOffset(41, "first")}
    coordinator.commit({partition: StoredOffset(42, "second")})
    assert coordinator.fetch([partition]).found == {partition: StoredOffset(42, "second")}
    another = OffsetCoordinator(client(), f"{unique_name}-2")
    assert when_coordinated(lambda: another.fetch([partition])).found == {partition: StoredOffset(None)}
    assert other not in coordinator.fetch([partition]).found
    assert coordinator.fetch_known([partition]).found == coordinator.fetch([partition]).found
    listed = coordinator.fetch_known([]).found
    assert listed == ({partition: StoredOffset(42, "second")} if broker.release >= (0, 10, 2) else {})


def test_deletion_of_offsets_of_a_group_in_kafka(broker, client, unique_name):
    topic = broker.create_topic(unique_name, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    coordinator = OffsetCoordinator(client(), unique_name)

    when_coordinated(lambda: coordinator.commit(dict.fromkeys([first, second], StoredOffset(41, "m"))))
    assert coordinator.can_delete() == (broker.release >= (2, 4))
    if not coordinator.can_delete():
        with pytest.raises(ProtocolError, match="no common version of OffsetDelete"):
            coordinator.delete([first])
        return
    assert coordinator.delete([first]) == {}
    assert coordinator.fetch([first, second]).found == {first: StoredOffset(None), second: StoredOffset(41, "m")}
    assert coordinator.delete([first]) == {}, "idempotent"
    another = OffsetCoordinator(client(), f"{unique_name}-2")
    assert when_coordinated(lambda: another.delete([first])) == {}, "a group that is not there"


def test_isolation(broker, client, connection, unique_name):
    if not broker.has_transactions:
        pytest.skip("this release has no transactions")
    topic = broker.create_topic(unique_name)
    producer = broker.produce_transactions(topic)
    partition = TopicPartition(topic, 0)

    # Three transactions with their markers are before the open one, which starts at 18.
    assert client(isolation="read_committed").list_offsets({partition: LATEST}).found == {partition: 18}
    assert client().list_offsets({partition: LATEST}).found == {partition: 23}
    committed = fetch(connection, topic, isolation="read_committed")
    assert (committed.last_stable_offset, committed.high_watermark) == (18, 23)
    assert committed.readable_end("read_committed") == 18
    assert [first for _, first in committed.aborted] == [6]
    everything = fetch(connection, topic)
    assert list(everything.aborted) == []
    assert everything.readable_end("read_uncommitted") == 23
    assert len(everything.records) > len(committed.records)
    producer.abort_transaction(30)


def test_a_record_that_is_longer_than_asked_for(broker, connection, unique_name):
    """From 0.10.1 on the first batch comes whole (KIP-74); older brokers cut it, and the client must request more."""
    topic = broker.create_topic(unique_name)
    broker.produce(topic, [b"x" * 50_000])
    sizes = [len(fetch(connection, topic, max_bytes=size).records) for size in (1000, 2000, 200_000)]
    if broker.release < (0, 10, 1):
        assert sizes[:2] == [1000, 2000]
    else:
        assert all(first == second for first, second in pairwise(sizes))
    assert sizes[-1] > 50_000
