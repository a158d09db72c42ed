"""Mirror: copies the offsets of a migrated group from Kafka to its znodes, so that the way back stays short.

Each copy has a session of its own: brokers and ZooKeeper's servers may change during a mirror of days, and a hold must
not outlive the copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from zkconsumer.core.migrationfile import plan_digest
from zkconsumer.core.migrationmirror import (
    CopiedOffset,
    MirrorCopy,
    MirrorState,
    copied,
    copying,
    decide_copy,
    decode_mirror,
    encode_mirror,
    ends_mirror,
    pause_before_copy,
)
from zkconsumer.core.migrationplan import MigrationPlan
from zkconsumer.core.znodes import GroupPaths
from zkconsumer.errors import WriteRefused, ZkConsumerError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.tools.hold import GroupHold, live_members
from zkconsumer.tools.migrationends import MigrationEnds
from zkconsumer.tools.migrationjournal import beside, open_journal
from zkconsumer.tools.offsetexport import write_whole
from zkconsumer.tools.offsetplan import offset_changes
from zkconsumer.tools.offsetstores import offset_nodes, partitions_to_hold
from zkconsumer.tools.offsetwrites import as_change
from zkconsumer.tools.snapshot import NodeChange
from zkconsumer.zookeeper.conditional import in_transactions


@dataclass(slots=True)
class CopyReport:
    """What one copy did.

    Attributes:
        rows: every partition, as it was before the copy.
        copied: the offsets that this copy wrote, by partition.
        faults: why something was not copied; the next copy tries it again.
        warnings: what the operator should know.
        members: ids of members that registered during the copy; they end the mirror.
    """

    rows: tuple[CopiedOffset, ...]
    copied: dict[TopicPartition, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    members: tuple[str, ...] = ()


def read_mirror(plan: MigrationPlan, plan_file: Path) -> MirrorState:
    """What the mirror of a plan has copied; without offsets if it never ran.

    Raises:
        ZkConsumerError: the file beside the plan is not that of its mirror.
        OSError: it cannot be read.
    """
    path = beside(plan_file, "mirror")
    if not path.exists():
        return MirrorState(plan_digest(plan))
    return decode_mirror(str(path), path.read_bytes(), plan)


class Mirror:
    """The mirror of one plan. One thread uses it, which has locked the plan.

    Args:
        plan: that was run, from a group in ZooKeeper to Kafka.
        plan_file: the journal is beside it, and the mirror's own file, which has what each znode may hold.
        long_hold: see :class:`~zkconsumer.tools.hold.GroupHold`.
        rewind: offsets in ZooKeeper may move back, if those in Kafka were reset.

    Raises:
        ZkConsumerError: a file beside the plan is of something else.
        OSError: a file cannot be read.
    """

    def __init__(self, plan: MigrationPlan, plan_file: Path, *, long_hold: bool = False, rewind: bool = False) -> None:
        self._plan = plan
        self._paths = GroupPaths(plan.source.group)
        self._file = beside(plan_file, "mirror")
        self._journal = open_journal(plan, plan_file).state
        self._state = read_mirror(plan, plan_file)
        self._long_hold = long_hold
        self._rewind = rewind

    @property
    def group(self) -> str:
        """The group in ZooKeeper."""
        return self._plan.source.group

    def decide(self, ends: MigrationEnds) -> MirrorCopy:
        """What a copy would do; nothing is written.

        Args:
            ends: the reversed ends of the plan.

        Raises:
            WriteRefused: a guard refuses, for example because the group in ZooKeeper has members.
            ZkConsumerError: a store cannot be read.
        """
        return self._decide(ends)[0]

    def _decide(self, ends: MigrationEnds) -> tuple[MirrorCopy, tuple[NodeChange, ...]]:
        """What a copy does, and the writes that it takes; raises as :meth:`decide`."""
        planned = [row.partition for row in self._plan.partitions]
        in_kafka = ends.offsets_of_source(planned, others=True)  # consumers may have begun with new topics
        existing = ends.cluster.partitions({partition.topic for partition in (*planned, *in_kafka)})
        topics = {partition.topic for partition in existing}
        guards = ends.guards_of_target(existing)
        nodes = offset_nodes(ends.session, self._plan.source.group, topics)
        copy = decide_copy(
            self._plan,
            self._state,
            ends.place(),
            [CopiedOffset(p, in_kafka.get(p), nodes.offset(p)) for p in sorted(existing)],
            guards,
            journal=self._journal,
            rewind=self._rewind,
        )
        if copy.refusals:
            raise WriteRefused(copy.refusals)
        return copy, offset_changes(ends.session, self._plan.source.group, copy.due, nodes)

    def copy(self, ends: MigrationEnds) -> CopyReport:
        """Copy once, under a hold of the group.

        A znode that another client has written since it was read is left as it is. Killed at any line, a copy leaves
        znodes that the mirror's file explains, and the session's end removes the hold.

        Args:
            ends: as of :meth:`decide`.

        Raises:
            WriteRefused: as of :meth:`decide`, or the group cannot be held; nothing was copied.
            ZkConsumerError: a store cannot be read; nothing was copied.
            OSError: the mirror's file cannot be written; nothing was copied that it does not have.
        """
        copy, changes = self._decide(ends)
        report = CopyReport(copy.rows, warnings=list(copy.warnings))
        if not copy.due:
            return report
        hold = self._hold(ends, copy, changes)
        try:
            hold.take()
            self._copy_under_hold(ends, hold, copy, changes, report)
        finally:
            released = hold.release()
        report.warnings += released.problems
        report.members = (*released.nudged, *released.gave_up)
        self._save(copied(self._state, report.copied))
        return report

    def _copy_under_hold(
        self,
        ends: MigrationEnds,
        hold: GroupHold,
        copy: MirrorCopy,
        changes: tuple[NodeChange, ...],
        report: CopyReport,
    ) -> None:
        self._save(copying(self._state, copy))
        try:
            self._write(ends, hold, copy, changes, report)
            if report.copied:
                hold.outlast_attempts()
        except ZkConsumerError as error:
            report.faults.append(str(error))

    def _hold(self, ends: MigrationEnds, copy: MirrorCopy, changes: tuple[NodeChange, ...]) -> GroupHold:
        group = self._plan.source.group
        parents = {node.path: node.after for node in changes if node.before is None and node.after is not None}
        held = partitions_to_hold(ends.session, ends.cluster.config, group, [row.partition for row in copy.rows])
        return GroupHold(ends.session, group, held, parents=parents, long=self._long_hold, forceable=False)

    def _write(
        self,
        ends: MigrationEnds,
        hold: GroupHold,
        copy: MirrorCopy,
        changes: tuple[NodeChange, ...],
        report: CopyReport,
    ) -> None:
        offsets = {self._paths.offset(partition): (partition, offset) for partition, offset in copy.due.items()}
        made = hold.created & {node.path for node in changes}
        hold.keep(made)
        todo = (as_change(node) for node in sorted(changes, key=lambda node: node.path) if node.path not in made)
        for part in in_transactions(todo):
            if hold.is_over:
                report.faults.append(
                    "the hold lasted so long that members that start meanwhile give up; the next copy continues. If "
                    "this is reported again and again, give --long-hold"
                )
                return
            conflict = ends.session.commit_changes(hold.fence, part)
            if conflict is not None:
                report.faults.append(f"{conflict.change.path} was not written: {conflict.reason}")
                return
            report.copied |= dict(offsets[change.path] for change in part if change.path in offsets)

    def _save(self, state: MirrorState) -> None:
        write_whole(self._file, encode_mirror(state))
        self._state = state


def run_mirror(
    mirror: Mirror,
    connect: Callable[[], AbstractContextManager[MigrationEnds]],
    *,
    duration: float,
    interval: float,
    pause: Callable[[float], bool],
    show: Callable[[CopyReport | ZkConsumerError], None],
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Copy again and again until the time is over, the end is asked for, or a guard refuses.

    Args:
        mirror: copies.
        connect: opens the reversed ends of the plan, for one copy.
        duration: after which no copy begins, in seconds.
        interval: between copies, in seconds.
        pause: waits so many seconds; returns True, at once, if the mirror shall end.
        show: called after each copy, with what it did or why it failed.
        clock: monotonic, in seconds.

    Returns:
        Why the last copy failed; empty if it did not.

    Raises:
        WriteRefused: consumers run in ZooKeeper, or another guard refuses; the mirror has ended.
        ZkConsumerError: copies fail for a reason that waiting does not remove.
        OSError: the mirror's file cannot be written.
    """
    began, failures = clock(), 0
    while True:
        try:
            with connect() as ends:
                report = mirror.copy(ends)
        except ZkConsumerError as error:
            failures, failure = failures + 1, str(error)
            if ends_mirror(error, failures):
                raise
            show(error)
        else:
            failures, failure = 0, name_some(report.faults)
            show(report)
            if report.members:
                raise WriteRefused(live_members(mirror.group, report.members, forceable=False))
        wait = pause_before_copy(clock() - began, interval, duration)
        if wait is None or pause(wait):
            return failure
