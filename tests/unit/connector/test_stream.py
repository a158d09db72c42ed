import threading
import time

import pytest

from tests.fix_chunks import make_chunk, make_info, make_queue
from zkconsumer.connector.stream import MessageStream
from zkconsumer.errors import ConsumerTimeout, RebalanceFailed, UsageError
from zkconsumer.fetch.queues import Chunk
from zkconsumer.fetch.schema import SCHEMA, SCHEMA_WITH_HEADERS
from zkconsumer.model import Message

QUICK_MS = 30


@pytest.fixture
def queue():
    return make_queue(max_chunks=10)


@pytest.fixture
def info(queue):
    return make_info(queue)


@pytest.fixture
def stream(queue):
    return MessageStream(queue, name="g_c-0", timeout_ms=QUICK_MS)


def offsets(stream, count):
    return [next(stream).offset for _ in range(count)]


def test_records_come_with_all_their_fields(stream, queue, info):
    queue.put(make_chunk(info, 5, 2, size=0))
    assert next(stream) == Message("t", 0, 5, 1000, 0, b"k", b"5", (("h", b"x"),))
    assert next(stream).value == b"6"


def test_a_for_loop_goes_through_all_chunks_and_ends_at_shutdown(stream, queue, info):
    for start in (0, 10, 20):
        queue.put(make_chunk(info, start, 10))
    threading.Timer(0.02, stream.close).start()
    assert [m.offset for m in stream] == list(range(30))
    assert list(stream) == []
    with pytest.raises(StopIteration):
        next(stream)


def test_a_timeout_leaves_the_same_iterator_usable(stream, queue, info):
    iterator = iter(stream)
    for start in (0, 1, 2):
        with pytest.raises(ConsumerTimeout, match="g_c-0"):
            next(iterator)
        queue.put(make_chunk(info, start, 1))
        assert next(iterator).offset == start


def test_without_a_timeout_the_stream_waits(queue, info):
    stream = MessageStream(queue, name="g_c-0")
    threading.Timer(0.1, queue.put, [make_chunk(info, 0, 1)]).start()
    assert next(stream).offset == 0


def test_the_cause_is_raised_when_the_connector_failed(stream, queue, info):
    queue.put(make_chunk(info, 0, 1))
    queue.fail(RebalanceFailed("g", "g_c", ["no"]))
    assert next(stream).offset == 0
    for _ in range(2):
        with pytest.raises(RebalanceFailed):
            next(stream)


def test_positions_of_records(stream, queue, info):
    queue.put(make_chunk(info, 0, 2, gap=3))
    queue.put(make_chunk(info, 5, 2))

    def both():
        return info.position(handed_out=True), info.position(handed_out=False)

    seen = [both()]
    for _ in range(4):
        next(stream)
        seen.append(both())
    assert seen == [(0, 0), (1, 0), (2, 1), (6, 5), (7, 6)]
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert both() == (7, 7)


def test_positions_of_batches(stream, queue, info):
    queue.put(make_chunk(info, 0, 2, gap=3))
    queue.put(make_chunk(info, 5, 2))
    batches = stream.batches()
    assert next(batches).num_rows == 2
    assert (info.position(handed_out=True), info.position(handed_out=False)) == (5, 0)
    next(batches)
    assert (info.position(handed_out=True), info.position(handed_out=False)) == (7, 5)
    with pytest.raises(ConsumerTimeout):
        next(batches)
    assert info.position(handed_out=False) == 7


def test_batches_have_spark_s_columns_and_headers_if_asked_for(stream, queue, info):
    queue.put(make_chunk(info, 0, 2))
    queue.put(make_chunk(info, 2, 2))
    assert next(stream.batches()).schema.equals(SCHEMA)
    assert next(stream.batches(headers=True)).schema.equals(SCHEMA_WITH_HEADERS)


def test_records_and_batches_can_be_mixed(stream, queue, info):
    queue.put(make_chunk(info, 0, 5))
    queue.put(make_chunk(info, 5, 5))
    assert offsets(stream, 2) == [0, 1]
    batches = stream.batches()
    assert next(batches).column("offset").to_pylist() == [2, 3, 4]
    assert info.position(handed_out=True) == 5
    assert offsets(stream, 1) == [5]
    assert info.position(handed_out=False) == 5
    assert next(batches).column("offset").to_pylist() == [6, 7, 8, 9]
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert info.position(handed_out=False) == 10


def test_after_a_rebalance_nothing_of_the_old_chunk_is_delivered(stream, queue, info):
    queue.put(make_chunk(info, 0, 5))
    assert offsets(stream, 2) == [0, 1]
    queue.clear(2)
    assert info.position(handed_out=True) == 2
    newer = make_info(queue, generation=2, start=1)
    queue.put(make_chunk(newer, 1, 2))
    assert offsets(stream, 2) == [1, 2]
    assert newer.position(handed_out=True) == 3
    assert info.position(handed_out=True) == 2


def test_what_is_withheld_is_delivered_once_the_lease_is_back():
    lease = threading.Event()
    lease.set()
    queue = make_queue(may_deliver=lease.is_set)
    info = make_info(queue)
    stream = MessageStream(queue, name="g_c-0", timeout_ms=QUICK_MS)
    queue.put(make_chunk(info, 0, 5))
    assert offsets(stream, 2) == [0, 1]
    lease.clear()
    queue.withhold()
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert info.position(handed_out=False) == 2
    lease.set()
    assert offsets(stream, 3) == [2, 3, 4]
    assert info.position(handed_out=True) == 5


def test_chunks_without_records_move_the_position_while_the_user_waits(stream, queue, info):
    queue.put(Chunk(info, None, 9, 0))
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert info.position(handed_out=False) == 9


def test_a_second_thread_is_told_so(stream, queue, info):
    queue.put(make_chunk(info, 0, 1))
    next(stream)
    caught = []

    def intrude():
        for use in (lambda: iter(stream), stream.batches, lambda: next(stream)):
            try:
                use()
            except UsageError as error:
                caught.append(str(error))

    other = threading.Thread(target=intrude, name="intruder")
    other.start()
    other.join()
    assert len(caught) == 3
    assert "MainThread" in caught[0]
    assert "intruder" in caught[0]


def test_a_stream_passes_to_another_thread_when_the_first_has_ended(stream, queue, info):
    queue.put(make_chunk(info, 0, 2))
    first = threading.Thread(target=next, args=(stream,))
    first.start()
    first.join()
    assert next(stream).offset == 1


def test_a_waiting_stream_is_woken_by_shutdown(queue):
    stream = MessageStream(queue, name="g_c-0")
    threading.Timer(0.05, stream.close).start()
    began = time.monotonic()
    assert list(stream) == []
    assert time.monotonic() - began < 2
