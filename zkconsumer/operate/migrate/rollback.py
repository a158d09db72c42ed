"""The ways back: ``migrate rollback`` undoes what ``migrate run`` wrote, ``reverse`` begins where the target is now."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.migrationmark import marking
from zkconsumer.operate.migrate.mirror import copied, mirrored
from zkconsumer.operate.migrate.rules.migrationplan import Guard, MigrationPlan, Missing
from zkconsumer.operate.migrate.rules.waysback import decide_rollback, known_at_source, reverse_plan
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.restoreplan import plan_restore
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import OF_MIRROR, SnapshotFile, snapshot_of_plan
from zkconsumer.operate.offsets.writeplan import WritePlan
from zkconsumer.operate.offsets.writereport import WriteReport
from zkconsumer.zookeeper.session import ZkSession


def plan_rollback(ends: MigrationEnds, plan: MigrationPlan, plan_file: Path) -> WritePlan:
    """Plan to write the offsets back that the target had before a migration. Nothing is written.

    A rollback that was killed is resumed by another one: each partition has its former offset, or the migrated one.

    Args:
        ends: source and target of the plan, connected.
        plan: the plan that was run.
        plan_file: the file of its runs is beside it.

    Raises:
        WriteRefused: a guard refuses, for example because consumers have continued at the target.
        ZkConsumerError: a store cannot be read, or the file is not of this plan.
        OSError: the file cannot be read.
    """
    if plan.target.kind == "spark-options":
        raise WriteRefused(f"{plan.target} is a file, whose former content is not kept; delete it, or plan again")
    run = snapshot_of_plan(plan, plan_file)
    undo = None
    if run.snapshot is not None:  # first, so that what is written meanwhile is seen by the guards
        undo = plan_restore(ends.session, ends.cluster, run.snapshot, overwrite=True, outside="keep", forceable=False)
    partitions = [row.partition for row in plan.partitions]
    topics = ends.cluster.existing({partition.topic for partition in partitions}).found
    gone = {partition for partition in partitions if not topics.may_exist(partition)}
    refusals = _why_refused(ends, plan, run, run.state, gone, lambda: ends.observe_target(partitions).guards)
    if run.snapshot is None or undo is None or refusals:
        raise WriteRefused(refusals)
    command = f"rollback of {run.snapshot.command}"
    changes = tuple(group.change for group in undo.groups)
    # It names the plan, so that `offsets restore` refuses it: the plan's file would not know of what that writes.
    snapshot = replace(run.snapshot, command=command, created_ms=int(time.time() * 1000), groups=changes)

    def still_refused(is_written: bool, /) -> tuple[str, ...]:
        state = WriteState.UNDOING if is_written else run.state
        return _why_refused(ends, plan, run, state, gone, ends.guards_beside_hold)

    return replace(undo, command=command, snapshot=snapshot, still_refused=still_refused, resume="roll back again")


def _why_refused(
    ends: MigrationEnds,
    plan: MigrationPlan,
    run: SnapshotFile,
    state: WriteState | None,
    gone: Collection[TopicPartition],
    guards: Callable[[], Iterable[Guard]],
) -> tuple[str, ...]:
    """What :func:`decide_rollback` returns of both ends as they are now; ``state`` is how far ``run`` has come.

    1. The guards are checked; 2. a consumer commits a partition that need not be written, or joins; 3. the hold is
    taken. So it is asked again under the hold, and after the last write.
    """
    partitions = [row.partition for row in plan.partitions]
    if plan.source.kind in ("zookeeper", "kafka"):
        source = ends.offsets_of_source(partitions)
    else:  # nothing writes there, and it may be on other servers
        source = {row.partition: row.source for row in plan.partitions if row.source is not None}
    target = ends.offsets_of_target(partitions, with_others=True)
    beyond = {} if run.snapshot is None else run.snapshot.beyond
    return decide_rollback(plan, ends.place(), target, source, guards(), state, beyond, gone)


def plan_reverse(
    ends: MigrationEnds,
    plan: MigrationPlan,
    plan_file: Path,
    *,
    missing: Missing,
    retention_ms: int | None = None,
    rewind: bool = False,
    earlier: tuple[MigrationPlan | None, WriteState | None] = (None, None),
) -> MigrationPlan:
    """Plan the way back, as :func:`reverse_plan` does, between the reversed ends of a plan. Nothing is written.

    ``earlier``: plan and state of an earlier way back; see :func:`known_at_source`.

    Raises:
        ZkConsumerError: a store cannot be read, or a file is not of this plan.
        OSError: a file cannot be read.
    """
    of_mirror = snapshot_of_plan(plan, plan_file, OF_MIRROR)
    known = known_at_source(mirrored(of_mirror), *earlier)
    return reverse_plan(
        plan,
        ends.observe([row.partition for row in plan.partitions], known),
        known,
        snapshot_of_plan(plan, plan_file).state,
        missing=missing,
        retention_ms=retention_ms,
        now_ms=int(time.time() * 1000),
        rewind=rewind,
        copied=copied(of_mirror),
    )


def roll_back(
    plan: MigrationPlan,
    plan_file: Path,
    session: ZkSession,
    cluster: Cluster,
    undo: WritePlan,
    file: SnapshotFile,
    **options: Any,
) -> WriteReport:
    """Execute the plan of a rollback, as :func:`~zkconsumer.operate.offsets.offsetwrites.execute` does and raises.

    The file of the plan's runs records under the hold that it begins, and then its outcome. After a rollback that was
    refused, or has written nothing, the migration still stands, and with it the other ways back; one that has written
    a part is still under way, and is repeated.
    """
    run = snapshot_of_plan(plan, plan_file)
    before = run.state
    assert before is not None
    with marking(session, plan, undoing=True) as marked:

        def begin(fence: str) -> None:
            marked.begin(fence)
            run.mark(WriteState.UNDOING)

        try:
            report = execute(session, cluster, replace(undo, begins=begin), file, **options)
        except (ZkConsumerError, OSError):  # nothing was written
            run.restore(before)
            raise
        marked.report(report)
        if report.is_complete:  # before the mark is removed: without it consumers may start, and no repetition may
            try:
                run.mark(WriteState.UNDONE)
            except OSError as error:
                marked.is_complete = False
                report.faults.append(f"all is written, and {run.path} does not record it: {error}; {undo.resume}")
    if marked.is_void:
        run.restore(before)
    return report
