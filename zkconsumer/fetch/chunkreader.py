"""ChunkReader: verifies and decodes chunks at the front of a queue, on the thread that reads them.

A fetcher receives; it would wait for the processor if it did more with the bytes. The reader's thread waits for the
fetcher anyway. So the two work at the same time, and what waits in a queue is as short as it was on its way.

A chunk is decoded where it is, at the front of the queue, and then replaced by what came of it. So whatever happens to
the queue meanwhile (a rebalance, a pause) happens to the chunk as it would to one that is not being read. One that is
damaged goes back to the fetcher, which decides what to do about it; nothing after it is handed out before.

An interrupt may come at any point. So the chunk in the queue always shows how far it is: first as it was scanned, with
its bytes intact; then as prepared, and only from there on bytes are moved; then decoded. The next request continues at
the stage it finds.

With a pool (``decode.threads``) other threads decode chunks that will be asked for next, see ``fetch/ahead.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from zkconsumer.config import ConsumerConfig
from zkconsumer.fetch.ahead import DecodeAhead, DecodePool, decode_in_place
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.queues import ChunkQueue, Ended

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import BatchDecoder

Item = Chunk | Literal[Ended.END] | None


class ChunkReader:
    """One thread uses it, that of the stream.

    Args:
        queue: where the chunks wait.
        check_crcs: verify checksums.
        max_decompressed_bytes: longest batch after decompression; None for the decoder's default.
        pool: decodes chunks ahead, with the same settings; None: this thread decodes all.
    """

    def __init__(
        self,
        queue: ChunkQueue,
        *,
        check_crcs: bool = True,
        max_decompressed_bytes: int | None = None,
        pool: DecodePool | None = None,
    ) -> None:
        self._queue = queue
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._decoder: BatchDecoder | None = None
        self._ahead = None if pool is None else DecodeAhead(queue, pool)

    @classmethod
    def from_config(cls, queue: ChunkQueue, config: ConsumerConfig, pool: DecodePool | None = None) -> Self:
        """A reader as the properties specify."""
        return cls(queue, check_crcs=config.check_crcs, max_decompressed_bytes=config.decompressed_max_bytes, pool=pool)

    def request(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.request`; the chunk is decoded."""
        return self._decoded(lambda: self._queue.request(timeout))

    def look(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.look`; as :meth:`request`."""
        return self._decoded(lambda: self._queue.look(timeout))

    def _decoded(self, get: Callable[[], Item]) -> Item:
        if self._decoder is not None:
            self._decoder.memory.trim()  # this may be the last request for long
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
        """Decode the front chunk; while the pool decodes it, decode another one, or wait where there is none."""
        ahead = self._ahead
        if ahead is None:
            self._decode(chunk)
        elif ahead.is_free(chunk):
            # It may have been replaced before it became free; then it is not here any more, nor touched.
            if self._queue.holds(chunk):
                self._decode(chunk)
        elif (other := ahead.another()) is not None:
            self._decode(other)
        else:
            ahead.wait(chunk)

    def _decode(self, chunk: Chunk) -> None:
        """Decode a chunk in its place; see :func:`~zkconsumer.fetch.ahead.decode_in_place`.

        What that raises goes to the user: it was raised asynchronously, or memory is short, and then the next request
        succeeds; or our own code fails, and then each request shows it.
        """
        decoder = self._decoder
        if decoder is None:
            from zkconsumer.decode.batchdecoder import BatchDecoder

            decoder = self._decoder = BatchDecoder(
                check_crcs=self._check_crcs, headers=True, max_decompressed_bytes=self._max_decompressed_bytes
            )
        if chunk.scanned is not None:
            decode_in_place(decoder, self._queue, chunk, chunk.scanned)
