"""The migration of many groups: their files in one directory, and what is done with the groups of a wave.

``DIR/CLUSTER.toml`` names the groups; ``DIR/CLUSTER/GROUP/`` has ``plan.json``, ``back.json`` for the way back, and
what their runs keep beside them. Each step of one group is that of the command for one group, with all its guards.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

from zkconsumer.errors import UsageError, WriteRefused, ZkConsumerError, name_some
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.mirror import mirrored
from zkconsumer.operate.migrate.rollback import plan_rollback, roll_back
from zkconsumer.operate.migrate.rules.fleetfile import FleetFile, FleetGroup, parse_fleet
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan, make_plan, verify
from zkconsumer.operate.migrate.rules.planfile import decode_plan, encode_plan
from zkconsumer.operate.migrate.rules.waysback import reverse_plan
from zkconsumer.operate.migrate.run import run_plan
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import SnapshotFile, default_path, exclusive, snapshot_of_plan
from zkconsumer.operate.offsets.wholefiles import write_whole
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)

Connect = Callable[[], AbstractContextManager[tuple[ZkSession, Cluster]]]
"""Opens a session and a cluster of their own for one thread."""

Outcome = Literal["done", "refused", "failed"]

_PLAN: Final = "plan.json"
_BACK: Final = "back.json"
_EARLIER: Final = "earlier"


class GroupOutcome(NamedTuple):
    """What became of one group.

    Attributes:
        cluster: name of its cluster.
        group: its name.
        outcome: ``done``; ``refused`` if a guard does not hold, and nothing was written; ``failed``.
        offsets: number of offsets that were planned, written or verified.
        reasons: why it is not done, one sentence each.
        warnings: what the operator should know.
    """

    cluster: str
    group: str
    outcome: Outcome
    offsets: int = 0
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """The files of one group of a fleet."""

    directory: Path

    @property
    def plan_file(self) -> Path:
        """Of the plan to Kafka."""
        return self.directory / _PLAN

    @property
    def back_file(self) -> Path:
        """Of the plan of the way back."""
        return self.directory / _BACK

    def plan(self) -> MigrationPlan | None:
        """The plan; None if there is none.

        Raises:
            ZkConsumerError: it is no plan.
            OSError: it cannot be read.
        """
        return _read(self.plan_file)

    def back(self) -> MigrationPlan | None:
        """The plan of the way back; as :meth:`plan`."""
        return _read(self.back_file)

    def run_state(self) -> WriteState | None:
        """How far runs of the plan have come; raises as :meth:`plan`."""
        return _state(self.plan(), self.plan_file)

    def back_state(self) -> WriteState | None:
        """How far the run of the way back has come; raises as :meth:`plan`."""
        return _state(self.back(), self.back_file)

    def required_plan(self) -> MigrationPlan:
        """The plan.

        Raises:
            WriteRefused: there is none.
        """
        plan = self.plan()
        if plan is None:
            raise WriteRefused(["it has no plan; `zkconsumer migrate fleet plan` makes it"])
        return plan

    def put_away(self) -> None:
        """Keep the files of a migration that came back under another name, and begin with none."""
        number = 1
        while (to := self.directory.with_name(f"{self.directory.name}.{_EARLIER}-{number}")).exists():
            number += 1
        self.directory.rename(to)


def _read(file: Path) -> MigrationPlan | None:
    with suppress(FileNotFoundError):
        return decode_plan(str(file), file.read_bytes())
    return None


def _state(plan: MigrationPlan | None, file: Path) -> WriteState | None:
    return None if plan is None else snapshot_of_plan(plan, file).state


def files_of(directory: Path, fleet: FleetFile, group: FleetGroup) -> GroupFiles:
    """Where the files of a group are."""
    return GroupFiles(directory / fleet.name / group.directory)


def read_fleets(directory: Path) -> list[FleetFile]:
    """The clusters of a fleet, in the order of their names.

    Raises:
        UsageError: there is none, or a file has faults.
        OSError: a file cannot be read.
    """
    files = sorted(directory.glob("*.toml"))
    if not files:
        raise UsageError(f"{directory} has no cluster; `zkconsumer migrate fleet init {directory}` writes one")
    return [parse_fleet(file.stem, file.read_bytes()) for file in files]


# -- what is done with one group --------------------------------------------------------------------------------------

Step = Callable[[MigrationEnds, FleetGroup, GroupFiles], "tuple[int, tuple[str, ...]]"]
"""Does one step for a group; returns the number of offsets, and warnings.

