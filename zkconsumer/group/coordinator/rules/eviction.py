"""Which members of a group with a coordinator are evicted, and when (adr/0018)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from zkconsumer.group.coordinator.rules.coordinatorplan import LATE_AFTER_TIMEOUTS, Awaited, Owners
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode

_DEFAULT_S: Final = 30.0
_DEFAULT_TIMEOUTS: Final = 2.0


class Slow(NamedTuple):
    """Members that have not released or claimed what they should have, and when the next one will be late.

    Attributes:
        partitions: consumer id to these partitions.
        next_at: reading of the clock, later than ``now``, at which the next partition will have been awaited for too
            long; None if no other is awaited.
    """

    partitions: dict[str, list[TopicPartition]]
    next_at: float | None


def evicted_after_seconds(evict_slow_ms: int | None, session_timeout_s: float) -> float | None:
    """How long a partition may be awaited before the member that has to act is evicted; None if no member is.

    Args:
        evict_slow_ms: ``coordinator.evict.slow.ms``; 0 for never, None for the default.
        session_timeout_s: the negotiated session timeout: before two thirds of it no member is reported as slow.
    """
    if evict_slow_ms is None:
        return max(_DEFAULT_S, _DEFAULT_TIMEOUTS * session_timeout_s)
    return max(evict_slow_ms / 1000, LATE_AFTER_TIMEOUTS * session_timeout_s) if evict_slow_ms else None


def slow_members(awaited: Mapping[TopicPartition, Awaited], now: float, after_s: float) -> Slow:
    """Members to be evicted.

    Args:
        awaited: partitions that are awaited.
        now: reading of the same clock, in seconds.
        after_s: see :func:`evicted_after_seconds`.
    """
    late: dict[str, list[TopicPartition]] = {}
    later: list[float] = []
    for partition, waiting in sorted(awaited.items()):
        late_at = waiting.since + after_s
        if late_at > now:
            later.append(late_at)
        elif waiting.by is not None:
            late.setdefault(waiting.by, []).append(partition)
    return Slow(late, min(later, default=None))


def owned_by(consumer_id: str, owners: Owners) -> list[TopicPartition]:
    """The partitions whose owner znodes name a member."""
    return sorted(
        partition for partition, owner in owners.items() if PartitionOwnerNode.consumer_of(owner) == consumer_id
    )


def reason_to_evict(partitions: Collection[TopicPartition], after_s: float) -> str:
    """What the member's command and the log name as the reason."""
    return (
        f"it did not release or claim {len(partitions)} partitions within {after_s:g} s, first {min(partitions)} "
        "(coordinator.evict.slow.ms); check whether its rebalance listener or before_commit hangs"
    )
