"""The migration of many groups: what is done with the groups of a wave, several at a time."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.operate.migrate.fleetfiles import Job
from zkconsumer.operate.migrate.fleetstatus import read_status
from zkconsumer.operate.migrate.fleetsteps import Step
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.rules.fleetfacts import Verb
from zkconsumer.operate.migrate.rules.fleetfile import FleetGroup
from zkconsumer.operate.migrate.rules.fleetstate import why_not_begun
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)

Connect = Callable[[], AbstractContextManager[tuple[ZkSession, Cluster]]]
"""Opens a session and a cluster of their own for one thread."""

Outcome = Literal["done", "skipped", "refused", "failed"]


class GroupOutcome(NamedTuple):
    """What became of one group.

    Attributes:
        cluster: name of its cluster.
        group: its name.
        outcome: ``done``; ``skipped`` if there is nothing to do; ``refused`` if a guard does not hold, and nothing was
            written; ``failed``.
        offsets: number of offsets that were planned, written or verified.
        reasons: why it is not done, one sentence each.
        warnings: what the operator should know.
        records_skipped: records that no consumer will have read, by a plan.
        records_replayed: records that will be read again, by a plan.
    """

    cluster: str
    group: str
    outcome: Outcome
    offsets: int = 0
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    records_skipped: int = 0
    records_replayed: int = 0


def run_wave(
    jobs: Sequence[Job], connect: Connect, verb: Verb, step: Step, *, workers: int, reversed_: bool = False
) -> Iterator[GroupOutcome]:
    """As :func:`for_each`, of those groups whose state asks for the step; the others are skipped, or refused.

    Args:
        jobs: the groups.
        connect: called on each thread, and to read how far the groups have come.
        verb: what the step is.
        step: to do.
        workers: how many threads.
        reversed_: the step is about the way back.
    """
    try:
        left, others = to_begin(jobs, connect, verb)
    except ZkConsumerError as error:
        for job in jobs:
            yield GroupOutcome(*job.name, "failed", reasons=(str(error),))
        return
    yield from others
    yield from for_each(left, connect, step, workers=workers, reversed_=reversed_)


def to_begin(jobs: Sequence[Job], connect: Connect, verb: Verb) -> tuple[list[Job], list[GroupOutcome]]:
    """The groups whose state asks for a command, and what is said of the others.

    Raises:
        ZkConsumerError: ZooKeeper cannot be read.
    """
    with connect() as (session, cluster):
        rows = read_status(session, cluster, jobs)
    left, others = [], []
    for job, row in zip(jobs, rows, strict=True):
        if (why := why_not_begun(verb, row.judged)) is None:
            left.append(job)
        else:
            others.append(GroupOutcome(*job.name, "skipped" if why.is_settled else "refused", reasons=(why.reason,)))
    return left, others


def ends_of_group(session: ZkSession, cluster: Cluster, group: FleetGroup, *, reversed_: bool = False) -> MigrationEnds:
    """The ends of a group's migration, or of its way back."""
    ends = (End("zookeeper", group.group), group.target)
    source, target = ends[::-1] if reversed_ else ends
    return MigrationEnds(session, cluster, source, target)


def for_each(
    jobs: Sequence[Job],
    connect: Connect,
    step: Step,
    *,
    workers: int,
    reversed_: bool = False,
    unconnected: Callable[[Job, ZkConsumerError | OSError], None] = lambda _job, _error: None,
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
        unconnected: called for each group whose step is not done because ``connect`` failed.
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
        except (ZkConsumerError, OSError) as error:  # of connecting; the system may allow no more files
            while (job := _next(left)) is not None:
                unconnected(job, error)
                outcomes.put(GroupOutcome(*job.name, "failed", reasons=(str(error),)))
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
    name = job.name
    try:
        result = step(ends, job)
    except WriteRefused as refused:
        return GroupOutcome(*name, "refused", reasons=tuple(refused.reasons))
    except (ZkConsumerError, OSError) as error:
        return GroupOutcome(*name, "failed", reasons=(str(error),))
    except Exception as error:  # noqa: BLE001 - a defect must not look as if the group had not been meant
        _log.exception("group %s", job.group.group)
        return GroupOutcome(*name, "failed", reasons=(f"{error!r}; please report it",))
    return GroupOutcome(*name, "done", result.offsets, (), result.warnings, result.skipped, result.replayed)
