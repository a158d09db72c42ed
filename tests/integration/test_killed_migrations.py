"""A migration that is killed at any line of its journal is resumed by the same command, or undone."""

import pytest

from tests.fixtures.killed import run_until_killed
from tests.fixtures.waiting import eventually
from zkconsumer.core.migrationplan import verify
from zkconsumer.tools.migrationrun import run_plan

pytestmark = pytest.mark.integration

LINES = 5
"""Of the journal of a run with one request: begin, snapshot, intent, outcome, end."""

KILLED = """
from zkconsumer.tools.migrationjournal import JournalFile

point, when = int(sys.argv.pop(1)), sys.argv.pop(1)
append, count = JournalFile.append, 0

def killed(journal, event, **fields):
    global count
    count += 1
    if count == point and when == "torn":
        with open(journal.path, "ab") as file:
            file.write(b'{"event": "int')
    if count == point and when != "after":
        die()
    append(journal, event, **fields)
    if count == point:
        die()

JournalFile.append = killed
main()
"""


def kill_at(migration, point, when, connect):
    """Run the last plan in a process that kills itself at the ``point``-th line of its journal."""
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
    kill_at(migration, 4, "before", sandbox.zookeeper_connect)  # the commit is done, and its outcome not noted
    assert migration.in_kafka() == {0: 4, 1: 4}
    assert migration.events() == ["begin", "snapshot", "intent"]
    resume(migration, plan, ends)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("prepare", [to_kafka, to_zookeeper])
@pytest.mark.parametrize("when", ["before", "after", "torn"])
def test_a_migration_may_be_killed_at_any_line(migration, sandbox, prepare, when):
    for point in range(1, LINES + 1):
        plan, ends = prepare(migration, point)
        kill_at(migration, point, when, sandbox.zookeeper_connect)
        resume(migration, plan, ends)
