"""ChunkReader: verifies and decodes chunks at the front of a queue, on the thread that reads them.

A fetcher receives; it would wait for the processor if it did more with the bytes. The reader's thread waits for the
fetcher anyway. So the two work at the same time, and what waits in a queue is as short as it was on its way.

A chunk is decoded where it is, at the front of the queue, and then replaced by what came of it. So whatever happens to
the queue meanwhile (a rebalance, a pause) happens to the chunk as it would to one that is not being read. One that is
damaged goes back to the fetcher, which decides what to do about it; nothing after it is handed out before.

An interrupt may come at any point. So the chunk in the queue always shows how far it is: first as it was scanned, with
its bytes intact; then as prepared, and only from there on bytes are moved; then decoded. The next request continues at
the stage it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.queues import ChunkQueue, Ended

if TYPE_CHECKING:
    from zkconsumer.fetch.decode import Decoder, ScannedChunk

Item = Chunk | Literal[Ended.END] | None


class ChunkReader:
    """One thread uses it, that of the stream.

    Args:
        queue: where the chunks wait.
        check_crcs: verify checksums.
        max_decompressed_bytes: longest batch after decompression; None for the decoder's default.
    """

    def __init__(
        self, queue: ChunkQueue, *, check_crcs: bool = True, max_decompressed_bytes: int | None = None
    ) -> None:
        self._queue = queue
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._decoder: Decoder | None = None

    @classmethod
    def from_config(cls, queue: ChunkQueue, config: ConsumerConfig) -> Self:
        """A reader as the properties specify."""
        return cls(queue, check_crcs=config.check_crcs, max_decompressed_bytes=config.decompressed_max_bytes)

    def request(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.request`; the chunk is decoded."""
        return self._decoded(lambda: self._queue.request(timeout))

    def look(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.look`; as :meth:`request`."""
        return self._decoded(lambda: self._queue.look(timeout))

    def _decoded(self, get: Callable[[], Item]) -> Item:
        if self._decoder is not None:
            self._decoder.memory.trim()  # this may be the last request for long
        while True:
            chunk = get()
            if not isinstance(chunk, Chunk) or chunk.scanned is None:
                return chunk
            self._decode(chunk, chunk.scanned)

    def _decode(self, chunk: Chunk, scanned: ScannedChunk) -> None:
        """Decode a chunk in its place.

        Only CorruptRecord and RecordTooLarge are about the data. Any other exception leaves the chunk where it is and
        goes to the user: it was raised asynchronously, or memory is short, and then the next request succeeds; or our
        own code fails, and then each request shows it.
        """
        decoder = self._decoder
        if decoder is None:
            from zkconsumer.fetch.decode import Decoder

            decoder = self._decoder = Decoder(
                check_crcs=self._check_crcs, headers=True, max_decompressed_bytes=self._max_decompressed_bytes
            )
        try:
            prepared = chunk.prepared
            if prepared is None:
                prepared = decoder.prepare(scanned)
                before, chunk = chunk, chunk._replace(prepared=prepared)
                if not self._queue.replace(before, [chunk]):
                    return
            batch, next_offset, nbytes, rest = decoder.complete(prepared)
        except (CorruptRecord, RecordTooLarge) as error:
            self._queue.send_back(chunk, error)
            return
        parts = [Chunk(chunk.info, batch, next_offset, nbytes, chunk.fetched_bytes)]
        if rest is not None:
            parts.append(chunk._replace(scanned=rest, prepared=None, fetched_bytes=0))
        self._queue.replace(chunk, parts)
        decoder.recycle(prepared)
