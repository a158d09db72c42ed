"""ReadyReader: what a queue can hand out at once, for a thread that must neither wait nor decode: that of an event loop.

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
        turn_ended: True if the last request returned None since the turn was over, whatever is ready.
    """

    def __init__(self, queue: ChunkQueue, settings: DecoderSettings, pool: DecodePool, notifier: Notifier) -> None:
        super().__init__(queue, settings)
        self.notifier = notifier
        self.turn_ended = False
        self._offered = DecodeAhead(queue, pool, done=notifier, with_front=True)
        self._turn_ends = 0.0

    def begin_turn(self) -> None:
        """The event loop has run its other tasks."""
        self._turn_ends = time.monotonic() + _TURN_S

    def _decoded(self, get: Callable[[], Item]) -> Item:
        self.turn_ended = time.monotonic() >= self._turn_ends
        if self.turn_ended:
            return None
        while True:
            chunk = get()
            if not isinstance(chunk, Chunk):
                return chunk
            self._offered.offer()
            if chunk.scanned is None:
                return chunk
            if not self._offered.was_left(chunk):
                return None
            # The pool may have replaced it before it ended the job; then the queue does not hold it any more.
            if self._queue.holds(chunk):
                self._decode(chunk)
