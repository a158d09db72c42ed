"""The steps of a fleet: what is planned, written or compared of one group, with all guards of the single commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from zkconsumer.errors import WriteRefused, ZkConsumerError, name_some
from zkconsumer.operate.migrate.fleetfiles import Job
from zkconsumer.operate.migrate.fleetstatus import read_status
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.rollback import plan_reverse, plan_rollback, roll_back
from zkconsumer.operate.migrate.rules.fleetfacts import FleetState
from zkconsumer.operate.migrate.rules.fleetfile import why_not_protocol
from zkconsumer.operate.migrate.rules.fleetstate import is_reversed, why_not_begun
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan, Missing
from zkconsumer.operate.migrate.rules.migrationrecheck import is_verified, warn_of_scope
from zkconsumer.operate.migrate.rules.planfile import encode_plan
from zkconsumer.operate.migrate.run import RunReport, check_plan, run_plan
from zkconsumer.operate.offsets.groupinuse import read_mark
from zkconsumer.operate.offsets.snapshot import SnapshotFile, default_path, exclusive, partition_of
from zkconsumer.operate.offsets.wholefiles import prepared, sync
from zkconsumer.operate.offsets.writeplan import WritePlan
from zkconsumer.operate.offsets.writereport import WriteReport, name_in_kafka


class StepResult(NamedTuple):
    """What a step did.

    Attributes:
        offsets: number of offsets that were planned, written or compared.
        warnings: what the operator should know.
        skipped: records that no consumer will have read, by a plan.
        replayed: records that will be read again, by a plan.
    """

    offsets: int
    warnings: tuple[str, ...] = ()
    skipped: int = 0
    replayed: int = 0


Step = Callable[[MigrationEnds, Job], StepResult]
"""Does one step for a group. It raises WriteRefused if a guard does not hold, and ZkConsumerError or OSError if it
fails."""


def plan_step(ends: MigrationEnds, job: Job) -> StepResult:
    """Plan, or plan again as long as no run of the plan stands; see :data:`Step`.

    A group that came back, or has gone wrong since it was migrated, for example because old consumers have continued,
    is planned again from where ZooKeeper is now, if the guards accept that: else its former plan is what there is.
    """
    files = job.files
    if job.group.protocol == "consumer" and (why := why_not_protocol("consumer", ends.cluster.releases())) is not None:
        raise WriteRefused([why])
    if not files.plan_file.exists():
        return _planned(_write_plan(ends, job, is_first=True))
    with exclusive(files.plan_file):  # a run of the former plan would not find its file any more
        try:
            run, back = files.run_state(), files.back_state()
        except ZkConsumerError:  # a file was cut, or edited
            if files.has_begun:
                raise
            run = back = None
        if run is None and back is None:
            return _planned(_write_plan(ends, job))
        (row,) = read_status(ends.session, ends.cluster, [job])
        if row.state is FleetState.UNKNOWN or why_not_begun("plan", row.judged) is not None:
            raise WriteRefused([row.reason or row.state.of_group])
        plan = ends.plan(missing=job.group.missing, rewind=job.group.rewind)
        if plan.refusals:
            raise WriteRefused(plan.refusals)
        files.put_away()
        return _planned(_write_plan(ends, job, plan, is_first=True))


def _write_plan(
    ends: MigrationEnds, job: Job, plan: MigrationPlan | None = None, *, is_first: bool = False
) -> MigrationPlan:
    """Make a plan, unless it is given, and write its file; ``is_first`` if there is none, or it was put away."""
    plan = plan or ends.plan(missing=job.group.missing, rewind=job.group.rewind)
    job.files.directory.mkdir(parents=True, exist_ok=True)
    sync(job.files.directory.parent)  # also that an earlier directory has another name
    file = job.files.plan_file
    with prepared(file, encode_plan(plan)) as put, _created(file) if is_first else nullcontext():
        put()
    return plan


@contextmanager
def _created(plan_file: Path) -> Iterator[None]:
    """The file of a plan, empty and locked.

    1. A command finds no file, and plans; 2. another one plans, too, and its plan is run; 3. the first one would
    replace it.
    """
    written = f"{plan_file} was written by another command meanwhile; look at it, and repeat the command"
    try:
        plan_file.touch(exist_ok=False)
    except FileExistsError:
        raise WriteRefused(written) from None
    with exclusive(plan_file):
        if plan_file.stat().st_size:  # by one that locked the empty file before
            raise WriteRefused(written)
        yield


def _planned(plan: MigrationPlan) -> StepResult:
    if plan.refusals:
        raise WriteRefused(plan.refusals)
    rows = plan.partitions
    return StepResult(len(rows), plan.warnings, sum(row.skipped for row in rows), sum(row.replayed for row in rows))


def run_step(clock: Callable[[], datetime], *, execute: bool, long_hold: bool = False, any_time: bool = False) -> Step:
    """Run the plan, or the rest of it; refused while the time of ``clock`` is outside of the group's window.

    1. The groups of a wave are looked at; 2. another operator takes one back that waits for its turn; 3. its turn
    comes, and nothing of what the guards look at has moved. So a group that has a way back is looked at again.
    """

    def run(ends: MigrationEnds, job: Job) -> StepResult:
        window = job.group.window
        if window is not None and not any_time and not window.has(clock()):
            begin, end = (moment.isoformat() for moment in window)
            raise WriteRefused([f"its window is {begin} to {end}; give --any-time to ignore it"])

        def may_run() -> None:
            if job.files.has_way_back:
                (row,) = read_status(ends.session, ends.cluster, [job])
                if (why := why_not_begun("run", row.judged)) is not None:
                    raise WriteRefused([why.reason])

        plan, file = job.files.required_plan(), job.files.plan_file
        return _run(ends, plan, file, execute=execute, long_hold=long_hold, may_run=may_run)

    return run


def _run(
    ends: MigrationEnds,
    plan: MigrationPlan,
    file: Path,
    *,
    execute: bool,
    long_hold: bool,
    may_run: Callable[[], None] = lambda: None,
) -> StepResult:
    if not execute:
        may_run()
        checked = check_plan(ends, plan, file)
        return StepResult(len(plan.partitions) - len(checked.found), tuple(checked.warnings))
    report = run_plan(ends, plan, file, long_hold=long_hold, may_run=may_run)
    _require_complete(report)
    return StepResult(len(report.written), tuple(report.warnings))


def _require_complete(report: RunReport | WriteReport) -> None:
    if not report.is_complete:
        raise ZkConsumerError("; ".join(report.faults) or "not everything was written; repeat the step")


def verify_step(ends: MigrationEnds, job: Job) -> StepResult:
    """Compare both stores with the plan; see :data:`Step`."""
    plan = job.files.required_plan()
    rows = ends.verify(plan)
    if other := [row.partition for row in rows if not row.is_equal]:
        raise WriteRefused(
            [
                f"{len(other)} of {len(rows)} partitions of {plan.source} and {plan.target} differ: "
                f"{name_some(other)}; they do once consumers have committed"
            ]
        )
    if not is_verified(rows):
        raise WriteRefused([f"no partition of its plan exists: check which cluster {job.fleet.name} is"])
    return StepResult(len(rows), tuple(warn_of_scope(plan, rows)))


def rollback_step(*, execute: bool, long_hold: bool = False) -> Step:
    """Write back what the target had before the runs of the plan, or of a way back that was begun; see :data:`Step`."""

    def undo(ends: MigrationEnds, job: Job) -> StepResult:
        plan, file = job.files.required_plan(), job.files.plan_file
        continue_at: tuple[str, ...] = ()
        back = job.files.back()
        if back is not None and job.files.back_state() is not None:
            plan, file = back, job.files.back_file
            ends = MigrationEnds(ends.session, ends.cluster, back.source, back.target)
            done = "was" if execute else "would be"
            continue_at = (f"its way back {done} rolled back: its consumers continue at {back.source}",)
        with exclusive(file, plan):
            writes = plan_rollback(ends, plan, file)
            if writes.refusals:
                raise WriteRefused(writes.refusals)
            changed = _changed_offsets(writes)
            if not execute:
                return StepResult(len(changed), (*continue_at, *writes.warnings))
            snapshot = SnapshotFile(default_path(f"rollback of {file.name}", file.absolute().parent))
            report = roll_back(plan, file, ends.session, ends.cluster, writes, snapshot, long_hold=long_hold)
        _require_complete(report)
        return StepResult(len(changed.intersection(report.written)), (*continue_at, *writes.warnings, *report.warnings))

    return undo


def _changed_offsets(writes: WritePlan) -> set[str]:
    """How a report names the offsets that change, without the parents of znodes."""
    changes = [group.change for group in writes.groups]
    in_znodes = {node.path for change in changes for node in change.nodes if partition_of(node.path) is not None}
    return in_znodes | {name_in_kafka(change.group, one.partition) for change in changes for one in change.kafka}


def reverse_step(*, execute: bool, long_hold: bool = False, missing: Missing = "fail", rewind: bool = False) -> Step:
    """Plan the way back from where the consumers are now, and run it; the ends are reversed. See :data:`Step`.

    What the file of the fleet accepts of the way there, it does not accept of the way back: ``missing`` and ``rewind``
    are given for this step.
    """

    def reverse(ends: MigrationEnds, job: Job) -> StepResult:
        files = job.files
        plan = files.required_plan()
        with exclusive(files.plan_file, plan):
            back, state = files.back(), files.back_state()
            # One that came to its end is planned again if consumers have continued in Kafka since.
            is_over = is_reversed(state, read_mark(ends.session, plan.source.group))
            if back is None or state is None or is_over:  # of a plan that was run, the rest is run
                earlier = back, state
                back = plan_reverse(ends, plan, files.plan_file, missing=missing, rewind=rewind, earlier=earlier)
                planned = _planned(back)  # refused, it replaces no file
                if execute or not is_over:
                    files.write_back(back)
                if not execute:
                    return planned
            else:
                planned = _planned(back)
            written = _run(ends, back, files.back_file, execute=execute, long_hold=long_hold)
        return written._replace(skipped=planned.skipped, replayed=planned.replayed)

    return reverse
