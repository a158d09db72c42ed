"""ChunkReader: verifies and decodes chunks at the front of a queue, on the thread that reads them.

A fetcher only receives; if it also decoded, it would wait for the processor. The reader's thread waits for the fetcher
anyway. So the two work in parallel, and chunks wait in a queue in their compressed size.

A chunk is decoded in place, at the front of the queue, and then replaced by the result. So a rebalance or a pause
treats a chunk that is being decoded as any other. A damaged chunk goes back to the fetcher, which decides how to
proceed; no later record of the partition is handed out before that.

An interrupt may come at any point. So the chunk in the queue always shows its stage: scanned, with its bytes intact;
prepared, and only from this stage on bytes are moved; decoded. The next request continues at the stage that it finds.

With a pool (``decode.threads``), other threads decode the chunks that follow, see ``fetch/decodeahead.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from zkconsumer.decode.decodersettings import DEFAULT_SETTINGS, DecoderSettings
from zkconsumer.fetch.chunkqueue import ChunkQueue, Ended
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.decodeahead import DecodeAhead, DecodePool, decode_in_place

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import BatchDecoder

Item = Chunk | Literal[Ended.END] | None


class ChunkReader:
    """Returns the decoded chunks of a queue. Only the stream's thread uses it.

    Args:
        queue: holds the chunks.
        settings: of the decoder.
        pool: decodes chunks ahead, with the same settings; None: this thread decodes all chunks.
    """

    def __init__(
        self, queue: ChunkQueue, settings: DecoderSettings = DEFAULT_SETTINGS, *, pool: DecodePool | None = None
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._decoder: BatchDecoder | None = None
        self._ahead = None if pool is None else DecodeAhead(queue, pool)

    def request(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.request`; the chunk is decoded."""
        return self._decoded(lambda: self._queue.request(timeout))

    def look(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.look`; the chunk is decoded."""
        return self._decoded(lambda: self._queue.look(timeout))

    def _decoded(self, get: Callable[[], Item]) -> Item:
        if self._decoder is not None:
            self._decoder.trim()  # it may be long until the next request
        self._offer()
        while True:
            chunk = get()
            if not isinstance(chunk, Chunk) or chunk.scanned is None:
                return chunk
            self._offer()
            self._work_for(chunk)

    def _offer(self) -> None:
        if self._ahead is not None:
            self._ahead.offer()

    def _work_for(self, chunk: Chunk) -> None:
        """Decode the front chunk; while the pool decodes it, decode another chunk, or wait if there is none."""
        ahead = self._ahead
        if ahead is None:
            self._decode(chunk)
        elif ahead.is_free(chunk):
            # The pool may have replaced it before it became free; then the queue does not hold it any more.
            if self._queue.holds(chunk):
                self._decode(chunk)
        elif (next_chunk := ahead.another()) is not None:
            self._decode(next_chunk)
        else:
            ahead.wait(chunk)

    def _decode(self, chunk: Chunk) -> None:
        """Decode a chunk in its place; see :func:`~zkconsumer.fetch.decodeahead.decode_in_place`.

        Its exceptions reach the user. An exception raised asynchronously or a lack of memory is temporary, and the next
        request succeeds; a defect of our own code fails each request.
        """
        decoder = self._decoder
        if decoder is None:
            from zkconsumer.decode.batchdecoder import BatchDecoder

            decoder = self._decoder = BatchDecoder(self._settings, headers=True)
        if chunk.scanned is not None:
            decode_in_place(decoder, self._queue, chunk, chunk.scanned)
