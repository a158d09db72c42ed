"""Ways back from migrations on real servers: ``migrate rollback`` and ``migrate reverse``."""

import pytest
from click.testing import CliRunner

from tests.fixtures.killed import run_until_killed
from tests.fixtures.migrations import is_record
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.migrate.migrationmark import MarkedWrite
from zkconsumer.operate.migrate.rules.planfile import decode_plan
from zkconsumer.operate.migrate.run import run_plan
from zkconsumer.operate.offsets.rules.writestate import WriteState

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def migrated(migration):
    """A group whose offsets were written to Kafka, which had one of partition 0."""
    migration.commit({0: 2})
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    assert run_plan(migration.ends(), plan, migration.file).faults == []
    assert migration.in_kafka() == {0: 4, 1: 7}
    return migration


@pytest.fixture
def returned(migration):
    """A group whose offsets were written to ZooKeeper, which had none."""
    migration.commit({0: 5, 1: 8})
    ends = tuple(reversed(migration.forward))
    plan = migration.plan(*ends)
    assert run_plan(migration.ends(*ends), plan, migration.file).faults == []
    assert migration.group.offsets(migration.topic) == {0: 5, 1: 8}
    return migration


def test_a_rollback_restores_offsets_in_kafka(migrated, migrate):
    code, document = migrate("rollback", migrated.file)
    assert (code, document["executed"]) == (0, False)
    assert migrated.in_kafka() == {0: 4, 1: 7}, "a dry run"
    code, document = migrate("rollback", migrated.file, "--execute")
    assert (code, document["faults"], len(document["written"])) == (0, [], 2)
    assert migrated.in_kafka() == {0: 2}
    assert not any("/zkconsumer" in path for path in migrated.group.tree()), "the mark is gone"
    assert migrated.state() is WriteState.UNDONE
    assert migrate("rollback", migrated.file, "--execute")[1]["written"] == []


def test_a_rollback_removes_znodes_that_the_migration_created(returned, migrate):
    code, document = migrate("rollback", returned.file, "--execute")
    assert (code, document["faults"]) == (0, [])
    assert returned.group.tree() == {}
    assert returned.in_kafka() == {0: 5, 1: 8}


def test_a_plan_is_run_again_after_a_rollback(migrated, migrate):
    assert migrate("rollback", migrated.file, "--execute")[0] == 0
    assert migrate("run", migrated.file, "--execute")[0] == 0
    assert migrate("verify", migrated.file)[0] == 0
    assert migrated.in_kafka() == {0: 4, 1: 7}


def test_consumers_that_continued_are_taken_back(migrated, migrate, tmp_path, sandbox):
    migrated.commit({0: 9})
    ended = CliRunner().invoke(
        command, ["migrate", "rollback", str(migrated.file), "--execute", "--zookeeper", sandbox.zookeeper_connect]
    )
    assert ended.exit_code == 3
    assert "migrate reverse" in ended.output
    assert migrated.in_kafka() == {0: 9, 1: 7}
    back = tmp_path / "back.json"
    code, document = migrate("reverse", migrated.file, "--output", back)
    assert (code, [(row["new_offset"], row["replayed"]) for row in document["partitions"]]) == (0, [(9, 0), (7, 0)])
    assert migrate("run", back, "--execute")[0] == 0
    assert migrated.group.offsets(migrated.topic) == {0: 9, 1: 7}
    verified = CliRunner().invoke(command, ["migrate", "verify", str(back)])
    assert verified.exit_code == 0
    assert f"groups delete --group {migrated.group.name} --store kafka --force-live" in verified.stderr


def test_a_rollback_leaves_out_a_topic_that_was_deleted(migration, migrate, topic_factory, topics):
    """Brokers have deleted its offsets with it, and refuse others."""
    other = topic_factory(partitions=1)
    migration.commit({0: 2})
    assert migration.cluster.commit(migration.group.name, {TopicPartition(other, 0): StoredOffset(0)}) == {}
    migration.group.store(migration.topic, {0: 4, 1: 7})
    migration.group.store(other, {0: 0})
    assert run_plan(migration.ends(), migration.plan(), migration.file).faults == []
    topics.delete(other)
    code, document = migrate("rollback", migration.file, "--execute")
    assert (code, document["faults"]) == (0, [])
    assert f"topic {other} does not exist, so brokers store no offsets of it" in document["warnings"][0]
    assert migration.in_kafka() == {0: 2}
    assert migration.state() is WriteState.UNDONE


