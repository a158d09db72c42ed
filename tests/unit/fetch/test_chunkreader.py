"""ChunkReader: chunks are decoded in place, whatever happens to the queue meanwhile."""

import threading

import pytest

from tests.fixtures.batches import build, spoil
from tests.fixtures.chunks import decode_pool, fetched, make_chunk, make_fetched_chunk, make_info, make_queue, take
from zkconsumer.decode import batchdecoder
from zkconsumer.fetch.chunkqueue import END
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.handedout import HandOver
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox.producer import Record

BROKEN = {"attributes": 3}
"""Marked as compressed by lz4, with a right checksum: another fetch does not repair it."""


@pytest.fixture
def queue():
    return make_queue(max_chunks=10)


@pytest.fixture
def info(queue):
    return make_info(queue)


@pytest.fixture(params=[0, 3], ids=["alone", "pool"])
def reader(queue, request):
    """Alone as with two CPUs, or with a pool as elsewhere (``decode.threads``)."""
    if request.param == 0:
        yield ChunkReader(queue)
        return
    with decode_pool(request.param) as pool:
        yield ChunkReader(queue, pool=pool)


def offsets(chunk):
    return chunk.batch.column("offset").to_pylist()


def test_a_taken_chunk_is_decoded(queue, info, reader):
    queue.put(make_fetched_chunk(info, 5, 3, gap=2))
    chunk = take(reader, queue)
    assert offsets(chunk) == [5, 6, 7]
    assert (chunk.next_offset, chunk.scanned) == (10, None)
    assert take(reader, queue) is None


def test_many_records_of_a_long_topic_are_handed_out_in_several_chunks(queue, reader):
    info = make_info(queue, topic="t" * 249)
    data = build([Record(b"v")] * 70_000, last_delta=70_009)
    queue.put(fetched(info, 0, data))
    queue.put(make_fetched_chunk(info, 70_010, 2))
    chunks = []
    while (chunk := take(reader, queue)) is not None:
        chunks.append(chunk)
    assert len(chunks) > 2
    assert [offset for chunk in chunks for offset in offsets(chunk)] == [*range(70_000), 70_010, 70_011]
    assert chunks[0].next_offset == offsets(chunks[1])[0]
    assert [chunk.next_offset for chunk in chunks[-2:]] == [70_010, 70_012]
    fetched_bytes = [chunk.fetched_bytes for chunk in chunks]
    assert fetched_bytes[0] == len(data)
    assert not any(fetched_bytes[1:-1])


def test_looking_takes_nothing(queue, info, reader):
    queue.put(make_fetched_chunk(info, 0, 2))
    assert offsets(reader.look(0)) == offsets(reader.look(0)) == [0, 1]
    assert len(queue) == 1
    assert offsets(take(reader, queue)) == [0, 1]
    queue.close()
    assert take(reader, queue) is END


def test_a_chunk_counts_with_its_current_size(queue, info, reader):
    chunk = make_fetched_chunk(info, 0, 1000)
    queue.put(chunk)
    before = queue.room.allowance()
    assert before == (1 << 20) - len(chunk.scanned.records)
    nbytes = reader.look(0).nbytes
    assert queue.room.allowance() == (1 << 20) - nbytes
    take(reader, queue)
    assert queue.room.allowance() == 1 << 20


def test_a_chunk_that_turns_out_to_have_no_records_moves_the_position():
    """The remaining records of the batch are before the requested offset: compaction removed the rest."""
    queue = make_queue(max_chunks=1)
    info, reader, heard = make_info(queue), ChunkReader(queue), []
    queue.put(fetched(info, 5, build([Record(b"v")], offset=0, last_delta=9)))
    assert queue.room.wait(lambda: heard.append(queue.room.to_fetch([info])), [info])
    assert take(reader, queue) is None
    assert info.position(handed_out=False) == 10
    assert heard == [[info]]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_chunk_that_is_too_long_for_one_batch_comes_in_several(queue, info, reader, monkeypatch, codec):
    monkeypatch.setattr(batchdecoder, "CHUNK_LIMITS", batchdecoder.ChunkLimits(records=3))
    data = b"".join(build([Record(b"%d" % start)] * 2, offset=start, codec=codec) for start in (0, 2, 4))
    queue.put(fetched(info, 0, data))
    taken = [take(reader, queue) for _ in range(3)]
    assert [(offsets(chunk), chunk.next_offset) for chunk in taken] == [([0, 1], 2), ([2, 3], 4), ([4, 5], 6)]
    assert [chunk.batch.column("value").to_pylist() for chunk in taken] == [[b"0"] * 2, [b"2"] * 2, [b"4"] * 2]
    assert sum(chunk.fetched_bytes for chunk in taken) == len(data)


@pytest.mark.parametrize(
    "bad", [build([Record(b"v" * 50)], offset=1, **BROKEN), spoil(build([Record(b"v")], offset=1))]
)
def test_a_damaged_chunk_goes_back_and_later_ones_are_not_handed_out(bad):
    queue = make_queue(max_chunks=1)
    reader, heard = ChunkReader(queue), []
    info, other, good = make_info(queue), make_info(queue, 1), build([Record(b"v")])
    queue.put(fetched(info, 0, good + bad))
    queue.put(make_fetched_chunk(info, 2, 1))
    queue.put(make_fetched_chunk(other, 0, 1))
    assert queue.room.wait(lambda: heard.append(queue.take_damage(info)), [info])
    assert offsets(take(reader, queue)) == [0]
    assert not any(heard)
    assert take(reader, queue).info is other, "the other partition continues"
    (damage,) = filter(None, heard)
    assert damage.offset == 1
    assert "t-0 at offset 1 " in str(damage.error)
    assert queue.take_damage(info) is None
    assert take(reader, queue) is None
    queue.put(make_fetched_chunk(info, 1, 1))
    assert offsets(take(reader, queue)) == [1]


