"""Recheck: what of a migration's plan is left to write, and whether both ends are as they were planned, or written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition, recreated_topics
from zkconsumer.offsets.rules.lag import BEFORE_LOG, outside_log, signed_lag
from zkconsumer.offsets.rules.storedoffsets import usable_offset
from zkconsumer.offsets.rules.topicorigins import NOT_STORED, WrittenFor, that_are
from zkconsumer.operate.migrate.rules.migrationplan import (
    MigrationPlan,
    Observation,
    Place,
    PlannedPartition,
    beyond_plan,
    plan_of_existing,
)
from zkconsumer.operate.migrate.rules.planfile import is_mark_of
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.zookeeper.rules.znodes import MigrationMark, mark_verdict


class Recheck(NamedTuple):
    """What is left of a plan.

    Attributes:
        refusals: why nothing may be written, one sentence each.
        todo: partitions whose offset still has to be written.
        done: partitions whose target has the new offset, or one that its consumers have committed since.
        later: those of which they have; see :func:`continued`.
    """

    refusals: tuple[str, ...]
    todo: tuple[PlannedPartition, ...]
    done: tuple[PlannedPartition, ...]
    later: tuple[TopicPartition, ...] = ()


def recheck(plan: MigrationPlan, now: Observation, run: WriteState | None) -> Recheck:
    """Compare a plan with both ends as they are now.

    Args:
        plan: to carry out.
        now: both ends.
        run: how far earlier runs of this plan have come. If consumers have continued after one that is not known to be
            complete (see :func:`continued`), nothing is left to write, so the target may have members.
    """
    offsets = {p: one.offset for p, one in now.target.items() if one.offset is not None}
    existing = plan_of_existing(plan, now.logs)
    later = tuple(continued(existing, offsets)) if run in (WriteState.WRITING, WriteState.UNDOING) else ()
    guards = [guard for guard in now.guards if not (later and guard.name == plan.target.kind)]
    refusals = [*changed_place(plan, now.place), *(guard.text for guard in guards if not guard.holds)]
    refusals += plan.lasting_refusals
    refusals += _changed_topics(plan, now, is_written=bool(later))
    at_source, at_target = moved(existing, {p: one.offset for p, one in now.source.items()}, offsets, run)
    if at_source:
        refusals.append(
            f"offsets of {plan.source} have moved since the plan was made: {name_some(at_source)}; plan again"
        )
    # An offset of an earlier topic may be equal; that a run has replaced it, its file shows, or what is left to write.
    is_new = run is WriteState.COMPLETE
    done = tuple(
        row
        for row in plan.partitions
        if later
        or ((is_new or not row.is_before_outdated) and now.target.get(row.partition, NOT_STORED).counting == row.new)
    )
    is_done = {row.partition for row in done}
    todo = tuple(row for row in plan.partitions if row.partition not in is_done)
    known = {row.partition for row in plan.partitions if row.is_outdated}
    if outdated := [p for p in that_are(now.source, WrittenFor.EARLIER) if p not in known]:
        refusals.append(f"offsets of {name_some(outdated)} were stored for earlier topics of that name; plan again")
    if at_target and not later:
        refusals.append(f"another client has written offsets of {plan.target}: {name_some(at_target)}; plan again")
    return Recheck(tuple(dict.fromkeys(refusals)), todo, done, later)


def continued(plan: MigrationPlan, target: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions of which consumers of the target have committed since a run or a rollback that was killed.

    1. A run has written everything; 2. it is killed before its file shows that; or a rollback is killed before it has
    undone anything; 3. consumers continue, and commit. Then each offset of the target is the planned one or a later
    one. If one is not, a part may not be written, or is undone, and the result is empty; so it is if one was later
    before, and consumers may have continued from there.

    Args:
        plan: a run of which has begun.
        target: its offsets now.
    """
    later = []
    for row in plan.partitions:
        now = target.get(row.partition)
        if now is None or row.new is None or now < row.new or row.new < (row.before or 0) <= now:
            return []
        if now > row.new:
            later.append(row.partition)
    return later


