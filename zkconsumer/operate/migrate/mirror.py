"""Mirror: copies the offsets of a migrated group from Kafka to its znodes, so that the way back stays short.

Each copy has a session of its own: brokers and ZooKeeper's servers may change during a mirror of days, and a hold must
not outlive the copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from zkconsumer.errors import WriteRefused, ZkConsumerError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.topicorigins import WrittenFor, that_are
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.rules.migrationplan import Guard, MigrationPlan
from zkconsumer.operate.migrate.rules.mirrorplan import (
    CopiedOffset,
    MirrorCopy,
    Mirrored,
    decide_copy,
    ends_mirror,
    moves_back,
    pause_before_copy,
)
from zkconsumer.operate.migrate.rules.planfile import plan_digest
from zkconsumer.operate.migrate.rules.waysback import known_at_source
from zkconsumer.operate.offsets.groupinuse import live_members, read_mark
from zkconsumer.operate.offsets.groupstores import partitions_to_hold
from zkconsumer.operate.offsets.judgedoffsets import judge_stored, topic_identities
from zkconsumer.operate.offsets.offsetnodes import offset_nodes, stored_offset
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import (
    OF_MIRROR,
    GroupChange,
    NodeChange,
    NodeState,
    Snapshot,
    SnapshotFile,
    partition_of,
    snapshot_of_plan,
)
from zkconsumer.operate.offsets.writeplan import GroupPlan, WritePlan, offset_changes
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import OffsetNode, mark_verdict
from zkconsumer.zookeeper.session import ZkSession


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


def mirrored(file: SnapshotFile) -> Mirrored:
    """What the znodes may hold, from the file of a mirror."""
    known: dict[TopicPartition, frozenset[int | None]] = {}
    if file.snapshot is not None:
        for change in (change for group in file.snapshot.groups for change in group.nodes):
            if (partition := partition_of(change.path)) is not None:
                states = (change.after,) if file.state is WriteState.COMPLETE else (change.before, change.after)
                known[partition] = frozenset(stored_offset(change.path, state) for state in states)
    return known


def copied(file: SnapshotFile) -> dict[TopicPartition, int | None]:
    """The newest offset of each partition that the mirror has found in Kafka; partitions without one are absent.

    The last copy may not have written it, so the znode may have an earlier one.
    """
    changes = () if file.snapshot is None else [change for group in file.snapshot.groups for change in group.nodes]
    newest = {partition_of(change.path): stored_offset(change.path, change.after) for change in changes}
    return {p: offset for p, offset in newest.items() if p is not None and offset is not None}


def _counting_in_kafka(
    ends: MigrationEnds, group: str, planned: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets of all topics, since consumers may have begun with new ones, without those of earlier topics.

    A copy would be newer than the topic, and count: 1. the topic is created again; 2. a commit of the earlier one
    arrives late, and members ignore it; 3. it is copied; 4. the old consumers begin there.
    """
    stored = ends.cluster.committed_known(group, planned)
    identities = topic_identities(ends.session, ends.cluster, {partition.topic for partition in stored})
    judged = judge_stored(ends.session, None, identities, stored)
    return {p: one.counting for p, one in judged.items() if one.counting is not None}


def _is_marked_as_done(session: ZkSession, group: str) -> Guard:
    """A condition of each copy: the mark of the group shows that its migration is done."""
    mark = read_mark(session, group)
    if mark is None or mark_verdict(mark, has_members=False) == "done":
        return Guard("mark", True, "no migration of the group is under way")
    return Guard("mark", False, f"group {group} is marked as {mark.state}: complete the run or the way back first")


