"""The one engine that writes offsets: hold, snapshot, compare-and-set, read back, release, mark as complete.

Every command that writes makes a :class:`~zkconsumer.tools.offsetplan.WritePlan`, which :func:`execute` carries out:
reset, import, copy, rename, delete, restore, and a migration's run, rollback and mirror.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from zkconsumer.core.offsets import StoredOffset
from zkconsumer.core.writestate import WriteState
from zkconsumer.core.znodes import GroupPaths
from zkconsumer.errors import WriteRefused, ZkConsumerError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.tools.hold import LONGEST_S, GroupHold, NoHold, Released
from zkconsumer.tools.offsetplan import GroupPlan, WritePlan, topic_identities
from zkconsumer.tools.offsetstores import Cluster, in_requests
from zkconsumer.tools.snapshot import KafkaChange, NodeChange, NodeState, Snapshot, SnapshotFile
from zkconsumer.tools.wholefiles import write_whole
from zkconsumer.zookeeper.conditional import Change, in_transactions
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.session import ZkSession

_READ_BACK_ROUNDS: Final = 3
_RECONNECT_S: Final = 10.0
_PAUSE_S: Final = 0.2


@dataclass(slots=True)
class WriteReport:
    """What a command wrote.

    Attributes:
        snapshot: the file that ``offsets restore`` takes; None if there was nothing to write.
        written: znodes, partitions whose offset in Kafka was committed, and files.
        not_written: what was planned and is known not to be written.
        unknown: what may be written or not, since the servers did not answer; it is read again by who resumes.
        faults: why something was not written, or is not as it was written; empty if all is well.
        warnings: what the operator should know.
        members: ids of members that registered under the hold.
    """

    snapshot: Path | None = None
    written: list[str] = field(default_factory=list)
    not_written: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)


def execute(
    session: ZkSession,
    cluster: Cluster,
    plan: WritePlan,
    file: SnapshotFile,
    *,
    long_hold: bool = False,
    announce: Callable[[Path], None] = lambda _: None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
    clock: Callable[[], float] = time.monotonic,
) -> WriteReport:
    """Write what is planned, one group after the other; a fault ends it.

    Args:
        session: an open session.
        cluster: for offsets in Kafka.
        plan: what to write.
        file: gets what is changed under the hold, before the first write, and is marked as complete at the end.
        long_hold: see :class:`~zkconsumer.tools.hold.GroupHold`.
        announce: called with the path when the snapshot is on the disk, before the first write.
        advance: called after each transaction with the number of writes done, and that of all.
        clock: monotonic, in seconds; limits the hold.

    Raises:
        ZkConsumerError: a guard refuses, or the group cannot be held; nothing was written, and the file is as before.
        OSError: the snapshot cannot be written, so nothing was.
    """
    if plan.refusals:
        raise WriteRefused(plan.refusals)
    groups = [group for group in plan.groups if not group.is_empty]
    report = WriteReport()
    if not groups:
        return report
    if plan.snapshot is None:
        plan = replace(plan, snapshot=_snapshot_of(session, cluster, plan.command, groups, report))
    writer = _Writer(session, cluster, plan, file, report, long_hold, announce, advance, clock)
    for group in groups:
        if report.faults:
            report.not_written += _names(group)
            continue
        try:
            _GroupWriter(writer, group).run()
        except ZkConsumerError as error:
            if report.snapshot is None:
                raise
            report.faults += error.reasons if isinstance(error, WriteRefused) else [str(error)]
            report.not_written += _names(group)
    if not report.faults:
        file.mark(WriteState.COMPLETE)
    return report


def _snapshot_of(
    session: ZkSession, cluster: Cluster, command: str, groups: Sequence[GroupPlan], report: WriteReport
) -> Snapshot:
    """What the file gets, with the identities of the topics: their names may belong to other topics one day."""
    topics = {row.partition.topic for group in groups for row in group.rows}
    recorded: dict[str, str | int] = {}
    try:
        recorded = {t: identity.recorded for t, identity in topic_identities(session, cluster, topics).items()}
    except ZkConsumerError as error:
        report.warnings.append(f"the snapshot cannot distinguish topics that are created again: {error}")
    changes = tuple(group.change for group in groups)
    return Snapshot(command, session.address, int(time.time() * 1000), changes, identities=recorded)


@dataclass(frozen=True, slots=True)
class _Writer:
    """What the groups of one plan have in common."""

    session: ZkSession
    cluster: Cluster
    plan: WritePlan
    file: SnapshotFile
    report: WriteReport
    long_hold: bool
    announce: Callable[[Path], None]
    advance: Callable[[int, int], None]
    clock: Callable[[], float]

    def begin(self) -> None:
        """Put what is changed on the disk, before the first write of all groups."""
        if self.report.snapshot is not None:
            return
        assert self.plan.snapshot is not None
        self.file.begin(self.plan.snapshot)
        self.report.snapshot = self.file.path
        self.announce(self.file.path)

    def show_progress(self) -> None:
        total = sum(len(_names(group)) for group in self.plan.groups)
        self.advance(len(self.report.written), total)

    def hold_of(self, group: GroupPlan) -> GroupHold | NoHold:
        """The hold of a group, which is not taken yet."""
        held = group.change.held_group
        if held is None:
            return NoHold()
        parents = {n.path: n.after for n in group.change.nodes if n.before is None and n.after is not None}
        return GroupHold(
            self.session,
            held,
            group.hold,
            parents=parents,
            live=self.plan.live,
            long=self.long_hold,
            forceable=self.plan.forceable,
            clock=self.clock,
        )


def _names(group: GroupPlan) -> list[str]:
    files = [] if group.file is None else [str(group.file[0])]
    return [*(change.path for change in group.change.nodes), *map(_in_kafka, group.change.kafka), *files]


def _in_kafka(change: KafkaChange) -> str:
    return name_in_kafka(change.partition)


def name_in_kafka(partition: TopicPartition) -> str:
    """How a report names the offset of a partition in Kafka; that in ZooKeeper is named by its path."""
    return f"{partition} in Kafka"


class _GroupWriter:
    """Writes one group under its hold."""

    def __init__(self, writer: _Writer, group: GroupPlan) -> None:
        self._writer = writer
        self._session = writer.session
        self._cluster = writer.cluster
        self._plan = writer.plan
        self._report = writer.report
        self._group = group.change.group
        self._nodes = group.change.nodes
        self._kafka = group.change.kafka
        self._file = group.file
        self._hold = writer.hold_of(group)

    def run(self) -> None:
        """Hold the group, write, read back and release.

        Raises:
            WriteRefused: the group cannot be held; nothing of it was written.
        """
        changes, closing = self._in_order()
        try:
            self._hold.take()
            if reasons := self._plan.still_refused():
                raise WriteRefused(reasons)
            self._writer.begin()
            self._writer.show_progress()
            self._write(changes)
            if not self._report.faults:
                self._write_kafka()
            if not self._report.faults:
                self._write_file()
            self._settle()
            released = self._hold.release([] if self._report.faults else closing)
        finally:
            self._hold.release()  # of what an interrupt has left
        self._note_release(released, closing)

    def _in_order(self) -> tuple[list[Change], list[Change]]:
        """Changes that are possible while the group is held, and deletions of parents of the hold.

        Parents are created before what is below them, and deleted after it. ``ids`` goes first of all: it cannot be
        deleted if a member has registered, and then nothing is.
        """
        writes = sorted((node for node in self._nodes if node.after is not None), key=lambda node: node.path)
        deletions = sorted((node for node in self._nodes if node.after is None), key=_depth, reverse=True)
        paths = GroupPaths(self._group)
        parents = (paths.root, paths.ours, paths.owners)
        closing = [n for n in deletions if n.path in parents or n.path.startswith(f"{paths.owners}/")]
        later = {node.path for node in closing}
        now = [node for node in deletions if node.path not in later]
        now.sort(key=lambda node: node.path != paths.ids)
        return [as_change(node) for node in (*writes, *now)], [as_change(node) for node in closing]

    def _write(self, changes: Sequence[Change]) -> None:
        made = self._hold.created & {change.path for change in changes}
        self._hold.keep(made)
        self._report.written += sorted(made)
        todo = [change for change in changes if change.path not in made]
        parts = list(in_transactions(todo))
        for number, part in enumerate(parts):
            if not self._write_part(part):
                self._report.not_written += [change.path for late in parts[number + 1 :] for change in late]
                return

    def _write_part(self, part: Sequence[Change]) -> bool:
        paths = [change.path for change in part]
        if self._is_too_late(paths):
            return False
        try:
            conflict = self._session.commit_changes(self._hold.fence, part)
        except ZkConsumerError as error:
            self._report.faults.append(f"{error}; check ZooKeeper, then {self._plan.resume}")
            self._look_again(part)
            return False
        if conflict is not None:
            self._report.faults.append(f"{conflict.change.path} was not written: {conflict.reason}")
            self._report.not_written += paths
            return False
        self._report.written += paths
        self._writer.show_progress()
        return True

    def _is_too_late(self, names: Sequence[str]) -> bool:
        """True if the hold has lasted too long for these writes, which are reported then."""
        if not self._hold.is_over:
            return False
        self._report.faults.append(
            f"the hold of group {self._group} lasted {LONGEST_S:g} s, after which members that started meanwhile give "
            f"up; {self._plan.resume} with --long-hold"
        )
        self._report.not_written += names
        return True

    def _look_again(self, part: Sequence[Change]) -> None:
        """Read what became of a transaction without an answer: its first change shows it, since it is all or none."""
        paths, first = [change.path for change in part], part[0]
        deadline = time.monotonic() + _RECONNECT_S
        while True:
            try:
                node = self._session.get(first.path)
                break
            except ZkConsumerError as error:
                if time.monotonic() > deadline:
                    self._report.faults.append(f"whether {name_some(paths)} were written is unknown: {error}")
                    self._report.unknown += paths
                    return
                time.sleep(_PAUSE_S)  # kazoo reconnects by itself
        if first.kind == "delete":
            done = node is None
        else:
            version = 0 if first.kind == "create" else first.version + 1
            done = node is not None and (node.data, node.version) == (first.data, version)
        (self._report.written if done else self._report.not_written).extend(paths)

    def _write_kafka(self) -> None:
        names = [_in_kafka(change) for change in self._kafka]
        if not names or self._is_too_late(names):
            return
        try:
            self._require_former()
        except ZkConsumerError as error:
            self._report.faults.append(f"offsets of group {self._group} in Kafka: {error}")
            self._report.not_written += names
            return
        try:
            refused = self._commit_to_kafka()
        except ZkConsumerError as error:
            self._report.faults.append(f"offsets of group {self._group} in Kafka: {error}; {self._plan.resume}")
            self._look_again_in_kafka()
            return
        for change in self._kafka:
            if change.partition in refused:
                self._report.faults.append(f"{_in_kafka(change)} was not written: {refused[change.partition]}")
            (self._report.not_written if change.partition in refused else self._report.written).append(
                _in_kafka(change)
            )
        self._writer.show_progress()

    def _require_former(self) -> None:
        """Kafka has no compare-and-set: the offsets are read right before they are written."""
        found = self._offsets_in_kafka()
        for change in self._kafka:
            now = found.get(change.partition)
            if now != change.before:
                raise ZkConsumerError(f"another client wrote {change.partition}, which is {now}, not {change.before}")

    def _offsets_in_kafka(self) -> dict[TopicPartition, int | None]:
        found = self._cluster.committed(self._group, [change.partition for change in self._kafka])
        return {partition: one.offset for partition, one in found.items()}

    def _commit_to_kafka(self) -> dict[TopicPartition, str]:
        """Kafka does not know the hold, so it is checked before each request."""
        refused: dict[TopicPartition, str] = {}
        for part in in_requests([change for change in self._kafka if change.after is not None]):
            wanted = {change.partition: StoredOffset(change.after, change.metadata or None) for change in part}
            refused |= self._cluster.commit(
                self._group, wanted, retention_ms=self._plan.retention_ms, before_send=self._hold.require
            )
        for gone in in_requests([change.partition for change in self._kafka if change.after is None]):
            refused |= self._cluster.delete(self._group, gone, before_send=self._hold.require)
        return refused

    def _look_again_in_kafka(self) -> None:
        """Read what became of requests of which one has no answer."""
        names = [_in_kafka(change) for change in self._kafka]
        try:
            found = self._offsets_in_kafka()
        except ZkConsumerError as error:
            self._report.faults.append(f"whether {name_some(names)} were written is unknown: {error}")
            self._report.unknown += names
            return
        for change in self._kafka:
            done = found.get(change.partition) == change.after
            (self._report.written if done else self._report.not_written).append(_in_kafka(change))

    def _write_file(self) -> None:
        """A file of another program, in one piece."""
        if self._file is None or self._is_too_late([str(self._file[0])]):
            return
        write_whole(*self._file)
        self._report.written.append(str(self._file[0]))
        self._writer.show_progress()

    def _settle(self) -> None:
        """Wait until members continue at what was written, which another client may have overwritten meanwhile.

        A member whose session has just expired may commit once more. 1. Offsets are written here; 2. the member, in a
        new session, writes the offset of before; 3. it tries to claim, and reads that offset first; 4. it is found and
        set again here. The attempt of step 3 must fail, too, so each time that something was set again attempts are
        outlasted again.
        """
        if not self._report.written:
            return
        try:
            for _ in range(_READ_BACK_ROUNDS if self._plan.sets_again else 1):
                self._hold.outlast_attempts()
                lost = self._lost()
                if not lost:
                    break
                if self._plan.sets_again:
                    self._set_again(lost)
            else:
                self._report.faults.append(
                    f"another client {'keeps writing' if self._plan.sets_again else 'wrote'} {name_some(lost)}, right "
                    "after it was written here; stop it, and try again"
                )
            self._read_back_kafka()
            self._report.faults += self._plan.still_refused()
        except ZkConsumerError as error:
            self._report.faults.append(f"what was written could not be read again: {error}")

    def _lost(self) -> dict[str, Znode | None]:
        """What another client has overwritten, or created again, by path.

        ``ids`` comes back with a member, whose registration is not deleted; the release reports it.
        """
        written = set(self._report.written) - {GroupPaths(self._group).ids}
        nodes = self._session.get_many(change.path for change in self._nodes if change.path in written)
        wanted = {change.path: change.after for change in self._nodes}
        return {path: node for path, node in sorted(nodes.items()) if not _is_as(node, wanted[path])}

    def _set_again(self, lost: Mapping[str, Znode | None]) -> None:
        """Set what another client has overwritten, and delete what it has created again."""
        wanted = {change.path: change.after for change in self._nodes}
        again = []
        for path, node in lost.items():
            after = wanted[path]
            self._report.warnings.append(
                f"{path} was written by another client right after it was "
                f"{'deleted' if after is None else 'written'} here, as {node.data if node else None!r}; it is "
                f"{'deleted' if after is None else 'set'} again"
            )
            if node is not None:
                kind: Literal["delete", "set"] = "delete" if after is None else "set"
                again.append(Change(kind, path, None if after is None else after.data, node.version))
        again.sort(key=lambda change: (change.kind == "delete", -change.path.count("/")))
        for part in in_transactions(again):
            self._session.commit_changes(self._hold.fence, part)

    def _read_back_kafka(self) -> None:
        """Report what another client has written to Kafka since; no commit could exclude that client."""
        written = set(self._report.written)
        mine = [change for change in self._kafka if _in_kafka(change) in written]
        found = self._offsets_in_kafka() if mine else {}
        other = [
            f"{_in_kafka(change)} as {found.get(change.partition)}"
            for change in mine
            if found.get(change.partition) != change.after
        ]
        if other:
            self._report.faults.append(
                f"another client wrote {name_some(other)}, right after it was written here; stop it, and try again"
            )

    def _note_release(self, released: Released, closing: Sequence[Change]) -> None:
        report = self._report
        report.warnings += released.problems
        report.members += (*released.nudged, *released.gave_up)
        if self._plan.source and report.members:
            report.faults.append(
                f"consumers of {self._plan.source} were started during the migration ({name_some(report.members)}); "
                "stop them, and plan again"
            )
        elif released.nudged:
            report.warnings.append(f"members registered meanwhile, and continue now: {name_some(released.nudged)}")
        if released.gave_up and not self._plan.source:
            report.warnings.append(
                f"members registered so early in the hold that they may have given up; restart those that own nothing: "
                f"{name_some(released.gave_up)}"
            )
        if closing:
            self._note_closing([change.path for change in closing])

    def _note_closing(self, paths: Sequence[str]) -> None:
        """What has become of the deletions of the release, which a member or another client may have prevented."""
        report = self._report
        if report.faults:  # then they were not tried
            report.not_written += paths
            return
        try:
            found = self._session.get_many(paths)
        except ZkConsumerError as error:
            report.faults.append(f"whether {name_some(paths)} were deleted is unknown: {error}")
            report.unknown += paths
            return
        left = [path for path in paths if found[path] is not None]
        report.written += [path for path in paths if found[path] is None]
        report.not_written += left
        if left:
            reasons = report.warnings if self._hold.live else report.faults
            reasons.append(f"{name_some(left)} could not be deleted: a member or another client uses what is below")


def _is_as(node: Znode | None, wanted: NodeState | None) -> bool:
    """True if a node is as it was written, or gone as it was deleted."""
    return node is None if wanted is None else node is not None and node.data == wanted.data


def _depth(node: NodeChange) -> tuple[int, str]:
    return node.path.count("/"), node.path


def as_change(node: NodeChange) -> Change:
    """The conditional write that a change of a znode needs."""
    before, after = node.before, node.after
    if after is None:
        return Change("delete", node.path, version=-1 if before is None else before.version)
    if before is None:
        return Change("create", node.path, after.data, access=after.access)
    return Change("set", node.path, after.data, before.version)
