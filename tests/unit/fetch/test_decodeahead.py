"""Decoding ahead: which chunks, on which thread, and the queue's rules for chunks that the pool decodes."""

import threading

import pytest

from tests.fixtures.batches import build, spoil
from tests.fixtures.chunks import decode_pool, fetched, make_chunk, make_fetched_chunk, make_info, make_queue, take
from tests.fixtures.waiting import eventually
from zkconsumer.decode import batchdecoder
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.decodeahead import DecodePool, Job, threads_for, to_decode_ahead
from zkconsumer.model import TopicPartition
from zkconsumer.process.wakeup import WakeUp
from zkconsumer.sandbox.producer import Record


@pytest.mark.parametrize(
    ("setting", "cpus", "streams", "threads"),
    [
        (-1, 1, 1, 0),
        (-1, 2, 1, 0),
        (-1, 3, 1, 1),
        (-1, 16, 1, 4),
        (-1, 16, 14, 1),
        (-1, 4, 8, 0),
        (0, 16, 1, 0),
        (3, 2, 9, 3),
    ],
)
def test_the_number_of_threads_depends_on_free_cpus(setting, cpus, streams, threads):
    assert threads_for(setting, cpus, streams) == threads


@pytest.fixture
def queue():
    return make_queue(max_chunks=10)


@pytest.fixture
def infos(queue):
    return [make_info(queue, number) for number in range(4)]


def offsets(chunk):
    return chunk.batch.column("offset").to_pylist()


def test_first_chunks_of_partitions_after_the_front_are_decoded(infos):
    a, b, c, _ = infos
    line = [make_fetched_chunk(info, start, 1) for info, start in ((a, 0), (a, 1), (b, 0), (b, 1), (c, 0))]
    assert to_decode_ahead(line, 4) == [line[2], line[4]]
    assert to_decode_ahead(line, 1) == [line[2]]
    assert to_decode_ahead(line, 0) == to_decode_ahead([], 4) == []


def test_after_a_decoded_front_its_partition_is_decoded_ahead_too(infos):
    a, b, *_ = infos
    line = [make_chunk(a, 0, 1), make_fetched_chunk(a, 1, 1), make_fetched_chunk(b, 0, 1), make_fetched_chunk(a, 2, 1)]
    assert to_decode_ahead(line, 4) == [line[1], line[2]]


def test_chunks_that_are_decoded_count_and_markers_do_not(infos):
    a, b, c, d = infos
    line = [make_fetched_chunk(a, 0, 1), Chunk(b, None, 5, 0), make_chunk(c, 0, 1), make_fetched_chunk(d, 0, 1)]
    assert to_decode_ahead(line, 1) == [line[2]]
    assert to_decode_ahead(line, 2) == line[2:]


def test_one_side_takes_a_job_and_taking_is_idempotent(queue, infos):
    job = Job(queue, make_fetched_chunk(infos[0], 0, 1), WakeUp())
    assert [job.take(by) for by in ("pool", "reader", "pool", "reader")] == [True, False, True, False]


def test_all_records_come_in_order_with_a_pool(queue, infos):
    for start in range(0, 60, 3):
        for info in infos:
            queue.put(make_fetched_chunk(info, start, 3))
    with decode_pool(3) as pool:
        reader = ChunkReader(queue, pool=pool)
        taken = [take(reader, queue) for _ in range(80)]
        assert take(reader, queue) is None
    assert [chunk.info for chunk in taken] == infos * 20
    for info in infos:
        assert [at for chunk in taken if chunk.info is info for at in offsets(chunk)] == list(range(60))
    assert queue.room.allowance() == 1 << 20


class Held:
    """A pool whose one thread waits in ``prepare`` or ``complete`` of the chunk that it decodes, until :meth:`go`."""

    def __init__(self, pool, monkeypatch, stage):
        self.pool, self._entered, self._go = pool, threading.Event(), threading.Event()
        original = getattr(batchdecoder.BatchDecoder, stage)

        def waiting(decoder, chunk):
            if threading.current_thread() is not threading.main_thread():
                self._entered.set()
                assert self._go.wait(60)
            return original(decoder, chunk)

        monkeypatch.setattr(batchdecoder.BatchDecoder, stage, waiting)

    def wait_until_decoding(self):
        assert self._entered.wait(60)

    def go(self):
        self._go.set()


