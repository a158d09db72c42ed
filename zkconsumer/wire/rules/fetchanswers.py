"""What the answer to a fetch means for one partition: the one judgement of all that fetch.

The error code is judged by :func:`zkconsumer.wire.errorcodes.verdict_on`, bytes without a batch by :func:`next_size`,
bytes that cannot be decoded by :class:`Faults`. What follows, such as a search for the leader, is up to the caller.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.model import TopicPartition

BELIEVED_AT: Final = 3
"""How often bytes that cannot be decoded are fetched, since they may have been damaged in transit."""

UNDECODABLE: Final = (CorruptRecord, RecordTooLarge)
"""What a decoder raises for bytes that it cannot decode."""


class Verdict(Enum):
    """What the error code of an answer means."""

    SERVED = "served"
    """There is no error; there may be no records either."""
    OUT_OF_RANGE = "out of range"
    """The log does not hold the offset: its ends have to be looked up."""
    LEADER_MOVED = "leader moved"
    """Normal operation: another broker leads the partition, or this one in another epoch, or none for a moment."""
    REFUSED = "refused"
    """The broker repeats this until an operator removes the cause, such as a missing permission."""
    FAILED = "failed"
    """Any other error, after which a retry may help."""
    LEADER_DECIDES = "the leader decides"
    """Any error of a follower, which may lag behind its leader: the leader has to be asked what it means."""


def next_size(
    partition: TopicPartition,
    offset: int,
    received: int,
    asked: int,
    most: int,
    *,
    is_first: bool,
    limit: str = "fetch.max.bytes",
) -> int:
    """The bytes to request next after an answer whose bytes hold no complete batch.

    Brokers from 0.10.1 on send the first batch of an answer as a whole, whatever was requested (KIP-74), earlier ones
    cut it off. All cut off later batches where the limit of the response is reached: then the size stays.

    Args:
        partition: which one.
        offset: that was requested.
        received: bytes in the answer.
        asked: bytes requested.
        most: the most bytes that may be requested.
        is_first: True if no other partition before it in the answer had records.
        limit: the name of ``most``, for the error.

    Raises:
        RecordTooLarge: a record is longer than ``most``.
        CorruptRecord: this is no batch: its length is damaged.
    """
    if received >= asked:
        if asked >= most:
            raise RecordTooLarge(
                f"{partition} at offset {offset}: a record is longer than {limit} ({most}); raise it to continue"
            )
        return min(2 * asked, most)
    if received and is_first:
        raise CorruptRecord(f"{partition} at offset {offset}: {received} bytes hold no complete batch")
    return asked


class Faults(NamedTuple):
    """Bytes of one partition that could not be decoded.

    Attributes:
        offset: from which they were fetched; None if there were none.
        times: how often in a row, without a first doubtful one: that is usual at the end of a busy log (adr/0028).
    """

    offset: int | None = None
    times: int = 0

    def after(self, offset: int, error: Exception) -> Faults:
        """After one more from this offset."""
        if offset != self.offset:
            return Faults(offset, 0 if isinstance(error, CorruptRecord) and error.doubtful else 1)
        return Faults(offset, self.times + 1)

    @property
    def are_believed(self) -> bool:
        """True if fetching them again does not help: they are skipped, or the error is raised."""
        return self.times >= BELIEVED_AT


def resume_at(error: Exception, on_corrupt: str, end: int | None) -> int | None:
    """The offset to continue at after bytes that are believed to be damaged; None if the error has to be raised.

    Args:
        error: of the decoder.
        on_corrupt: the property.
        end: not beyond this offset, which a damaged header may exceed; None if unknown.
    """
    if on_corrupt != "skip" or not isinstance(error, CorruptRecord) or error.resume_at is None:
        return None
    return error.resume_at if end is None else min(error.resume_at, end)
