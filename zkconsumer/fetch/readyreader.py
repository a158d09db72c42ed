"""ReadyReader: what a queue can hand out at once, for the thread of an event loop, which must not wait or decode.

The pool decodes every chunk, also the front one. Whatever may change the answer raises the queue's :class:`Notifier`:
a chunk that arrives, one that the pool has decoded, the end, an error, and a lease that holds again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.chunkreader import ChunkReader, Item
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.decodeahead import DecodeAhead, DecodePool
from zkconsumer.process.wakeup import Notifier

_TURN_S: Final = 0.005
"""How long chunks are returned without a pause: the event loop has other tasks."""


class ReadyReader(ChunkReader):
    """Returns the decoded chunks of a queue, None where the first one is not decoded yet. One thread uses it.

    Args:
        queue: holds the chunks; ``notifier`` is its ``changed``.
        settings: of the decoder.
        pool: decodes the chunks, with the same settings.
        notifier: see the module.

    Attributes:
        notifier: the same.
        has_turn_ended: True if the last request returned None since the turn was over, whatever is ready.
        is_pending: True if it returned None for that reason, or since the pool decodes the first chunk, so that the
            next one may return it in a moment.
    """

    def __init__(self, queue: ChunkQueue, settings: DecoderSettings, pool: DecodePool, notifier: Notifier) -> None:
        super().__init__(queue, settings)
        self.notifier = notifier
        self.has_turn_ended = self.is_pending = False
        self._offered = DecodeAhead(queue, pool, done=notifier, with_front=True)
        self._turn_ends: float | None = 0.0  # reading of the clock; None: it begins with the next request

    def begin_turn(self) -> None:
        """The event loop has run its other tasks: the next request is answered in any case."""
        self._turn_ends = None

    def request(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.request`; what was handed out before is released also where the turn is over.

        Otherwise: 1. a task asks for the next record after its turn; 2. it yields, and is cancelled there: it made a
        request, which would not have released the record before.
        """
        item = super().request(timeout)
        if self.has_turn_ended:
            self._queue.finish()
        return item

    def _decoded(self, get: Callable[[], Item]) -> Item:
        now = time.monotonic()
        if self._turn_ends is None:
            self._turn_ends = now + _TURN_S
            self.has_turn_ended = False
        else:
            self.has_turn_ended = now >= self._turn_ends
        self.is_pending = self.has_turn_ended
        if self.has_turn_ended:
            return None
        while True:
            chunk = get()
            if not isinstance(chunk, Chunk):
                return chunk
            self._offered.offer()
            if chunk.scanned is None:
                return chunk
            if not self._offered.was_left(chunk):
                self.is_pending = True
                return None
            # The pool may have replaced it before it ended the job; then the queue does not hold it any more.
            if self._queue.holds(chunk):
                self._decode(chunk)