It raises WriteRefused if a guard does not hold, and ZkConsumerError or OSError if it fails."""


def plan_step(ends: MigrationEnds, group: FleetGroup, files: GroupFiles) -> tuple[int, tuple[str, ...]]:
    """Plan, or plan again as long as no run of the plan has begun; see :data:`Step`."""
    if not files.plan_file.exists():
        return _plan(ends, group, files)
    with exclusive(files.plan_file):  # a run of the former plan would not find its file any more
        run = files.run_state()
        if run is WriteState.UNDONE or files.back_state() is WriteState.COMPLETE:
            files.put_away()
        elif run is not None:
            raise WriteRefused([f"its plan was run ({run}); run it again, or go back first"])
        return _plan(ends, group, files)


def _plan(ends: MigrationEnds, group: FleetGroup, files: GroupFiles) -> tuple[int, tuple[str, ...]]:
    plan = make_plan(
        ends.source,
        ends.target,
        ends.session.address,
        ends.observe(),
        missing=group.missing,
        retention_ms=None,
        now_ms=int(time.time() * 1000),
        rewind=group.rewind,
    )
    files.directory.mkdir(parents=True, exist_ok=True)
    write_whole(files.plan_file, encode_plan(plan))
    if plan.refusals:
        raise WriteRefused(plan.refusals)
    return len(plan.partitions), plan.warnings


def run_step(clock: Callable[[], datetime], *, long_hold: bool = False, any_time: bool = False) -> Step:
    """Run the plan, or the rest of it; refused while the time of ``clock`` is outside of the group's window."""

    def run(ends: MigrationEnds, group: FleetGroup, files: GroupFiles) -> tuple[int, tuple[str, ...]]:
        if group.window is not None and not any_time and not group.window.has(clock()):
            begin, end = (moment.isoformat() for moment in group.window)
            raise WriteRefused([f"its window is {begin} to {end}; give --any-time to ignore it"])
        plan = files.required_plan()
        if (back := files.back_state()) is not None:
            raise WriteRefused([f"its way back was run ({back}); plan again"])
        return _run(ends, plan, files.plan_file, long_hold=long_hold)

    return run


def _run(ends: MigrationEnds, plan: MigrationPlan, file: Path, *, long_hold: bool) -> tuple[int, tuple[str, ...]]:
    report = run_plan(ends, plan, file, long_hold=long_hold)
    if report.faults:
        raise ZkConsumerError("; ".join(report.faults))
    return len(report.written), tuple(report.warnings)


def verify_step(ends: MigrationEnds, group: FleetGroup, files: GroupFiles) -> tuple[int, tuple[str, ...]]:
    """Compare both stores with the plan; see :data:`Step`."""
    plan = files.required_plan()
    planned = [row.partition for row in plan.partitions]
    rows = verify(plan, ends.observe(planned))
    if other := [row.partition for row in rows if not row.is_equal]:
        raise WriteRefused(
            [
                f"{len(other)} of {len(rows)} partitions of {plan.source} and {group.target} differ: "
                f"{name_some(other)}; they do once consumers have committed"
            ]
        )
    return len(rows), ()


def rollback_step(*, long_hold: bool = False) -> Step:
    """Write back what the target had before the runs of the plan; see :data:`Step`."""

    def undo(ends: MigrationEnds, group: FleetGroup, files: GroupFiles) -> tuple[int, tuple[str, ...]]:  # noqa: ARG001
        plan, file = files.required_plan(), files.plan_file
        with exclusive(file):
            writes = plan_rollback(ends, plan, file)
            snapshot = SnapshotFile(default_path("rollback of plan.json", file.absolute().parent))
            report = roll_back(plan, file, ends.session, ends.cluster, writes, snapshot, long_hold=long_hold)
        if report.faults:
            raise ZkConsumerError("; ".join(report.faults))
        return len(report.written), (*writes.warnings, *report.warnings)

    return undo


