"""ChunkReader: takes chunks out of a queue, verifies and decodes them, on the thread that reads them.

A fetcher receives; it would wait for the processor if it did more with the bytes. The reader's thread waits for the
fetcher anyway. So the two work at the same time, and what waits in a queue is as short as it was on its way.

A chunk is decoded where it is, at the front of the queue, and then replaced by what came of it. So whatever happens to
the queue meanwhile (a rebalance, a pause) happens to the chunk as it would to one that nobody looks at. One that is
damaged goes back to the fetcher, which decides what to do about it; nothing behind it is handed out before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from zkconsumer.config import ConsumerConfig
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
    """

    def __init__(self, queue: ChunkQueue, *, check_crcs: bool = True) -> None:
        self._queue = queue
        self._check_crcs = check_crcs
        self._decoder: Decoder | None = None

    @classmethod
    def from_config(cls, queue: ChunkQueue, config: ConsumerConfig) -> Self:
        """A reader as the properties ask for."""
        return cls(queue, check_crcs=config.check_crcs)

    def take(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.take`; the chunk is decoded."""
        return self._decoded(lambda: self._queue.take(timeout))

    def look(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.look`; as :meth:`take`."""
        return self._decoded(lambda: self._queue.look(timeout))

    def _decoded(self, get: Callable[[], Item]) -> Item:
        while True:
            chunk = get()
            if not isinstance(chunk, Chunk) or chunk.scanned is None:
                return chunk
            self._decode(chunk, chunk.scanned)

    def _decode(self, chunk: Chunk, scanned: ScannedChunk) -> None:
        if self._decoder is None:
            from zkconsumer.fetch.decode import Decoder

            self._decoder = Decoder(check_crcs=self._check_crcs, headers=True)
        try:
            batch, next_offset, nbytes, rest = self._decoder.finish(scanned)
        except Exception as error:  # noqa: BLE001 - one partition's bytes must not keep the others from the user
            self._queue.send_back(chunk, error)
            return
        parts = [chunk._replace(batch=batch, next_offset=next_offset, nbytes=nbytes, scanned=None)]
        if rest is not None:
            parts.append(chunk._replace(scanned=rest, fetched_bytes=0))
        self._queue.replace(chunk, parts)
