"""DecodeAhead: which chunks of a queue are decoded before they are requested, and the pool that decodes them.

The reader's thread chooses the chunks and offers them. One thread decodes an offered chunk: the first thread of the
pool that takes the job, or the reader's if it reaches the chunk before. The result replaces the chunk in the queue, if
it is still there. So the queue alone decides about order, positions, pauses and rebalances.

An interrupt of the reader's thread may come at any point. So a job is recorded before it is given to the pool, and
taking it is one step, with the same result when repeated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from zkconsumer.decode.decodersettings import DEFAULT_SETTINGS, DecoderSettings
from zkconsumer.fetch.chunks import Chunk, QueuedPartition
from zkconsumer.process.threads import start_thread
from zkconsumer.process.wakeup import WakeUp
from zkconsumer.wire.rules.fetchanswers import UNDECODABLE

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import BatchDecoder, ScannedChunk
    from zkconsumer.fetch.chunkqueue import ChunkQueue

_log = logging.getLogger(__name__)

_MOST_THREADS: Final = 4
"""Threads of a pool if the setting does not specify it: more cost memory for buffers, and are seldom busy."""
_FEW_CPUS: Final = 2
"""With so few CPUs none is free for a pool: fetcher and reader use one each."""
_IDLE_S: Final = 1.0
"""After this time without a job a thread of the pool frees its buffers."""
_READER: Final = "reader"
_POOL: Final = "pool"


def threads_for(setting: int, cpus: int, streams: int) -> int:
    """Threads that decode ahead, for all streams of a consumer together.

    Args:
        setting: ``decode.threads``; negative: chosen here.
        cpus: number of CPUs that the process may use.
        streams: number of streams of the consumer; each has a thread that decodes.
    """
    if setting >= 0:
        return setting
    return 0 if cpus <= _FEW_CPUS else max(0, min(_MOST_THREADS, cpus - 1 - streams))


def to_decode_ahead(line: Iterable[Chunk], most: int) -> list[Chunk]:
    """The chunks after the front one that should be decoded now or are decoded already; at most ``most``.

    They are the first of their partitions, in the order in which they will be requested. The reader itself decodes the
    front chunk. If that is decoded, it will be handed out, so the next chunk of its partition counts as the first.

    Args:
        line: the chunks that wait and are not paused. It is read only as far as needed.
        most: maximum number of chunks.
    """
    chunks: list[Chunk] = []
    passed: set[QueuedPartition] = set()
    for place, chunk in enumerate(line):
        if len(chunks) == most:
            break
        if place == 0:
            if chunk.scanned is not None:
                passed.add(chunk.info)
        elif chunk.has_records and chunk.info not in passed:
            passed.add(chunk.info)
            chunks.append(chunk)
    return chunks


def decode_in_place(decoder: BatchDecoder, queue: ChunkQueue, chunk: Chunk, scanned: ScannedChunk) -> None:
    """Decode a chunk of a queue, and put the result in its place if it is still there.

    CorruptRecord and RecordTooLarge concern the data: then the chunk is sent back. Any other exception leaves the chunk
    in its place, at the stage that it had reached, and is raised.
    """
    try:
        prepared = chunk.prepared
        if prepared is None:
            prepared = decoder.prepare(scanned)
            before, chunk = chunk, chunk._replace(prepared=prepared)
            if not queue.replace(before, [chunk]):
                return
        decoded, undecoded = decoder.complete(prepared).parts()
    except UNDECODABLE as error:
        queue.send_back(chunk, error)
        return
    parts = [Chunk(chunk.info, records, next_offset, nbytes) for records, next_offset, nbytes, _ in decoded]
    parts[0] = parts[0]._replace(fetched_bytes=chunk.fetched_bytes)
    if undecoded is not None:
        parts.append(chunk._replace(scanned=undecoded, prepared=None, fetched_bytes=0))
    queue.replace(chunk, parts)
    decoder.recycle(prepared)


class Job:
    """One chunk that may be decoded ahead. Exactly one side takes it.

    Args:
        queue: holds the chunk.
        chunk: as it was when the job was made.
        done: raised when the pool has finished it.

    Attributes:
        finished: True once the thread of the pool that took the job does not touch the chunk any more. Written by it.
    """

    def __init__(self, queue: ChunkQueue, chunk: Chunk, done: WakeUp) -> None:
        self.queue = queue
        self.chunk = chunk
        self.finished = False
        self.done = done
        self._taken: dict[str, str] = {}

    def take(self, by: str) -> bool:
        """Take the job for one side; True if that side has it. One step, idempotent."""
        return self._taken.setdefault("by", by) is by


class DecodePool:
    """Threads that decode chunks ahead. The streams of a consumer share one pool; each thread has its own decoder.

    Args:
        threads: number of threads; at least 1.
        name: name of the consumer, part of the threads' names.
        settings: of their decoders.
    """

    def __init__(self, threads: int, settings: DecoderSettings = DEFAULT_SETTINGS, *, name: str = "") -> None:
        self.size = threads
        self._settings = settings
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # written in C: an interrupt leaves no lock taken
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-decode-{number}", daemon=True) for number in range(threads)
        ]
        try:
            for thread in self._threads:
                start_thread(thread)
        except BaseException:
            self.close()
            raise

    def put(self, job: Job) -> None:
        """Let a thread of the pool decode the job's chunk, unless the reader takes the job first."""
        self._jobs.put(job)

    def close(self) -> None:
        """End the threads, each after its current chunk, without waiting for them. Idempotent."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the threads to end, at most ``timeout`` seconds for each; False if one has not ended."""
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
        """Decode the chunk of a job. A failure is left to the reader, which meets it too and raises it."""
        try:
            if decoder is None:
                from zkconsumer.decode.batchdecoder import BatchDecoder

                decoder = BatchDecoder(self._settings, headers=True)
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
    """Chooses the chunks of one queue that the pool decodes ahead. Only the reader's thread uses it.

    Args:
        queue: holds the chunks.
        pool: decodes the chunks. At most one chunk per thread of the pool is decoded ahead, not counting paused
            partitions; the queue counts these chunks with their decoded size.
        done: raised when the pool has finished a chunk; None makes one.
        with_front: True if the pool decodes the front chunk, too, since the reader's thread must not.
    """

    def __init__(
        self, queue: ChunkQueue, pool: DecodePool, *, done: WakeUp | None = None, with_front: bool = False
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._done = done or WakeUp()
        self._with_front = with_front
        self._jobs: dict[int, Job] = {}

    def offer(self) -> None:
        """Give the pool the chunks to decode now, and forget finished jobs."""
        # A few more than needed: chunks without records, and several of one partition, may be among them.
        line = self._queue.first_chunks(4 * self._pool.size + 1)
        here = {id(chunk.scanned) for chunk in line if chunk.scanned is not None}
        # A job that was not begun is taken first: otherwise there would be two jobs for a chunk that is offered again.
        self._jobs = {
            key: job for key, job in self._jobs.items() if key in here or not (job.finished or job.take(_READER))
        }
        front = [chunk for chunk in line[:1] if self._with_front and chunk.has_records]
        for chunk in [*front, *to_decode_ahead(line, self._pool.size)]:
            key = id(chunk.scanned)
            if chunk.scanned is None or chunk.prepared is not None or key in self._jobs:
                continue
            job = Job(self._queue, chunk, self._done)
            self._jobs[key] = job
            self._pool.put(job)

    def is_free(self, chunk: Chunk) -> bool:
        """True if the reader may decode a chunk: no thread of the pool decodes it, now or later."""
        job = self._jobs.get(id(chunk.scanned))
        return job is None or job.take(_READER) or job.finished

    def was_left(self, chunk: Chunk) -> bool:
        """True if the pool has failed to decode a chunk that was offered, so that the reader has to."""
        job = self._jobs.get(id(chunk.scanned))
        return job is None or job.finished

    def another(self) -> Chunk | None:
        """Take back an offered chunk that the pool has not begun, for the reader to decode; None if there is none."""
        for job in self._jobs.values():
            if job.take(_READER) and self._queue.holds(job.chunk):
                return job.chunk
        return None

    def wait(self, chunk: Chunk) -> None:
        """Wait until the pool has finished with a chunk that is not free."""
        while not self.is_free(chunk):
            self._done.wait()
