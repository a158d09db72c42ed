"""What is known of the migration of one group of a fleet, and what its state is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
from zkconsumer.operate.migrate.rules.mirrorplan import Mirrored
from zkconsumer.operate.migrate.rules.surveyverdict import storage_of
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.wire.rules.describedgroup import KafkaGroup
from zkconsumer.zookeeper.rules.znodes import MigrationMark


class FleetState(StrEnum):
    """How far it has come."""

    NOT_STARTED = "not started"
    NEEDS_NO_PLAN = "needs no plan"
    """All of its offsets are in Kafka, and no new consumer is a member there."""
    PLANNED = "planned"
    REFUSED = "refused"
    """Its plan has a refusal that no run of it can cure; what has to be decided is the reason."""
    WRITTEN = "written"
    """Its offsets are in Kafka, and no new consumer has committed."""
    CONSUMED = "consumed"
    """New consumers are members of the group in Kafka, or have committed there."""
    MIRRORED = "mirrored"
    """The same, and a mirror has copied offsets back to ZooKeeper."""
    DONE = "done"
    """The same, and its znodes were deleted."""
    ROLLED_BACK = "rolled back"
    """A rollback is complete: its consumers are to run in ZooKeeper."""
    CAME_BACK = "came back"
    """A way back from where the new consumers were is complete: its consumers are to run in ZooKeeper."""
    WRONG = "gone wrong"
    UNKNOWN = "unknown"
    """What decides it cannot be read."""

    @property
    def of_group(self) -> str:
        """The state in a sentence about its group."""
        match self:
            case FleetState.CAME_BACK | FleetState.NEEDS_NO_PLAN:
                return f"it {self}"
            case FleetState.WRONG:
                return f"it has {self}"
        return f"it is {self}"


ORDER: Final = tuple(FleetState)

Whereabouts = Literal["in_kafka", "waiting", "in_zookeeper", "unclear"]
"""Where consumers of a group are: they continue in Kafka; its offsets wait there for them; they are the old ones, or
are to be; it has gone wrong, or is unknown."""

_PLACES: Final[Mapping[FleetState, Whereabouts]] = MappingProxyType(
    {
        **dict.fromkeys((FleetState.CONSUMED, FleetState.MIRRORED, FleetState.DONE), "in_kafka"),
        FleetState.WRITTEN: "waiting",
        **dict.fromkeys((FleetState.WRONG, FleetState.UNKNOWN), "unclear"),
    }
)


def whereabouts(states: Collection[FleetState]) -> dict[Whereabouts, int]:
    """How many groups are where."""
    counts = Counter(_PLACES.get(state, "in_zookeeper") for state in states)
    return {place: counts[place] for place in get_args(Whereabouts)}


Verb = Literal["plan", "run", "verify", "rollback", "reverse", "mirror"]
"""A command about the groups of a wave."""


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What is known of one group.

    Attributes:
        plan: that was made; None if there is none.
        target: what the file of the fleet has; None if that is not to be compared.
        run: how far runs of it have come; None if there was none.
        back: how far the run of the plan of the way back has come; None if there was none, or if it was rolled back.
        back_plan: that plan, also if it was not run, or was rolled back; None if there is none.
        mirrored: what a mirror has copied; empty without one.
        exists: True if it has znodes.
        members: ids of its members in ZooKeeper.
        mark: in ZooKeeper; None if there is none.
        in_zookeeper: its offsets there.
        kafka: the group in Kafka.
        in_kafka: its offsets there, also of partitions that the plan does not have.
        beyond: the target's offsets that the plan does not have, when its run began; of the way back, if that was run.
        gone: partitions of the plans that do not exist any more; the offsets of both stores are without them.
        added: partitions of the plan's topics that it does not have.
        problems: why some of this is unknown, one sentence each.
    """

    plan: MigrationPlan | None = None
    target: End | None = None
    run: WriteState | None = None
    back: WriteState | None = None
    back_plan: MigrationPlan | None = None
    mirrored: Mirrored = field(default_factory=dict)
    exists: bool = True
    members: tuple[str, ...] = ()
    mark: MigrationMark | None = None
    in_zookeeper: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    kafka: KafkaGroup | None = None
    in_kafka: Mapping[TopicPartition, int] = field(default_factory=dict)
    beyond: Mapping[TopicPartition, int] = field(default_factory=dict)
    gone: Collection[TopicPartition] = ()
    added: Collection[TopicPartition] = ()
    problems: tuple[str, ...] = ()

    @property
    def needs_no_plan(self) -> bool:
        """True if its offsets are all in Kafka, or its first ones will be: there is nothing to write."""
        storage = storage_of(self.in_zookeeper.values(), self.in_kafka.values())
        return storage == "kafka" or (storage == "none" and self.kafka is not None and self.kafka.has_members)


class Judged(NamedTuple):
    """A state.

    Attributes:
        state: how far it has come.
        reason: why it is that, in words; empty where nothing has to be said.
        only: the commands that are of use now, besides those that skip the group; None if all are.
        waits_for: before a planned group can be run: that its members are stopped, another plan, or its window.
        first: the command that the reason of a group that has gone wrong names first; None if it names none.
    """

    state: FleetState
    reason: str = ""
    only: frozenset[Verb] | None = None
    waits_for: Literal["", "stop", "plan", "window"] = ""
    first: Verb | None = None


def wrong(reason: str, *only: Verb) -> Judged:
    """A group that has gone wrong: why, and the commands that are of use, the first one first; all if none is named."""
    return Judged(FleetState.WRONG, reason, frozenset(only) if only else None, first=next(iter(only), None))
