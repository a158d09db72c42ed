"""DecodeAhead: which chunks of a queue are decoded before they are asked for, and the pool that decodes them.

The reader's thread decides which chunks, and offers them. A chunk that was offered is decoded by one thread: the thread
of the pool that takes the job first, or the reader's where it comes to the chunk before. The result replaces the chunk
in the queue, if it is still there. So the queue alone decides about order, positions, pauses and rebalances.

An interrupt of the reader's thread may come at any point. So a job is noted before it is given to the pool, and taking
it is one step, which gives the same answer when it is repeated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Self

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.wakeup import WakeUp

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import BatchDecoder, ScannedChunk
    from zkconsumer.fetch.queuedpartition import QueuedPartition
    from zkconsumer.fetch.queues import ChunkQueue

_log = logging.getLogger(__name__)

_MOST_THREADS: Final = 4
"""Threads of a pool where the setting leaves it open: more cost memory for buffers, and seldom find anything to do."""
_FEW_CPUS: Final = 2
"""On so many CPUs no thread is free: fetcher and reader have one each."""
_IDLE_S: Final = 1.0
"""After this time without a job a thread of the pool frees its buffers."""
_READER: Final = "reader"
_POOL: Final = "pool"


def threads_for(setting: int, cpus: int, streams: int) -> int:
    """Threads that decode ahead, for all streams of a consumer together.

    Args:
        setting: ``decode.threads``; negative leaves it open.
        cpus: that the process may use.
        streams: of the consumer; each has a thread that decodes.
    """
    if setting >= 0:
        return setting
    return 0 if cpus <= _FEW_CPUS else max(0, min(_MOST_THREADS, cpus - 1 - streams))


def to_decode_ahead(line: Iterable[Chunk], most: int) -> list[Chunk]:
    """The chunks after the front one that should be decoded now, or be decoded already; at most ``most``.

    They are the first of their partitions, in the order in which they will be asked for. The front chunk is the
    reader's own. Where it is decoded it will be handed out, so the next of its partition counts as the first.

    Args:
        line: the chunks that wait and are not paused. It is read only as far as needed.
        most: how many.
    """
    found: list[Chunk] = []
    passed: set[QueuedPartition] = set()
    for place, chunk in enumerate(line):
        if len(found) == most:
            break
        if place == 0:
            if chunk.scanned is not None:
                passed.add(chunk.info)
        elif chunk.has_records and chunk.info not in passed:
            passed.add(chunk.info)
            found.append(chunk)
    return found


def decode_in_place(decoder: BatchDecoder, queue: ChunkQueue, chunk: Chunk, scanned: ScannedChunk) -> None:
    """Decode a chunk of a queue, and put the result in its place if it is still there.

    Only CorruptRecord and RecordTooLarge are about the data: then the chunk is sent back. Any other exception leaves
    the chunk where it is, as far as it was decoded, and is raised.
    """
    try:
        prepared = chunk.prepared
        if prepared is None:
            prepared = decoder.prepare(scanned)
            before, chunk = chunk, chunk._replace(prepared=prepared)
            if not queue.replace(before, [chunk]):
                return
        batch, next_offset, nbytes, rest = decoder.complete(prepared)
    except (CorruptRecord, RecordTooLarge) as error:
        queue.send_back(chunk, error)
        return
    parts = [Chunk(chunk.info, batch, next_offset, nbytes, chunk.fetched_bytes)]
    if rest is not None:
        parts.append(chunk._replace(scanned=rest, prepared=None, fetched_bytes=0))
    queue.replace(chunk, parts)
    decoder.recycle(prepared)


class Job:
    """One chunk that may be decoded ahead. Exactly one side takes it.

    Args:
        queue: where the chunk is.
        chunk: as it was when the job was made.
        done: raised when the pool has finished it.

    Attributes:
        finished: True once no thread of the pool touches the chunk any more, if one did. Written by that thread.
    """

    def __init__(self, queue: ChunkQueue, chunk: Chunk, done: WakeUp) -> None:
        self.queue = queue
        self.chunk = chunk
        self.finished = False
        self.done = done
        self._taken: dict[str, str] = {}

    def take(self, by: str) -> bool:
        """True if this side has it. One step, which can be repeated."""
        return self._taken.setdefault("by", by) is by


class DecodePool:
    """Threads that decode. Those of one consumer share a pool; each has a decoder of its own.

    Args:
        threads: how many; at least 1.
        name: of the consumer, for the names of the threads.
        check_crcs: verify checksums.
        max_decompressed_bytes: longest batch after decompression; None for the decoder's default.
    """

    def __init__(
        self, threads: int, *, name: str = "", check_crcs: bool = True, max_decompressed_bytes: int | None = None
    ) -> None:
        self.size = threads
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # written in C: an interrupt leaves no lock taken
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-decode-{number}", daemon=True) for number in range(threads)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_config(cls, threads: int, name: str, config: ConsumerConfig) -> Self:
        """A pool as the properties specify."""
        return cls(
            threads, name=name, check_crcs=config.check_crcs, max_decompressed_bytes=config.decompressed_max_bytes
        )

    def put(self, job: Job) -> None:
        """Let a thread decode it, unless the reader takes it before."""
        self._jobs.put(job)

    def close(self) -> None:
        """End the threads, each after the chunk that it is decoding; does not wait for them. Idempotent."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the threads have ended, for so many seconds each; False if one has not."""
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        decoder: BatchDecoder | None = None
        while True:
            try:
                job = self._jobs.get(timeout=None if decoder is None else _IDLE_S)
            except Empty:
                decoder = None
                continue
            if job is None:
                return
            if job.take(_POOL):
                decoder = self._decode(job, decoder)
            del job  # it refers to the chunk's bytes

    def _decode(self, job: Job, decoder: BatchDecoder | None) -> BatchDecoder | None:
        """Decode the chunk of a job. What fails is left to the reader, which meets the same failure and raises it."""
        try:
            if decoder is None:
                from zkconsumer.decode.batchdecoder import BatchDecoder

                decoder = BatchDecoder(
                    check_crcs=self._check_crcs, headers=True, max_decompressed_bytes=self._max_decompressed_bytes
                )
            if job.chunk.scanned is not None:
                decode_in_place(decoder, job.queue, job.chunk, job.chunk.scanned)
        except Exception as error:  # noqa: BLE001  a failure of this thread must not leave the reader waiting
            decoder = None
            _log.debug("%s was not decoded ahead: %r; its stream decodes it", job.chunk.info.partition, error)
        finally:
            job.finished = True
            job.done.set()
        return decoder


