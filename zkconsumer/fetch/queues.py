"""ChunkQueue: what was fetched for one consumer thread and waits for its stream; and what the stream is handing out.

The queue is also the gate between the user's thread and the rest: while a chunk is being handed out the queue knows it,
so that a rebalance can take back what the user has not got yet, and a commit can tell how far the user got.

How positions stay exact without a lock per record: the offsets after each item wait in a deque. The user's thread takes
an item by ``popleft``; whoever takes the rest back does it by ``pop``. Each of these is atomic, so each item goes to
exactly one of them, and the user gets an item *because* its ``popleft`` succeeded. What has been handed out is what is
missing in the deque minus what was taken back, and that is counted under the queue's lock.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from zkconsumer.core.idle import Reading

if TYPE_CHECKING:
    from zkconsumer.fetch.partition_info import PartitionInfo

_LEASE_POLL_S: Final = 0.05


class Ended(Enum):
    """What a closed queue gives."""

    END = "end"


END: Final = Ended.END


class Chunk(NamedTuple):
    """Some consecutive records of one partition.

    Attributes:
        info: the partition, in one generation.
        batch: a ``pyarrow.RecordBatch``, or None for a chunk that only moves the position.
        next_offset: the position once all records are consumed.
        nbytes: memory that the batch holds.
        fetched_bytes: what the broker sent for it, compressed as it may be.
    """

    info: PartitionInfo
    batch: Any
    next_offset: int
    nbytes: int
    fetched_bytes: int = 0


class Totals(NamedTuple):
    """What went through a queue since it was made, by topic: messages handed out, bytes as brokers sent them."""

    messages: dict[str, int]
    fetched_bytes: dict[str, int]


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


class ChunkQueue:
    """A bounded queue from fetchers to one stream. One lock inside; nothing that waits is done under it.

    The bound is kept by the fetchers, which leave a partition out of their requests while :meth:`is_full`; ``put``
    never waits (DESIGN 4.11). So a queue can hold a response more than its bound, per fetcher.

    Args:
        max_bytes: for all chunks together. A larger chunk is admitted when the queue is empty.
        max_chunks: of one partition (``queued.max.message.chunks``). Chunks without records do not count: a fetcher
            that waits for room is woken when a chunk with records is taken, and there may be none behind them.
        may_deliver: asked, under the lock, at each hand-over: False keeps the chunks back for the time being (a lease
            that ran out). Must be quick and must not wait.
    """

    def __init__(self, *, max_bytes: int, max_chunks: int, may_deliver: Callable[[], bool] = lambda: True) -> None:
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        self._may_deliver = may_deliver
        self._changed = threading.Condition(threading.Lock())
        self._generation: int | None = None
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._counts: Counter[Any] = Counter()
        self._current: HandOver | None = None
        self._moves = 0
        self._messages: Counter[str] = Counter()
        self._fetched_bytes: Counter[str] = Counter()
        self._closed = False
        self._cause: BaseException | None = None
        self._error: BaseException | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()

    def __len__(self) -> int:
        return len(self._chunks)

    # -- fetchers -----------------------------------------------------------------------------------------------

    def put(self, chunk: Chunk) -> bool:
        """Append a chunk; False, and nothing is done, if its generation is not the queue's or the queue is closed."""
        with self._changed:
            if chunk.info.generation != self._generation or self._closed:
                return False
            self._add(chunk, self._chunks.append)
            self._fetched_bytes[chunk.info.partition.topic] += chunk.fetched_bytes
            self._changed.notify()
            return True

    def is_full(self, info: PartitionInfo) -> bool:
        """True if this partition should not be fetched now."""
        with self._changed:
            return self._bytes >= self._max_bytes or self._counts[info.partition] >= self._max_chunks

    def room(self) -> int:
        """Bytes below the bound."""
        return max(0, self._max_bytes - self._bytes)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each chunk that was taken out, on the thread that took it, until :meth:`clear`."""
        with self._changed:
            if listener not in self._listeners:
                self._listeners = (*self._listeners, listener)

    # -- the user's thread --------------------------------------------------------------------------------------

    def take(self, timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """The next chunk that has records; chunks that only move the position are passed on the way.

        What was handed out before counts as released from now on: asking for more means being done with it.

        Args:
            timeout: seconds to wait, None for ever.

        Returns:
            A chunk, END where the queue was closed, or None where nothing came in time.

        Raises:
            BaseException: what :meth:`close` was given; what :meth:`fail` was, once the chunks before it are taken.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._finish()
            while True:
                deliverable = bool(self._chunks) and self._may_deliver()
                if self._error is not None and (self._closed or not self._chunks):
                    raise self._error
                if self._closed:
                    if self._cause is not None:
                        raise self._cause
                    return END
                if deliverable:
                    chunk = self._pop()
                    if chunk is not None:
                        break
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                if self._chunks:  # nobody tells us when a lease is renewed
                    left = _LEASE_POLL_S if left is None else min(left, _LEASE_POLL_S)
                self._changed.wait(left)
            listeners = self._listeners
        for listener in listeners:
            listener()
        return chunk

    def begin(self, handover: HandOver) -> bool:
        """Start handing out; False if a rebalance came first or delivery is suspended, then nothing may be handed out.

        A chunk of the present generation is put back, to be taken again.
        """
        with self._changed:
            if handover.chunk.info.generation != self._generation or self._closed:
                return False
            if not self._may_deliver():
                self._add(handover.chunk, self._chunks.appendleft)
                return False
            self._current = handover
            self._moves += 1
            return True

    # -- control ------------------------------------------------------------------------------------------------

    def clear(self, generation: int | None) -> None:
        """Drop everything, also what is being handed out, and admit chunks of ``generation`` only (None: of none).

        When this returns the user gets nothing older any more. Positions stay known. A failure is forgotten.
        """
        with self._changed:
            if self._current is not None:
                self._current.take_back()
            self._generation = generation
            self._chunks.clear()
            self._counts.clear()
            self._bytes = 0
            self._listeners = ()
            self._error = None

    def withhold(self) -> None:
        """Take the rest of what is being handed out back into the queue, in front."""
        with self._changed:
            self._take_back_current()

    def release(self) -> None:
        """Count everything that was handed out as done with, without asking for more."""
        with self._changed:
            self._take_back_current()
            self._finish()

    def put_back(self, rest: Chunk) -> None:
        """Take back, in front, the end of a chunk that the user did not want in one piece."""
        with self._changed:
            if rest.info.generation == self._generation:
                self._add(rest, self._chunks.appendleft)

    def is_held(self, info: PartitionInfo) -> bool:
        """True while the user holds something of this partition that is not released, also after a rebalance."""
        with self._changed:
            current = self._current
            return current is not None and current.chunk.info is info and current.handed_out() > 0

    def position(self, info: PartitionInfo, *, handed_out: bool) -> int | None:
        """Position of a partition as far as the user has moved it; None if it was not moved yet.

        Args:
            info: the partition, in one generation.
            handed_out: count all that was given to the user, and not only what the user is done with.
        """
        with self._changed:
            current = self._current
            if current is not None and current.chunk.info is info:
                position = current.position(handed_out=handed_out)
                if position is not None:
                    return position
            return info.consumed

    def reading(self) -> Reading:
        """How far the reader is, and what could be handed out to it now."""
        with self._changed:
            current = self._current
            unread = {chunk.info.partition for chunk in self._chunks if chunk.batch is not None}
            if current is not None and not current.is_drained():
                unread.add(current.chunk.info.partition)
            if unread and not self._may_deliver():
                unread.clear()
            return Reading((self._moves, 0 if current is None else current.handed_out()), frozenset(unread))

    def totals(self) -> Totals:
        """Counted so far, what is being handed out included."""
        with self._changed:
            messages = self._messages.copy()
            if self._current is not None:
                messages[self._current.chunk.info.partition.topic] += self._current.messages()
            return Totals(dict(messages), dict(self._fetched_bytes))

    def close(self, cause: BaseException | None = None) -> None:
        """End the stream at once; with a cause it raises that from now on."""
        with self._changed:
            self._closed = True
            self._cause = self._cause or cause
            if self._current is not None:
                self._current.take_back()
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Let the stream raise ``error`` once it has handed out what is here, until the next :meth:`clear`."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    # -- under the lock -----------------------------------------------------------------------------------------

    def _add(self, chunk: Chunk, insert: Callable[[Chunk], None]) -> None:
        insert(chunk)
        self._bytes += chunk.nbytes
        if chunk.batch is not None:
            self._counts[chunk.info.partition] += 1

    def _pop(self) -> Chunk | None:
        """Take the first chunk out; None if it only moved the position."""
        chunk = self._chunks.popleft()
        self._bytes -= chunk.nbytes
        if chunk.batch is not None:
            self._counts[chunk.info.partition] -= 1
            return chunk
        chunk.info.consumed = chunk.next_offset
        return None

    def _take_back_current(self) -> None:
        rest = self._current.take_back() if self._current is not None else None
        if rest is not None and rest.info.generation == self._generation:
            self._add(rest, self._chunks.appendleft)

    def _finish(self) -> None:
        if self._current is not None:
            position = self._current.final_position()
            if position is not None:
                self._current.chunk.info.consumed = position
            self._messages[self._current.chunk.info.partition.topic] += self._current.messages()
            self._current = None
            self._moves += 1
