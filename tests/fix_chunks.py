"""Chunks of real record batches for the tests of queues and streams."""

from contextlib import contextmanager

from tests.fix_batches import build
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.fetch.ahead import DecodePool
from zkconsumer.fetch.chunks import Chunk, HandOver
from zkconsumer.fetch.partition_info import PartitionInfo
from zkconsumer.fetch.queues import ChunkQueue
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.sandbox.producer import Record

THREAD = ConsumerThreadId("g_c", 0)


def make_queue(**settings):
    return ChunkQueue(**{"max_bytes": 1 << 20, "max_chunks": 2, **settings})


def make_info(queue, partition=0, generation=1, start=0, topic="t"):
    info = PartitionInfo(TopicPartition(topic, partition), THREAD, generation, queue, start, 1 << 20)
    queue.admit([info])
    return info


def make_fetched_chunk(info, start, count, gap=0, size=10, **changes):
    """Records ``start`` to ``start + count - 1``, as a fetcher puts them; ``gap`` more were removed by compaction."""
    records = [Record(b"%d" % (start + i) + b"." * size, b"k", 1000 + i, [("h", b"x")]) for i in range(count)]
    return fetched(info, start, build(records, offset=start, last_delta=count + gap - 1, **changes))


def fetched(info, start, data):
    """What a fetcher makes of ``data``."""
    scanned = BatchDecoder().scan(*info.partition, start, memoryview(data))
    return Chunk(info, None, scanned.next_offset, len(data), len(data), scanned)


def make_chunk(info, start, count, gap=0, size=10):
    """The same as a reader decodes it."""
    scanned = make_fetched_chunk(info, start, count, gap, size).scanned
    batch, next_offset, nbytes, _ = BatchDecoder(headers=True).finish(scanned)
    return Chunk(info, batch, next_offset, nbytes)


def take(source, queue, timeout=0):
    """Hand out all of the next chunk of ``source``, a queue or its reader, as one item; what it gave otherwise."""
    chunk = source.request(timeout)
    if isinstance(chunk, Chunk):
        last = [chunk.next_offset - 1]
        handover = HandOver(chunk, last, last, chunk.batch.num_rows)
        assert queue.begin(handover)
        assert list(handover.claims) == last
    return chunk


def offsets(batch):
    return batch.column("offset").to_pylist()


@contextmanager
def decode_pool(threads):
    """Threads that decode ahead; they have ended afterwards."""
    pool = DecodePool(threads)
    try:
        yield pool
    finally:
        pool.close()
        assert pool.join(60)