@pytest.fixture(params=["prepare", "complete"])
def held(request, monkeypatch):
    with decode_pool(1) as pool:
        held = Held(pool, monkeypatch, request.param)
        yield held
        held.go()


def begin(held, queue, chunks):
    """Take the first chunk; the pool has begun the next one."""
    for chunk in chunks:
        queue.put(chunk)
    reader = ChunkReader(queue, pool=held.pool)
    assert offsets(take(reader, queue)) == [0]
    held.wait_until_decoding()
    return reader


def test_a_rebalance_drops_chunks_being_decoded_ahead(held, queue, infos):
    reader = begin(held, queue, [make_fetched_chunk(info, 0, 1) for info in infos])
    queue.release_all()
    info = make_info(queue, 1, generation=2)
    queue.put(make_fetched_chunk(info, 7, 2))
    assert offsets(take(reader, queue)) == [7, 8], "the reader does not wait for a dropped chunk"
    held.go()
    held.pool.close()
    assert held.pool.join(60)
    assert take(reader, queue) is None
    assert queue.room.allowance() == 1 << 20


def test_a_chunk_paused_while_decoded_ahead_comes_afterwards(held, queue, infos):
    reader = begin(held, queue, [make_fetched_chunk(info, 0, 1) for info in infos])
    queue.pause(TopicPartition("t", 1))
    assert [take(reader, queue).info for _ in range(2)] == infos[2:]
    held.go()
    queue.resume(TopicPartition("t", 1))
    chunk = take(reader, queue)
    assert (chunk.info, offsets(chunk)) == (infos[1], [0])


def test_a_reader_that_waits_for_the_pool_decodes_the_next_chunk(held, queue, infos):
    reader = begin(held, queue, [make_fetched_chunk(info, 0, 1) for info in infos])
    threading.Thread(target=lambda: (until_decoded(queue, infos[2]), held.go())).start()
    assert [take(reader, queue).info for _ in range(3)] == infos[1:]


def until_decoded(queue, info):
    eventually(lambda: any(chunk.info is info and chunk.batch is not None for chunk in queue.first_chunks(9)))


@pytest.mark.parametrize("first", [1, 2])
def test_damage_found_ahead_goes_back_and_others_continue(queue, infos, first):
    """In the next partition, or in that of the chunk being handed out."""
    bad = infos[1] if first == 1 else infos[0]
    queue.put(make_fetched_chunk(infos[0], 0, 1))
    queue.put(fetched(bad, 1, spoil(build([Record(b"v")], offset=1))))
    queue.put(make_fetched_chunk(bad, 2, 1))
    queue.put(make_fetched_chunk(infos[2], 0, 1))
    with decode_pool(2) as pool:
        reader = ChunkReader(queue, pool=pool)
        assert [take(reader, queue).info for _ in range(2)] == [infos[0], infos[2]]
        assert take(reader, queue) is None
    assert queue.take_damage(bad).offset == 1


def test_a_failure_ahead_is_raised_when_the_stream_reaches_it(queue, infos, monkeypatch):
    def fail(_decoder, _chunk):
        raise MemoryError

    for info in infos:
        queue.put(make_fetched_chunk(info, 0, 1))
    with decode_pool(2) as pool:
        reader = ChunkReader(queue, pool=pool)
        with monkeypatch.context() as patches:
            patches.setattr(batchdecoder.BatchDecoder, "prepare", fail)
            for _ in range(3):
                with pytest.raises(MemoryError):
                    reader.request(0)
        assert [take(reader, queue).info for _ in infos] == infos


def test_a_closed_pool_leaves_the_chunks_to_the_reader(queue, infos):
    pool = DecodePool(2)
    pool.close()
    assert pool.join(60)
    for info in infos:
        queue.put(make_fetched_chunk(info, 0, 1))
    reader = ChunkReader(queue, pool=pool)
    assert [take(reader, queue).info for _ in infos] == infos
