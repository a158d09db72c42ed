"""When a stream is idle: data waits for it, and its reader takes nothing (``max.stream.idle.ms``)."""

from __future__ import annotations

from typing import Final, NamedTuple

from zkconsumer.model import TopicPartition

_LOOKS_PER_LIMIT: Final = 10


class Reading(NamedTuple):
    """What is seen of one stream's queue at one moment.

    Attributes:
        progress: changes whenever the reader takes something.
        unread: partitions of which something could be handed out now.
    """

    progress: tuple[int, int]
    unread: frozenset[TopicPartition]


class Seen(NamedTuple):
    """A reading, and since when nothing was taken although something waited; None: that is not so."""

    reading: Reading
    idle_since: float | None


def judge(before: Seen | None, reading: Reading, now: float) -> Seen:
    """Judge a stream by a new reading.

    What happens between two looks is not seen, so the time begins at the first look that finds data, never earlier.

    Args:
        before: what the last look found, None at the first.
        reading: what there is now.
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
    """A tenth of the limit, 10 ms to 1 s: so much later than allowed an idle stream may be found."""
    return min(max(limit_ms / 1000 / _LOOKS_PER_LIMIT, 0.01), 1.0)
