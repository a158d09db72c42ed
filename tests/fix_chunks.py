"""Chunks of real record batches for the tests of queues and streams."""

from tests.fix_batches import build
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.decode import Decoder
from zkconsumer.fetch.partition_info import PartitionInfo
from zkconsumer.fetch.queues import ChunkQueue
from zkconsumer.kafka.producer import Record
from zkconsumer.model import ConsumerThreadId, TopicPartition

THREAD = ConsumerThreadId("g_c", 0)


def make_queue(generation=1, **settings):
    queue = ChunkQueue(**{"max_bytes": 1 << 20, "max_chunks": 2, **settings})
    queue.clear(generation)
    return queue


def make_info(queue, partition=0, generation=1, start=0, topic="t"):
    return PartitionInfo(TopicPartition(topic, partition), THREAD, generation, queue, start, 1 << 20)


def make_chunk(info, start, count, gap=0, size=10):
    """Records ``start`` to ``start + count - 1``; the offsets of ``gap`` more were removed by compaction."""
    records = [Record(b"%d" % (start + i) + b"." * size, b"k", 1000 + i, [("h", b"x")]) for i in range(count)]
    data = build(records, offset=start, last_delta=count + gap - 1)
    decoder = Decoder(headers=True)
    batch, next_offset, nbytes = decoder.decode(*info.partition, start, memoryview(data))
    return Chunk(info, batch, next_offset, nbytes)
