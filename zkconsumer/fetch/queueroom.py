"""QueueRoom: the bounds of a queue, how much its fetchers may put into it, and which of them wait for room."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Set
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from zkconsumer.fetch.rules.halffull import beyond_half
from zkconsumer.fetch.waitingchunks import WaitingChunks

if TYPE_CHECKING:
    from zkconsumer.fetch.chunks import QueuedPartition

Listener = Callable[[], None]
P = TypeVar("P", bound="QueuedPartition")

_NEVER: Final = 1 << 62


class _Wait(NamedTuple):
    """A fetcher that waits.

    Attributes:
        infos: its partitions of this queue that may be fetched.
        due: value of ``QueueRoom.made`` from which on one of them may have room.
    """

    infos: Collection[QueuedPartition]
    due: int


class QueueRoom:
    """The fetchers keep the bounds: they exclude partitions from their requests, and a queue never makes them wait.

    See architecture.md#back-pressure. A fetcher asks for at most :meth:`allowance` bytes, but at least for a fetch of
    one partition. So the bound can be exceeded by two such fetches per fetcher: one in flight, and one that was
    received and is not queued yet when another fetcher checks the room. Paused chunks are not counted. A chunk counts
    with its size as received, and with its decoded size once it is decoded.

    Room is counted in chunks that were taken. A waiting fetcher is checked again only when enough chunks were taken
    that one of its partitions may have room: otherwise each chunk that is handed out would cost a check of a thousand
    partitions.

    No wake-up is lost. The check for room and the registration of a wait happen under one lock: the check sees room
    that was made before, and a thread that makes room later sees the wait. A fetcher that announced a chunk as
    ``coming`` and does not queue it must check for that room itself. The order of events on the reader's side: it
    raises the counter ``made``, makes the room, releases the lock, checks the waiting fetchers, calls their listeners,
    and stores the counter as announced. If an interrupt ends this after the first step, the counter is not stored, and
    the reader's next request checks again.

    Args:
        lock: of the queue; not held when a listener is called.
        waiting: the chunks of the queue.
        damages: the partitions that have to be fetched again, whatever the room.
        max_bytes: limit for all chunks together. A larger chunk is accepted if the queue is empty.
        max_chunks: limit for one partition (``queued.max.message.chunks``). Chunks without records count, too: a reader
            that stands still would not stop the download of aborted transactions. They do not count any more once the
            reader looks for records and finds nothing else, since there may be none before the next.

    Attributes:
        made: an upper bound of the chunks that made room; raised under the lock, before the room is made.
    """

    def __init__(
        self,
        lock: threading.Lock,
        waiting: WaitingChunks,
        damages: Set[QueuedPartition],
        *,
        max_bytes: int,
        max_chunks: int,
    ) -> None:
        self._lock = lock
        self._waiting = waiting
        self._damages = damages
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        self._listeners: frozenset[Listener] = frozenset()
        self._waits: dict[Listener, _Wait] = {}  # in the order of their beginning
        self.made = 0
        self._announced = 0  # the value of ``made`` at the last check; written by the thread that makes room

    # -- for fetchers -------------------------------------------------------------------------------------------

    def to_fetch(
        self, infos: Collection[P], *, coming: QueuedPartition | None = None, coming_bytes: int = 0
    ) -> list[P]:
        """Which partitions a fetcher should fetch now, in their order.

        No partition while the queue is more than half full: filling every gap that a slow reader makes would cost a
        request for each chunk. Otherwise the partitions that have room and are not paused.

        Args:
            infos: all partitions of this queue that the fetcher owns.
            coming: the partition of a chunk that was received and will be queued, if any.
            coming_bytes: bytes that were received for this queue and will be queued.
        """
        with self._lock:
            if beyond_half(self._waiting.nbytes + coming_bytes, self._max_bytes):
                return []
            active, counts = self._waiting.counts(infos)
            if beyond_half(sum(counts) + (coming in active), self._max_chunks * len(active)):
                return []
            return [
                info for info, count in zip(active, counts, strict=True) if count + (info is coming) < self._max_chunks
            ]

    def allowance(self, coming: int = 0) -> int:
        """Bytes that one fetcher should ask for at most: its share of the room.

        Otherwise ten fetchers would ask for ten times the room at once.

        Args:
            coming: bytes that the fetcher has received, but not queued yet.
        """
        with self._lock:
            room = max(0, self._max_bytes - self._waiting.nbytes)
            return max(0, room // max(1, len(self._listeners)) - coming)

    def add(self, listener: Listener) -> None:
        """Register a fetcher, which shares the room and may :meth:`wait`. Idempotent.

        It remains until :meth:`remove`, or until all partitions of the queue are released.
        """
        with self._lock:
            self._listeners |= {listener}

    def remove(self, listener: Listener) -> None:
        """Undo :meth:`add`. Idempotent."""
        with self._lock:
            self._listeners -= {listener}
            self._waits.pop(listener, None)

    def wait(self, listener: Listener, infos: Collection[QueuedPartition]) -> bool:
        """Call ``listener`` when one of these partitions can be fetched; False, and it is not called, if one can now.

        It is called on the thread that makes the room, and possibly more than once, until :meth:`end_wait`. It is also
        called when a partition has to be fetched again.

        Args:
            listener: the one registered by :meth:`add`.
            infos: all partitions of this queue that the fetcher could ask for.
        """
        with self._lock:
            missing = self._missing(infos)
            if missing > 0:
                self._waits[listener] = _Wait(infos, self.made + missing)
            return missing > 0

    def end_wait(self, listener: Listener) -> None:
        """Undo :meth:`wait`. Idempotent."""
        if listener in self._waits:
            with self._lock:
                self._waits.pop(listener, None)

    # -- for the thread that makes room -------------------------------------------------------------------------

    def announce(self) -> None:
        """Wake the waiting fetchers that can send now, if room was made since the last call; without the lock."""
        made = self.made
        if made != self._announced:
            with self._lock:
                # Full by bytes: only a partition that was sent back can be fetched, however many chunks were taken.
                is_full = beyond_half(self._waiting.nbytes, self._max_bytes)
                listeners = self._ready() if self._damages or not is_full else []
            for listener in listeners:
                listener()
            self._announced = made

    # -- under the lock -----------------------------------------------------------------------------------------

    def review(self) -> None:
        """Let the next :meth:`announce` check all waiting fetchers, since any amount of room may have been made."""
        self.made += 1
        self._waits = {listener: wait._replace(due=0) for listener, wait in self._waits.items()}

    def clear(self) -> None:
        """Remove all fetchers."""
        self._listeners = frozenset()
        self._waits.clear()

    def _missing(self, infos: Collection[QueuedPartition]) -> int:
        """Minimum number of chunks to take until one of these partitions can be fetched; 0 if one can now."""
        if not self._damages.isdisjoint(infos):
            return 0
        active, counts = self._waiting.counts(infos)
        if not active:
            return _NEVER
        bytes_beyond = beyond_half(self._waiting.nbytes, self._max_bytes)
        return max(beyond_half(sum(counts), self._max_chunks * len(active)), int(bytes_beyond > 0))

    def _ready(self) -> list[Listener]:
        """The waiting fetchers that can fetch a partition now."""
        ready = []
        for listener, wait in self._waits.items():
            if wait.due <= self.made:
                missing = self._missing(wait.infos)
                if missing <= 0:
                    ready.append(listener)
                else:
                    self._waits[listener] = _Wait(wait.infos, self.made + missing)  # a key that exists: the order stays
        return ready
