"""How far the migration of one group of a fleet has come, from its files and from both stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
from zkconsumer.operate.migrate.rules.mirrorplan import Mirrored, moved_since
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.wire.rules.describedgroup import KafkaGroup
from zkconsumer.zookeeper.rules.znodes import MigrationMark


class FleetState(StrEnum):
    """How far it has come."""

    NOT_STARTED = "not started"
    PLANNED = "planned"
    WRITTEN = "written"
    """Its offsets are in Kafka, and no new consumer has committed."""
    CONSUMED = "consumed"
    """New consumers are members of the group in Kafka, or have committed there."""
    MIRRORED = "mirrored"
    """The same, and a mirror has copied offsets back to ZooKeeper."""
    DONE = "done"
    """The same, and its znodes were deleted."""
    CAME_BACK = "came back"
    """A rollback or a way back is complete: its consumers are to run in ZooKeeper."""
    WRONG = "gone wrong"
    UNKNOWN = "unknown"
    """What decides it cannot be read."""


ORDER: Final = tuple(FleetState)


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What is known of one group.

    Attributes:
        plan: that was made; None if there is none.
        run: how far runs of it have come; None if there was none.
        back: how far the run of the plan of the way back has come; None if there was none.
        mirrored: what a mirror has copied; empty without one.
        exists: True if it has znodes.
        members: ids of its members in ZooKeeper.
        mark: in ZooKeeper; None if there is none.
        in_zookeeper: its offsets there.
        kafka: the group in Kafka.
        in_kafka: its offsets there.
        problems: why some of this is unknown, one sentence each.
    """

    plan: MigrationPlan | None = None
    run: WriteState | None = None
    back: WriteState | None = None
    mirrored: Mirrored = field(default_factory=dict)
    exists: bool = True
    members: tuple[str, ...] = ()
    mark: MigrationMark | None = None
    in_zookeeper: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    kafka: KafkaGroup | None = None
    in_kafka: Mapping[TopicPartition, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Judged(NamedTuple):
    """A state, and why it is that, in words; empty where nothing has to be said."""

    state: FleetState
    reason: str = ""


def judge(facts: FleetFacts) -> Judged:
    """How far a group has come."""
    if facts.problems:
        return Judged(FleetState.UNKNOWN, "; ".join(facts.problems))
    if facts.plan is None:
        return _without_plan(facts)
    if facts.back is not None:
        return _on_the_way_back(facts.back)
    match facts.run:
        case None:
            return _planned(facts, facts.plan)
        case WriteState.WRITING:
            return Judged(FleetState.WRONG, "a run has begun and is not complete: run it again, or roll it back")
        case WriteState.UNDOING:
            return Judged(FleetState.WRONG, "a rollback has begun and is not complete: roll it back again")
        case WriteState.UNDONE:
            return Judged(FleetState.CAME_BACK, "it was rolled back")
    return _written(facts, facts.plan)


def _without_plan(facts: FleetFacts) -> Judged:
    if facts.mark is not None:
        return Judged(FleetState.WRONG, f"it has the mark of a migration to {facts.mark.where}, and there is no plan")
    if not facts.exists:
        return Judged(FleetState.WRONG, "there is no such group in ZooKeeper; check its name and the chroot")
    return Judged(FleetState.NOT_STARTED)


def _planned(facts: FleetFacts, plan: MigrationPlan) -> Judged:
    if facts.mark is not None:
        return Judged(FleetState.WRONG, f"it has the mark of a migration to {facts.mark.where}, and no run of the plan")
    if facts.members:
        return Judged(FleetState.PLANNED, f"members are to be stopped: {name_some(sorted(facts.members))}")
    return Judged(FleetState.PLANNED, "; ".join(plan.lasting_refusals))


def _on_the_way_back(back: WriteState) -> Judged:
    if back is WriteState.COMPLETE:
        return Judged(FleetState.CAME_BACK, "it was reversed")
    return Judged(FleetState.WRONG, "a way back has begun and is not complete: reverse it again")


def _written(facts: FleetFacts, plan: MigrationPlan) -> Judged:
    if facts.members:
        return Judged(
            FleetState.WRONG, f"members are registered in ZooKeeper, though it was migrated: {name_some(facts.members)}"
        )
    lost = [row.partition for row in plan.partitions if row.new is not None and row.partition not in facts.in_kafka]
    if lost:
        return Judged(
            FleetState.WRONG,
            f"{plan.target} has lost its offsets of {name_some(lost)}: they have expired, or were deleted; run it "
            "again, before a consumer begins elsewhere",
        )
    if not facts.exists:
        return Judged(FleetState.DONE)
    if moved := moved_since(plan, facts.mirrored, facts.in_zookeeper, _partitions(plan, facts.mirrored)):
        return Judged(
            FleetState.WRONG,
            f"offsets of {plan.source} have moved since: {name_some(moved)}; consumers have run there, too",
        )
    if not _is_consumed(facts, plan):
        return Judged(FleetState.WRITTEN)
    return Judged(FleetState.MIRRORED if facts.mirrored else FleetState.CONSUMED)


def _partitions(plan: MigrationPlan, mirrored: Mirrored) -> Iterable[TopicPartition]:
    return {*mirrored, *(row.partition for row in plan.partitions)}


def _is_consumed(facts: FleetFacts, plan: MigrationPlan) -> bool:
    if facts.kafka is not None and facts.kafka.has_members:
        return True
    return any(facts.in_kafka.get(row.partition) not in (None, row.new) for row in plan.partitions)
