"""ChunkQueue: what was fetched for one consumer thread and waits for its stream; and what the stream is handing out.

The queue is also the gate between the user's thread and the rest: while a chunk is being handed out the queue knows it,
so that a rebalance can take back what the user has not got yet, and a commit can tell how far the user got.

The user's thread may be interrupted at any point (KeyboardInterrupt, an exception raised asynchronously). So a chunk is
always found in one of two places, among those that wait or as the one that is being handed out, and each method that
moves one can be repeated. What an interrupt left half done, the next request completes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from zkconsumer.core.denials import Denials
from zkconsumer.core.idlestreams import Reading
from zkconsumer.fetch.chunks import Chunk, HandOver
from zkconsumer.fetch.waitingchunks import WaitingChunks
from zkconsumer.wakeup import WakeUp

if TYPE_CHECKING:
    from zkconsumer.errors import CorruptRecord, RecordTooLarge
    from zkconsumer.fetch.queuedpartition import QueuedPartition
    from zkconsumer.model import TopicPartition

_LEASE_POLL_S: Final = 0.05
_NEVER: Final = 1 << 62

P = TypeVar("P", bound="QueuedPartition")


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
        error: what is wrong.
    """

    offset: int
    error: CorruptRecord | RecordTooLarge


class _Wait(NamedTuple):
    """A fetcher that waits.

    Attributes:
        infos: its partitions of this queue that may be fetched.
        due: value of ``ChunkQueue._rooms`` before which none of them can have room.
    """

    infos: Collection[QueuedPartition]
    due: int


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
        self._lock = threading.Lock()
        self._changed = WakeUp()  # the user's thread waits; raised under the lock
        self._admitted: frozenset[QueuedPartition] = frozenset()  # replaced, never changed
        self._waiting = WaitingChunks()
        self._current: HandOver[Any] | None = None
        self._moves = 0
        self._messages: Counter[str] = Counter()
        self._fetched_bytes: Counter[str] = Counter()
        self._closed = False
        self._cause: BaseException | None = None
        self._failures: dict[QueuedPartition | None, BaseException] = {}  # in the order in which they came
        self._troubles: dict[QueuedPartition, Exception] = {}
        self._told: Exception | None = None
        self._denials = Denials()
        self._damages: dict[QueuedPartition, tuple[Chunk, Damage]] = {}
        self._listeners: frozenset[Callable[[], None]] = frozenset()
        self._waits: dict[Callable[[], None], _Wait] = {}  # by listener; in the order in which they began
        self._rooms = 0  # at least so many chunks made room; written under the lock, before the room is made
        self._announced = 0  # the value of it for which waiting fetchers were looked at last

    def __len__(self) -> int:
        return len(self._waiting)

    # -- fetchers -----------------------------------------------------------------------------------------------

    def put(self, chunk: Chunk) -> bool:
        """Append a chunk; False, and nothing is done, if it is not wanted.

        That is the case where its partition is not admitted (any more), the queue is closed, or a chunk of its
        partition was sent back, see :meth:`take_damage`.
        """
        with self._lock:
            if chunk.info not in self._admitted or self._closed or chunk.info in self._damages:
                return False
            self._waiting.add(chunk)
            self._troubles.pop(chunk.info, None)
            self._fetched_bytes[chunk.info.partition.topic] += chunk.fetched_bytes
            self._changed.set()
            return True

    def take_damage(self, info: QueuedPartition) -> Damage | None:
        """Where a partition must be fetched again from, because of what :meth:`send_back` was given; once."""
        if info not in self._damages:  # without the lock: listeners are called once it is there
            return None
        with self._lock:
            found = self._damages.get(info)
            if found is None:
                return None
            chunk, damage = found
            self._rooms += 1
            self._waiting.drop_from(chunk)  # where an interrupt kept the reader from doing it
            del self._damages[info]
        self._announce()
        return damage

    def damaged(self) -> Sequence[QueuedPartition]:
        """Partitions for which :meth:`take_damage` has something."""
        return tuple(self._damages)

    def to_fetch(
        self, infos: Collection[P], *, coming: QueuedPartition | None = None, coming_bytes: int = 0
    ) -> list[P]:
        """Which partitions a fetcher should fetch now, in their order.

        None while more than half of what may wait is waiting: to fill every gap that a slow reader makes would cost a
        request for each chunk. Otherwise those that have room and are not paused.

        Args:
            infos: all partitions of this queue that the fetcher has.
            coming: the one of which a chunk was received and will be put, if any.
            coming_bytes: what was received for this queue and will be put.
        """
        with self._lock:
            if self._is_half_full(coming_bytes):
                return []
            return self._waiting.lacking(infos, self._max_chunks, coming)

    def room(self) -> int:
        """Bytes below the bound."""
        with self._lock:
            return self._room()

    def allowance(self, coming: int = 0) -> int:
        """Bytes that one fetcher should ask for at most: its share of the room.

        Else ten fetchers would ask for ten times the room at once.

        Args:
            coming: bytes that the fetcher has received already, but not put.
        """
        with self._lock:
            return max(0, self._room() // max(1, len(self._listeners)) - coming)

    def first_chunks(self, most: int) -> list[Chunk]:
        """The first chunks that wait and are not paused, in their order."""
        with self._lock:
            return list(islice(self._waiting, most))

    def holds(self, chunk: Chunk) -> bool:
        """True if this very chunk waits here, paused or not."""
        with self._lock:
            return self._waiting.holds(chunk)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Register a fetcher, which shares the room (see :meth:`allowance`) and may :meth:`await_room`. Idempotent.

        It remains until :meth:`remove_listener` or :meth:`release_all`.
        """
        with self._lock:
            self._listeners |= {listener}

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Undo :meth:`add_listener`. Idempotent."""
        with self._lock:
            self._listeners -= {listener}
            self._waits.pop(listener, None)

    def await_room(self, listener: Callable[[], None], infos: Collection[QueuedPartition]) -> bool:
        """Call ``listener`` when one of these partitions can be fetched; False, and it is not called, if one can now.

        It is called on the thread that makes the room, and possibly more than once, until :meth:`stop_awaiting`. It is
        also called when a partition was sent back, see :meth:`take_damage`.

        No wake-up is lost. Whether there is room is checked under the lock that registers the listener: who makes room
        before that is seen by the check, who makes room after that sees the listener. Room that a fetcher makes by not
        putting what it announced as ``coming`` is its own to look at. The order of events at the other end: the reader
        raises the count of rooms, makes the room, releases the lock, looks at those who wait, calls them, and notes the
        count. Where an interrupt ends that after the first step, the count is not noted, and the reader's next request
        looks again.

        Args:
            listener: what was given to :meth:`add_listener`.
            infos: all partitions of this queue that the fetcher could ask for.
        """
        with self._lock:
            due = self._due(infos)
            if due <= self._rooms:
                return False
            self._waits[listener] = _Wait(infos, due)
            return True

    def stop_awaiting(self, listener: Callable[[], None]) -> None:
        """Undo :meth:`await_room`. Idempotent."""
        if listener in self._waits:
            with self._lock:
                self._waits.pop(listener, None)

    def listeners(self) -> int:
        """How many listeners there are."""
        return len(self._listeners)

    # -- the user's thread --------------------------------------------------------------------------------------

    def request(self, timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """The next chunk that has records. It stays here until :meth:`begin`, also one that is not decoded.

        What was handed out before counts as released from now on: asking for more means being done with it. Chunks
        before the next one that only move the position are dropped.

        Args:
            timeout: seconds to wait, None for ever.

        Returns:
            A chunk, END where the queue was closed, or None where nothing came in time.

        Raises:
            BaseException: what :meth:`close` was given; what :meth:`deny` was; what :meth:`fail` or :meth:`complain`
                was, once the chunks before it are handed out.
        """
        self._announce()
        with self._lock:
            self._finish()
        return self._wait_for(self._skip_to_records, timeout)

    def look(self, timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """What :meth:`request` would return next. Nothing is dropped and nothing released; see there for the rest."""
        return self._wait_for(self._waiting.first, timeout)

    def begin(self, handover: HandOver[Any]) -> bool:
        """Start handing out the chunk that :meth:`request` returned, which leaves the queue.

        Returns:
            False where it may not be handed out: a rebalance or a pause came first, or delivery is suspended. Ask for
            the next chunk then.
        """
        with self._lock:
            chunk, waiting = handover.chunk, self._waiting
            if self._closed or waiting.front() is not chunk or not self._may_deliver():
                return False
            handover.messages_before = self._messages[chunk.info.partition.topic]
            self._rooms += 1
            self._moves += 1
            self._current = handover  # from here on the chunk is found here, and its place below counts no more
            waiting.drop_front()
            handover.is_out = True
        self._announce()
        return True

    # -- control ------------------------------------------------------------------------------------------------

    def admit(self, infos: Iterable[QueuedPartition]) -> None:
        """Accept chunks of these partitions from now on."""
        with self._lock:
            self._admitted = self._admitted.union(infos)

    def release(self, infos: Collection[QueuedPartition]) -> None:
        """Drop what is here of these partitions, also what is being handed out, and accept nothing more of them.

        When this returns the user gets nothing more of them. Their positions stay known. That they are paused is
        forgotten, and so is what they let the stream raise, except what it has raised for :meth:`deny`. Idempotent.
        """
        with self._lock:
            self._review()
            self._admitted = self._admitted.difference(infos)
            current = self._current
            if current is not None and current.chunk.info not in self._admitted:
                current.take_back()
            self._waiting.drop_partitions(frozenset(info.partition for info in infos))
            for info in infos:
                self._troubles.pop(info, None)
                self._damages.pop(info, None)
                self._failures.pop(info, None)
                self._denials.forget_part(info.partition.topic, info.partition)
        self._announce()

    def release_all(self) -> None:
        """Release all partitions, and forget the fetchers and every failure."""
        with self._lock:
            self._admitted = frozenset()
            if self._current is not None:
                self._current.take_back()
            self._waiting.clear()
            self._listeners = frozenset()
            self._waits.clear()
            self._failures.clear()
            self._troubles.clear()
            self._denials.forget_parts()
            self._damages.clear()

    def withhold(self) -> None:
        """Take the rest of what is being handed out back into the queue, in front."""
        with self._lock:
            self._take_back()

    def finish(self) -> None:
        """Count everything that was handed out as done with, without asking for more."""
        with self._lock:
            self._finish()

    def pause(self, partition: TopicPartition) -> None:
        """Hand out nothing more of a partition, nor let it be fetched; what is here of it waits. Harmless if repeated.

        When this returns the user gets nothing more of it, except what another thread is claiming at this moment.
        """
        with self._lock:
            if self._current is not None and self._current.chunk.info.partition == partition:
                self._take_back()
            self._review()
            self._waiting.pause(partition)
        self._announce()

    def resume(self, partition: TopicPartition) -> None:
        """Undo :meth:`pause`: what waited comes after what is queued of other partitions. Harmless if repeated."""
        with self._lock:
            self._review()
            self._waiting.resume(partition)
            self._changed.set()
        self._announce()

    def replace(self, chunk: Chunk, parts: Sequence[Chunk]) -> bool:
        """Put what came of decoding a chunk in its place; False, and nothing is done, where it is not here any more."""
        shrinks = sum([part.nbytes for part in parts]) < chunk.nbytes or True not in [one.has_records for one in parts]
        with self._lock:
            self._rooms += shrinks
            if not self._waiting.replace(chunk, parts):
                return False
        self._announce()
        return True

    def send_back(self, chunk: Chunk, error: CorruptRecord | RecordTooLarge) -> None:
        """The first batch of a chunk cannot be decoded (damaged, too long): drop its partition's chunks from it on.

        Nothing of the partition is admitted until a fetcher takes the damage and continues from there. Nothing is done
        where the chunk is not here any more.
        """
        with self._lock:
            if not self._waiting.holds(chunk):
                return
            assert chunk.scanned is not None
            self._review()
            self._damages[chunk.info] = chunk, Damage(chunk.scanned.requested, error)
            self._waiting.drop_from(chunk)
        self._announce()

    def is_held(self, info: QueuedPartition) -> bool:
        """True while the user holds something of this partition that is not released, also after a rebalance."""
        with self._lock:
            current = self._current
            return current is not None and current.chunk.info is info and current.handed_out() > 0

    def position(self, info: QueuedPartition, *, handed_out: bool) -> int | None:
        """Position of a partition as far as the user has moved it; None if it was not moved yet.

        Args:
            info: the partition, in one generation.
            handed_out: count all that was given to the user, and not only what the user is done with.
        """
        with self._lock:
            current = self._current
            if current is not None and current.chunk.info is info:
                position = current.position(handed_out=handed_out)
                if position is not None:
                    return position
            return info.consumed

    def reading(self) -> Reading:
        """How far the reader is, and what could be handed out to it now."""
        with self._lock:
            current = self._current
            unread = {chunk.info.partition for chunk in self._waiting if chunk.has_records}
            if current is not None and current.has_more():
                unread.add(current.chunk.info.partition)
            if unread and not self._may_deliver():
                unread.clear()
            return Reading((self._moves, 0 if current is None else current.handed_out()), frozenset(unread))

    def totals(self) -> Totals:
        """Counted so far, what is being handed out included."""
        with self._lock:
            messages = self._messages.copy()
            if self._current is not None:
                messages[self._current.chunk.info.partition.topic] += self._current.messages()
            return Totals(dict(messages), dict(self._fetched_bytes))

    def close(self, cause: BaseException | None = None) -> None:
        """End the stream at once; with a cause it raises that from now on."""
        with self._lock:
            self._closed = True
            self._cause = self._cause or cause
            if self._current is not None:
                self._current.take_back()
            self._changed.set()

    def fail(self, error: BaseException, info: QueuedPartition | None = None) -> None:
        """Let the stream raise ``error`` once it has handed out what is here.

        Args:
            error: to raise, until the partition is released, or all are.
            info: the partition that failed; None: the consumer did.
        """
        with self._lock:
            if info is None or info in self._admitted:
                self._failures.setdefault(info, error)
                self._changed.set()

    def complain(self, info: QueuedPartition, trouble: Exception) -> None:
        """Let the stream raise ``trouble`` once, when there is nothing to hand out; it can go on afterwards.

        Once also where several partitions have the same. Forgotten if a chunk of this partition comes first, or it is
        released.
        """
        with self._lock:
            if info in self._admitted and trouble is not self._told:
                self._troubles[info] = trouble
                self._changed.set()

    def deny(self, subject: Hashable, part: Hashable, error: Exception, info: QueuedPartition | None = None) -> bool:
        """Let the stream raise ``error`` at its next request, whatever waits; it can be iterated again afterwards.

        It does so once for each subject until that is cured, see :class:`~zkconsumer.core.denials.Denials`.

        Args:
            subject: what cannot be read, such as a topic.
            part: of it, such as a partition.
            error: to raise.
            info: the partition, where the part is one; nothing is done where it is not admitted.

        Returns:
            True if that is news.
        """
        with self._lock:
            if self._closed or not (info is None or info in self._admitted):
                return False
            news = self._denials.deny(subject, part, error)
            if news:
                self._changed.set()
            return news

    def allow(self, subject: Hashable, part: Hashable, info: QueuedPartition | None = None) -> bool:
        """A part can be read, after all; True if that cures what was news. For arguments see :meth:`deny`."""
        with self._lock:
            return (info is None or info in self._admitted) and self._denials.allow(subject, part)

    # -- waiting, and listeners: without the lock ---------------------------------------------------------------

    def _wait_for(self, first: Callable[[], Chunk | None], timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """Wait until ``first`` finds something among the chunks; see :meth:`request`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                found = self._found(first)
                withheld = len(self._waiting) > 0
            if found is not None:
                return found
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            if withheld:  # a lease is renewed without any signal
                left = _LEASE_POLL_S if left is None else min(left, _LEASE_POLL_S)
            self._changed.wait(left)

    def _announce(self) -> None:
        """Wake the fetchers that wait and can send now, if room was made since the last call; see await_room."""
        rooms = self._rooms
        if rooms != self._announced:
            with self._lock:
                listeners = self._ready()
            for listener in listeners:
                listener()
            self._announced = rooms

    # -- under the lock -----------------------------------------------------------------------------------------

    def _room(self) -> int:
        return max(0, self._max_bytes - self._waiting.nbytes)

    def _is_half_full(self, coming: int = 0) -> bool:
        """True while the bytes that wait keep everything from being fetched."""
        return 2 * (self._waiting.nbytes + coming) > self._max_bytes

    def _review(self) -> None:
        """Count as room what may be room for any number of chunks: the next call of _announce looks at all who wait."""
        self._rooms += 1
        self._waits = {listener: wait._replace(due=0) for listener, wait in self._waits.items()}

    def _due(self, infos: Collection[QueuedPartition]) -> int:
        """The value of ``_rooms`` before which none of these partitions can be fetched; not above if one can be now."""
        if not self._damages.keys().isdisjoint(infos):
            return self._rooms
        chunks = self._waiting.surplus(infos, self._max_chunks)
        return self._rooms + max(_NEVER if chunks is None else chunks, int(self._is_half_full()))

    def _ready(self) -> list[Callable[[], None]]:
        """The listeners of waiting fetchers that have something to do.

        It is called for each chunk that is handed out, so it must not cost much where a hundred fetchers wait or one
        has a thousand partitions: partitions are looked at where enough chunks were taken that they may have room.
        """
        if not self._damages and self._is_half_full():
            return []
        ready = []
        for listener, wait in self._waits.items():
            if wait.due <= self._rooms:
                due = self._due(wait.infos)
                if due <= self._rooms:
                    ready.append(listener)
                else:
                    self._waits[listener] = _Wait(wait.infos, due)  # of a key that exists: the order stays
        return ready

    def _found(self, first: Callable[[], Chunk | None]) -> Chunk | Literal[Ended.END] | None:
        """What ends a wait, None if there is nothing yet; may raise, see :meth:`request`."""
        if not self._closed and (denial := self._denials.take()) is not None:
            raise denial
        if not self._closed and len(self._waiting) and self._may_deliver():
            chunk = first()
            if chunk is not None:
                return chunk
        if self._failures and (self._closed or self._waiting.first() is None):
            raise next(iter(self._failures.values()))
        if self._closed:
            if self._cause is not None:
                raise self._cause
            return END
        if self._troubles and self._waiting.first() is None:
            self._told = next(reversed(self._troubles.values()))
            self._troubles.clear()
            raise self._told
        return None

    def _skip_to_records(self) -> Chunk | None:
        """The first chunk with records; those before it, which only move positions, are dropped."""
        while (chunk := self._waiting.front()) is not None:
            if chunk.has_records:
                return chunk
            chunk.info.consumed = chunk.next_offset
            self._waiting.drop_front()
        return None

    def _take_back(self) -> None:
        """Put the rest of what is being handed out back into the queue, in front."""
        current = self._current
        rest = None if current is None else current.take_back()
        if current is None or rest is None or rest.info not in self._admitted:
            return
        # Where it is not out, it was put back already, or an interrupt ended ``begin`` or this method half-way.
        if current.is_out or not self._waiting.holds(rest):
            current.is_out = False
            self._waiting.add(rest, in_front=True)

    def _finish(self) -> None:
        """Release what was handed out. Until the last line, all can be repeated."""
        self._take_back()
        current = self._current
        if current is not None:
            info = current.chunk.info
            position = current.final_position()
            if position is not None:
                info.consumed = position
            self._messages[info.partition.topic] = current.messages_before + current.messages()
            self._moves += 1
            self._current = None
