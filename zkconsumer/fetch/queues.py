"""ChunkQueue: what was fetched for one consumer thread and waits for its stream; and what the stream is handing out.

The queue is also the gate between the user's thread and the rest: while a chunk is being handed out the queue knows it,
so that a rebalance can take back what the user has not got yet, and a commit can tell how far the user got.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from zkconsumer.core.idle import Reading
from zkconsumer.fetch.chunks import Chunk, HandOver
from zkconsumer.fetch.waiting import WaitingChunks

if TYPE_CHECKING:
    from zkconsumer.fetch.partition_info import PartitionInfo
    from zkconsumer.model import TopicPartition

_LEASE_POLL_S: Final = 0.05


class Ended(Enum):
    """What a closed queue gives."""

    END = "end"


END: Final = Ended.END


class Totals(NamedTuple):
    """What went through a queue since it was made, by topic: messages handed out, bytes as brokers sent them."""

    messages: dict[str, int]
    fetched_bytes: dict[str, int]


class Damage(NamedTuple):
    """What a reader found wrong with a partition's bytes.

    Attributes:
        offset: where to fetch from again.
        error: what is wrong: a CorruptRecord, unless our own code failed.
    """

    offset: int
    error: Exception


class ChunkQueue:
    """A bounded queue from fetchers to one stream. One lock inside; nothing that waits is done under it.

    The bound is kept by the fetchers, which leave partitions out of their requests, see :meth:`to_fetch`; ``put``
    never waits (DESIGN 4.11). They ask for what :meth:`allowance` says, but at least for a fetch of one partition. So
    the bound can be exceeded by two such fetches per fetcher: one on its way, and one that was received and is not put
    yet when another fetcher looks. What is paused is not counted. Chunks count as long as they came, and as
    decoded once :class:`~zkconsumer.fetch.chunkreader.ChunkReader` has decoded them, at the front.

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
        self._waiting = WaitingChunks()
        self._current: HandOver | None = None
        self._moves = 0
        self._messages: Counter[str] = Counter()
        self._fetched_bytes: Counter[str] = Counter()
        self._closed = False
        self._cause: BaseException | None = None
        self._error: BaseException | None = None
        self._troubles: dict[PartitionInfo, Exception] = {}
        self._told: Exception | None = None
        self._damages: dict[PartitionInfo, Damage] = {}
        self._listeners: tuple[Callable[[], None], ...] = ()

    def __len__(self) -> int:
        return len(self._waiting)

    # -- fetchers -----------------------------------------------------------------------------------------------

    def put(self, chunk: Chunk) -> bool:
        """Append a chunk; False, and nothing is done, if nobody wants it.

        That is the case where its generation is not the queue's, the queue is closed, or a chunk of its partition was
        sent back, see :meth:`take_damage`.
        """
        with self._changed:
            if chunk.info.generation != self._generation or self._closed or chunk.info in self._damages:
                return False
            self._waiting.add(chunk)
            self._troubles.pop(chunk.info, None)
            self._fetched_bytes[chunk.info.partition.topic] += chunk.fetched_bytes
            self._changed.notify()
            return True

    def take_damage(self, info: PartitionInfo) -> Damage | None:
        """Where a partition must be fetched again from, because of what :meth:`send_back` was told; once."""
        if info not in self._damages:  # without the lock: listeners are called once it is there
            return None
        with self._changed:
            return self._damages.pop(info, None)

    def to_fetch(
        self, infos: Collection[PartitionInfo], *, coming: PartitionInfo | None = None, coming_bytes: int = 0
    ) -> list[PartitionInfo]:
        """Which partitions a fetcher should fetch now, in their order.

        None while more than half of what may wait is waiting: to fill every gap that a slow reader makes would cost a
        request for each chunk. Otherwise those that have room and are not paused.

        Args:
            infos: all partitions of this queue that the fetcher has.
            coming: the one of which a chunk was received and will be put, if any.
            coming_bytes: what was received for this queue and will be put.
        """
        with self._changed:
            if 2 * (self._waiting.nbytes + coming_bytes) > self._max_bytes:
                return []
            return self._waiting.lacking(infos, self._max_chunks, coming)

    def room(self) -> int:
        """Bytes below the bound."""
        return max(0, self._max_bytes - self._waiting.nbytes)

    def allowance(self, coming: int = 0) -> int:
        """Bytes that one fetcher should ask for at most: its share of the room.

        Else ten fetchers would ask for ten times the room at once.

        Args:
            coming: bytes that the fetcher has received already, but not put.
        """
        with self._changed:
            return max(0, self.room() // max(1, len(self._listeners)) - coming)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever there may be room that was not there, on the thread that made it.

        That is after each chunk that was taken out, each pause and each resumption; until :meth:`clear`.
        """
        with self._changed:
            if listener not in self._listeners:
                self._listeners = (*self._listeners, listener)

    # -- the user's thread --------------------------------------------------------------------------------------

    def take(self, timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """The next chunk that has records; chunks that only move the position are passed on the way.

        One that is not decoded stays where it is: after :meth:`replace` it can be taken. What was handed out before
        counts as released from now on: asking for more means being done with it.

        Args:
            timeout: seconds to wait, None for ever.

        Returns:
            A chunk, END where the queue was closed, or None where nothing came in time.

        Raises:
            BaseException: what :meth:`close` was given; what :meth:`fail` or :meth:`complain` was, once the chunks
                before it are taken.
        """
        with self._changed:
            self._finish()
            chunk = self._wait_for(self._pop, timeout)
            listeners = self._listeners
        if isinstance(chunk, Chunk) and chunk.scanned is None:
            for listener in listeners:
                listener()
        return chunk

    def look(self, timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """What :meth:`take` would give next. Nothing is taken and nothing released; see there for the rest."""
        with self._changed:
            return self._wait_for(self._waiting.first, timeout)

    def begin(self, handover: HandOver) -> bool:
        """Start handing out; False if a rebalance came first or delivery is suspended, then nothing may be handed out.

        The same where the partition was paused. A chunk of the present generation is put back, to be taken again.
        """
        with self._changed:
            if handover.chunk.info.generation != self._generation or self._closed:
                return False
            if not self._may_deliver() or self._waiting.is_paused(handover.chunk.info.partition):
                self._waiting.add(handover.chunk, in_front=True)
                return False
            self._current = handover
            self._moves += 1
            return True

    # -- control ------------------------------------------------------------------------------------------------

    def clear(self, generation: int | None) -> None:
        """Drop everything, also what is being handed out, and admit chunks of ``generation`` only (None: of none).

        When this returns the user gets nothing older any more. Positions stay known. A failure is forgotten, and so is
        which partitions are paused.
        """
        with self._changed:
            if self._current is not None:
                self._current.take_back()
            self._generation = generation
            self._waiting.clear()
            self._listeners = ()
            self._error = None
            self._troubles.clear()
            self._damages.clear()

    def withhold(self) -> None:
        """Take the rest of what is being handed out back into the queue, in front."""
        with self._changed:
            self._take_back_current()

    def release(self) -> None:
        """Count everything that was handed out as done with, without asking for more."""
        with self._changed:
            self._take_back_current()
            self._finish()

    def pause(self, partition: TopicPartition) -> None:
        """Hand out nothing more of a partition, nor let it be fetched; what is here of it waits. Harmless if repeated.

        When this returns the user gets nothing more of it, except what another thread is claiming at this moment.
        """
        with self._changed:
            if self._current is not None and self._current.chunk.info.partition == partition:
                self._take_back_current()
            listeners = self._listeners if self._waiting.pause(partition) else ()
        for listener in listeners:
            listener()

    def resume(self, partition: TopicPartition) -> None:
        """Undo :meth:`pause`: what waited comes after what is queued of other partitions. Harmless if repeated."""
        with self._changed:
            self._waiting.resume(partition)
            self._changed.notify()
            listeners = self._listeners
        for listener in listeners:
            listener()

    def put_back(self, rest: Chunk) -> None:
        """Take back, in front, the end of a chunk that the user did not want in one piece."""
        with self._changed:
            if rest.info.generation == self._generation:
                self._waiting.add(rest, in_front=True)

    def replace(self, chunk: Chunk, parts: Sequence[Chunk]) -> None:
        """Put what came of decoding a chunk in its place; nothing is done where it is not here any more."""
        with self._changed:
            waiting, partition = self._waiting, chunk.info.partition
            before = waiting.nbytes, waiting.count(partition)
            if not waiting.replace(chunk, parts):
                return
            shrunk = waiting.nbytes < before[0] or waiting.count(partition) < before[1]
            listeners = self._listeners if shrunk else ()
        for listener in listeners:
            listener()

    def send_back(self, chunk: Chunk, error: Exception) -> None:
        """The first batch of a chunk that is not decoded is damaged: drop what is here of its partition from it on.

        Nothing of the partition is admitted until a fetcher takes the damage and goes on from there. Nothing is done
        where the chunk is not here any more.
        """
        with self._changed:
            if not self._waiting.drop_from(chunk):
                return
            assert chunk.scanned is not None
            self._damages[chunk.info] = Damage(chunk.scanned.requested, error)
            listeners = self._listeners
        for listener in listeners:
            listener()

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
            unread = {chunk.info.partition for chunk in self._waiting if chunk.has_records}
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

    def complain(self, info: PartitionInfo, trouble: Exception) -> None:
        """Let the stream raise ``trouble`` once, when there is nothing to hand out; it can go on afterwards.

        Once also where several partitions have the same. Forgotten if a chunk of this partition comes first, and by
        :meth:`clear`.
        """
        with self._changed:
            if info.generation == self._generation and trouble is not self._told:
                self._troubles[info] = trouble
                self._changed.notify_all()

    # -- under the lock -----------------------------------------------------------------------------------------

    def _wait_for(self, first: Callable[[], Chunk | None], timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """Wait until ``first`` finds something among the chunks; see :meth:`take`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if not self._closed and len(self._waiting) and self._may_deliver():
                chunk = first()
                if chunk is not None:
                    return chunk
            if self._error is not None and (self._closed or self._waiting.first() is None):
                raise self._error
            if self._closed:
                if self._cause is not None:
                    raise self._cause
                return END
            if self._troubles and self._waiting.first() is None:
                _, self._told = self._troubles.popitem()
                self._troubles.clear()
                raise self._told
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            if len(self._waiting):  # nobody tells us when a lease is renewed
                left = _LEASE_POLL_S if left is None else min(left, _LEASE_POLL_S)
            self._changed.wait(left)

    def _pop(self) -> Chunk | None:
        """Take out the first chunk with records, if it is decoded, and those before it, which only move positions."""
        while (chunk := self._waiting.pop()) is not None:
            if chunk.has_records:
                return chunk
            chunk.info.consumed = chunk.next_offset
        return None

    def _take_back_current(self) -> None:
        rest = self._current.take_back() if self._current is not None else None
        if rest is not None and rest.info.generation == self._generation:
            self._waiting.add(rest, in_front=True)

    def _finish(self) -> None:
        if self._current is not None:
            position = self._current.final_position()
            if position is not None:
                self._current.chunk.info.consumed = position
            self._messages[self._current.chunk.info.partition.topic] += self._current.messages()
            self._current = None
            self._moves += 1