def moved(
    plan: MigrationPlan,
    source: Mapping[TopicPartition, int | None],
    target: Mapping[TopicPartition, int],
    run: WriteState | None,
    *,
    is_written: bool = False,
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """The partitions whose offset another client has written, at the source, and at the target, in the plan's order.

    Args:
        plan: that is carried out.
        source: its offsets now.
        target: the same.
        run: how far runs of it have come.
        is_written: the target must have the new offset.
    """

    def accepted(row: PlannedPartition) -> frozenset[int | None]:
        return frozenset({row.new}) if is_written else unmoved(row, run)

    at_source = [row.partition for row in plan.partitions if source.get(row.partition) not in row.unread]
    at_target = [row.partition for row in plan.partitions if target.get(row.partition) not in accepted(row)]
    return at_source, at_target


def unmoved(row: PlannedPartition, run: WriteState | None) -> frozenset[int | None]:
    """What the target may hold unless another client has written; what a complete run wrote may have expired since."""
    if run is WriteState.COMPLETE:
        return frozenset({row.new, None})
    return row.unwritten if run is None else row.unwritten | {row.new}


def lacks_mark_alone(plan: MigrationPlan, now: Observation, run: WriteState | None, mark: MigrationMark | None) -> bool:
    """True if a run has nothing to do but to show in the mark of its group that it is complete.

    1. All is written, and the file shows it; 2. the run is killed before the mark does; 3. consumers continue, and
    commit. So no guard of the target holds any more, and none is needed. A rollback that is killed before its file
    shows it leaves such a mark, too. A target that has lost an offset since, for example because it expired, is written
    again, by the guards. So do these decide if consumers of the source, which may know no mark, have continued there.

    Args:
        plan: to carry out.
        now: both ends.
        run: how far runs of the plan have come.
        mark: of its group in ZooKeeper; None if there is none.
    """
    is_under_way = mark is not None and mark_verdict(mark, has_members=False) == "under way" and is_mark_of(mark, plan)
    if run is not WriteState.COMPLETE or not is_under_way:
        return False
    if any(guard.name == plan.source.kind and not guard.holds for guard in now.guards):
        return False
    return all(
        row.partition in now.target and now.source.get(row.partition, NOT_STORED).offset in row.unread | {None}
        for row in plan_of_existing(plan, now.logs).partitions
    )


def changed_place(plan: MigrationPlan, place: Place) -> Iterable[str]:
    """Why a place is not that of the plan, one sentence each.

    An id that is None is unknown, and shows nothing: 1. a plan is made, and run, with brokers before 0.10.1; 2. they
    are upgraded, one after the other, and some of them report an id. But no broker removes the id that a ZooKeeper had.
    """
    then = plan.place
    if then.chroot != place.chroot:
        yield f"the plan was made for chroot {then.chroot or '/'}, not {place.chroot or '/'}; check --zookeeper"
    if then.zookeeper_cluster not in (None, place.zookeeper_cluster):
        now = "one without a cluster id" if place.zookeeper_cluster is None else place.zookeeper_cluster
        yield f"the plan was made for the cluster {then.zookeeper_cluster} in ZooKeeper, not {now}; check --zookeeper"
    if None not in (then.kafka_cluster, place.kafka_cluster) and then.kafka_cluster != place.kafka_cluster:
        yield (
            f"the plan was made for brokers of cluster {then.kafka_cluster}, not {place.kafka_cluster}; check "
            "--bootstrap-server"
        )


def _changed_topics(plan: MigrationPlan, now: Observation, *, is_written: bool) -> Iterable[str]:
    planned = {row.partition: row for row in plan.partitions}
    if not is_written and (added := beyond_plan(plan, now.logs)):
        yield f"partitions were added since the plan was made: {name_some(added)}; plan again"
    if not is_written and (gone := sorted(planned.keys() - now.logs.keys())):
        yield f"partitions do not exist any more: {name_some(gone)}; plan again"
    recreated = recreated_topics(plan.identities, now.identities)
    recreated |= {p.topic for p, log in now.logs.items() if p in planned and _went_back(planned[p].log, log)}
    if recreated:
        yield f"topics were deleted and created again, or truncated: {name_some(sorted(recreated))}; plan again"
    if is_written:
        return
    new = {p: row.new for p, row in planned.items() if row.new is not None and p.topic not in recreated}
    if expired := sorted(
        p for p, offset in new.items() if p in now.logs and outside_log(offset, *now.logs[p]) == BEFORE_LOG
    ):
        yield f"records from the planned offset on were deleted meanwhile: {name_some(expired)}; plan again"


def _went_back(then: LogRange, now: LogRange) -> bool:
    return now.end < then.end or now.start < then.start


class VerifiedPartition(NamedTuple):
    """One partition in both stores, and both lags at one reading of the log end; None is unknown.

    ``planned`` is None for one that the plan does not have.
    """

    partition: TopicPartition
    planned: int | None
    source: int | None
    target: int | None
    log_end: int | None

    @property
    def is_equal(self) -> bool:
        """True if both stores have the planned offset; a partition without one in the source has it in the target."""
        known = (self.planned, usable_offset(self.source))
        return self.target is not None and all(offset in (None, self.target) for offset in known)

    @property
    def source_lag(self) -> int | None:
        """Records that a consumer that starts at the source's offset has to read."""
        return signed_lag(self.source, self.log_end)

    @property
    def target_lag(self) -> int | None:
        """The same for the target's offset."""
        return signed_lag(self.target, self.log_end)


def verify(plan: MigrationPlan, now: Observation) -> tuple[VerifiedPartition, ...]:
    """Compare both ends, for each partition of a plan that exists, and for others of which an end has an offset."""
    planned = {row.partition: row.new for row in plan_of_existing(plan, now.logs).partitions}
    beyond = (p for p in beyond_plan(plan, now.logs) if p in now.source or p in now.target)
    return tuple(
        VerifiedPartition(
            partition,
            planned.get(partition),
            now.source.get(partition, NOT_STORED).counting,
            now.target.get(partition, NOT_STORED).counting,
            now.logs[partition].end if partition in now.logs else None,
        )
        for partition in (*planned, *beyond)
    )


def is_verified(rows: Collection[VerifiedPartition]) -> bool:
    """True if both ends are equal; not if no partition of the plan exists, which may be of another cluster."""
    return any(row.planned is not None for row in rows) and all(row.is_equal for row in rows)


def warn_of_scope(plan: MigrationPlan, rows: Collection[VerifiedPartition]) -> list[str]:
    """In which partitions a plan and its verification differ, one sentence each."""
    verified = {row.partition for row in rows}
    warnings = []
    if gone := [row.partition for row in plan.partitions if row.partition not in verified]:
        warnings.append(f"{name_some(gone)} does not exist any more, and is not compared")
    if beyond := beyond_plan(plan, verified):
        warnings.append(
            f"the plan does not have {name_some(beyond)}; `migrate mirror` and `migrate reverse` take them along"
        )
    return warnings