def reverse_step(*, execute: bool, long_hold: bool = False) -> Step:
    """Plan the way back from where the consumers are now, and run it; the ends are reversed. See :data:`Step`."""

    def reverse(ends: MigrationEnds, group: FleetGroup, files: GroupFiles) -> tuple[int, tuple[str, ...]]:
        plan, back = files.required_plan(), files.back()
        if back is None or files.back_state() is None:  # of a plan that was run, the rest is run
            with exclusive(files.plan_file):
                copied = mirrored(snapshot_of_plan(plan, files.plan_file, "mirror"))
                back = reverse_plan(
                    plan,
                    ends.observe([row.partition for row in plan.partitions], copied),
                    copied,
                    files.run_state(),
                    missing=group.missing,
                    retention_ms=None,
                    now_ms=int(time.time() * 1000),
                    rewind=group.rewind,
                )
                write_whole(files.back_file, encode_plan(back))
        if back.refusals:
            raise WriteRefused(back.refusals)
        if not execute:
            return len(back.partitions), back.warnings
        return _run(ends, back, files.back_file, long_hold=long_hold)

    return reverse


def ends_of_group(session: ZkSession, cluster: Cluster, group: FleetGroup, *, reversed_: bool = False) -> MigrationEnds:
    """The ends of a group's migration, or of its way back."""
    ends = (End("zookeeper", group.group), group.target)
    source, target = ends[::-1] if reversed_ else ends
    return MigrationEnds(session, cluster, source, target)


# -- many groups at a time --------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """One group of a wave."""

    fleet: FleetFile
    group: FleetGroup
    files: GroupFiles


def for_each(
    jobs: Sequence[Job], connect: Connect, step: Step, *, workers: int, reversed_: bool = False
) -> Iterator[GroupOutcome]:
    """Do a step for groups of one cluster, by several threads, each with its own connections.

    A group that is refused or fails is an outcome; the others continue. If the iteration ends early, threads complete
    the group that they have begun.

    Args:
        jobs: the groups.
        connect: called on each thread.
        step: to do.
        workers: how many threads.
        reversed_: the step is about the way back.
    """
    left: queue.SimpleQueue[Job] = queue.SimpleQueue()
    outcomes: queue.SimpleQueue[GroupOutcome | None] = queue.SimpleQueue()
    for job in jobs:
        left.put(job)
    ending = threading.Event()

    def work() -> None:
        try:
            with connect() as (session, cluster):
                while not ending.is_set() and (job := _next(left)) is not None:
                    ends = ends_of_group(session, cluster, job.group, reversed_=reversed_)
                    outcomes.put(_outcome(job, ends, step))
        except ZkConsumerError as error:  # of connecting
            while (job := _next(left)) is not None:
                outcomes.put(GroupOutcome(job.fleet.name, job.group.group, "failed", reasons=(str(error),)))
        finally:
            outcomes.put(None)

    threads = [
        threading.Thread(target=work, name=f"fleet-{number}", daemon=True) for number in range(min(workers, len(jobs)))
    ]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            outcome = outcomes.get()
            if outcome is None:
                running -= 1
            else:
                yield outcome
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def _next(left: queue.SimpleQueue[Job]) -> Job | None:
    try:
        return left.get_nowait()
    except queue.Empty:
        return None


def _outcome(job: Job, ends: MigrationEnds, step: Step) -> GroupOutcome:
    name = (job.fleet.name, job.group.group)
    try:
        offsets, warnings = step(ends, job.group, job.files)
    except WriteRefused as refused:
        return GroupOutcome(*name, "refused", reasons=tuple(refused.reasons))
    except (ZkConsumerError, OSError) as error:
        return GroupOutcome(*name, "failed", reasons=(str(error),))
    except Exception as error:  # noqa: BLE001 - a defect must not look as if the group had not been meant
        _log.exception("group %s", job.group.group)
        return GroupOutcome(*name, "failed", reasons=(f"{error!r}; please report it",))
    return GroupOutcome(*name, "done", offsets, warnings=warnings)
