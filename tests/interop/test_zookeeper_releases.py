"""Groups on each release of ZooKeeper, from 3.4, the old consumer's; multiRead begins at 3.6."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from jvmclients.zookeeperconsumer import CONSUMER_VERSIONS
from tests.fixtures.jvm import MixedGroup, spread
from tests.fixtures.sandbox import Topics, produce_records, values
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from tests.fixtures.zookeeperreleases import ZOOKEEPERS, jars_of
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.sandbox import DEFAULT_KAFKA_VERSION, JarSource, KafkaBroker, ZooKeeperServer
from zkconsumer.sandbox.lockfile import read_lock, version_tuple
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.session import ZkSession

PARTITIONS = 60  # more than what is worth a multiRead


@pytest.fixture(scope="module", params=ZOOKEEPERS)
def release(request):
    return request.param


@pytest.fixture(scope="module")
def server(release, tmp_path_factory):
    started = ZooKeeperServer(
        tmp_path_factory.mktemp("zookeeper"), jars=jars_of(release), max_session_timeout_ms=60_000
    )
    started.start()
    yield started
    started.kill()


@pytest.fixture(scope="module")
def broker(server):
    started = KafkaBroker(
        server.directory,
        server,
        JarSource.from_environment().provide(read_lock(f"kafka-{DEFAULT_KAFKA_VERSION}"), Progress()),
        broker_id=0,
        properties={"zookeeper.session.timeout.ms": "60000"},
        ready_timeout_s=300,
    )
    started.start()
    yield started
    started.kill()


@pytest.fixture
def connections():
    """The id of the session at each connection."""
    return []


@pytest.fixture
def session(server, connections):
    opened = ZkSession(
        server.address,
        session_timeout_ms=60_000,
        connection_timeout_ms=60_000,
        on_connection=lambda: connections.append(opened.session_id),
    )
    opened.open()
    yield opened
    opened.close()


def test_members_share_commit_and_inherit(release, server, broker, unique_name):
    eventually(lambda: f"version: {release}" in server.ask("srvr"))
    topic = Topics(broker.address).create(unique_name, PARTITIONS)
    produce_records(broker.address, topic, [{"value": b"%d" % n, "partition": n} for n in range(PARTITIONS)])
    config = ConsumerConfig(
        zookeeper_connect=server.address,
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


def test_a_jvm_consumer_of_the_oldest_release_shares_a_group(server, broker, jvm_of, unique_name, tmp_path):
    oldest = jvm_of(CONSUMER_VERSIONS[0])
    topic = Topics(broker.address).create(unique_name, 2)
    where = SimpleNamespace(zookeeper_connect=server.address)
    with (
        connected(server.address) as client,
        closing(MixedGroup(unique_name, where, client, oldest, tmp_path)) as group,
    ):
        jvm, ours = group.join_jvm("a", {topic: 1}), group.join("b", {topic: 1})
        assert set(group.settle().values()) == {f"{jvm.consumer_id}-0", f"{ours.consumer_id}-0"}
        produce_records(broker.address, topic, spread(values(100), 2))
        group.expect_all(values(100))
        assert {record[1] for record in jvm.received()} == {0}
        group.commit_until(jvm, topic, {0: 50})
        group.leave(jvm)
        group.settle()
        produce_records(broker.address, topic, spread(values(100, start=100), 2))
        group.expect_all(values(200))
        assert group.repeated_by_ours() == set()
        assert {record[1:3] for record in ours.received() if record[1] == 0} == {
            (0, number) for number in range(50, 100)
        }


def test_a_multi_read_is_sent_from_3_6_on(release, session):
    paths = [f"/none/{number}" for number in range(PARTITIONS)]
    assert session.get_many(paths) == dict.fromkeys(paths)
    assert session.multi_read_known is (version_tuple(release) >= (3, 6))


def test_a_multi_read_that_is_sent_anyway_costs_one_reconnect(release, session, connections):
    """As behind a load balancer, where the server that reports its version is not the one that reads."""
    if version_tuple(release) >= (3, 6):
        pytest.skip("this release has multiRead")
    session.multi_read_known = True
    paths = [f"/none/{number}" for number in range(PARTITIONS)]
    with pytest.raises(ZooKeeperUnavailable, match="does not support multiRead"):
        session.get_many(paths)
    eventually(lambda: connections == [session.session_id] * 2)
    session.multi_read_known = True
    assert session.get_many(paths) == dict.fromkeys(paths)
    assert len(connections) == 2
