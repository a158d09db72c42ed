"""Offsets of a group on ZooKeeper move to brokers of every release that coordinates groups, and back."""

from contextlib import closing

import pytest

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.zookeeper.session import ZkSession

FIRST_WITH_GROUPS = (0, 9)
FIRST_THAT_DELETES = (2, 4)
FIRST_THAT_LISTS = (0, 10, 2)


@pytest.fixture
def migrate(broker):
    """Run a command of ``migrate``: (exit code, its document)."""
    return lambda *arguments: broker.run_tool("migrate", *arguments)


@pytest.fixture
def in_kafka(broker, group):
    """The group's offsets in Kafka, by partition."""

    def read():
        config = ConsumerConfig(**broker.sandbox.connection, group_id="tools")
        with closing(ZkSession.from_config(config)) as session:
            session.open()
            with closing(Cluster.of(session, config)) as cluster:
                found = cluster.committed_known(group.name, [TopicPartition(group.name, number) for number in (0, 1)])
        return {partition: one.offset for partition, one in found.items()}

    return read


def test_offsets_move_and_return(broker, group, migrate, in_kafka, tmp_path):
    name, plan, back = group.name, str(tmp_path / "plan"), str(tmp_path / "back")
    ends = ("--from", f"zookeeper:{name}", "--to", f"kafka:{name}")
    if broker.release < FIRST_WITH_GROUPS:
        broker.commit_to_kafka(f"{name}-other", TopicPartition(name, 0), 1)
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
    if broker.release < FIRST_THAT_LISTS:  # what a reverse migration reads
        return
    assert migrate("reverse", plan, "--output", back)[0] == 0
    assert migrate("run", back, "--execute")[0] == 0
    assert group.offsets(name) == {0: 4, 1: 7}
