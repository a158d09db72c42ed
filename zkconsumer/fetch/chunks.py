"""Chunk, the unit of a queue, and QueuedPartition, the part of a partition's state that its queue uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from zkconsumer.model import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import PreparedChunk, ScannedChunk
    from zkconsumer.decode.records import Records
    from zkconsumer.fetch.unfinished import Unfinished


@dataclass(slots=True, eq=False)
class QueuedPartition:
    """One partition from its acquisition to its release. Each acquisition has its own object, compared by identity.

    The state that the fetchers use is in :class:`~zkconsumer.fetch.partitioninfo.PartitionInfo`.

    Args:
        partition: which one.

    Attributes:
        consumed: the offset after all consumed chunks, or None. Written by the user's thread.
        unfinished: what was handed out and is not done; None unless ``commit.on=done``. Set before its queue admits it.
    """

    partition: TopicPartition
    consumed: int | None = field(default=None, init=False)
    unfinished: Unfinished | None = field(default=None, init=False)


class Chunk(NamedTuple):
    """Some consecutive records of one partition.

    Attributes:
        info: the partition, in one generation.
        records: the records; None for a chunk that is not decoded or only moves the position.
        next_offset: the position after all records are consumed.
        nbytes: memory of the records, in bytes.
        fetched_bytes: bytes that the broker sent for it, possibly compressed.
        scanned: the bytes, as long as they are not decoded.
        prepared: the verified and decompressed records; from then on the bytes of ``scanned`` may be moved.
        seen: True for a chunk without records at which the reader has looked; it does not count in its queue any more.
    """

    info: QueuedPartition
    records: Records | None
    next_offset: int
    nbytes: int
    fetched_bytes: int = 0
    scanned: ScannedChunk | None = None
    prepared: PreparedChunk | None = None
    seen: bool = False

    @property
    def has_records(self) -> bool:
        """False for a chunk that only moves the position. An undecoded chunk may turn out to hold no records."""
        return self.records is not None or self.scanned is not None

    @property
    def first_offset(self) -> int:
        """Where its records begin, or where it moves the position."""
        return self.next_offset if self.scanned is None else self.scanned.requested

    @property
    def num_rows(self) -> int:
        """Number of decoded records."""
        return 0 if self.records is None else self.records.num_rows

    @property
    def batch(self) -> Any:
        """The records as a ``pyarrow.RecordBatch``; None if there are none."""
        from zkconsumer.decode.arrow import batch_of

        return None if self.records is None else batch_of(self.records)
