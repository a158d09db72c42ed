"""ChunkReader: takes chunks out of a queue and decodes them, on the thread that reads them.

A fetcher receives and verifies; it would wait for the processor if it decoded too. The reader's thread waits for the
fetcher anyway. So the two work at the same time, and what waits in a queue is as short as it was on its way.

A chunk is decoded where it is, at the front of the queue, and then replaced by what came of it. So whatever happens to
the queue meanwhile (a rebalance, a pause) happens to the chunk as it would to one that nobody looks at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import CorruptRecord
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.queues import ChunkQueue, Ended

if TYPE_CHECKING:
    from zkconsumer.fetch.decode import Decoder, VerifiedChunk

_log = logging.getLogger(__name__)

Item = Chunk | Literal[Ended.END] | None


class ChunkReader:
    """One thread uses it, that of the stream.

    Args:
        queue: where the chunks wait.
        check_crcs: verify the checksums inside compressed messages of old formats; all others were verified.
        skip_corrupt: pass over what cannot be decoded instead of raising CorruptRecord.
    """

    def __init__(self, queue: ChunkQueue, *, check_crcs: bool = True, skip_corrupt: bool = False) -> None:
        self._queue = queue
        self._check_crcs = check_crcs
        self._skip_corrupt = skip_corrupt
        self._decoder: Decoder | None = None

    @classmethod
    def from_config(cls, queue: ChunkQueue, config: ConsumerConfig) -> Self:
        """A reader as the properties ask for."""
        return cls(queue, check_crcs=config.check_crcs, skip_corrupt=config.on_corrupt == "skip")

    def take(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.take`; the chunk is decoded. Raises also CorruptRecord, until the next rebalance."""
        return self._decoded(lambda: self._queue.take(timeout))

    def look(self, timeout: float | None) -> Item:
        """See :meth:`ChunkQueue.look`; as :meth:`take`."""
        return self._decoded(lambda: self._queue.look(timeout))

    def _decoded(self, get: Callable[[], Item]) -> Item:
        while True:
            chunk = get()
            if not isinstance(chunk, Chunk) or chunk.verified is None:
                return chunk
            self._decode(chunk, chunk.verified)

    def _decode(self, chunk: Chunk, verified: VerifiedChunk) -> None:
        if self._decoder is None:
            from zkconsumer.fetch.decode import Decoder

            self._decoder = Decoder(check_crcs=self._check_crcs, headers=True)
        try:
            batch, next_offset, nbytes, rest = self._decoder.finish(verified)
        except CorruptRecord as error:
            if not self._skip_corrupt or error.resume_at is None:
                self._queue.refuse(chunk, error)
                return
            batch, nbytes, rest = None, 0, verified.behind(error.resume_at)
            next_offset = chunk.next_offset if rest is None else error.resume_at
            _log.error(
                "offsets %d to %d of %s are left out: %s",
                verified.requested, next_offset - 1, chunk.info.partition, error,
            )  # fmt: skip
        parts = [chunk._replace(batch=batch, next_offset=next_offset, nbytes=nbytes, verified=None)]
        if rest is not None:
            parts.append(chunk._replace(verified=rest, fetched_bytes=0))
        self._queue.replace(chunk, parts)