def test_a_damaged_partition_is_refused_until_a_fetcher_takes_the_damage(queue, info, reader):
    other = make_info(queue, 1)
    queue.put(fetched(info, 0, spoil(build([Record(b"v")]))))
    assert take(reader, queue) is None
    assert not queue.put(make_fetched_chunk(info, 1, 1)), "a later chunk would skip it"
    assert queue.put(make_fetched_chunk(other, 0, 1))
    assert info.position(handed_out=True) == 0
    queue.release_all()
    assert queue.take_damage(info) is None
    assert queue.put(make_chunk(make_info(queue, generation=2), 0, 1)), "the next owner tries again"


def test_a_chunk_being_handed_out_stays_if_the_next_is_damaged(queue, info, reader):
    """The rest of a batch is put back while the reader decodes the next chunk: it is before the damage."""
    queue.put(make_fetched_chunk(info, 0, 3))
    queue.put(fetched(info, 3, spoil(build([Record(b"v")], offset=3))))
    handed = HandOver(reader.request(0), [0, 1, 2], [0, 1, 2])
    assert queue.begin(handed)
    next(handed.claims)
    assert reader.look(0) is None
    queue.withhold()
    assert offsets(take(reader, queue)) == [1, 2]
    assert queue.take_damage(info).offset == 3


@pytest.mark.parametrize("stage", ["prepare", "complete"])
def test_a_rebalance_while_a_chunk_is_decoded_drops_it(queue, info, reader, monkeypatch, stage):
    queue.put(make_fetched_chunk(info, 0, 2))
    during(monkeypatch, stage, queue.release_all)
    assert take(reader, queue) is None
    assert queue.room.allowance() == 1 << 20


@pytest.mark.parametrize(("stage", "broken"), [("prepare", False), ("complete", False), ("prepare", True)])
def test_a_pause_while_a_chunk_is_decoded_keeps_it(queue, info, reader, monkeypatch, stage, broken):
    queue.put(fetched(info, 0, build([Record(b"v" * 50)], **(BROKEN if broken else {}))))
    during(monkeypatch, stage, lambda: queue.pause(TopicPartition("t", 0)))
    if broken:
        assert take(reader, queue) is None
        assert queue.take_damage(info).offset == 0
        queue.resume(TopicPartition("t", 0))
        assert take(reader, queue) is None
        return
    assert take(reader, queue) is None
    assert queue.room.allowance() == 1 << 20, "paused chunks are not counted"
    queue.resume(TopicPartition("t", 0))
    assert offsets(take(reader, queue)) == [0]


def test_other_chunks_are_decoded_while_one_is_half_decoded(queue, info, reader, monkeypatch):
    """An interrupt, then a pause: the kernel's output for the paused chunk must not be overwritten meanwhile."""
    other = make_info(queue, 1)
    queue.put(make_fetched_chunk(info, 0, 3))
    queue.put(make_fetched_chunk(other, 10, 5))
    during(monkeypatch, "complete", interrupt, after=True)
    with pytest.raises(KeyboardInterrupt):
        reader.request(0)
    queue.pause(info.partition)
    assert offsets(take(reader, queue)) == [10, 11, 12, 13, 14]
    queue.resume(info.partition)
    batch = take(reader, queue).batch
    assert batch.column("key").to_pylist() == [b"k"] * 3
    assert batch.column("value").to_pylist() == [b"%d.........." % offset for offset in range(3)]
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}]] * 3


def test_an_exception_other_than_damage_reaches_the_caller(queue, info, reader, monkeypatch):
    def out_of_time():
        raise TimeoutError

    queue.put(make_fetched_chunk(info, 0, 3))
    for stage, after in (("prepare", False), ("prepare", True), ("complete", False), ("complete", True)):
        during(monkeypatch, stage, out_of_time, after=after)
        with pytest.raises(TimeoutError):
            reader.request(0)
    assert queue.take_damage(info) is None
    assert offsets(take(reader, queue)) == [0, 1, 2]


def test_after_an_interrupt_damaged_chunks_are_removed(queue, info, reader, monkeypatch):
    queue.put(fetched(info, 0, spoil(build([Record(b"v")]))))
    queue.put(make_fetched_chunk(info, 1, 1))
    with monkeypatch.context() as patches:
        patches.setattr(queue._waiting, "drop_from", lambda _: interrupt())
        with pytest.raises(KeyboardInterrupt):
            reader.request(0)
    assert queue.take_damage(info).offset == 0
    queue.put(make_fetched_chunk(info, 0, 2))
    assert offsets(take(reader, queue)) == [0, 1]
    assert reader.request(0) is None


def interrupt():
    raise KeyboardInterrupt


def during(monkeypatch, stage, act, *, after=False):
    """Call ``act`` once, at the beginning or the end of a stage of decoding, on this thread.

    An interrupt never comes to a thread of the pool, which may reach the stage of another chunk first.
    """
    original = getattr(batchdecoder.BatchDecoder, stage)
    here = threading.current_thread()

    def acting(self, chunk):
        if threading.current_thread() is not here:
            return original(self, chunk)
        monkeypatch.setattr(batchdecoder.BatchDecoder, stage, original)
        if not after:
            act()
        result = original(self, chunk)
        if after:
            act()
        return result

    monkeypatch.setattr(batchdecoder.BatchDecoder, stage, acting)
