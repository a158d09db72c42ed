"""Idle streams: data waits in a stream's queue, and its reader takes nothing (``max.stream.idle.ms``)."""

from __future__ import annotations

from typing import Final, NamedTuple

from zkconsumer.model import TopicPartition

_LOOKS_PER_LIMIT: Final = 10


class Reading(NamedTuple):
    """The state of one stream's queue at one moment.

    Attributes:
        progress: changes whenever the reader takes something.
        unread: partitions with records that could be handed out now.
    """

    progress: tuple[int, int]
    unread: frozenset[TopicPartition]


class Seen(NamedTuple):
    """A reading, and since when the reader has taken nothing although data waited; None if that is not the case."""

    reading: Reading
    idle_since: float | None


def judge(before: Seen | None, reading: Reading, now: float) -> Seen:
    """Judge a stream by a new reading.

    What happens between two readings is unknown, so the time starts at the first reading that finds data.

    Args:
        before: the result of the last call, None at the first.
        reading: the state now.
        now: seconds on a clock that never jumps back.
    """
    if not reading.unread:
        return Seen(reading, None)
    if before is None or before.idle_since is None or before.reading.progress != reading.progress:
        return Seen(reading, now)
    return Seen(reading, before.idle_since)


def is_idle(seen: Seen, now: float, limit_ms: int) -> bool:
    """True if the reader has left data unread for longer than it may."""
    return seen.idle_since is not None and now - seen.idle_since >= limit_ms / 1000


def seconds_between_looks(limit_ms: int) -> float:
    """A tenth of the limit, 10 ms to 10 s: an idle stream is found at most this much later than the limit."""
    return min(max(limit_ms / 1000 / _LOOKS_PER_LIMIT, 0.01), 10.0)
