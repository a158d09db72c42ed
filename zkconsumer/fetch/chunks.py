"""Chunk, what passes through a queue; and HandOver, a chunk that a stream is handing out item by item.

How positions stay exact without a lock per record: the offsets after each item wait in a deque. The user's thread takes
an item by ``popleft``; whoever takes the rest back does it by ``pop``. Each of these is atomic, so each item goes to
exactly one of them, and the user gets an item *because* its ``popleft`` succeeded. What has been handed out is what is
missing in the deque minus what was taken back, and that is counted under the queue's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from zkconsumer.fetch.decode import ScannedChunk
    from zkconsumer.fetch.partition_info import PartitionInfo


class Chunk(NamedTuple):
    """Some consecutive records of one partition.

    Attributes:
        info: the partition, in one generation.
        batch: a ``pyarrow.RecordBatch``, or None for a chunk that is not decoded or only moves the position.
        next_offset: the position once all records are consumed.
        nbytes: memory that the records hold.
        fetched_bytes: what the broker sent for it, compressed as it may be.
        scanned: the records while they are neither verified nor decoded.
    """

    info: PartitionInfo
    batch: Any
    next_offset: int
    nbytes: int
    fetched_bytes: int = 0
    scanned: ScannedChunk | None = None

    @property
    def has_records(self) -> bool:
        """False for a chunk that only moves the position; one that is not decoded may turn out to be such."""
        return self.batch is not None or self.scanned is not None


class HandOver:
    """A chunk that is being handed out, item by item. Made and drained by the user's thread.

    Args:
        chunk: which one.
        ends: for each item, record or batch, the position once it is consumed.

    Attributes:
        claim: called by the user's thread for each item: makes it the user's, or raises IndexError where none is left.
    """

    def __init__(self, chunk: Chunk, ends: Sequence[int]) -> None:
        self.chunk = chunk
        self._ends = ends
        self._waiting = deque(ends)
        self._taken_back = 0
        self.claim: Callable[[], int] = self._waiting.popleft

    def handed_out(self) -> int:
        """Items that are the user's. Under the queue's lock, since it must not run into :meth:`take_back`."""
        return len(self._ends) - len(self._waiting) - self._taken_back

    def messages(self) -> int:
        """Records that are the user's, however many of them an item has. Under the queue's lock."""
        return self.handed_out() * (int(self.chunk.batch.num_rows) // len(self._ends))

    def is_drained(self) -> bool:
        """True if nothing waits to be claimed."""
        return not self._waiting

    def take_back(self) -> Chunk | None:
        """Withdraw what is not the user's yet and return it as a chunk, once. Under the queue's lock."""
        before = self._taken_back
        while True:
            try:
                self._waiting.pop()
            except IndexError:
                break
            self._taken_back += 1
        if self._taken_back == before:
            return None
        given = self.handed_out()
        return self.chunk if given == 0 else self.chunk._replace(batch=self.chunk.batch.slice(given))

    def position(self, *, handed_out: bool) -> int | None:
        """Position after what was handed out, or what was released: all but the last. None: not moved yet."""
        count = self.handed_out() - (not handed_out)
        return self._ends[count - 1] if count > 0 else None

    def final_position(self) -> int | None:
        """Position once the user is done with everything that was handed out."""
        return self.chunk.next_offset if self._taken_back == 0 else self.position(handed_out=True)
