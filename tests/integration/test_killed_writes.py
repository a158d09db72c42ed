"""A tool that is killed in the middle of a write leaves its snapshot and whole transactions."""

import pytest

from tests.fixtures.killed import run_until_killed
from tests.fixtures.waiting import eventually
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.restoreplan import plan_restore
from zkconsumer.operate.offsets.snapshot import (
    GroupChange,
    NodeChange,
    NodeState,
    Snapshot,
    SnapshotFile,
    read_snapshot,
)

pytestmark = pytest.mark.integration

COUNT = 1200
OLD, NEW = {n: 5 for n in range(COUNT)}, {n: 6 for n in range(COUNT)}
WHOLE = (0, 500, 1000, 1200)

KILLED = """
point, answered = int(sys.argv.pop(1)), sys.argv.pop(1) == "after"
commit, count = ZkSession.commit_changes, 0

def killed(session, fence, changes):
    global count
    count += 1
    if count == point and not answered:
        die()
    conflict = commit(session, fence, changes)
    if count == point:
        die()
    return conflict

ZkSession.commit_changes = killed
ZkSession.commit_independent = lambda session, fence, parts: [killed(session, fence, part) for part in parts]
main()
"""


class KilledWrites:
    """Sets 1,200 offsets from 5 to 6, in a process that kills itself."""

    def __init__(self, group, session, cluster, directory, connect) -> None:
        self._group, self._session, self._cluster = group, session, cluster
        self._directory, self._connect = directory, connect
        self._numbers = iter(range(1000))
        self._last = 0

    def run(self, point: int, when: str) -> int | None:
        """Kill at the ``point``-th transaction; the number of offsets written, None if the process ended before."""
        number = self._last = next(self._numbers)
        wanted, made = self._directory / f"wanted-{number}", self._directory / f"made-{number}"
        SnapshotFile(wanted).begin(self._snapshot())
        arguments = [str(point), when, "offsets", "restore", str(wanted), "--complete", "--execute"]
        ended = run_until_killed(KILLED, [*arguments, "--snapshot", str(made)], self._connect)
        assert ended.returncode in (0, -9), ended.stderr
        if ended.returncode == 0:
            return None
        found = self._group.offsets("t")
        written = sum(offset == 6 for offset in found.values())
        assert len(found) == COUNT
        assert written in WHOLE
        assert made.exists() or not written, "the snapshot is there before the first write"
        eventually(lambda: not self._group.is_held("t"))
        return written

    def _snapshot(self) -> Snapshot:
        nodes = tuple(
            NodeChange(self._group.path("offsets", "t", n), NodeState(b"5", 0, 1), NodeState(b"6")) for n in OLD
        )
        return Snapshot("test", self._connect, 1, (GroupChange(self._group.name, nodes),))

    def restore(self, *, complete: bool) -> None:
        """From the snapshot that the killed process made last, if it was killed after that."""
        made = self._directory / f"made-{self._last}"
        if not made.exists():
            return
        plan = plan_restore(self._session, self._cluster, read_snapshot(made), complete=complete)
        assert plan.refusals == ()
        path = self._directory / f"restored-{next(self._numbers)}"
        assert execute(self._session, self._cluster, plan, SnapshotFile(path)).faults == []
        assert self._group.offsets("t") == (NEW if complete else OLD)


@pytest.fixture
def killed_writes(offset_group, tool_session, cluster, tmp_path, sandbox):
    offset_group.client.ensure_path(offset_group.path("owners"))
    offset_group.client.ensure_path(offset_group.path("offsets", "t"))
    for start in range(0, COUNT, 400):
        transaction = offset_group.client.transaction()
        for number in range(start, start + 400):
            transaction.create(offset_group.path("offsets", "t", number), b"5")
        transaction.commit()
    return KilledWrites(offset_group, tool_session, cluster, tmp_path, sandbox.zookeeper_connect)


@pytest.mark.slow
def test_a_killed_write_is_undone_or_completed(killed_writes):
    point = next(point for point in range(1, 20) if killed_writes.run(point, "after") == 500)
    killed_writes.restore(complete=False)
    assert killed_writes.run(point, "after") == 500
    killed_writes.restore(complete=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_may_be_killed_at_any_transaction(killed_writes, when):
    seen = set()
    for point in range(1, 50):
        written = killed_writes.run(point, when)
        if written is None:
            break
        seen.add(written)
        killed_writes.restore(complete=False)
    assert seen == set(WHOLE)
