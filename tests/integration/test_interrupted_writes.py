"""Writes that ZooKeeper interrupts: it is lost, or refuses, in the middle; what was written is listed and restored."""

import threading
from contextlib import closing

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from tests.fixtures.offsetwrites import EventfulSession, OffsetGroup, is_offset
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig
from zkconsumer.operate.offsets.groupstores import Cluster
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

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

COUNT = 1200
"""Three transactions."""


@pytest.fixture
def server(start_zookeeper):
    return start_zookeeper()


class Written:
    """A group with 1,200 offsets of 5, which are set to 6; no broker is needed for that."""

    def __init__(self, address, client, session, directory) -> None:
        config = ConsumerConfig(zookeeper_connect=address, group_id="tools")
        self.group = OffsetGroup("g", client)
        self.session = session
        self._cluster = Cluster(config, (), session)
        self._directory = directory
        self._numbers = iter(range(100))
        self.group.client.ensure_path(self.group.path("owners"))
        for start in range(0, COUNT, 400):
            self.group.store("t", dict.fromkeys(range(start, start + 400), 5))

    def path(self, number: int) -> str:
        return self.group.path("offsets", "t", number)

    def write(self):
        """Set all offsets; returns the report."""
        nodes = tuple(NodeChange(self.path(n), NodeState(b"5"), NodeState(b"6")) for n in range(COUNT))
        return self._restore(Snapshot("test", "", 1, (GroupChange("g", nodes),)), complete=True)

    def restore(self, report, *, complete: bool):
        """Undo or complete it from its snapshot; returns the report."""
        return self._restore(read_snapshot(report.snapshot), complete=complete)

    def _restore(self, snapshot: Snapshot, *, complete: bool):
        plan = plan_restore(self.session, self._cluster, snapshot, complete=complete)
        assert plan.refusals == ()
        return execute(
            self.session, self._cluster, plan, SnapshotFile(self._directory / f"snapshot-{next(self._numbers)}")
        )

    def stored(self) -> set[int]:
        """The partitions whose offset is 6."""
        found = self.group.offsets("t")
        assert len(found) == COUNT
        assert set(found.values()) <= {5, 6}
        return {number for number, offset in found.items() if offset == 6}

    def before_offsets(self, number: int, call) -> None:
        """Call something before the transaction of offsets that has this number."""
        seen = []

        def before(changes):
            if any(map(is_offset, changes)):
                seen.append(changes)
                if len(seen) == number:
                    call()

        self.session.before = before


def session_of_tool(address):
    return EventfulSession(address, session_timeout_ms=2000, connection_timeout_ms=20_000)


@pytest.fixture
def written(server, tmp_path):
    retry = {"max_tries": -1}
    client = KazooClient(server.address, timeout=30.0, connection_retry=retry, command_retry=retry)
    client.start()
    with closing(session_of_tool(server.address)) as session:
        session.open()
        yield Written(server.address, client, session, tmp_path)
    client.stop()
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize("complete", [False, True])
def test_what_was_written_before_zookeeper_was_lost_is_listed(server, written, complete):
    starting = threading.Thread(target=server.start)

    def start_once(_changes):
        written.session.unanswered = lambda _: None
        starting.start()

    written.before_offsets(2, server.kill)
    written.session.unanswered = start_once
    report = written.write()
    starting.join()
    assert "check ZooKeeper" in report.faults[0]
    stored = set(map(written.path, written.stored()))
    assert len(stored) in (500, 1000), "the second transaction may be done after the connection is back"
    assert stored - set(report.unknown) == set(report.written)
    assert bool(report.unknown) == any("is unknown" in fault for fault in report.faults)  # if the server starts late
    assert sorted(report.written + report.not_written + report.unknown) == sorted(map(written.path, range(COUNT)))
    written.session.before = lambda _: None
    assert written.restore(report, complete=complete).faults == []
    assert len(written.stored()) == (COUNT if complete else 0)


@pytest.mark.slow
def test_what_a_lost_zookeeper_may_have_written_is_listed_apart(server, written, monkeypatch):
    monkeypatch.setattr("zkconsumer.operate.offsets.patience._RECONNECT_S", 0.5)
    every = sorted(map(written.path, range(COUNT)))
    written.before_offsets(2, server.kill)
    report = written.write()
    server.start()
    assert any("is unknown" in fault for fault in report.faults)
    assert (report.written, report.unknown, report.not_written) == (every[:500], every[500:1000], every[1000:])
    written.session.close()  # as the command ends, and with its session the hold
    with closing(session_of_tool(server.address)) as session:
        session.open()
        written.session = session
        eventually(lambda: not written.group.children("owners", "t") + written.group.children("zkconsumer"))
        assert written.restore(report, complete=True).faults == []
    assert len(written.stored()) == COUNT


def test_a_refusal_in_the_middle_names_the_znode(written):
    locked = sorted(map(written.path, range(COUNT)))[700]
    read_only = [make_acl("world", "anyone", read=True, admin=True)]
    written.group.client.set_acls(locked, read_only)
    report = written.write()
    (fault,) = report.faults
    assert f"{locked} was not written" in fault
    assert "getAcl" in fault
    assert set(report.written) == set(map(written.path, written.stored()))
    assert (len(report.written), len(report.not_written)) == (500, 700)
    again = written.restore(report, complete=True)
    assert locked in again.faults[0]
    written.group.client.set_acls(locked, [make_acl("world", "anyone", all=True)])
    assert written.restore(report, complete=True).faults == []
    assert len(written.stored()) == COUNT