class DecodeAhead:
    """What is decoded ahead of one queue. The reader's thread uses it.

    Args:
        queue: where the chunks wait.
        pool: decodes them. At most as many chunks as it has threads are decoded ahead, those of paused partitions not
            counted; the queue counts them as decoded.
    """

    def __init__(self, queue: ChunkQueue, pool: DecodePool) -> None:
        self._queue = queue
        self._pool = pool
        self._done = WakeUp()
        self._jobs: dict[int, Job] = {}

    def offer(self) -> None:
        """Give the pool what it should decode now, and forget what has come of earlier jobs."""
        # A few more than are sought: chunks without records, and several of one partition, may be among them.
        line = self._queue.first_chunks(4 * self._pool.size + 1)
        here = {id(chunk.scanned) for chunk in line if chunk.scanned is not None}
        # A job that was not begun is taken first: when the chunk is met again there must not be two for it.
        self._jobs = {
            key: job for key, job in self._jobs.items() if key in here or not (job.finished or job.take(_READER))
        }
        for chunk in to_decode_ahead(line, self._pool.size):
            key = id(chunk.scanned)
            if chunk.scanned is None or chunk.prepared is not None or key in self._jobs:
                continue
            job = Job(self._queue, chunk, self._done)
            self._jobs[key] = job
            self._pool.put(job)

    def is_free(self, chunk: Chunk) -> bool:
        """True if the reader may decode a chunk; the pool does not, and will not."""
        job = self._jobs.get(id(chunk.scanned))
        return job is None or job.take(_READER) or job.finished

    def another(self) -> Chunk | None:
        """A chunk that was offered and not begun: it is the reader's now."""
        for job in self._jobs.values():
            if job.take(_READER) and self._queue.holds(job.chunk):
                return job.chunk
        return None

    def wait(self, chunk: Chunk) -> None:
        """Wait until the pool has finished with a chunk that is not free."""
        while not self.is_free(chunk):
            self._done.wait()
