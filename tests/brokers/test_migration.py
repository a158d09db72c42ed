"""Offsets of a group on ZooKeeper move to brokers of every release that coordinates groups, and back."""

import json
from contextlib import closing

import pytest
from click.testing import CliRunner

from tests.fixtures.offsetwrites import OffsetGroup
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig, SimpleConsumer, TopicPartition
from zkconsumer.cli.main import command
from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved
from zkconsumer.tools.offsetstores import Cluster
from zkconsumer.zookeeper.session import ZkSession

FIRST_WITH_GROUPS = (0, 9)
FIRST_THAT_DELETES = (2, 4)


@pytest.fixture
def group(broker, unique_name):
    """A group on ZooKeeper with offsets of two partitions, which have ten records each."""
    topic = broker.create_topic(unique_name[-40:], 2)
    broker.produce(topic, [{"value": b"v", "partition": number % 2} for number in range(20)])
    with connected(broker.sandbox.zookeeper_connect) as client:
        made = OffsetGroup(topic, client)
        made.store(topic, {0: 4, 1: 7})
        yield made


@pytest.fixture
def migrate(broker):
    """Run a command of ``migrate``: (exit code, JSON or None)."""
    where = [part for name, value in broker.sandbox.connection.items() for part in ("-p", f"{name}={value}")]

    def run(*arguments):
        ended = CliRunner().invoke(command, ["migrate", *arguments, *where, "--json"])
        assert ended.exit_code != 2, ended.output
        assert ended.stdout, f"{arguments}: {ended.exception!r}\n{ended.output}"
        return ended.exit_code, json.loads(ended.stdout)

    return run


@pytest.fixture
def in_kafka(broker, group):
    """The group's offsets in Kafka, by partition."""

    def read():
        config = ConsumerConfig(**broker.sandbox.connection, group_id="tools")
        with closing(ZkSession.from_config(config)) as session:
            session.open()
            found = Cluster.of(session, config).committed_all(group.name)
        return {partition: one.offset for partition, one in found.items()}

    return read


def commit_to_kafka(broker, group, partition):
    """Commit an offset, for which the broker creates its topic of offsets; 0.8.2 has that, and no groups."""
    host, port = broker.sandbox.bootstrap_servers.split(":")
    config = ConsumerConfig(group_id="unused", zookeeper_connect="unused:1")
    with SimpleConsumer(host, int(port), config=config) as simple:

        def committed():
            try:
                simple.commit_offsets(group, {partition: 1}, storage="kafka")
            except (BrokerUnavailable, CoordinatorMoved):
                return False
            return True

        eventually(committed)


def test_offsets_move_and_return(broker, group, migrate, in_kafka, tmp_path):
    name, plan, back = group.name, str(tmp_path / "plan"), str(tmp_path / "back")
    ends = ("--from", f"zookeeper:{name}", "--to", f"kafka:{name}")
    if broker.release < FIRST_WITH_GROUPS:
        commit_to_kafka(broker, f"{name}-other", TopicPartition(name, 0))
    code, found = migrate("survey", "--group", name)
    if broker.release < FIRST_WITH_GROUPS:
        assert (code, found["verdict"]) == (3, "not ready")
        assert any("older than 0.9" in finding["text"] for finding in found["findings"])
        code, refused = migrate("plan", *ends, "--output", plan)
        assert (code, [guard["name"] for guard in refused["guards"] if not guard["holds"]]) == (3, ["brokers"])
        return
    assert (code, found["verdict"]) == (0, "ready"), found
    assert migrate("plan", *ends, "--output", plan, "--retention", "30d")[0] == 0
    assert migrate("run", plan, "--execute")[0] == 0
    moved = {TopicPartition(name, 0): 4, TopicPartition(name, 1): 7}
    assert in_kafka() == moved
    assert migrate("verify", plan)[1]["equal"] is True
    code, undone = migrate("rollback", plan, "--execute")
    assert code == 0
    if broker.release >= FIRST_THAT_DELETES:
        assert in_kafka() == {}
    else:
        assert len([warning for warning in undone["warnings"] if "stays" in warning]) == 2
        assert in_kafka() == moved
    assert migrate("run", plan, "--execute")[0] == 0
    assert in_kafka() == moved
    assert migrate("reverse", plan, "--output", back)[0] == 0
    assert migrate("run", back, "--execute")[0] == 0
    assert group.offsets(name) == {0: 4, 1: 7}
