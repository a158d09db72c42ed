"""WaitingFetchers: the fetchers that share the room of a queue, and which of them wait for room."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zkconsumer.fetch.queuedpartition import QueuedPartition

Listener = Callable[[], None]


class _Wait(NamedTuple):
    """A fetcher that waits.

    Attributes:
        infos: its partitions of this queue that may be fetched.
        due: value of ``WaitingFetchers.made`` from which on one of them may have room.
    """

    infos: Collection[QueuedPartition]
    due: int


class WaitingFetchers:
    """Used under the lock of its queue; listeners are called without it.

    Room is counted in chunks that were taken. A waiting fetcher is checked again only when enough chunks were taken
    that one of its partitions may have room: otherwise each chunk that is handed out would cost a check of a thousand
    partitions.

    Args:
        missing: returns the minimum number of chunks to take until one of these partitions can be fetched; at most 0 if
            one can be fetched now.

    Attributes:
        made: an upper bound of the chunks that made room; raised before the room is made, so that after an interrupt
            between the two the next request checks again.
        announced: the value of ``made`` at the last check of the waiting fetchers; written by the thread that makes
            room.
    """

    def __init__(self, missing: Callable[[Collection[QueuedPartition]], int]) -> None:
        self._missing = missing
        self._listeners: frozenset[Listener] = frozenset()
        self._waits: dict[Listener, _Wait] = {}  # in the order of their beginning
        self.made = 0
        self.announced = 0

    def __len__(self) -> int:
        """Number of fetchers that share the room."""
        return len(self._listeners)

    def add(self, listener: Listener) -> None:
        """Add a fetcher that shares the room."""
        self._listeners |= {listener}

    def remove(self, listener: Listener) -> None:
        """Undo :meth:`add` and :meth:`begin`."""
        self._listeners -= {listener}
        self.end(listener)

    def clear(self) -> None:
        """Remove all fetchers."""
        self._listeners = frozenset()
        self._waits.clear()

    def begin(self, listener: Listener, infos: Collection[QueuedPartition]) -> bool:
        """Let a fetcher wait for room; False if one of its partitions can be fetched now."""
        missing = self._missing(infos)
        if missing <= 0:
            return False
        self._waits[listener] = _Wait(infos, self.made + missing)
        return True

    def end(self, listener: Listener) -> None:
        """End the wait of a fetcher."""
        self._waits.pop(listener, None)

    def awaits(self, listener: Listener) -> bool:
        """True from :meth:`begin` to :meth:`end`."""
        return listener in self._waits

    def review(self) -> None:
        """Let the next :meth:`ready` check all waiting fetchers, since any amount of room may have been made."""
        self.made += 1
        self._waits = {listener: wait._replace(due=0) for listener, wait in self._waits.items()}

    def ready(self) -> list[Listener]:
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
