"""Groups on ZooKeeper 3.4, the old consumer's release; it supports neither multiRead nor container nodes."""

import pytest

from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.sandbox import DEFAULT_KAFKA_VERSION, JarSource, KafkaBroker, ZooKeeperServer
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.session import ZkSession

PARTITIONS = 60  # more than what is worth a multiRead


@pytest.fixture(scope="module")
def jars():
    return lambda name: JarSource.from_environment().provide(read_lock(name), Progress())


@pytest.fixture(scope="module")
def old_zookeeper(jars, tmp_path_factory):
    directory = tmp_path_factory.mktemp("zookeeper-3.4")
    server = ZooKeeperServer(directory, jars=jars("zookeeper-3.4.14"), max_session_timeout_ms=60_000)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def broker(jars, old_zookeeper):
    started = KafkaBroker(
        old_zookeeper.directory,
        old_zookeeper,
        jars(f"kafka-{DEFAULT_KAFKA_VERSION}"),
        broker_id=0,
        properties={"zookeeper.session.timeout.ms": "60000"},
    )
    started.start()
    yield started
    started.kill()


@pytest.fixture
def connections():
    """The id of the session at each connection."""
    return []


@pytest.fixture
def session(old_zookeeper, connections):
    opened = ZkSession(
        old_zookeeper.address,
        session_timeout_ms=60_000,
        connection_timeout_ms=60_000,
        on_connection=lambda: connections.append(opened.session_id),
    )
    opened.open()
    yield opened
    opened.close()


def test_members_share_commit_and_inherit(old_zookeeper, broker, unique_name):
    eventually(lambda: "version: 3.4.14" in old_zookeeper.ask("srvr"))
    topic = Topics(broker.address).create(unique_name, PARTITIONS)
    produce_records(broker.address, topic, [{"value": b"%d" % n, "partition": n} for n in range(PARTITIONS)])
    config = ConsumerConfig(
        zookeeper_connect=old_zookeeper.address,
        group_id=unique_name,
        auto_offset_reset="smallest",
        auto_commit_interval_ms=100,
        consumer_timeout_ms=60_000,
        # The first records are counted: no member is to lose its share.
        zookeeper_session_timeout_ms=60_000,
        zookeeper_connection_timeout_ms=60_000,
    )
    with ConsumerConnector(config) as first, ConsumerConnector(config) as second:
        streams = [member.create_message_streams({topic: 1})[topic][0] for member in (first, second)]
        eventually(lambda: len(second.partition_states()) == PARTITIONS // 2)
        eventually(lambda: len(first.partition_states()) == PARTITIONS // 2)
        received = {next(stream).value for stream in streams for _ in range(PARTITIONS // 2)}
        assert received == {b"%d" % n for n in range(PARTITIONS)}
        second.commit_offsets()
        second.shutdown()
        eventually(lambda: len(first.partition_states()) == PARTITIONS)
        first.commit_offsets()
        assert all(state.committed == 1 for state in first.partition_states())


def test_a_multi_read_is_not_sent(session):
    paths = [f"/none/{number}" for number in range(PARTITIONS)]
    assert session.get_many(paths) == dict.fromkeys(paths)
    assert session.multi_read_known is False


def test_a_multi_read_that_is_sent_anyway_costs_one_reconnect(session, connections):
    """As behind a load balancer, where the server that reports its version is not the one that reads."""
    session.multi_read_known = True
    paths = [f"/none/{number}" for number in range(PARTITIONS)]
    with pytest.raises(ZooKeeperUnavailable, match="does not support multiRead"):
        session.get_many(paths)
    eventually(lambda: connections == [session.session_id] * 2)
    session.multi_read_known = True
    assert session.get_many(paths) == dict.fromkeys(paths)
    assert len(connections) == 2
