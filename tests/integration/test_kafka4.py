"""Groups on ZooKeeper, brokers without it: Kafka 4.2.0 through the connector, the command and the tools."""

import json
import subprocess
import sys

import pytest

from tests.fixtures.consumers import FIRST_OF_BROKER, collect, consumers, owned, parts
from tests.fixtures.quotas import set_quota
from tests.fixtures.sandbox import PATIENT, Topics, produce_records, values
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig, ConsumerConnector, Whitelist
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.kraft import KRaftBroker
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.progress import Progress

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

VERSION = "4.2.0"


@pytest.fixture(scope="module")
def box():
    with Sandbox(kafka_version=VERSION, progress=Progress(), **PATIENT) as started:
        yield started


@pytest.fixture(scope="module")
def topics(box):
    return Topics(box.bootstrap_servers)


@pytest.fixture(scope="module")
def zookeeper(box):
    with connected(box.zookeeper_connect) as client:
        yield client


@pytest.fixture
def member(box, unique_name):
    """Create members of one group; all are shut down at the end."""
    patience = {"zookeeper_session_timeout_ms": 30_000, "metadata_max_age_ms": 3_600_000}
    with consumers(box.connection, unique_name, rebalance_backoff_ms=1000, **patience) as make:
        yield make


def test_zookeeper_has_no_brokers(box, member, topics, zookeeper, unique_name):
    topic = topics.create(unique_name, 2)
    produce_records(box.bootstrap_servers, topic, values(20))
    connector = member()
    received = collect(connector.create_message_streams({topic: 1})[topic])
    eventually(lambda: len(received) == 20)
    connector.commit_offsets()
    assert sorted(received, key=int) == values(20)
    offsets = [zookeeper.get(f"/consumers/{unique_name}/offsets/{topic}/{number}")[0] for number in (0, 1)]
    assert sum(map(int, offsets)) == 20
    assert set(zookeeper.get_children("/")) == {"consumers", "zookeeper"}


def test_one_member_that_notices_new_partitions_makes_the_other_share_them(member, topics, unique_name):
    topic = topics.create(unique_name, 2)
    asks_seldom, asks_often = member(consumer_id="a"), member(consumer_id="b", metadata_max_age_ms=200)
    streams = [*asks_seldom.create_message_streams({topic: 1})[topic]]
    streams += asks_often.create_message_streams({topic: 1})[topic]
    eventually(lambda: (owned(asks_seldom), owned(asks_often)) == (parts(topic, 0), parts(topic, 1)))
    topics.grow(topic, 5)
    eventually(lambda: (owned(asks_seldom), owned(asks_often)) == (parts(topic, 0, 1, 2), parts(topic, 3, 4)))


def test_only_the_coordinator_has_to_notice_new_partitions(member, topics, unique_name):
    topic = topics.create(unique_name, 2)
    leads = member(consumer_id="a", group_protocol="coordinator", metadata_max_age_ms=200)
    stream = leads.create_message_streams({topic: 1})[topic]
    eventually(lambda: owned(leads) == parts(topic, 0, 1))
    obeys = member(consumer_id="b", group_protocol="coordinator")
    stream += obeys.create_message_streams({topic: 1})[topic]
    eventually(lambda: (len(owned(leads)), len(owned(obeys))) == (1, 1))
    topics.grow(topic, 6)
    eventually(lambda: (len(owned(leads)), len(owned(obeys))) == (3, 3))
    assert owned(leads) | owned(obeys) == parts(topic, *range(6))


def test_a_coordinator_and_members_without_one_share_new_partitions(member, topics, unique_name):
    """The coordinator notices them, and nudges the other member, which does not."""
    topic = topics.create(unique_name, 2)
    leads = member(consumer_id="a", group_protocol="coordinator", metadata_max_age_ms=200)
    stream = leads.create_message_streams({topic: 1})[topic]
    computes = member(consumer_id="b")
    stream += computes.create_message_streams({topic: 1})[topic]
    eventually(lambda: (owned(leads), owned(computes)) == (parts(topic, 0), parts(topic, 1)))
    topics.grow(topic, 5)
    eventually(lambda: (owned(leads), owned(computes)) == (parts(topic, 0, 1, 2), parts(topic, 3, 4)))


def test_brokers_coordinate_a_group(box, topics, unique_name):
    topic = topics.create(unique_name, 4)
    produce_records(box.bootstrap_servers, topic, values(20))
    brokers = {"bootstrap.servers": box.bootstrap_servers}
    cooperative = {"group_protocol": "kafka", "partition_assignment_strategy": "cooperative-sticky"}
    with consumers(
        brokers,
        unique_name,
        **cooperative,
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
        **FIRST_OF_BROKER,
    ) as make:
        one, other = make(), make()
        received = collect(one.create_message_streams({topic: 1})[topic])
        eventually(lambda: len(received) == 20)
        one.commit_offsets()
        more = collect(other.create_message_streams({topic: 1})[topic])
        eventually(lambda: (len(owned(one)), len(owned(other))) == (2, 2))
        assert owned(one) | owned(other) == parts(topic, 0, 1, 2, 3)
        one.shutdown()
        eventually(lambda: owned(other) == parts(topic, 0, 1, 2, 3))
        produce_records(box.bootstrap_servers, topic, values(20, start=20))
        eventually(lambda: sorted(received + more, key=int) == values(40))