class Mirror:
    """The mirror of one plan. One thread uses it, which has locked the plan.

    Args:
        plan: that was run, from a group in ZooKeeper to Kafka.
        plan_file: the file of its runs is beside it, and the mirror's own file, which has what each znode may hold.
        long_hold: see :class:`~zkconsumer.operate.offsets.grouphold.GroupHold`.
        rewind: offsets in ZooKeeper may move back, if those in Kafka were reset.
        earlier: plan and state of an earlier way back; see :func:`known_at_source`.

    Raises:
        ZkConsumerError: a file beside the plan is of something else.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        plan: MigrationPlan,
        plan_file: Path,
        *,
        long_hold: bool = False,
        rewind: bool = False,
        earlier: tuple[MigrationPlan | None, WriteState | None] = (None, None),
    ) -> None:
        self._plan = plan
        self._paths = GroupPaths(plan.source.group)
        self._file = snapshot_of_plan(plan, plan_file, OF_MIRROR)
        self._run = snapshot_of_plan(plan, plan_file).state
        self._long_hold = long_hold
        self._rewind = rewind
        self._earlier = earlier

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
        in_kafka = _counting_in_kafka(ends, self._plan.target.group, planned)
        existing = ends.cluster.partitions({partition.topic for partition in (*planned, *in_kafka)})
        topics = {partition.topic for partition in existing}
        target = ends.observe_target(existing)
        guards = [*target.guards, _is_marked_as_done(ends.session, self._plan.source.group)]
        nodes = offset_nodes(ends.session, self._plan.source.group, topics)
        outdated = frozenset(that_are(target.offsets, WrittenFor.EARLIER))
        rows = [CopiedOffset(p, in_kafka.get(p), nodes.offset(p), p in outdated) for p in sorted(existing)]
        copy = decide_copy(
            self._plan,
            known_at_source(mirrored(self._file), *self._earlier),
            ends.place(),
            rows,
            guards,
            run=self._run,
            rewind=self._rewind,
            logs=ends.cluster.log_ranges(moves_back(rows)),
        )
        if copy.refusals:
            raise WriteRefused(copy.refusals)
        return copy, offset_changes(ends.session, self._plan.source.group, copy.due, nodes, outdated)

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
        if not copy.due:
            return CopyReport(copy.rows, warnings=list(copy.warnings))
        writes = self._plan_writes(ends, copy, changes)
        report = execute(ends.session, ends.cluster, writes, self._file, long_hold=self._long_hold)
        written = set(report.written)
        if report.faults and written:
            self._narrow(written)
        return CopyReport(
            copy.rows,
            {p: offset for p, offset in copy.due.items() if self._paths.offset(p) in written},
            report.faults,
            [*copy.warnings, *report.warnings],
            tuple(report.members),
        )

    def _narrow(self, written: Collection[str]) -> None:
        """Of a copy that is not complete, record which znodes have the new offset for certain."""
        former = self._file.snapshot
        assert former is not None
        (group,) = former.groups
        nodes = tuple(n._replace(before=n.after) if n.path in written else n for n in group.nodes)
        self._file.begin(replace(former, groups=(replace(group, nodes=nodes),)))

    def _plan_writes(self, ends: MigrationEnds, copy: MirrorCopy, changes: tuple[NodeChange, ...]) -> WritePlan:
        group, session = self._plan.source.group, ends.session
        held = partitions_to_hold(session, ends.cluster, group, [row.partition for row in copy.rows])
        command = f"mirror {self._plan.target} to {self._plan.source}"
        kept = GroupChange(group, self._kept(copy, changes))
        now_ms, digest = int(time.time() * 1000), plan_digest(self._plan)
        return WritePlan(
            command,
            (GroupPlan(GroupChange(group, changes), (), frozenset(held)),),
            forceable=False,
            snapshot=Snapshot(command, session.address, now_ms, (kept,), plan=digest),
            sets_again=False,
            resume="mirror again",
        )

    def _kept(self, copy: MirrorCopy, changes: tuple[NodeChange, ...]) -> tuple[NodeChange, ...]:
        """What the file has of each partition: also of those that this copy does not write.

        It does not have one that Kafka had no offset of in any copy, while its znode is as the migration left it:
        consumers may have continued in Kafka before that expired, so the znode's is older (:func:`copied`).
        """
        left = {row.partition: row.unread for row in self._plan.partitions}
        known = (
            {}
            if self._file.snapshot is None
            else {change.path: change for group_change in self._file.snapshot.groups for change in group_change.nodes}
        )
        for row in copy.rows:
            path = self._paths.offset(row.partition)
            is_left = row.in_zookeeper is not None and row.in_zookeeper in left.get(row.partition, ())
            if row.in_kafka is None and is_left and path not in known:
                continue
            state = None if row.in_zookeeper is None else NodeState(OffsetNode.encode(row.in_zookeeper))
            known[path] = NodeChange(path, state, state)
        known |= {change.path: change for change in changes if partition_of(change.path) is not None}
        return tuple(known[path] for path in sorted(known))


def run_mirror(
    mirror: Mirror,
    connect: Callable[[], AbstractContextManager[MigrationEnds]],
    *,
    duration: float,
    interval: float,
    pause: Callable[[float], bool],
    show: Callable[[CopyReport | Exception], None],
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
        ZkConsumerError, OSError: copies fail for a reason that waiting does not remove; OSError if the mirror's file
            cannot be written.
    """
    began, failures = clock(), 0
    while True:
        try:
            with connect() as ends:
                report = mirror.copy(ends)
        except (ZkConsumerError, OSError) as error:
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
