"""One mirror for all groups of a fleet that were migrated."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.operate.migrate.fleet import Connect, GroupOutcome, for_each
from zkconsumer.operate.migrate.fleetfiles import Job
from zkconsumer.operate.migrate.fleetsteps import Step, StepResult
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.mirror import Mirror
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
from zkconsumer.operate.migrate.rules.mirrorplan import ends_mirror, pause_before_copy
from zkconsumer.operate.offsets.groupinuse import live_members
from zkconsumer.operate.offsets.snapshot import exclusive

Part = tuple[Connect, Sequence[Job]]
"""How a cluster is reached, and its groups."""


def _new_mirror(job: Job, plan: MigrationPlan, **options: bool) -> Mirror:
    """The mirror of a group, which knows what an earlier way back has left, as the state of the group does."""
    return Mirror(plan, job.files.plan_file, earlier=(job.files.back(), job.files.back_state()), **options)


def due_step(*, rewind: bool = False) -> Step:
    """Decides what a copy would write now; ``rewind`` as of :class:`FleetMirror`."""

    def decide(ends: MigrationEnds, job: Job) -> StepResult:
        plan = job.files.required_plan()
        with exclusive(job.files.plan_file, plan):
            copy = _new_mirror(job, plan, rewind=rewind).decide(ends)
        return StepResult(len(copy.due), copy.warnings)

    return decide


class FleetMirror:
    """Copies groups of a fleet. The plan of each is locked by its first copy, and released when its mirror ends.

    Several threads copy different groups; one of them copies a group at a time.

    Args:
        jobs: groups whose plan was run.
        long_hold: see :class:`~zkconsumer.operate.offsets.grouphold.GroupHold`.
        rewind: offsets in ZooKeeper may move back, if those in Kafka were reset.
    """

    def __init__(self, jobs: Sequence[Job], *, long_hold: bool = False, rewind: bool = False) -> None:
        self._left = {job.name for job in jobs}
        self._mirrors: dict[tuple[str, str], Mirror] = {}
        self._locks: dict[tuple[str, str], ExitStack] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._options = {"long_hold": long_hold, "rewind": rewind}

    def _mirror_of(self, job: Job) -> Mirror:
        if job.name not in self._mirrors:
            plan = job.files.required_plan()
            with ExitStack() as lock:
                lock.enter_context(exclusive(job.files.plan_file, plan))
                self._mirrors[job.name] = _new_mirror(job, plan, **self._options)
                self._locks[job.name] = lock.pop_all()
        return self._mirrors[job.name]

    def close(self) -> None:
        """Release the plans. Idempotent."""
        for name in list(self._left):
            self._end(name)

    def _end(self, name: tuple[str, str]) -> None:
        self._left.discard(name)
        self._locks.pop(name, ExitStack()).close()

    def is_copied(self, job: Job) -> bool:
        """True until a copy of the group has ended its mirror."""
        return job.name in self._left

    def copy(self, ends: MigrationEnds, job: Job) -> StepResult:
        """Copy a group once; see :data:`~zkconsumer.operate.migrate.fleetsteps.Step`.

        A group that a guard refuses, for example because its members have returned to ZooKeeper, is not copied any
        more, and neither is one that fails for a reason that waiting does not remove, or whose plan is locked. One that
        another tool holds has failed, and is tried again.
        """
        try:
            report = self._mirror_of(job).copy(ends)
            if report.members:
                raise WriteRefused([live_members(job.group.group, report.members, forceable=False)])
        except (ZkConsumerError, OSError) as error:
            self.fail(job, error)
            if isinstance(error, WriteRefused) and error.is_held:
                raise ZkConsumerError(str(error)) from error
            raise
        self._failures[job.name] = 0
        if report.faults:
            raise ZkConsumerError("; ".join(report.faults))
        return StepResult(len(report.copied), tuple(report.warnings))

    def fail(self, job: Job, error: ZkConsumerError | OSError) -> None:
        """Note that a group was not copied, also if its servers could not be reached."""
        self._failures[job.name] += 1
        if ends_mirror(error, self._failures[job.name]):
            self._end(job.name)


def run_fleet_mirror(
    parts: Sequence[Part],
    mirror: FleetMirror,
    *,
    duration: float,
    interval: float,
    workers: int,
    pause: Callable[[float], bool],
    show: Callable[[Sequence[GroupOutcome]], None],
    clock: Callable[[], float] = time.monotonic,
) -> dict[tuple[str, str], GroupOutcome]:
    """Copy all groups again and again until the time is over, the end is asked for, or no group is copied any more.

    Args:
        parts: the clusters.
        mirror: copies.
        duration: after which no copy begins, in seconds.
        interval: between copies, in seconds.
        workers: threads for each cluster.
        pause: waits so many seconds; returns True, at once, if the mirror shall end.
        show: called after each round with what became of each group.
        clock: monotonic, in seconds.

    Returns:
        The groups whose last copy was refused or failed, by cluster and name.
    """
    began = clock()
    last: dict[tuple[str, str], GroupOutcome] = {}
    while True:
        outcomes: list[GroupOutcome] = []
        for connect, jobs in parts:
            left = [job for job in jobs if mirror.is_copied(job)]
            outcomes += for_each(left, connect, mirror.copy, workers=workers, reversed_=True, unconnected=mirror.fail)
        last |= {outcome[:2]: outcome for outcome in outcomes}
        show(outcomes)
        wait = pause_before_copy(clock() - began, interval, duration)
        is_over = not any(mirror.is_copied(job) for _, jobs in parts for job in jobs)
        if wait is None or is_over or pause(wait):
            return {name: outcome for name, outcome in last.items() if outcome.outcome != "done"}
