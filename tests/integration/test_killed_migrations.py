"""A migration that is killed at any of its writes is resumed by the same command, or undone."""

import pytest

from tests.fixtures.killed import run_until_killed
from tests.fixtures.waiting import eventually
from zkconsumer.operate.migrate.rules.migrationrecheck import verify
from zkconsumer.operate.migrate.run import run_plan
from zkconsumer.operate.offsets.rules.writestate import WriteState

pytestmark = pytest.mark.integration

WRITES = 3
"""Of a run with one request: its file, the offsets, and its file again."""

KILLED = """
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.snapshot import SnapshotFile, partition_of

point, when, count = int(sys.argv.pop(1)), sys.argv.pop(1), 0

def killing(write, counts=lambda *_: True):
    def call(*arguments, **options):
        global count
        count += counts(*arguments)
        here = counts(*arguments) and count == point
        if here and when == "before":
            die()
        answer = write(*arguments, **options)
        if here:
            die()
        return answer
    return call

def has_offsets(_session, _fence, changes):
    return any(partition_of(change.path) is not None for change in changes)

SnapshotFile._put = killing(SnapshotFile._put)
Cluster.commit = killing(Cluster.commit)
ZkSession.commit_changes = killing(ZkSession.commit_changes, has_offsets)
main()
"""


def kill_at(migration, point, when, connect):
    """Run the last plan in a process that kills itself at its ``point``-th write."""
    arguments = [str(point), when, "migrate", "run", str(migration.file), "--execute"]
    ended = run_until_killed(KILLED, arguments, connect)
    assert ended.returncode == -9, ended.stderr

    eventually(lambda: not migration.group.is_held(migration.topic))


def resume(migration, plan, ends):
    report = run_plan(ends, plan, migration.file)
    assert report.faults == []
    assert len(report.written) + len(report.found) == 2
    assert all(row.is_equal for row in verify(plan, ends.observe()))


def to_kafka(migration, offset):
    """A plan for offsets that differ from those of all plans before."""
    for number in range(2):
        path = migration.group.path("offsets", migration.topic, number)
        migration.group.client.ensure_path(path)
        migration.group.client.set(path, b"%d" % offset)
    return migration.plan(), migration.ends()


def to_zookeeper(migration, offset):
    migration.commit({0: offset, 1: offset})
    ends = tuple(reversed(migration.forward))
    return migration.plan(*ends), migration.ends(*ends)


def test_a_killed_migration_is_resumed(migration, sandbox):
    plan, ends = to_kafka(migration, 4)
    kill_at(migration, 2, "after", sandbox.zookeeper_connect)
    assert (migration.in_kafka(), migration.state()) == ({0: 4, 1: 4}, WriteState.WRITING)
    resume(migration, plan, ends)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("prepare", [to_kafka, to_zookeeper])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_migration_may_be_killed_at_any_write(migration, sandbox, prepare, when):
    for point in range(1, WRITES + 1):
        plan, ends = prepare(migration, point)
        kill_at(migration, point, when, sandbox.zookeeper_connect)
        resume(migration, plan, ends)
