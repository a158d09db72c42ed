"""Planning of a read: from positions that are wanted to offsets that the logs have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from zkconsumer.errors import LeaderUnknown, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.logends import LogEnds
from zkconsumer.ranges.rules.rangepositions import Loss, Wanted, ending_offsets, locate
from zkconsumer.ranges.rules.spans import Span


def plan_ranges(
    ends: LogEnds,
    starts: Mapping[TopicPartition, Wanted],
    given_ends: Mapping[TopicPartition, Wanted],
    accept_losses: Callable[[Mapping[TopicPartition, Loss]], None],
) -> dict[TopicPartition, Span]:
    """The offsets to read of each partition; the ends are those of this moment.

    Args:
        ends: asks the brokers.
        starts: of every partition.
        given_ends: of some; the others are read up to where their logs can be read.
        accept_losses: takes starts that are not in the logs, and may raise; otherwise the read starts at the nearest
            offset that a log has.

    Raises:
        LeaderUnknown: a partition has no leader, or it has not answered, so an end of it is unknown.
        TopicUnreadable: brokers refuse to serve a topic, for example because a permission is missing.
        OffsetOutOfRange: the log of a partition cannot be read up to a given end.
        ZkConsumerError: the brokers cannot be reached.
    """
    earliest = ends.earliest(starts)
    found = ends.resolve(starts)
    given = ends.resolve(given_ends)
    latest = ends.latest(starts, {p: max(start, given.get(p, start)) for p, start in found.items()})
    readable = ends.readable(latest)
    require_leaders([p for p in starts if not (p in earliest and p in readable and p in found)])
    require_leaders(given_ends.keys() - given.keys())  # otherwise these would be read up to the ends of their logs
    until = ending_offsets(given, latest, readable)
    located = locate(found, earliest, latest, readable)
    accept_losses(located.lost)
    return {p: Span(start, max(start, until[p])) for p, start in sorted(located.offsets.items())}


def require_leaders(leaderless: Collection[TopicPartition]) -> None:
    """LeaderUnknown if there is a partition whose log cannot be asked for its ends."""
    if leaderless:
        raise LeaderUnknown(f"no leader answers for {name_some(sorted(leaderless))}; check that all brokers run")
