"""HandedOut: the chunk that a stream is handing out, and the positions, counts and progress derived from it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from zkconsumer.fetch.chunks import Chunk, HandOver

if TYPE_CHECKING:
    from zkconsumer.fetch.queuedpartition import QueuedPartition


class HandedOut:
    """Used under the lock of its queue. The user's thread claims items without the lock, see ``fetch/chunks.py``.

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
        return None if self._current is None else self._current.take_back()

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
        position = None if current is None else current.position(handed_out=handed_out)
        return info.consumed if position is None else position

    def is_held(self, info: QueuedPartition) -> bool:
        """True while the user holds records of this partition that are not released."""
        return self.held() is info

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
