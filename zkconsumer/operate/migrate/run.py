"""``migrate run``: writes what a MigrationPlan has, or the rest of it.

A run that was killed is resumed by the same command: it reads what the target has now, and writes the rest; to Kafka it
commits everything again. The file beside the plan records what the target had before the first run, and how far the
runs and rollbacks of the plan have come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from zkconsumer.errors import WriteRefused, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import MIGRATED, NO_OFFSET, fresh_metadata, our_metadata
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.migrationmark import mark_of, marking
from zkconsumer.operate.migrate.rules.layoutdecoding import format_starting_offsets
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan, Observation, beyond_plan
from zkconsumer.operate.migrate.rules.migrationrecheck import Recheck, lacks_mark_alone, moved, recheck
from zkconsumer.operate.migrate.rules.planfile import plan_digest
from zkconsumer.operate.offsets.offsetnodes import offset_nodes
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.restoreplan import plan_restore
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import (
    GroupChange,
    KafkaChange,
    NodeChange,
    Snapshot,
    SnapshotFile,
    exclusive,
    snapshot_of_plan,
)
from zkconsumer.operate.offsets.writeplan import WritePlan, offset_changes
from zkconsumer.operate.offsets.writereport import WriteReport, name_in_kafka
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths

_LOST: Final = "{} had lost its offsets of {}, which an earlier run wrote; what was read since then is read once more"

_CONTINUED: Final = (
    "an earlier run or rollback was killed, and consumers of {} have committed beyond the plan since: {}; nothing is "
    "written. If they were started while the planned offsets were not there, they began at auto.offset.reset: compare "
    "with the plan"
)
_MARKED: Final = "an earlier run wrote everything, and was killed before the mark of group {} showed it; now it does"


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run wrote.

    Attributes:
        snapshot: the file of the plan's runs; None if nothing was written, or a file of Spark.
        written: partitions whose offset this run wrote.
        found: partitions that need not be written: they have the new offset, or had it when the run was complete.
        faults: why something was not written, or is not as it was written; empty if all is well.
        warnings: what the operator should know.
        is_complete: everything that was planned is written, and was found so.
    """

    snapshot: Path | None = None
    written: list[TopicPartition] = field(default_factory=list)
    found: list[TopicPartition] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    is_complete: bool = True


