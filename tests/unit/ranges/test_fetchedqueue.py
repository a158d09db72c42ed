import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.batches import build, spoil
from zkconsumer.decode.batchdecoder import BatchDecoder, ChunkLimits
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.fetchedqueue import Fetched, FetchedQueue
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.sandbox.producer import Record

LONG_S = 30.0
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_items_keep_their_order_and_an_empty_queue_gives_none():
    queue = FetchedQueue(100)
    assert queue.get(0) is None
    assert queue.put("a", 50)
    assert queue.put("b", 50)
    assert [queue.get(0), queue.get(0), queue.get(0)] == ["a", "b", None]


def test_an_item_larger_than_the_bound_is_admitted_alone():
    queue = FetchedQueue(100)
    assert queue.put("large", 1000)
    with ThreadPoolExecutor(1) as fetcher:
        second = fetcher.submit(queue.put, "next", 1)
        assert queue.get(LONG_S) == "large"
        assert second.result(LONG_S)
    assert queue.get(LONG_S) == "next"


def test_a_full_queue_makes_the_fetcher_wait_until_the_task_ends():
    queue = FetchedQueue(100)
    assert queue.put("a", 100)
    begun = threading.Event()

    def put() -> bool:
        begun.set()
        return queue.put("b", 1)

    with ThreadPoolExecutor(1) as fetcher:
        waiting = fetcher.submit(put)
        assert begun.wait(LONG_S)
        assert not waiting.done()
        queue.close()
        assert waiting.result(LONG_S) is False


def test_damage_is_returned_after_valid_records_and_ignored_after_the_range(decoder):
    batches = [build([Record(b"v")] * 10, offset=start) for start in (0, 10, 20)]

    def fetched(until):
        data = batches[0] + spoil(batches[1]) + batches[2]
        return Fetched(T0, decoder.scan("t", 0, 0, memoryview(data)), until)

    came = fetched(30).records(decoder)
    assert next(came).offsets.tolist() == list(range(10))
    with pytest.raises(StopIteration) as ended:
        next(came)
    assert ended.value.value.left == Span(10, 30)
    assert re.search(r"t-0 at offset 10 .*checksum", str(ended.value.value.error))
    assert [batch.num_rows for batch in fetched(10).records(decoder)] == [10]


def test_a_chunk_too_long_for_one_batch_comes_in_several():
    decoder = BatchDecoder(limits=ChunkLimits(records=3))
    data = b"".join(build([Record(b"v")] * 2, offset=start) for start in range(0, 10, 2))
    batches = Fetched(T0, decoder.scan("t", 0, 0, memoryview(data)), 5).records(decoder)
    assert [batch.offsets.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]


def test_many_records_of_a_long_topic_come_in_several_batches(decoder):
    data = build([Record(b"v")] * 80_000)
    batches = list(Fetched(T0, decoder.scan("t" * 249, 0, 0, memoryview(data)), 70_000).records(decoder))
    assert len(batches) > 1
    assert [offset for batch in batches for offset in batch.offsets] == list(range(70_000))
