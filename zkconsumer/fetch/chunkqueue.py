"""ChunkQueue: the fetched chunks of one consumer thread that wait for its stream, and the chunk being handed out.

The queue is also the gate between the user's thread and the other threads. It keeps a reference to the chunk that is
being handed out, so that a rebalance can take back the records that the user has not received yet, and a commit can
determine the user's position.

The user's thread may be interrupted at any point (KeyboardInterrupt, an exception raised asynchronously). So a chunk is
always found in one of two places, among the waiting chunks or as the chunk being handed out, and each method that moves
a chunk can be repeated. The next request completes what an interrupt left unfinished.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from zkconsumer.errors import WokenUp
from zkconsumer.fetch.chunks import Chunk, QueuedPartition
from zkconsumer.fetch.handedout import HandedOut, HandOver
from zkconsumer.fetch.queueroom import QueueRoom
from zkconsumer.fetch.rules.idlestreams import Reading
from zkconsumer.fetch.rules.streamerrors import StreamErrors
from zkconsumer.fetch.streamfaults import StreamFaults
from zkconsumer.fetch.unfinisheditems import BACKSTOP_S, UnfinishedItems
from zkconsumer.fetch.waitingchunks import WaitingChunks
from zkconsumer.process.wakeup import WakeUp

if TYPE_CHECKING:
    from zkconsumer.errors import CorruptRecord, RecordTooLarge
    from zkconsumer.model import TopicPartition


class Ended(Enum):
    """The result of a request to a closed queue."""

    END = "end"


END: Final = Ended.END


class Totals(NamedTuple):
    """Counts since the queue was created, by topic: messages handed out, and bytes as brokers sent them."""

    messages: dict[str, int]
    fetched_bytes: dict[str, int]


class Damage(NamedTuple):
    """Bytes of a partition that a reader could not decode.

    Attributes:
        offset: the offset from which to fetch again.
        error: the reason.
    """

    offset: int
    error: CorruptRecord | RecordTooLarge


class ChunkQueue:
    """A bounded queue from fetchers to one stream. It has one lock, and no operation under the lock blocks.

    It combines what waits and its order (``waitingchunks.py``), what the user holds (``handedout.py``), :attr:`room`
    for more, and :attr:`faults`. All are used under its lock, which the methods of the last two for other threads take.

    Args:
        max_bytes: see :class:`~zkconsumer.fetch.queueroom.QueueRoom`.
        max_chunks: likewise.
        may_deliver: called under the lock before each hand-over. False withholds the chunks until :meth:`deliver` (the
            lease has lapsed). It must be quick and must not block.
        max_unfinished: where ``commit.on=done``, see :class:`~zkconsumer.fetch.unfinisheditems.UnfinishedItems`.
        changed: raised when the user's thread should look again; None makes one.

    Attributes:
        room: what fetchers may put into the queue, and how they wait for it.
        faults: the errors that the stream has to raise.
        unfinished: what was handed out and is not done; None unless ``commit.on=done``.
        changed: see above.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        max_chunks: int,
        may_deliver: Callable[[], bool] = lambda: True,
        max_unfinished: int | None = None,
        changed: WakeUp | None = None,
    ) -> None:
        self._may_deliver = may_deliver
        self._lock = threading.Lock()
        self.changed = self._changed = changed or WakeUp()  # the user's thread waits
        self._woken = WakeUp()
        self._admitted: frozenset[QueuedPartition] = frozenset()  # replaced, never changed
        self._waiting = WaitingChunks()
        self._handed_out = HandedOut()
        self._fetched_bytes: Counter[str] = Counter()
        self._errors = StreamErrors()
        self._damages: dict[QueuedPartition, tuple[Chunk, Damage]] = {}
        self.faults = StreamFaults(self._errors, self._lock, self._changed, lambda info: info in self._admitted)
        self.room = QueueRoom(
            self._lock, self._waiting, self._damages.keys(), max_bytes=max_bytes, max_chunks=max_chunks
        )
        self.unfinished: UnfinishedItems | None = None
        if max_unfinished is not None:
            self.unfinished = UnfinishedItems(max_unfinished, self._waiting, self.room, self._changed)

    def __len__(self) -> int:
        return len(self._waiting)

    # -- fetchers, and threads that decode ------------------------------------------------------------------------

    def put(self, chunk: Chunk) -> bool:
        """Append a chunk; False, without any effect, if the chunk is not wanted.

        That is the case if its partition is not admitted (any more), or a chunk of its partition was sent back, see
        :meth:`take_damage`. A queue that was closed takes chunks: it shows that they wait, and bounds them.
        """
        with self._lock:
            if chunk.info not in self._admitted or chunk.info in self._damages:
                return False
            self._waiting.add(chunk)
            self._errors.arrived(chunk.info)
            self._fetched_bytes[chunk.info.partition.topic] += chunk.fetched_bytes
            self._changed.set()
            return True

    def take_damage(self, info: QueuedPartition) -> Damage | None:
        """The damage that :meth:`send_back` reported for a partition, or None; each damage is returned once."""
        if info not in self._damages:  # without the lock: listeners are called after it was added
            return None
        with self._lock:
            reported = self._damages.get(info)
            if reported is None:
                return None
            chunk, damage = reported
            self.room.made += 1
            self._waiting.drop_from(chunk)  # if an interrupt prevented the reader from doing it
            del self._damages[info]
        self.room.announce()
        return damage

    def damaged(self) -> Sequence[QueuedPartition]:
        """Partitions for which :meth:`take_damage` returns a damage."""
        return tuple(self._damages)

    def first_chunks(self, most: int) -> list[Chunk]:
        """The first ``most`` chunks that wait and are not paused, in their order."""
        with self._lock:
            return list(islice(self._waiting, most))

    def holds(self, chunk: Chunk) -> bool:
        """True if this chunk object is in the queue, paused or not."""
        with self._lock:
            return self._waiting.holds(chunk)

    # -- the user's thread --------------------------------------------------------------------------------------

    def request(self, timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """The next chunk that has records, decoded or not. It stays in the queue until :meth:`begin`.

        Everything handed out before counts as consumed from now on, since the user asks for more. Chunks before the
        next one that only move the position are dropped.

        Args:
            timeout: seconds to wait; None: without limit.

        Returns:
            A chunk, END if the queue was closed, or None on timeout.

        Raises:
            WokenUp: :meth:`wake` was called since the last request; before any chunk is looked for.
            BaseException: the error given to :meth:`close`, or one of its :attr:`faults`.
        """
        self.room.announce()
        with self._lock:
            self._finish()
        return self._wait_for(self._skip_to_records, timeout)

    def look(self, timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """The result that :meth:`request` would return next; drops and releases nothing."""
        return self._wait_for(self._first_records, timeout)

    def begin(self, handover: HandOver[Any]) -> bool:
        """Start handing out the chunk that :meth:`request` returned, which leaves the queue.

        Returns:
            False if it may not be handed out: a rebalance or a pause came first, or delivery is suspended. The caller
            then requests the next chunk.
        """
        with self._lock:
            chunk, waiting = handover.chunk, self._waiting
            if self._errors.closed or waiting.front() is not chunk or not self._may_deliver():
                return False
            self.room.made += 1
            self._handed_out.begin(handover)  # from now on the chunk is found there
            if self.unfinished is not None:
                self.unfinished.add(chunk.info, handover.unfinished)
            waiting.drop_front()
            handover.is_out = True
        self.room.announce()
        return True

    # -- control ------------------------------------------------------------------------------------------------

    def admit(self, infos: Iterable[QueuedPartition]) -> None:
        """Accept chunks of these partitions from now on."""
        with self._lock:
            infos = list(infos)
            if self.unfinished is not None:
                self.unfinished.admit(infos)
            self._admitted = self._admitted.union(infos)

    def release(self, infos: Collection[QueuedPartition]) -> None:
        """Drop the chunks of these partitions, also the one being handed out, and refuse later ones.

        When this returns, the user receives no more records of them. Their positions remain known. Their paused state
        and their errors are forgotten, except denials that the stream has raised. Idempotent.
        """
        with self._lock:
            self.room.review()
            self._admitted = self._admitted.difference(infos)
            if any(self._handed_out.of(info) is not None for info in infos):
                self._handed_out.take_back()
            self._waiting.drop_partitions(frozenset(info.partition for info in infos))
            self._errors.forget(infos)
            for info in infos:
                self._damages.pop(info, None)
        self.room.announce()

    def discard(self, infos: Iterable[QueuedPartition]) -> None:
        """These partitions have ended, after their release: what is done of them from now on has no effect."""
        with self._lock:
            for info in infos:
                if info.unfinished is not None:
                    info.unfinished.discard()

    def release_all(self) -> None:
        """Release all partitions, and forget the fetchers and every failure."""
        with self._lock:
            self._admitted = frozenset()
            self._handed_out.take_back()
            self._waiting.clear()
            self.room.clear()
            self._errors.forget_all()
            self._damages.clear()

    def withhold(self) -> None:
        """Take the unclaimed rest of the chunk being handed out back to the front of the queue."""
        with self._lock:
            self._take_back()

    def deliver(self) -> None:
        """Let the user's thread, if it waits, ask again whether it ``may_deliver``."""
        self._changed.set()

    def wake(self) -> None:
        """Let the request in progress, or else the next one, raise WokenUp; for any thread, and for signal handlers.

        It takes no lock: the thread that a signal handler interrupts may hold it.
        """
        self._woken.set()
        self._changed.set()

    def finish(self) -> None:
        """Count everything that was handed out as consumed, without requesting more."""
        with self._lock:
            self._finish()

    def pause(self, partition: TopicPartition) -> None:
        """Hand out no more records of a partition, and do not let it be fetched; its chunks wait. Idempotent.

        When this returns, the user receives no more of it, except a record that another thread is claiming at that
        moment.
        """
        with self._lock:
            current = self._handed_out.current
            if current is not None and current.chunk.info.partition == partition:
                self._take_back()
            self.room.review()
            self._waiting.pause(partition)
        self.room.announce()

    def resume(self, partition: TopicPartition) -> None:
        """Undo :meth:`pause`: the chunks that waited come after the queued chunks of other partitions. Idempotent."""
        with self._lock:
            self.room.review()
            self._waiting.resume(partition)
            self._changed.set()
        self.room.announce()

    def replace(self, chunk: Chunk, parts: Sequence[Chunk]) -> bool:
        """Replace a chunk by its decoded parts; False, without any effect, if the queue does not hold it any more."""
        shrinks = sum([part.nbytes for part in parts]) < chunk.nbytes or True not in [
            part.has_records for part in parts
        ]
        with self._lock:
            self.room.made += shrinks
            if not self._waiting.replace(chunk, parts):
                return False
        self.room.announce()
        return True

    def send_back(self, chunk: Chunk, error: CorruptRecord | RecordTooLarge) -> None:
        """Drop a chunk whose first batch cannot be decoded (damaged, too long), and the chunks after it.

        Only chunks of its partition are dropped, and no chunk of it is accepted until a fetcher takes the damage and
        continues from there. No effect if the queue does not hold the chunk any more.
        """
        with self._lock:
            following = self._waiting.following(chunk)
            if not following:
                return
            self.room.review()
            # Not after where an empty chunk that is dropped, too, goes back to: the log is another one from there on.
            self._damages[chunk.info] = chunk, Damage(min(dropped.first_offset for dropped in following), error)
            self._waiting.drop_from(chunk)
        self.room.announce()

    def held(self) -> QueuedPartition | None:
        """The partition of which the user holds records that are not released, also after a rebalance; or None."""
        with self._lock:
            return self._handed_out.held()

    def position(self, info: QueuedPartition, *, handed_out: bool) -> int | None:
        """The user's position in a partition; None if the user has received none of its records.

        Args:
            info: the partition, in one generation.
            handed_out: True for the position after all records that were handed out, False for those consumed.
        """
        with self._lock:
            return self._handed_out.position(info, handed_out=handed_out)

    def count_unfinished(self, info: QueuedPartition) -> int:
        """Number of records of a partition that were handed out and are not done; 0 unless ``commit.on=done``."""
        with self._lock:
            if info.unfinished is None:
                return 0
            current = self._handed_out.of(info)
            count = info.unfinished.count()
            return count if current is None else max(0, count - current.unclaimed_messages())

    def room_for(self, info: QueuedPartition) -> int | None:
        """How many single records of a partition may be handed out now; None without a limit."""
        return None if self.unfinished is None else self.unfinished.room(info)

    def reading(self) -> Reading:
        """The reader's progress, and the partitions whose records could be handed out, if the stream has not ended."""
        with self._lock:
            current = self._handed_out.current
            unread = {chunk.info.partition for chunk in self._waiting if chunk.has_records}
            if current is not None and current.has_more():
                unread.add(current.chunk.info.partition)
            if unread and not self._may_deliver():
                unread.clear()
            return Reading(self._handed_out.progress(), frozenset(unread))

    def totals(self) -> Totals:
        """Counts so far, including the chunk that is being handed out."""
        with self._lock:
            return Totals(dict(self._handed_out.messages()), dict(self._fetched_bytes))

    def close(self, cause: BaseException | None = None) -> None:
        """End the stream at once; with a cause, each later request raises it."""
        with self._lock:
            self._errors.close(cause)
            self._handed_out.take_back()
            self._changed.set()

    # -- waiting: without the lock --------------------------------------------------------------------------------

    def _wait_for(self, first: Callable[[], Chunk | None], timeout: float | None) -> Chunk | Literal[Ended.END] | None:
        """Wait until ``first`` finds a chunk; see :meth:`request`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._woken.wait(0):
                raise WokenUp("wakeup() was called; iterate again to continue")
            with self._lock:
                chunk = self._found(first)
            self.room.announce()
            if chunk is not None:
                return chunk
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            if self.unfinished is not None and self.unfinished.is_holding_back():
                left = BACKSTOP_S if left is None else min(left, BACKSTOP_S)
            self._changed.wait(left)

    # -- under the lock -----------------------------------------------------------------------------------------

    def _found(self, first: Callable[[], Chunk | None]) -> Chunk | Literal[Ended.END] | None:
        """The result that ends a wait, None if there is none yet; may raise, see :meth:`request`."""
        closed, chunk = self._errors.closed, None
        if not closed and self._has_chunks() and self._may_deliver():
            chunk = first()
            while chunk is None and self.unfinished is not None and self.unfinished.review():
                chunk = first()
            if chunk is None:
                self.room.review()
                self._waiting.see()
        error = self._errors.take(has_records=self._waiting.first() is not None)
        if error is not None:
            raise error
        return END if closed else chunk

    def _has_chunks(self) -> bool:
        """True if a chunk waits that is not paused; partitions of which enough is done continue first."""
        if self.unfinished is not None:
            self.unfinished.review()
        return len(self._waiting) > 0

    def _holds_back(self, chunk: Chunk) -> bool:
        """True if its partition was paused now, since too much of it is unfinished."""
        return self.unfinished is not None and self.unfinished.holds_back(chunk.info)

    def _first_records(self) -> Chunk | None:
        """The first chunk with records; drops nothing."""
        while (chunk := self._waiting.first()) is not None and self._holds_back(chunk):
            pass
        return chunk

    def _skip_to_records(self) -> Chunk | None:
        """The first chunk with records; those before it, which only move positions, are dropped."""
        while (chunk := self._waiting.front()) is not None:
            if chunk.has_records:
                if self._holds_back(chunk):
                    continue
                return chunk
            self.room.made += 1
            chunk.info.consumed = chunk.next_offset
            self._waiting.drop_front()
        return None

    def _take_back(self) -> None:
        """Put the unclaimed rest of the chunk being handed out back to the front of the queue."""
        current, rest = self._handed_out.current, self._handed_out.take_back()
        if current is None or rest is None or rest.info not in self._admitted:
            return
        # If it is not out, it was put back already, or an interrupt ended ``begin`` or this method half-way.
        if current.is_out or not self._waiting.holds(rest):
            current.is_out = False
            self._waiting.add(rest, in_front=True)

    def _finish(self) -> None:
        """Release what was handed out. Everything before the last line can be repeated."""
        self._take_back()
        self._handed_out.finish()
