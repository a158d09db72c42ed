"""Chunk, what passes through a queue; and HandOver, a chunk that a stream is handing out item by item.

How positions stay exact without a lock per record: what is not handed out yet waits in a deque. The user's thread
claims an item by taking it from the left; a thread that takes the rest back puts an end mark there. Each of the two is
one step of the interpreter, so each item goes to exactly one of them. What has been handed out is what is missing in
the deque.

The claim is a step of an iterator that is written in C, and so is everything from there to the item in the user's hand
(``connector/stream.py``). An interrupt is raised by the interpreter between two instructions of Python, so it comes
before the claim or when the user has the item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import PreparedChunk, ScannedChunk
    from zkconsumer.fetch.queuedpartition import QueuedPartition

T = TypeVar("T")


class Chunk(NamedTuple):
    """Some consecutive records of one partition.

    Attributes:
        info: the partition, in one generation.
        batch: a ``pyarrow.RecordBatch``, or None for a chunk that is not decoded or only moves the position.
        next_offset: the position once all records are consumed.
        nbytes: memory that the records hold.
        fetched_bytes: what the broker sent for it, compressed as it may be.
        scanned: the records while they are not decoded.
        prepared: the same, if they were verified and decompressed; then the bytes of ``scanned`` may be moved.
    """

    info: QueuedPartition
    batch: Any
    next_offset: int
    nbytes: int
    fetched_bytes: int = 0
    scanned: ScannedChunk | None = None
    prepared: PreparedChunk | None = None

    @property
    def has_records(self) -> bool:
        """False for a chunk that only moves the position; one that is not decoded may turn out to be such."""
        return self.batch is not None or self.scanned is not None


class HandOver(Generic[T]):
    """A chunk that is being handed out from its beginning, in items of as many records each.

    The user's thread makes it and claims; the rest happens under the queue's lock. The items may end before the chunk
    does; then the rest waits to be taken back.

    Args:
        chunk: which one.
        items: what is handed out; the queue refers to each only until it is claimed. None of them is equal to None.
        lasts: for each item the offset of its last record.
        rows: records of each item.

    Attributes:
        claims: iterator over ``items``. Each step makes the next item the user's; it ends where none is left.
        is_out: True while the queue does not have the chunk. False says that it may have the chunk, or its rest.
        messages_before: messages of the topic that were handed out before this. Both are written by the queue.
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
        self._left: int | None = None  # items that were taken back; None before that is known
        self._rest: Chunk | None = None
        # One C call takes from the left, and for good ends at the first None.
        self.claims: Iterator[T] = iter(self._waiting.popleft, None)

    def handed_out(self) -> int:
        """Items that are the user's."""
        return len(self._lasts) - self._unclaimed()

    def _unclaimed(self) -> int:
        if self._left is not None:
            return self._left
        if not self._is_ending:
            return max(0, len(self._waiting) - 1)  # without the mark at the end
        waiting = list(self._waiting)
        return len(waiting) - waiting.count(None)

    def next_item(self) -> T | None:
        """The item that a claim gives next; None where there is none. By the user's thread, no lock."""
        # A mark that was put in front meanwhile would stay there: only this thread takes from there.
        return self._waiting[0] if self._waiting else None

    def messages(self) -> int:
        """Records that are the user's."""
        return self.handed_out() * self._rows

    def has_more(self) -> bool:
        """True if the chunk has records that are not the user's, and were not taken back."""
        return self.is_out and self._left is None and self.messages() < self.chunk.batch.num_rows

    def take_back(self) -> Chunk | None:
        """End the claims, and return as a chunk what is not the user's; None where that is nothing.

        It may be repeated, and gives the same object each time.
        """
        if self._left is None:
            self._is_ending = True
            self._waiting.appendleft(None)  # from now on the user's thread gets at most this
            left = self._unclaimed()
            self._rest = self._after(len(self._lasts) - left)
            self._left = left
        return self._rest

    def abandon(self) -> None:
        """End the claims and forget the rest; in a forked child, where nothing takes it back."""
        self._waiting.clear()
        self._waiting.append(None)

    def _after(self, items: int) -> Chunk | None:
        rows, chunk = items * self._rows, self.chunk
        if rows == 0:
            return chunk
        return None if rows == chunk.batch.num_rows else chunk._replace(batch=chunk.batch.slice(rows))

    def position(self, *, handed_out: bool) -> int | None:
        """Position after what was handed out, or what was released: all but the last. None: not moved yet."""
        count = self.handed_out() - (not handed_out)
        return int(self._lasts[count - 1]) + 1 if count > 0 else None

    def final_position(self) -> int | None:
        """Position once the user is done with everything that was handed out."""
        everything = self.messages() == self.chunk.batch.num_rows
        return self.chunk.next_offset if everything else self.position(handed_out=True)
