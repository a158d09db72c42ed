"""HandedOut: what the user holds: the chunk that a stream hands out item by item, and the positions derived from it.

How positions stay exact without a lock per record: the items that are not handed out yet wait in a deque. The user's
thread claims an item by taking it from the left; a thread that takes the rest back puts an end mark there. Each of the
two is one step of the interpreter, so each item goes to exactly one of them. The items missing in the deque are those
that were handed out.

The claim is a step of an iterator written in C, and so is everything from there until the user has the item
(``connector/stream.py``). The interpreter raises an interrupt between two Python instructions, so it comes before the
claim or when the user has the item.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from zkconsumer.fetch.chunks import Chunk, QueuedPartition
from zkconsumer.fetch.unfinished import NOTHING, Items

T = TypeVar("T")


class HandOver(Generic[T]):
    """A chunk that is being handed out from its beginning, in items of ``rows`` records each.

    The user's thread creates it and claims items; everything else happens under the queue's lock. The items may end
    before the chunk does; then the rest waits to be taken back.

    Args:
        chunk: which one.
        items: the items to hand out; the queue refers to each only until it is claimed. No item may equal None.
        lasts: offset of the last record of each item.
        rows: number of records in each item.
        unfinished: the objects that the user gets for the items, where ``commit.on=done``.

    Attributes:
        claims: iterator over ``items``. Each step gives the next item to the user; it ends when none is left.
        is_out: True while the queue does not hold the chunk. False: the queue may hold the chunk, or its rest.
        messages_before: messages of the topic that were handed out before this chunk. The queue writes both.
        unfinished: as above.
    """

    def __init__(
        self, chunk: Chunk, items: Iterable[T], lasts: Sequence[int], rows: int = 1, unfinished: Items = NOTHING
    ) -> None:
        self.chunk = chunk
        self.is_out = False
        self.messages_before = 0
        self.unfinished = unfinished
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

    def unclaimed_messages(self) -> int:
        """Number of records of the items that wait to be claimed."""
        return 0 if self._left is not None else self._unclaimed() * self._rows

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

    def withdraw(self) -> None:
        """The unclaimed items, which were taken back, are not unfinished. Idempotent."""
        unfinished = self.chunk.info.unfinished
        if unfinished is not None:
            unfinished.withdraw(dict(islice(self.unfinished.items(), self.handed_out(), None)))

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


class HandedOut:
    """Used under the lock of its queue. The user's thread claims items without the lock, see :class:`HandOver`.

    The user's thread may be interrupted at any point, so each method can be repeated.

    Attributes:
        moves: raised whenever the hand-over of a chunk begins or ends.
    """

    def __init__(self) -> None:
        self._current: HandOver[Any] | None = None
        self._messages: Counter[str] = Counter()
        self.moves = 0

    def begin(self, handover: HandOver[Any]) -> None:
        """Start the hand-over of a chunk; the one before was finished."""
        handover.messages_before = self._messages[handover.chunk.info.partition.topic]
        self.moves += 1
        self._current = handover

    def of(self, info: QueuedPartition) -> HandOver[Any] | None:
        """The hand-over in progress, if its chunk is of this partition."""
        current = self._current
        return current if current is not None and current.chunk.info is info else None

    @property
    def current(self) -> HandOver[Any] | None:
        """The hand-over in progress, or None."""
        return self._current

    def take_back(self) -> Chunk | None:
        """End the claims, and return the unclaimed records; None if there are none."""
        current = self._current
        if current is None:
            return None
        rest = current.take_back()
        current.withdraw()
        return rest

    def finish(self) -> None:
        """Count what was handed out as consumed; the rest was taken back."""
        current = self._current
        if current is not None:
            info = current.chunk.info
            position = current.final_position()
            if position is not None:
                info.consumed = position
            self._messages[info.partition.topic] = current.messages_before + current.messages()
            self.moves += 1
            self._current = None

    def position(self, info: QueuedPartition, *, handed_out: bool) -> int | None:
        """See :meth:`ChunkQueue.position <zkconsumer.fetch.chunkqueue.ChunkQueue.position>`."""
        current = self.of(info)
        if current is None:
            position = None
        elif info.unfinished is not None:  # then it bounds the position; the rest of the chunk has no records
            position = current.final_position()
        else:
            position = current.position(handed_out=handed_out)
        return info.consumed if position is None else position

    def held(self) -> QueuedPartition | None:
        """The partition of which the user holds records that are not released."""
        current = self._current
        return None if current is None or not current.handed_out() else current.chunk.info

    def progress(self) -> tuple[int, int]:
        """A value that changes with every item that the user takes."""
        return self.moves, 0 if self._current is None else self._current.handed_out()

    def messages(self) -> Counter[str]:
        """Messages handed out so far, by topic."""
        messages = self._messages.copy()
        if self._current is not None:
            messages[self._current.chunk.info.partition.topic] += self._current.messages()
        return messages
