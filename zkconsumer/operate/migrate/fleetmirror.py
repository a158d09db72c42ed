"""One mirror for all groups of a fleet that were migrated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.operate.migrate.fleet import Connect, GroupFiles, GroupOutcome, Job, Step, for_each
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.mirror import Mirror
from zkconsumer.operate.migrate.rules.fleetfile import FleetGroup
from zkconsumer.operate.migrate.rules.mirrorplan import pause_before_copy
from zkconsumer.operate.offsets.groupinuse import live_members
from zkconsumer.operate.offsets.snapshot import exclusive

Part = tuple[Connect, Sequence[Job]]
"""How a cluster is reached, and its groups."""


@contextmanager
def mirror_step(jobs: Sequence[Job], *, long_hold: bool = False) -> Iterator[Step]:
    """A step that copies once; inside, the plans are locked.

    Args:
        jobs: groups whose plan was run.
        long_hold: see :class:`~zkconsumer.operate.offsets.grouphold.GroupHold`.

    Raises:
        WriteRefused: a group has no plan, or another command has locked it.
        ZkConsumerError, OSError: a file cannot be read.
    """
    mirrors: dict[tuple[str, ...], Mirror] = {}
    with ExitStack() as locked:
        for job in jobs:
            try:
                plan = job.files.required_plan()
                locked.enter_context(exclusive(job.files.plan_file))
            except WriteRefused as refused:
                raise WriteRefused([f"group {job.group.group}: {reason}" for reason in refused.reasons]) from None
            mirrors[_key(job.files)] = Mirror(plan, job.files.plan_file, long_hold=long_hold, rewind=job.group.rewind)

        def copy(ends: MigrationEnds, group: FleetGroup, files: GroupFiles) -> tuple[int, tuple[str, ...]]:
            report = mirrors[_key(files)].copy(ends)
            if report.members:
                raise WriteRefused([live_members(group.group, report.members, forceable=False)])
            if report.faults:
                raise ZkConsumerError("; ".join(report.faults))
            return len(report.copied), tuple(report.warnings)

        yield copy


def _key(files: GroupFiles) -> tuple[str, ...]:
    return files.directory.parts


def run_fleet_mirror(
    parts: Sequence[Part],
    step: Step,
    *,
    duration: float,
    interval: float,
    workers: int,
    pause: Callable[[float], bool],
    show: Callable[[Sequence[GroupOutcome]], None],
    clock: Callable[[], float] = time.monotonic,
) -> dict[tuple[str, str], GroupOutcome]:
    """Copy all groups again and again until the time is over, the end is asked for, or every group is refused.

    A group that a guard refuses, for example because its members have returned to ZooKeeper, is not copied any more;
    the others are. One whose servers do not answer is tried again.

    Args:
        parts: the clusters.
        step: see :func:`mirror_step`.
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
    ended: dict[tuple[str, str], GroupOutcome] = {}
    while True:
        outcomes: list[GroupOutcome] = []
        for connect, jobs in parts:
            left = [job for job in jobs if (job.fleet.name, job.group.group) not in ended]
            outcomes += for_each(left, connect, step, workers=workers, reversed_=True)
        ended |= {outcome[:2]: outcome for outcome in outcomes if outcome.outcome == "refused"}
        show(outcomes)
        failed = {outcome[:2]: outcome for outcome in outcomes if outcome.outcome == "failed"}
        wait = pause_before_copy(clock() - began, interval, duration)
        if wait is None or len(ended) == sum(len(jobs) for _, jobs in parts) or pause(wait):
            return {**ended, **failed}
