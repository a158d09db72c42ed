"""What a mirror copies from Kafka to the znodes of a migrated group, when it copies again, and what ends it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from zkconsumer.errors import TRANSIENT, WriteRefused, ZkConsumerError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.migrationplan import (
    Guard,
    MigrationPlan,
    Place,
    ahead,
    planning,
    why_not_migrated,
)
from zkconsumer.operate.migrate.rules.migrationrecheck import changed_place
from zkconsumer.operate.offsets.rules.offsetguards import moving_back
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState

_MOST_FAILURES: Final = 3

Mirrored = Mapping[TopicPartition, frozenset[int | None]]
"""By partition, what its znode may hold as far as the mirror knows: the offset that was copied last and, while a copy
is under way or its answer was lost, the one before it. None stands for no znode."""


_NONE: Final = frozenset({None})


class CopiedOffset(NamedTuple):
    """One partition in both stores; None if a store has no offset of it.

    ``is_outdated``: that in ZooKeeper was stored for an earlier topic of this name, so it is no progress.
    """

    partition: TopicPartition
    in_kafka: int | None
    in_zookeeper: int | None
    is_outdated: bool = False

    @property
    def is_due(self) -> bool:
        """True if Kafka's offset has to be copied."""
        return self.in_kafka is not None and (self.is_outdated or self.in_kafka != self.in_zookeeper)


class MirrorCopy(NamedTuple):
    """What one copy has to do.

    Attributes:
        refusals: why nothing may be copied, one sentence each.
        rows: every partition, sorted.
        warnings: what the operator should know, one sentence each.
    """

    refusals: tuple[str, ...]
    rows: tuple[CopiedOffset, ...]
    warnings: tuple[str, ...] = ()

    @property
    def due(self) -> dict[TopicPartition, int]:
        """The offsets to copy, by partition."""
        return {row.partition: row.in_kafka for row in self.rows if row.is_due and row.in_kafka is not None}


def check_mirror(plan: MigrationPlan) -> None:
    """Refuse plans that have nothing to mirror.

    Raises:
        ValueError: the plan does not migrate a group in ZooKeeper to Kafka.
    """
    if (plan.source.kind, plan.target.kind) != ("zookeeper", "kafka"):
        raise ValueError(
            f"a mirror copies from Kafka to the znodes of a group that was migrated to Kafka; the plan is from "
            f"{plan.source} to {plan.target}"
        )


def decide_copy(
    plan: MigrationPlan,
    mirrored: Mirrored,
    place: Place,
    rows: Sequence[CopiedOffset],
    guards: Iterable[Guard],
    *,
    run: WriteState | None,
    rewind: bool = False,
    logs: Mapping[TopicPartition, LogRange] = MappingProxyType({}),
) -> MirrorCopy:
    """Compare both stores with the plan and with the last copy.

    A znode that holds neither what the migration left nor what the mirror copied was written by a consumer that runs
    in ZooKeeper, or by an operator, so a copy would destroy its progress.

    Args:
        plan: the plan that was run.
        mirrored: as of the last copy.
        place: where the group is now.
        rows: every partition of the plan's topics, also those that were added since, and of the other topics of which
            Kafka has offsets; sorted.
        guards: conditions of the group in ZooKeeper, such as that it has no members.
        run: how far the run of the plan has come.
        rewind: offsets may move back.
        logs: of the partitions that :func:`moves_back` names; records that a log no longer has are not read again.
    """
    refusals = [*changed_place(plan, place), *(guard.text for guard in guards if not guard.holds)]
    if (reason := why_not_migrated(plan, run)) is not None:
        refusals.append(reason)
    in_zookeeper = {row.partition: row.in_zookeeper for row in rows}
    left = _left(plan, mirrored)
    stored = [p for p in in_zookeeper if None not in left.get(p, _NONE)]
    if stored and all(in_zookeeper[p] is None for p in stored):
        refusals.append(
            f"the offsets of {plan.source} were deleted, and a mirror does not create a group again; `zkconsumer "
            "migrate reverse` does"
        )
    if moved := moved_since(plan, mirrored, in_zookeeper):
        refusals.append(
            f"offsets of {plan.source} have moved since the {'last copy' if mirrored else 'migration'}: "
            f"{name_some(moved)}; consumers have continued there, or an operator has reset them. "
            f"`{planning(plan.source, plan.target)}` begins a new migration"
        )
    back = moves_back(rows, logs)
    if back and not rewind:
        refusals.append(ahead(plan.source, plan.target, back))
    none = [row.partition for row in rows if row.in_kafka is None and row.in_zookeeper is None]
    warning = f"neither end has an offset of {name_some(none)}, where consumers begin at auto.offset.reset"
    return MirrorCopy(tuple(dict.fromkeys(refusals)), tuple(rows), (warning,) if none else ())


def moves_back(
    rows: Iterable[CopiedOffset], logs: Mapping[TopicPartition, LogRange] = MappingProxyType({})
) -> list[TopicPartition]:
    """The partitions whose offset in ZooKeeper a copy would move back, as :func:`moving_back`."""
    in_kafka, in_zookeeper = {}, {}
    for row in rows:
        in_kafka[row.partition] = row.in_kafka
        in_zookeeper[row.partition] = None if row.is_outdated else row.in_zookeeper
    return moving_back(in_kafka, in_zookeeper, logs)


def moved_since(
    plan: MigrationPlan, mirrored: Mirrored, offsets: Mapping[TopicPartition, int | None]
) -> list[TopicPartition]:
    """The partitions whose offset in the plan's source is neither what the migration left nor what the mirror copied.

    Of a partition that the plan does not have, the migration has left no offset. One that has no offset any more was
    deleted, and no consumer has continued there.
    """
    left = _left(plan, mirrored)
    return [p for p in sorted(offsets) if offsets[p] not in left.get(p, _NONE) | _NONE]


def _left(plan: MigrationPlan, mirrored: Mirrored) -> Mirrored:
    """What the migration or the mirror left of each partition."""
    return {**{row.partition: row.unread for row in plan.partitions}, **mirrored}


# -- times ------------------------------------------------------------------------------------------------------------


def pause_before_copy(elapsed: float, interval: float, duration: float) -> float | None:
    """How long to wait for the next copy, in seconds; None if the mirror has ended.

    Copies begin at multiples of the interval, and once more at the end. One that takes longer skips those it delays.

    Args:
        elapsed: seconds since the mirror began.
        interval: between copies, in seconds.
        duration: of the mirror, in seconds.

    >>> pause_before_copy(61.5, 60, 3600), pause_before_copy(3590, 60, 3600), pause_before_copy(3600, 60, 3600)
    (58.5, 10, None)
    """
    if elapsed >= duration:
        return None
    return min((math.floor(elapsed / interval) + 1) * interval, duration) - elapsed


def ends_mirror(error: ZkConsumerError | OSError, failures: int) -> bool:
    """True if a mirror cannot continue after a copy that failed.

    Servers that cannot be reached are asked again by the next copy, for as long as the mirror runs. A group that a tool
    holds is waited for, too: after an outage that may be the mirror's own copy, whose session has not expired yet. What
    waiting does not cure, such as a missing permission, or a file that cannot be written, ends it after a few copies.

    Args:
        error: of the copy.
        failures: copies in a row that have failed, this one included.
    """
    if isinstance(error, WriteRefused):
        return not error.is_held
    return not isinstance(error, TRANSIENT) and failures >= _MOST_FAILURES