def run_plan(
    ends: MigrationEnds,
    plan: MigrationPlan,
    plan_file: Path,
    *,
    long_hold: bool = False,
    may_run: Callable[[], None] = lambda: None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> RunReport:
    """Write what is planned, or the rest of it.

    Args:
        ends: of the plan.
        plan: to carry out.
        plan_file: the file of its runs is beside it.
        long_hold: see :class:`~zkconsumer.operate.offsets.grouphold.GroupHold`.
        may_run: called when the plan is locked; raises WriteRefused if it is not to be run any more.
        advance: called with the number of writes done, and that of all.

    Raises:
        WriteRefused: a guard refuses, or another run of the plan is under way; this run has written nothing.
        ZkConsumerError: a store cannot be read, or the file is of another plan; this run has written nothing.
        OSError: the file cannot be written; this run has written nothing.
    """
    with exclusive(plan_file, plan):
        may_run()
        file = snapshot_of_plan(plan, plan_file)
        with marking(ends.session, plan) as marked:
            now, mark = ends.observe(_all_of(plan)), mark_of(ends.session, plan)
            if lacks_mark_alone(plan, now, file.state, mark):
                marked.is_complete = True
                return RunReport(found=_all_of(plan), warnings=[_MARKED.format(plan.held_group)])
            check = _recheck(plan, now, file)
            found = _found(plan, file, check)
            has_all = len(found) == len(plan.partitions)
            # A run has asked under its hold. Where its mark is missing, since the group was reversed, another one asks.
            if has_all and (check.later or (file.state is WriteState.COMPLETE and not marked.lacks(mark))):
                file.mark(WriteState.COMPLETE)
                marked.is_complete = True
                return RunReport(found=found, warnings=_warnings(plan, check))
            left = _plan_writes(ends, plan, file)
            if has_all or left.is_empty:  # a mirror, or another client, may just have written the same
                left, found = _without_writes(ends, plan, left, file), _all_of(plan)
            before = file.state
            lost = name_some([row.partition for row in check.todo]) if file.state is WriteState.COMPLETE else ""
            writes = replace(left, begins=marked.begin)
            report = execute(ends.session, ends.cluster, writes, file, long_hold=long_hold, advance=advance)
            marked.report(report)
            if marked.is_void:
                # Otherwise: 1. a consumer joins the target before the first write, so all writes are refused; 2. it
                # begins at auto.offset.reset, commits and is stopped; 3. the next run takes it for one that has
                # continued after a run that was killed.
                file.restore(before)
    return RunReport(
        snapshot=None if plan.target.kind == "spark-options" or marked.is_void or left.is_empty else report.snapshot,
        written=_written(plan, report),
        found=found,
        faults=report.faults,
        warnings=[*([_LOST.format(plan.target, lost)] if lost else []), *writes.warnings, *report.warnings],
        is_complete=report.is_complete,
    )


def check_plan(ends: MigrationEnds, plan: MigrationPlan, plan_file: Path) -> RunReport:
    """What a run would begin with: the partitions that it need not write. Raises as :func:`run_plan`."""
    file = snapshot_of_plan(plan, plan_file)
    now = ends.observe(_all_of(plan))
    if lacks_mark_alone(plan, now, file.state, mark_of(ends.session, plan)):
        return RunReport(found=_all_of(plan))
    check = _recheck(plan, now, file)
    return RunReport(found=_found(plan, file, check), warnings=_warnings(plan, check))


def _warnings(plan: MigrationPlan, check: Recheck) -> list[str]:
    return [_CONTINUED.format(plan.target, name_some(check.later))] if check.later else []


def _all_of(plan: MigrationPlan) -> list[TopicPartition]:
    return [row.partition for row in plan.partitions]


def _recheck(plan: MigrationPlan, now: Observation, file: SnapshotFile) -> Recheck:
    check = recheck(plan, now, file.state)
    if check.refusals:
        raise WriteRefused(check.refusals)
    return check


def _found(plan: MigrationPlan, file: SnapshotFile, check: Recheck) -> list[TopicPartition]:
    """The partitions that are not written again.

    Kafka keeps an offset for the retention of its last commit. Equal offsets, of an earlier plan or of dual commit,
    would expire before those that are committed now, so all are committed, unless a run of this plan has done it.
    """
    is_written = file.state is WriteState.COMPLETE or check.later
    if plan.target.kind == "kafka" and (check.todo or not is_written):
        return []
    return [row.partition for row in check.done]


def _plan_writes(ends: MigrationEnds, plan: MigrationPlan, file: SnapshotFile) -> WritePlan:
    """What is left to write, from what the plan changes and what the target has now."""
    former, run = file.snapshot, file.state
    whole = _whole(ends, plan, former)
    is_kafka = plan.target.kind == "kafka"
    left = plan_restore(
        ends.session,
        ends.cluster,
        whole,
        complete=True,
        overwrite=True,  # `recheck` and `_still_refused` decide what the target may have
        outside="keep",
        forceable=False,
        commits_again=is_kafka,
    )
    if plan.target.kind == "spark-options":
        offsets = {row.partition: row.new for row in plan.partitions if row.new is not None}
        (group,) = left.groups
        text = format_starting_offsets(offsets)
        left = replace(left, groups=(replace(group, file=(Path(plan.target.group), text)),))
    return replace(
        left,
        snapshot=whole,
        retention_ms=plan.retention_ms,
        still_refused=lambda is_written: _still_refused(ends, plan, run, is_written=is_written),
        sets_again=False,
        source=str(plan.source) if plan.source.kind == "zookeeper" else "",
        resume="run the plan again",
    )


def _without_writes(ends: MigrationEnds, plan: MigrationPlan, left: WritePlan, file: SnapshotFile) -> WritePlan:
    """The target has all already, and must have it under the hold."""
    groups = (replace(group, change=replace(group.change, nodes=(), kafka=()), file=None) for group in left.groups)
    return replace(
        left,
        groups=tuple(groups),
        still_refused=lambda _: _still_refused(ends, plan, file.state, is_written=False, has_all=True),
    )


def _whole(ends: MigrationEnds, plan: MigrationPlan, former: Snapshot | None) -> Snapshot:
    """All that the plan changes, also what is written already; ``former`` is what its file has."""
    if former is None or former.state.is_rolled_back:
        present = ends.offsets_of_target(_all_of(plan), with_others=True)
        beyond = {p: present[p] for p in beyond_plan(plan, present)}
    else:
        beyond = dict(former.beyond)
    return Snapshot(
        f"migrate {plan.source} to {plan.target}",
        ends.session.address,
        plan.created_ms,
        _changes(ends, plan) if former is None else former.groups,
        plan=plan_digest(plan),
        beyond=beyond,
        identities=plan.identities,
    )


def _changes(ends: MigrationEnds, plan: MigrationPlan) -> tuple[GroupChange, ...]:
    """What the plan changes at its target."""
    nodes: tuple[NodeChange, ...] = ()
    kafka: tuple[KafkaChange, ...] = ()
    if plan.target.kind == "kafka":
        unique = f"{MIGRATED}{plan_digest(plan)[:16]}"
        stored = ends.cluster.committed(plan.target.group, _all_of(plan))
        marks = {row.partition: stored.get(row.partition, NO_OFFSET).mark for row in plan.partitions}
        fresh = {p: fresh_metadata(mark, unique, plan.identities.get(p.topic)) for p, mark in marks.items()}
        kafka = tuple(
            KafkaChange(p, row.before, row.new, fresh[p] or our_metadata(unique, None), str(marks[p] or ""))
            for row in plan.partitions
            for p in [row.partition]
        )
    elif plan.target.kind == "zookeeper":
        wanted = {row.partition: row.new for row in plan.partitions if row.new is not None}
        found = offset_nodes(ends.session, plan.target.group, {partition.topic for partition in wanted})
        outdated = {row.partition for row in plan.partitions if row.is_before_outdated}
        nodes = offset_changes(ends.session, plan.target.group, wanted, found, outdated)
    is_file = plan.target.kind == "spark-options"
    group = plan.held_group or plan.target.kind if is_file else plan.target.group
    return (GroupChange(group, nodes, kafka).holding(plan.held_group),)


def _still_refused(
    ends: MigrationEnds, plan: MigrationPlan, run: WriteState | None, *, is_written: bool, has_all: bool = False
) -> list[str]:
    """Why the ends are not as they were planned, or written; also partitions that need not be written are looked at.

    1. The guards are checked; 2. the last member commits, and ends; 3. the hold is taken. So offsets are read again.

    ``has_all``: nothing is written, since the target has everything.
    """
    partitions = _all_of(plan)
    source, target = ends.offsets_of_source(partitions), ends.offsets_of_target(partitions)
    at_source, at_target = moved(plan, source, target, run, is_written=is_written or has_all)
    names = sorted([f"{p} in {plan.source}" for p in at_source] + [f"{p} in {plan.target}" for p in at_target])
    reasons = []
    if names and is_written:
        reasons.append(
            f"another client wrote during the migration: {name_some(names)}; stop it, see `migrate verify`, "
            "and plan again, or undo the migration with `migrate rollback`"
        )
    elif names:
        reasons.append(f"offsets have moved since they were checked: {name_some(names)}; plan again")
    if plan.source.kind == "kafka" and (group := ends.cluster.describe(plan.source.group)).has_members:
        reasons.append(f"consumers of {plan.source} were started ({group.state}); stop them, and plan again")
    return reasons


def _written(plan: MigrationPlan, report: WriteReport) -> list[TopicPartition]:
    """The partitions that a report names."""
    written = set(report.written)

    def name(partition: TopicPartition) -> str:
        match plan.target.kind:
            case "kafka":
                return name_in_kafka(plan.target.group, partition)
            case "zookeeper":
                return GroupPaths(plan.target.group).offset(partition)
        return str(Path(plan.target.group))

    return [row.partition for row in plan.partitions if name(row.partition) in written]
