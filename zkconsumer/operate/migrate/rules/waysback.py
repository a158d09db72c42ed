"""Ways back from a migration: what a rollback may undo, and the plan of a migration in the reverse direction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.topicorigins import NOT_STORED
from zkconsumer.operate.migrate.rules.migrationend import End, check_ends
from zkconsumer.operate.migrate.rules.migrationplan import (
    Guard,
    MigrationPlan,
    Missing,
    Observation,
    Place,
    beyond_plan,
    make_plan,
    plan_of_existing,
    planning,
    why_not_migrated,
)
from zkconsumer.operate.migrate.rules.migrationrecheck import changed_place, unmoved
from zkconsumer.operate.migrate.rules.mirrorplan import Mirrored, moved_since
from zkconsumer.operate.offsets.rules.writestate import WriteState


def decide_rollback(
    plan: MigrationPlan,
    place: Place,
    offsets: Mapping[TopicPartition, int],
    source: Mapping[TopicPartition, int],
    guards: Iterable[Guard],
    run: WriteState | None,
    beyond: Mapping[TopicPartition, int],
    gone: Collection[TopicPartition] = (),
) -> tuple[str, ...]:
    """Compare the target of a migration with its plan; returns why nothing may be undone, one sentence each.

    The rollback is refused as a whole if one partition has moved: a consumer that committed one partition may have
    read records of others, too.

    Args:
        plan: the plan that was run.
        place: where the target is now.
        offsets: of the target now, by partition, also of those that the plan does not have.
        source: offsets of the source now, by partition.
        guards: conditions of the target.
        run: how far the run of the plan has come.
        beyond: offsets of the target that the plan does not have, when the run began.
        gone: partitions of the plan that do not exist any more. Their offsets at the target were deleted with them; one
            that is there is compared all the same.
    """
    refusals = [*changed_place(plan, place), *(guard.text for guard in guards if not guard.holds)]
    if run is None:
        refusals.append("the plan was not run, or the file of its runs is missing, so there is nothing to undo")
    there = [row.partition for row in plan.partitions if row.partition not in gone or row.partition in offsets]
    moved = moved_at_target(plan_of_existing(plan, there), offsets, beyond, run)
    if run is not None and moved:
        refusals.append(
            f"offsets of {plan.target} have moved since the migration: {name_some(moved)}; consumers have continued "
            "there, so go back from where they are with `zkconsumer migrate reverse`"
        )
    if lost := [partition for partition in lost_at_source(plan, source) if partition not in gone]:
        refusals.append(
            f"{plan.source} no longer has what was migrated from there: {name_some(lost)}; its consumers could not "
            "continue, and the target has the only offsets"
        )
    return tuple(dict.fromkeys(refusals))


def lost_at_source(plan: MigrationPlan, offsets: Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
    """The partitions of which the source has no offset any more, or an earlier one than was migrated."""
    there = {p: -1 if offset is None else offset for p, offset in offsets.items()}
    return [
        row.partition
        for row in plan.partitions
        if row.position is not None and there.get(row.partition, -1) < row.position
    ]


def moved_at_target(
    plan: MigrationPlan,
    offsets: Mapping[TopicPartition, int],
    beyond: Mapping[TopicPartition, int],
    run: WriteState | None,
) -> list[TopicPartition]:
    """The partitions of which consumers have committed at the target since the migration, in the order of the plan.

    A rollback that has begun may have removed a znode that is missing.

    Args:
        plan: that was run.
        offsets: of the target now, also of partitions that the plan does not have.
        beyond: those that it does not have, when the run began.
        run: how far the run has come.
    """
    may_be_removed = run is not None and run.is_rolled_back and plan.target.kind == "zookeeper"
    removed = frozenset({None} if may_be_removed else ())
    moved = [row.partition for row in plan.partitions if offsets.get(row.partition) not in unmoved(row, run) | removed]
    return moved + [p for p in beyond_plan(plan, offsets) if offsets[p] != beyond.get(p)]


def known_at_source(mirrored: Mirrored, back: MigrationPlan | None, state: WriteState | None) -> Mirrored:
    """What znodes may hold, as far as a mirror and the plan of a way back know.

    The mirror may have copied since that plan was made, and before. The plan knows what its run wrote, and what was
    there when it was made. A command that is killed while it replaces the plan leaves one whose run is forgotten, so
    of a plan without a run both count.

    Args:
        mirrored: what a mirror has copied.
        back: the plan of the way back; None if there is none.
        state: how far its run has come; None, too, if that was rolled back.
    """
    known = dict(mirrored)
    for row in () if back is None or state not in (None, WriteState.COMPLETE) else back.partitions:
        left = {row.new} if state is WriteState.COMPLETE else {row.before, row.new}
        known[row.partition] = known.get(row.partition, frozenset()) | left
    return known


def reversed_ends(plan: MigrationPlan) -> tuple[End, End]:
    """Source and target of the way back.

    Raises:
        ValueError: the plan's source can only be read.
    """
    check_ends(plan.target, plan.source)
    return plan.target, plan.source


def reverse_plan(  # noqa: PLR0913 - each has its keyword
    plan: MigrationPlan,
    seen: Observation,
    mirrored: Mirrored,
    run: WriteState | None,
    *,
    missing: Missing,
    retention_ms: int | None,
    now_ms: int,
    rewind: bool = False,
    copied: Mapping[TopicPartition, int | None] = MappingProxyType({}),
) -> MigrationPlan:
    """Plan the way back of a migration, from where its target is now.

    Args:
        plan: that was run.
        seen: the reversed ends, with all partitions of the plan.
        mirrored: what the plan's source may hold by a mirror of the plan; empty if there was none.
        run: how far the run of the plan has come.
        missing: what partitions get whose offset has gone from the plan's target, for example because it expired.
        retention_ms: see :class:`MigrationPlan`.
        now_ms: current time in ms since the epoch.
        rewind: see :func:`~zkconsumer.operate.migrate.rules.migrationplan.make_plan`.
        copied: the newest offsets that a mirror found at both ends. One that has gone from the plan's target since, and
            that its source still has, stays where the mirror has left it.
    """
    source, target = reversed_ends(plan)
    guards = (*seen.guards, *_guards(plan, seen, mirrored, run))
    written = (row.partition for row in plan.partitions if row.new is not None)
    lost = frozenset(p for p in written if p not in copied or seen.target.get(p, NOT_STORED).offset != copied[p])
    return make_plan(
        source,
        target,
        plan.servers,
        replace(seen, guards=guards, lost=lost),
        missing=missing,
        retention_ms=retention_ms,
        now_ms=now_ms,
        rewind=rewind,
    )


def _guards(plan: MigrationPlan, seen: Observation, mirrored: Mirrored, run: WriteState | None) -> Iterator[Guard]:
    elsewhere = list(changed_place(plan, seen.place))
    yield Guard("place", not elsewhere, "; ".join(elsewhere) or "the servers are those of the migration")
    reason = why_not_migrated(plan, run)
    yield Guard("migrated", reason is None, reason or "the plan was run")
    moved = moved_since(plan, mirrored, {p: one.offset for p, one in seen.target.items()})
    writer = "mirror" if mirrored else "migration"
    yield Guard(
        "left",
        not moved,
        f"offsets of {plan.source} have moved since the {writer}: {name_some(moved)}; consumers have continued there, "
        "too, or another way back was begun, which is to be completed, or rolled back; "
        f"`{planning(plan.target, plan.source)}` overwrites them"
        if moved
        else f"offsets of {plan.source} are as the {writer} left them",
    )