def test_a_filter_finds_a_topic_that_is_created_later(box, member, topics, unique_name):
    first = topics.create(f"{unique_name}-1")
    connector = member(metadata_max_age_ms=200)
    received = collect(connector.create_message_streams_by_filter(Whitelist(f"{unique_name}-.*"), 1))
    eventually(lambda: owned(connector) == parts(first, 0))
    second = topics.create(f"{unique_name}-2")
    eventually(lambda: owned(connector) == parts(first, 0) | parts(second, 0))
    produce_records(box.bootstrap_servers, second, values(3))
    eventually(lambda: received == values(3))


def test_a_topic_that_is_created_again_is_consumed(box, member, topics, unique_name):
    topic = topics.create(unique_name)
    produce_records(box.bootstrap_servers, topic, values(5))
    connector = member(metadata_max_age_ms=200)
    received = collect(connector.create_message_streams({topic: 1})[topic])
    eventually(lambda: received == values(5))
    topics.delete(topic)
    eventually(lambda: owned(connector) == set())
    topics.create(topic)
    produce_records(box.bootstrap_servers, topic, values(3, start=5))
    eventually(lambda: received[5:] == values(3, start=5))


def test_offsets_are_stored_in_kafka(box, member, topics, unique_name):
    topic = topics.create(unique_name)
    produce_records(box.bootstrap_servers, topic, values(10))
    stored = {"offsets_storage": "kafka", "dual_commit_enabled": False}
    first = member(**stored)
    stream = first.create_message_streams({topic: 1})[topic][0]
    assert [next(stream).value for _ in range(4)] == values(4)
    first.commit_offsets()
    first.shutdown()
    stream = member(**stored).create_message_streams({topic: 1})[topic][0]
    assert next(stream).value == b"4"


def run(box, *arguments, code=0):
    where = ("--zookeeper", box.zookeeper_connect, "--bootstrap-server", box.bootstrap_servers)
    patience = ("-p", "zookeeper.session.timeout.ms=30000")
    command = [sys.executable, "-m", "zkconsumer", *map(str, arguments), *where, *patience]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert code in (None, ended.returncode), ended.stderr
    return ended


def test_commands_read_the_cluster_from_the_brokers(box, topics, unique_name, tmp_path):
    topic = topics.create(unique_name, 2)
    produce_records(box.bootstrap_servers, topic, values(10))
    group = ("--group", unique_name)
    consumed = run(box, "consume", *group, "--topic", topic, "--from-beginning", "--max-messages", 10)
    assert sorted(consumed.stdout.split(), key=int) == [str(number) for number in range(10)]

    def lags():  # unknown while a broker is slow to answer
        described = json.loads(run(box, "groups", "describe", *group, "--json").stdout)
        return [one["lag"] for one in described["partitions"]]

    eventually(lambda: lags() == [0, 0])

    def findings():  # one more while a broker is slow to answer
        explained = json.loads(run(box, "groups", "explain", *group, "--json", code=None).stdout)
        return [finding["kind"] for finding in explained["findings"]]

    eventually(lambda: findings() == ["no-member"])
    set_quota(box.bootstrap_servers, {"client-id": unique_name}, 4096.0)
    quota = f"client-id {unique_name}"

    def quotas():  # brokers learn it from the controller
        findings = json.loads(run(box, "groups", "explain", *group, "--json", code=3).stdout)["findings"]
        return [(one["subject"], one["evidence"][:32]) for one in findings if one["kind"] == "quota"]

    eventually(lambda: quotas() == [(quota, "fetches are limited to 4096 byte")])
    snapshot = ("--snapshot", tmp_path / "before.json")
    run(box, "offsets", "reset", *group, "--topic", topic, "--to-earliest", *snapshot, "--execute")
    described = json.loads(run(box, "groups", "describe", *group, "--json").stdout)
    assert [one["committed"] for one in described["partitions"]] == [0, 0]


def test_consumption_continues_after_brokers_were_restarted(private_sandbox, unique_name):
    box = private_sandbox(kafka_version=VERSION, brokers=2)
    topic = Topics(box.bootstrap_servers).create(unique_name, 2, 2)
    produce_records(box.bootstrap_servers, topic, values(10))
    config = ConsumerConfig(
        group_id=unique_name,
        zookeeper_connect=box.zookeeper_connect,
        bootstrap_servers=box.bootstrap_servers,
        auto_offset_reset="smallest",
        metadata_max_age_ms=500,
        zookeeper_session_timeout_ms=30_000,
    )
    with ConsumerConnector(config) as connector:
        received = collect(connector.create_message_streams({topic: 1})[topic])
        eventually(lambda: len(received) == 10)
        for number, broker in enumerate(reversed(box.brokers), 1):
            broker.kill()
            broker.start()
            produce_records(box.bootstrap_servers, topic, values(10, start=10 * number))
            eventually(lambda number=number: len(received) == 10 * (number + 1))
        eventually(lambda: owned(connector) == parts(topic, 0, 1))
    assert sorted(received, key=int) == values(30)


def test_a_cluster_id_may_begin_with_a_hyphen(box, tmp_path):
    jars = JarSource.from_environment().provide(read_lock(f"kafka-{VERSION}"), Progress(quiet=True))
    broker = KRaftBroker(tmp_path, box.zookeeper, jars, kafka_version=VERSION)
    broker.cluster_id = "-" + broker.cluster_id[1:]
    broker.start()
    broker.stop()
