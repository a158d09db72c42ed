"""Carries out a MigrationPlan: guards again, hold, snapshot, journaled writes, read back, release.

A run that was killed is resumed by the same command: it reads what the target has now, and writes the rest; to Kafka it
commits everything again. The journal is needed for two facts only: an earlier run may have written, and the last one
has ended. What was written is read from the target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zkconsumer.core.migrationfile import plan_digest
from zkconsumer.core.migrationlayouts import format_starting_offsets
from zkconsumer.core.migrationplan import MigrationPlan, PlannedPartition, beyond_plan, recheck
from zkconsumer.core.offsets import OUR_METADATA, StoredOffset
from zkconsumer.core.znodes import GroupPaths
from zkconsumer.errors import WriteRefused, ZkConsumerError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.tools.hold import GroupHold, NoHold, Released
from zkconsumer.tools.migrationends import MigrationEnds
from zkconsumer.tools.migrationjournal import JournalFile, beside, exclusive, open_journal
from zkconsumer.tools.offsetexport import write_whole
from zkconsumer.tools.offsetplan import offset_changes
from zkconsumer.tools.offsetstores import in_requests, offset_nodes, partitions_to_hold
from zkconsumer.tools.offsetwrites import as_change
from zkconsumer.tools.snapshot import GroupChange, KafkaChange, NodeChange, Snapshot, write_snapshot
from zkconsumer.zookeeper.conditional import Change, in_transactions


@dataclass(slots=True)
class RunReport:
    """What a run wrote.

    Attributes:
        snapshot: the file that ``offsets restore`` takes; None if there was nothing to write.
        journal: the file of events.
        written: partitions whose offset this run wrote.
        found: partitions that had the new offset already, and are not written again.
        faults: why something was not written, or is not as it was written; empty if all is well.
        warnings: what the operator should know.
    """

    journal: Path
    snapshot: Path | None = None
    written: list[TopicPartition] = field(default_factory=list)
    found: list[TopicPartition] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run_plan(
    ends: MigrationEnds,
    plan: MigrationPlan,
    plan_file: Path,
    *,
    long_hold: bool = False,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> RunReport:
    """Write what is planned, or the rest of it.

    Args:
        ends: of the plan.
        plan: to carry out.
        plan_file: journal and snapshot are beside it.
        long_hold: see :class:`~zkconsumer.tools.hold.GroupHold`.
        advance: called with the number of partitions that are written, and of all.

    Raises:
        WriteRefused: a guard refuses, or another run of the plan is under way; this run has written nothing.
        ZkConsumerError: a store cannot be read, or the journal is of another plan; this run has written nothing.
        OSError: snapshot or journal cannot be written; this run has written nothing, unless the journal has an intent.
    """
    with exclusive(plan_file):
        return _run_alone(ends, plan, plan_file, long_hold, advance)


def check_plan(ends: MigrationEnds, plan: MigrationPlan, plan_file: Path) -> RunReport:
    """What a run would begin with: the partitions that it need not write. Raises as :func:`run_plan`."""
    journal = open_journal(plan, plan_file)
    now = ends.observe([row.partition for row in plan.partitions])
    check = recheck(plan, now, began=journal.state.may_have_written)
    if check.refusals:
        raise WriteRefused(check.refusals)
    commits_all = plan.target.kind == "kafka" and (check.todo or not journal.state.ended or journal.state.rolled_back)
    return RunReport(journal.path, found=[] if commits_all else [row.partition for row in check.done])


def _run_alone(
    ends: MigrationEnds, plan: MigrationPlan, plan_file: Path, long_hold: bool, advance: Callable[[int, int], None]
) -> RunReport:
    report = check_plan(ends, plan, plan_file)
    journal = open_journal(plan, plan_file)
    if len(report.found) == len(plan.partitions) and not journal.state.rolled_back:
        return report
    others = ends.offsets_of_target([row.partition for row in plan.partitions], others=True)
    beyond = [[p.topic, p.partition, others[p]] for p in beyond_plan(plan, others)]
    journal.append("begin", plan=plan_digest(plan), at_ms=int(time.time() * 1000), beyond=beyond)
    _Run(ends, plan, journal, report, long_hold, advance).run(beside(plan_file, "snapshot.json"))
    return report


class _Run:
    """One run under the hold."""

    def __init__(
        self,
        ends: MigrationEnds,
        plan: MigrationPlan,
        journal: JournalFile,
        report: RunReport,
        long_hold: bool,
        advance: Callable[[int, int], None],
    ) -> None:
        self._ends = ends
        self._session = ends.session
        self._plan = plan
        self._journal = journal
        self._report = report
        self._long_hold = long_hold
        self._advance = advance
        self._unit = journal.state.units

    def run(self, snapshot: Path) -> None:
        """Hold the group in ZooKeeper, write, read back and release."""
        plan = self._plan
        partitions = [row.partition for row in plan.partitions]
        nodes = self._node_changes(plan.partitions) if plan.target.kind == "zookeeper" else ()
        hold = self._hold(partitions, nodes)
        try:
            hold.take()
            todo = self._todo_under_hold(partitions)
            if plan.target.kind != "spark-options":
                self._report.snapshot = self._write_snapshot(snapshot, nodes)
            self._write(hold, nodes, todo)
            if not self._report.faults:
                self._settle(hold, partitions)
        finally:
            self._note_release(hold.release())
        if not self._report.faults:
            self._journal.append("end", at_ms=int(time.time() * 1000))

    def _hold(self, partitions: Sequence[TopicPartition], nodes: Sequence[NodeChange]) -> GroupHold | NoHold:
        """The hold of the group in ZooKeeper, which is not taken yet."""
        group = self._plan.held_group
        if group is None:
            return NoHold()
        parents = {n.path: n.after for n in nodes if n.before is None and n.after is not None}
        held = partitions_to_hold(self._session, self._ends.cluster.config, group, partitions)
        return GroupHold(self._session, group, held, parents=parents, long=self._long_hold, forceable=False)

    def _note_release(self, released: Released) -> None:
        self._report.warnings += released.problems
        if self._plan.source.kind == "zookeeper":
            if came := (*released.nudged, *released.gave_up):
                self._fault_of_source(name_some(came))
            return
        if released.nudged:
            self._report.warnings.append(f"members registered meanwhile, and start now: {name_some(released.nudged)}")
        if released.gave_up:
            self._report.warnings.append(
                "members registered so early in the hold that they may have given up; restart those that own nothing: "
                f"{name_some(released.gave_up)}"
            )

    def _write(self, hold: GroupHold | NoHold, nodes: Sequence[NodeChange], todo: Sequence[PlannedPartition]) -> None:
        if self._plan.target.kind == "kafka":
            self._commit(hold, todo)
        elif self._plan.target.kind == "spark-options":
            self._write_file(hold, todo)
        else:
            self._write_nodes(hold, nodes, todo)

    def _todo_under_hold(self, partitions: Sequence[TopicPartition]) -> list[PlannedPartition]:
        """What is left to write, from reads under the hold.

        1. The guards are checked; 2. the last member commits, and ends; 3. the hold is taken. So the offsets are read
        once more.

        Raises:
            WriteRefused: offsets have moved since the guards were checked.
        """
        source, target = self._ends.offsets_of_source(partitions), self._ends.offsets_of_target(partitions)
        began = self._journal.state.may_have_written
        moved = [row.partition for row in self._plan.partitions if source.get(row.partition) != row.source]
        allowed = {
            row.partition: {row.before, row.new} if began or row.before == row.new else {row.before}
            for row in self._plan.partitions
        }
        moved += [p for p in partitions if target.get(p) not in allowed[p]]
        if moved:
            raise WriteRefused(f"offsets have moved since they were checked: {name_some(moved)}; plan again")
        # Kafka keeps an offset for the retention of its last commit. Equal offsets, of an earlier plan or of dual
        # commit, would expire before those that are committed now.
        rows, all_of_them = self._plan.partitions, self._plan.target.kind == "kafka"
        return [row for row in rows if all_of_them or target.get(row.partition) != row.new]

    def _node_changes(self, rows: Sequence[PlannedPartition]) -> tuple[NodeChange, ...]:
        group = self._plan.target.group
        wanted = {row.partition: row.new for row in rows if row.new is not None}
        found = offset_nodes(self._session, group, {partition.topic for partition in wanted})
        return offset_changes(self._session, group, wanted, found)

    def _write_snapshot(self, path: Path, nodes: tuple[NodeChange, ...]) -> Path:
        """Keep what the plan changes, before its first write; a later run keeps the first snapshot."""
        known = self._journal.state.snapshot
        if known is not None:
            return Path(known)
        path.unlink(missing_ok=True)  # of a run that ended before it was complete, so nothing was written
        rows = self._plan.partitions
        kafka = tuple(KafkaChange(row.partition, row.before, row.new) for row in rows if row.before != row.new)
        target = self._plan.target
        change = GroupChange(target.group, nodes, kafka if target.kind == "kafka" else ())
        change = change.holding(self._plan.held_group)
        command = f"migrate {self._plan.source} to {self._plan.target}"
        write_snapshot(path, Snapshot(command, self._session.address, int(time.time() * 1000), (change,)))
        self._journal.append("snapshot", path=str(path.absolute()))
        return path

    # -- to Kafka -----------------------------------------------------------------------------------------------------

    def _commit(self, hold: GroupHold | NoHold, todo: Sequence[PlannedPartition]) -> None:
        mark = f"{OUR_METADATA}migrate-{plan_digest(self._plan)[:16]}"
        for rows in in_requests(todo):
            part = {row.partition: row.new for row in rows if row.new is not None}
            if not self._begin_unit(hold, part):
                return
            offsets = {partition: StoredOffset(offset, mark) for partition, offset in part.items()}
            try:
                refused = self._ends.cluster.commit(
                    self._plan.target.group,
                    offsets,
                    retention_ms=self._plan.retention_ms,
                    before_send=hold.require,
                )
            except ZkConsumerError as error:
                self._end_unit([], f"{error}; run the plan again, which reads what was written")
                return
            accepted = [partition for partition in part if partition not in refused]
            reasons = [f"{partition} was not written: {reason}" for partition, reason in refused.items()]
            self._end_unit(accepted, name_some(reasons))
            if refused:
                return

    # -- to a file ----------------------------------------------------------------------------------------------------

    def _write_file(self, hold: GroupHold | NoHold, todo: Sequence[PlannedPartition]) -> None:
        """The JSON of startingOffsets, with all partitions of the plan, in one piece."""
        offsets = {row.partition: row.new for row in self._plan.partitions if row.new is not None}
        if not self._begin_unit(hold, offsets):
            return
        write_whole(Path(self._plan.target.group), format_starting_offsets(offsets))
        self._end_unit([row.partition for row in todo], "")

    # -- to ZooKeeper -------------------------------------------------------------------------------------------------

    def _write_nodes(
        self, hold: GroupHold | NoHold, planned: Sequence[NodeChange], todo: Sequence[PlannedPartition]
    ) -> None:
        changes = [as_change(node) for node in sorted(planned, key=lambda node: node.path)]
        made = hold.created & {change.path for change in changes}
        hold.keep(made)
        offsets = {self._offset_path(row): (row.partition, row.new) for row in todo}
        for part in in_transactions(change for change in changes if change.path not in made):
            theirs = dict(offsets[change.path] for change in part if change.path in offsets)
            if not self._begin_unit(hold, theirs):
                return
            if not self._write_part(hold, part, list(theirs)):
                return

    def _offset_path(self, row: PlannedPartition) -> str:
        return GroupPaths(self._plan.target.group).offset(row.partition)

    def _write_part(self, hold: GroupHold | NoHold, part: Sequence[Change], partitions: list[TopicPartition]) -> bool:
        try:
            conflict = self._session.commit_changes(hold.fence, part)
        except ZkConsumerError as error:
            self._end_unit([], f"{error}; run the plan again, which reads what was written")
            return False
        if conflict is not None:
            self._end_unit([], f"{conflict.change.path} was not written: {conflict.reason}")
            return False
        self._end_unit(partitions, "")
        return True

    # -- both ---------------------------------------------------------------------------------------------------------

    def _begin_unit(self, hold: GroupHold | NoHold, offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Journal what is about to be written; False if the hold has lasted too long."""
        if hold.is_over:
            self._report.faults.append(
                "the hold lasted so long that members that started meanwhile give up; run the plan again with "
                "--long-hold"
            )
            return False
        rows = [[partition.topic, partition.partition, offset] for partition, offset in offsets.items()]
        self._journal.append("intent", unit=self._unit, offsets=rows)
        return True

    def _end_unit(self, written: Sequence[TopicPartition], fault: str) -> None:
        self._report.written += written
        if fault:
            self._report.faults.append(fault)
        self._journal.append("outcome", unit=self._unit, written=len(written), fault=fault)
        self._unit += 1
        self._advance(len(self._report.written), len(self._plan.partitions))

    def _settle(self, hold: GroupHold | NoHold, partitions: Sequence[TopicPartition]) -> None:
        """Read back both ends while members cannot own partitions: all is as planned, or another client has written."""
        try:
            hold.outlast_attempts()
            source, target = self._ends.offsets_of_source(partitions), self._ends.offsets_of_target(partitions)
            self._require_no_source_members()
        except ZkConsumerError as error:
            self._report.faults.append(f"what was written could not be read again: {error}; run the plan again")
            return
        rows = self._plan.partitions
        other = [f"{r.partition} in {self._plan.target}" for r in rows if target.get(r.partition) != r.new]
        other += [f"{r.partition} in {self._plan.source}" for r in rows if source.get(r.partition) != r.source]
        if other:
            self._report.faults.append(
                f"another client wrote during the migration: {name_some(other)}; stop it, see `migrate verify`, and "
                "plan again, or undo the migration with `migrate rollback`"
            )

    def _require_no_source_members(self) -> None:
        if self._plan.source.kind == "kafka":
            group = self._ends.cluster.describe(self._plan.source.group)
            if group.has_members:
                self._fault_of_source(group.state)

    def _fault_of_source(self, who: str) -> None:
        """They continue where the consumers of the target do, so each record would be consumed twice."""
        self._report.faults.append(
            f"consumers of {self._plan.source} were started during the migration ({who}); stop them, and plan again"
        )
