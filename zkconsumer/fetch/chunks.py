"""Chunk, the unit of a queue, and HandOver, a chunk that a stream is handing out item by item.

How positions stay exact without a lock per record: the items that are not handed out yet wait in a deque. The user's
thread claims an item by taking it from the left; a thread that takes the rest back puts an end mark there. Each of the
two is one step of the interpreter, so each item goes to exactly one of them. The items missing in the deque are those
that were handed out.

The claim is a step of an iterator written in C, and so is everything from there until the user has the item
(``connector/stream.py``). The interpreter raises an interrupt between two Python instructions, so it comes before the
claim or when the user has the item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import PreparedChunk, ScannedChunk
    from zkconsumer.decode.records import Records
    from zkconsumer.fetch.queuedpartition import QueuedPartition

T = TypeVar("T")


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
    def num_rows(self) -> int:
        """Number of decoded records."""
        return 0 if self.records is None else self.records.num_rows

    @property
    def batch(self) -> Any:
        """The records as a ``pyarrow.RecordBatch``; None if there are none."""
        from zkconsumer.decode.arrow import batch_of

        return None if self.records is None else batch_of(self.records)


class HandOver(Generic[T]):
    """A chunk that is being handed out from its beginning, in items of ``rows`` records each.

    The user's thread creates it and claims items; everything else happens under the queue's lock. The items may end
    before the chunk does; then the rest waits to be taken back.

    Args:
        chunk: which one.
        items: the items to hand out; the queue refers to each only until it is claimed. No item may equal None.
        lasts: offset of the last record of each item.
        rows: number of records in each item.

    Attributes:
        claims: iterator over ``items``. Each step gives the next item to the user; it ends when none is left.
        is_out: True while the queue does not hold the chunk. False: the queue may hold the chunk, or its rest.
        messages_before: messages of the topic that were handed out before this chunk. The queue writes both.
    """

    def __init__(self, chunk: Chunk, items: Iterable[T], lasts: Sequence[int], rows: int = 1) -> None:
        self.chunk = chunk
        self.is_out = False
        self.messages_before = 0
        self._lasts = lasts
        self._rows = rows
        self._waiting: deque[T | None] = deque(items)
        self._waiting.append(None)
        self._is_ending = False
        self._left: int | None = None  # items that were taken back; None until then
        self._rest: Chunk | None = None
        # One C call takes from the left, and ends for good at the first None.
        self.claims: Iterator[T] = iter(self._waiting.popleft, None)

    def handed_out(self) -> int:
        """Number of items that the user has claimed."""
        return len(self._lasts) - self._unclaimed()

    def _unclaimed(self) -> int:
        if self._left is not None:
            return self._left
        if not self._is_ending:
            return max(0, len(self._waiting) - 1)  # without the end mark
        waiting = list(self._waiting)
        return len(waiting) - waiting.count(None)

    def next_item(self) -> T | None:
        """The item that the next claim returns; None if there is none. Used by the user's thread, without the lock."""
        # An end mark put in front meanwhile stays there: only this thread takes from the left.
        return self._waiting[0] if self._waiting else None

    def messages(self) -> int:
        """Number of records that the user has claimed."""
        return self.handed_out() * self._rows

    def has_more(self) -> bool:
        """True if the chunk has records that were neither claimed nor taken back."""
        return self.is_out and self._left is None and self.messages() < self.chunk.num_rows

    def take_back(self) -> Chunk | None:
        """End the claims, and return the unclaimed records as a chunk; None if there are none.

        Idempotent: repeated calls return the same object.
        """
        if self._left is None:
            self._is_ending = True
            self._waiting.appendleft(None)  # from now on the user's thread takes at most this mark
            left = self._unclaimed()
            self._rest = self._after(len(self._lasts) - left)
            self._left = left
        return self._rest

    def abandon(self) -> None:
        """End the claims and forget the rest; for a forked child, where no thread takes it back."""
        self._waiting.clear()
        self._waiting.append(None)

    def _after(self, items: int) -> Chunk | None:
        rows, chunk = items * self._rows, self.chunk
        if rows == 0 or chunk.records is None:
            return chunk
        return None if rows == chunk.num_rows else chunk._replace(records=chunk.records.slice(rows))

    def position(self, *, handed_out: bool) -> int | None:
        """Position after the claimed items; with ``handed_out`` False, without the last one. None: not moved yet."""
        count = self.handed_out() - (not handed_out)
        return int(self._lasts[count - 1]) + 1 if count > 0 else None

    def final_position(self) -> int | None:
        """Position after everything that was handed out is consumed."""
        everything = self.messages() == self.chunk.num_rows
        return self.chunk.next_offset if everything else self.position(handed_out=True)