def test_a_way_back_is_not_completed_while_consumers_live_in_kafka(migrated, migrate, sandbox, monkeypatch):
    """1. It has written everything, and is killed before the mark is removed; 2. new consumers are started again."""
    from confluent_kafka import Consumer

    def lose(_marked):
        raise ZooKeeperUnavailable("killed")

    migrated.commit({0: 9})
    back = migrated.plan_back(decode_plan("the plan", migrated.file.read_bytes()))
    with monkeypatch.context() as patch:
        patch.setattr(MarkedWrite, "settle", lose)
        report = run_plan(migrated.ends(*reversed(migrated.forward)), back, migrated.file)
    assert "the mark of group" in report.faults[-1]
    servers = {"bootstrap.servers": sandbox.bootstrap_servers, "enable.auto.commit": False}
    consumer = Consumer({**servers, "group.id": migrated.group.name})
    consumer.subscribe([migrated.topic])
    try:
        eventually(lambda: is_record(consumer.poll(0.5)))
        assert migrate("run", migrated.file, "--execute")[0] == 3
        assert b'"undoing"' in migrated.group.tree()[f"/consumers/{migrated.group.name}/zkconsumer/migrated"]
    finally:
        consumer.close()
    assert migrate("run", migrated.file, "--execute")[0] == 0
    assert not any("/zkconsumer" in path for path in migrated.group.tree()), "the mark is gone"


def test_a_way_back_needs_every_offset(migrated, migrate, tmp_path):
    """Brokers delete offsets that expire."""
    assert migrated.cluster.delete(migrated.group.name, migrated.partitions()) == {}
    code, document = migrate("reverse", migrated.file, "--output", tmp_path / "back.json")
    reasons = [guard["text"] for guard in document["guards"] if not guard["holds"]]
    assert code == 3
    assert len(reasons) == 1
    assert "no offset of" in reasons[0]


def test_a_way_back_is_refused_while_old_consumers_have_continued(migrated, migrate, tmp_path):
    migrated.group.client.set(migrated.group.path("offsets", migrated.topic, 1), b"8")
    back = tmp_path / "back.json"
    assert migrate("reverse", migrated.file, "--output", back)[0] == 3
    code, document = migrate("run", back, "--execute")
    assert code == 3
    assert any("have moved since the migration" in reason for reason in document["refusals"])
    assert migrated.group.offsets(migrated.topic) == {0: 4, 1: 8}


# -- killed -----------------------------------------------------------------------------------------------------------

KILLED = """
from zkconsumer.operate.offsets.groupstores import Cluster

when, name, point = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))
owner = ZkSession if name == "commit_changes" else Cluster
method, count = getattr(owner, name), 0

def killed(*arguments, **more):
    global count
    count += 1
    if count == point and when == "before":
        die()
    answer = method(*arguments, **more)
    if count == point:
        die()
    return answer

setattr(owner, name, killed)
main()
"""


def kill(migration, connect, when, name, point):
    """Roll back in a process that kills itself; returns False if it ended before that point."""
    arguments = [when, name, str(point), "migrate", "rollback", str(migration.file), "--execute"]
    ended = run_until_killed(KILLED, arguments, connect)
    assert ended.returncode in (0, -9), ended.stderr

    eventually(lambda: not migration.group.is_held(migration.topic), 60)
    return ended.returncode == -9


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["commit", "delete"])
def test_a_killed_rollback_of_commits_is_resumed(migrated, migrate, sandbox, when, name):
    assert kill(migrated, sandbox.zookeeper_connect, when, name, 1)
    code, document = migrate("rollback", migrated.file, "--execute")
    assert (code, document["faults"], migrated.in_kafka()) == (0, [], {0: 2})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_rollback_of_znodes_is_resumed(returned, migrate, sandbox, when):
    """Killed at each of its transactions, those of the hold included."""
    point = 1
    while kill(returned, sandbox.zookeeper_connect, when, "commit_changes", point):
        code, document = migrate("rollback", returned.file, "--execute")
        assert (code, document["faults"], returned.group.offsets(returned.topic)) == (0, [], {})
        assert migrate("run", returned.file, "--execute")[0] == 0
        assert returned.group.offsets(returned.topic) == {0: 5, 1: 8}
        point += 1
    assert point > 2
    assert returned.group.offsets(returned.topic) == {}
