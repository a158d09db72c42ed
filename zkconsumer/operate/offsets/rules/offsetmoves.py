"""What a write does to the offset of a partition: how far the group moves, in records of its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import clamp_to_log
from zkconsumer.offsets.rules.storedoffsets import usable_offset


class LogRange(NamedTuple):
    """The offsets that a log has: of its first record, and after its last one."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        """The nearest offset at which the log can be read."""
        return clamp_to_log(offset, self.start, self.end)


def how_far(read: Iterable[int | None], new: int | None, log: LogRange | None) -> int | None:
    """Records from where a partition was read to, to where it is read from next; negative if some are read again.

    Args:
        read: offsets of the groups that have read it, of which the greatest counts; None, or a negative one, is none.
        new: the next offset; None if there is none.
        log: the offsets of the log, if known: records that it no longer has are neither skipped nor read again.

    Returns:
        The number; None if it was not read, or is not read next.
    """
    positions = [position for offset in read if (position := usable_offset(offset)) is not None]
    known = [position if log is None else log.clamp(position) for position in positions]
    following = usable_offset(new)
    if not known or following is None:
        return None
    return (following if log is None else max(following, log.start)) - max(known)


class OffsetRow(NamedTuple):
    """What a write does to the offset of one partition.

    Attributes:
        partition: which one.
        old: the stored offset, None if there is none.
        new: the offset to store, None to delete it.
        log: the offsets of its log, None if unknown.
        note: what the operator should know of it, may be empty.
    """

    partition: TopicPartition
    old: int | None
    new: int | None
    log: LogRange | None = None
    note: str = ""

    @property
    def skipped(self) -> int | None:
        """Records that the log has and the group will not read; None if unknown."""
        forward = self.forward
        return forward if forward is None else max(0, forward)

    @property
    def replayed(self) -> int | None:
        """Records that the log has and the group will read again; None if unknown."""
        forward = self.forward
        return forward if forward is None else max(0, -forward)

    @property
    def forward(self) -> int | None:
        """Records from where the group would continue now to where it will, negative if back; None if unknown."""
        return how_far([self.old], self.new, self.log)


class Sums(NamedTuple):
    """Sums over rows: records skipped and replayed, and the number of rows for which they are unknown."""

    skipped: int
    replayed: int
    unknown: int


def sums(rows: Iterable[OffsetRow]) -> Sums:
    """The sums of what is known."""
    skipped = replayed = unknown = 0
    for row in rows:
        forward = row.forward
        if forward is None:
            unknown += 1
        elif forward > 0:
            skipped += forward
        else:
            replayed -= forward
    return Sums(skipped, replayed, unknown)
