import signal
import threading
from contextlib import suppress
from io import UnsupportedOperation

import pytest

from tests.fixtures.chunks import make_fetched_chunk, make_info, make_queue
from tests.fixtures.fork import refused_in_forked_child
from zkconsumer.connector.decoder import decoded_message
from zkconsumer.connector.stream import MessageStream
from zkconsumer.decode.schema import SCHEMA, SCHEMA_WITH_HEADERS
from zkconsumer.errors import ConsumerClosed, ConsumerTimeout, RebalanceFailed, UsageError, WokenUp
from zkconsumer.fetch.chunks import Chunk
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
    return MessageStream(queue, name="g_c-0", kind=Message, timeout_ms=QUICK_MS)


def offsets(stream, count):
    return [next(stream).offset for _ in range(count)]


def test_records_come_with_all_their_fields(stream, queue, info):
    queue.put(make_fetched_chunk(info, 5, 2, size=0))
    assert next(stream) == Message("t", 0, 5, 1000, 0, b"k", b"5", (("h", b"x"),))
    assert next(stream).value == b"6"


def test_a_for_loop_reads_all_chunks_and_ends_at_shutdown(queue, info):
    stream = MessageStream(queue, name="g_c-0", kind=Message)
    for start in (0, 10, 20):
        queue.put(make_fetched_chunk(info, start, 10))
    seen = []
    for message in stream:
        seen.append(message.offset)
        if len(seen) == 30:
            threading.Timer(0, stream.close).start()
    assert seen == list(range(30))
    assert list(stream) == []
    with pytest.raises(StopIteration):
        next(stream)


def test_a_stream_continues_after_the_record_at_which_the_application_raised(stream, queue, info):
    """That record counts as handed out, and is not released before the next request."""
    for start in (0, 10):
        queue.put(make_fetched_chunk(info, start, 10))
    seen, released = [], []
    while len(seen) < 20:
        with suppress(ZeroDivisionError):
            for message in stream:
                seen.append(message.offset)
                if message.offset % 3 == 0:
                    released.append(info.position(handed_out=False))
                    raise ZeroDivisionError
                if len(seen) == 20:
                    break
    assert seen == [*range(20)]
    assert released == [0, 3, 6, 9, 12, 15, 18]


def test_a_timeout_leaves_the_same_iterator_usable(stream, queue, info):
    iterator = iter(stream)
    for start in (0, 1, 2):
        with pytest.raises(ConsumerTimeout, match="g_c-0"):
            next(iterator)
        queue.put(make_fetched_chunk(info, start, 1))
        assert next(iterator).offset == start


def test_without_a_timeout_the_stream_waits(queue, info):
    stream = MessageStream(queue, name="g_c-0", kind=Message)
    threading.Timer(0.1, queue.put, [make_fetched_chunk(info, 0, 1)]).start()
    assert next(stream).offset == 0


def test_the_cause_is_raised_when_the_connector_failed(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 1))
    queue.faults.fail(info, RebalanceFailed("g", "g_c", ("no",)))
    assert next(stream).offset == 0
    for _ in range(2):
        with pytest.raises(RebalanceFailed):
            next(stream)


def test_positions_of_records(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 2, gap=3))
    queue.put(make_fetched_chunk(info, 5, 2))

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
    queue.put(make_fetched_chunk(info, 0, 2, gap=3))
    queue.put(make_fetched_chunk(info, 5, 2))
    batches = stream.batches()
    assert next(batches).num_rows == 2
    assert (info.position(handed_out=True), info.position(handed_out=False)) == (5, 0)
    next(batches)
    assert (info.position(handed_out=True), info.position(handed_out=False)) == (7, 5)
    with pytest.raises(ConsumerTimeout):
        next(batches)
    assert info.position(handed_out=False) == 7


def test_batches_have_spark_s_columns_and_headers_if_asked_for(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 2))
    queue.put(make_fetched_chunk(info, 2, 2))
    assert next(stream.batches()).schema.equals(SCHEMA)
    assert next(stream.batches(headers=True)).schema.equals(SCHEMA_WITH_HEADERS)


def test_records_and_batches_can_be_mixed(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 5))
    queue.put(make_fetched_chunk(info, 5, 5))
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
    queue.put(make_fetched_chunk(info, 0, 5))
    assert offsets(stream, 2) == [0, 1]
    queue.release_all()
    assert info.position(handed_out=True) == 2
    newer = make_info(queue, generation=2, start=1)
    queue.put(make_fetched_chunk(newer, 1, 2))
    assert offsets(stream, 2) == [1, 2]
    assert newer.position(handed_out=True) == 3
    assert info.position(handed_out=True) == 2


def test_what_is_withheld_is_delivered_once_the_lease_is_back():
    lease = threading.Event()
    lease.set()
    queue = make_queue(may_deliver=lease.is_set)
    info = make_info(queue)
    stream = MessageStream(queue, name="g_c-0", kind=Message, timeout_ms=QUICK_MS)
    queue.put(make_fetched_chunk(info, 0, 5))
    assert offsets(stream, 2) == [0, 1]
    lease.clear()
    queue.withhold()
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert info.position(handed_out=False) == 2
    lease.set()
    queue.deliver()
    assert offsets(stream, 3) == [2, 3, 4]
    assert info.position(handed_out=True) == 5


def test_chunks_without_records_move_the_position_while_the_user_waits(stream, queue, info):
    queue.put(Chunk(info, None, 9, 0))
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert info.position(handed_out=False) == 9


def test_a_second_thread_gets_a_clear_error(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 1))
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


def test_another_thread_may_read_once_the_first_has_ended(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 2))
    first = threading.Thread(target=next, args=(stream,))
    first.start()
    first.join()
    assert next(stream).offset == 1


def test_a_waiting_stream_is_woken_by_shutdown(queue):
    stream = MessageStream(queue, name="g_c-0", kind=Message)
    threading.Timer(0.05, stream.close).start()
    assert list(stream) == []


def sizes(batches):
    """Rows of each batch until nothing comes."""
    rows = []
    try:
        for batch in batches:
            rows.append(batch.num_rows)
    except ConsumerTimeout:
        return rows


@pytest.mark.parametrize("request_one", ["next_message", "next_batch"])
def test_a_wakeup_ends_one_wait(queue, info, request_one):
    stream = MessageStream(queue, name="g_c-0", kind=Message)
    threading.Timer(0.05, queue.wake).start()
    assert getattr(stream, request_one)() is None
    assert getattr(stream, request_one)(timeout=0.01) is None
    queue.put(make_fetched_chunk(info, 0, 2))
    assert getattr(stream, request_one)() is not None


def test_a_wakeup_of_a_stream_that_does_not_wait_counts_once_and_skips_nothing(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 3))
    assert next(stream).offset == 0
    queue.wake()
    queue.wake()
    queue.put(make_fetched_chunk(info, 3, 3))
    assert offsets(stream, 2) == [1, 2]  # were prepared
    with pytest.raises(WokenUp, match="iterate again"):
        next(stream)
    assert offsets(stream, 3) == [3, 4, 5]
    queue.wake()
    with pytest.raises(WokenUp):
        stream.peek()
    with pytest.raises(ConsumerTimeout) as raised:
        next(stream)
    assert type(raised.value) is ConsumerTimeout


def test_a_signal_handler_may_wake_the_thread_that_it_interrupts(queue):
    stream = MessageStream(queue, name="g_c-0", kind=Message)
    main = threading.get_ident()
    former = signal.signal(signal.SIGUSR2, lambda *_: queue.wake())
    try:
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR2)).start()
        assert stream.next_message(timeout=30) is None
        with queue._lock:  # as if it had interrupted a method of the queue
            signal.pthread_kill(main, signal.SIGUSR2)
        assert stream.next_message(timeout=30) is None
    finally:
        signal.signal(signal.SIGUSR2, former)


def test_limits_cut_batches_and_lose_nothing(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 5, size=19))  # each with key, value and header 1 + 20 + 2 bytes long
    assert sizes(stream.batches(max_bytes=2 * 23)) == [2, 2, 1]
    queue.put(make_fetched_chunk(info, 5, 5, size=19))
    assert sizes(stream.batches(max_bytes=2 * 23, max_rows=1)) == [1] * 5
    queue.put(make_fetched_chunk(info, 10, 5, size=18))
    assert sizes(stream.batches(max_bytes=3 * 23 - 1, max_rows=4)) == [2, 2, 1]
    queue.put(make_fetched_chunk(info, 15, 2, gap=3))
    assert sizes(stream.batches(max_bytes=1)) == [1, 1]
    assert info.position(handed_out=False) == 20


@pytest.mark.parametrize("limits", [{"max_rows": 0}, {"max_bytes": 0}, {"max_rows": 5, "max_bytes": -1}])
def test_limits_that_no_batch_can_keep_are_refused(stream, limits):
    with pytest.raises(UsageError, match="at least 1"):
        stream.batches(**limits)


def test_peek_shows_what_comes_next_and_moves_nothing(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 3, gap=2))
    queue.put(make_fetched_chunk(info, 5, 2))

    def both():
        return info.position(handed_out=True), info.position(handed_out=False)

    assert stream.peek().offset == 0
    assert both() == (0, 0)
    seen = []
    for _ in range(5):
        peeked = stream.peek()
        before = both()
        assert stream.peek() == peeked
        assert both() == before
        assert next(stream) == peeked
        seen.append((peeked.offset, *both()))
    assert seen == [(0, 1, 0), (1, 2, 1), (2, 3, 2), (5, 6, 5), (6, 7, 6)]
    with pytest.raises(ConsumerTimeout):
        stream.peek()
    assert both() == (7, 6)  # peeking releases nothing


@pytest.mark.parametrize("begun", [False, True])
def test_what_peek_shows_cannot_be_done(begun):
    """It is not handed out: a commit would cover it before it is processed."""
    queue = make_queue(max_unfinished=10)
    info = make_info(queue)
    queue.put(make_fetched_chunk(info, 0, 3))
    stream = MessageStream(queue, name="g_c-0", kind=Message, timeout_ms=10)
    if begun:
        stream.done(next(stream))
    with pytest.raises(UsageError):
        stream.done(stream.peek())
    assert next(stream).offset == begun
    assert info.position(handed_out=False) == begun


def test_peek_skips_chunks_without_records_and_keeps_the_position(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 1))
    next(stream)
    queue.put(Chunk(info, None, 9, 0))
    with pytest.raises(ConsumerTimeout):
        stream.peek()
    queue.put(make_fetched_chunk(info, 9, 1))
    assert stream.peek().offset == 9
    assert (info.position(handed_out=True), info.position(handed_out=False)) == (1, 0)
    assert next(stream).offset == 9


def test_peek_ends_and_fails_as_next_does(stream, queue, info):
    queue.put(Chunk(info, None, 9, 0))
    queue.faults.fail(info, RebalanceFailed("g", "g_c", ("no",)))
    with pytest.raises(RebalanceFailed):
        stream.peek()
    queue.release_all()
    stream.close()
    with pytest.raises(StopIteration):
        stream.peek()


def test_a_batch_begins_with_what_was_peeked(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 3))
    assert next(stream).offset == 0
    assert stream.peek().offset == 1
    assert next(stream.batches()).column("offset").to_pylist() == [1, 2]


@pytest.mark.parametrize("begun", [0, 1])
def test_a_peeked_record_is_not_delivered_after_a_rebalance(stream, queue, info, begun):
    queue.put(make_fetched_chunk(info, 0, 5))
    offsets(stream, begun)
    assert stream.peek().offset == begun
    queue.release_all()
    newer = make_info(queue, generation=2, start=40, partition=7)
    queue.put(make_fetched_chunk(newer, 40, 2))
    assert stream.peek().offset == 40
    assert offsets(stream, 2) == [40, 41]
    assert info.position(handed_out=True) == begun


def test_peek_waits_for_the_next_record(queue, info):
    stream = MessageStream(queue, name="g_c-0", kind=Message)
    threading.Timer(0.05, queue.put, [make_fetched_chunk(info, 3, 1)]).start()
    assert stream.peek().offset == 3


def both_partitions(queue):
    return make_info(queue, 0), make_info(queue, 1)


def test_a_paused_partition_continues_where_it_was(stream, queue):
    info, other = both_partitions(queue)
    queue.put(make_fetched_chunk(info, 0, 4))
    queue.put(make_fetched_chunk(other, 0, 2))
    queue.put(make_fetched_chunk(info, 4, 2))
    assert offsets(stream, 2) == [0, 1]
    assert stream.peek().offset == 2
    queue.pause(info.partition)
    queue.put(make_fetched_chunk(info, 6, 1))  # was on its way
    assert stream.peek().partition == 1
    assert {next(stream).partition for _ in range(2)} == {1}
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert info.position(handed_out=True) == info.position(handed_out=False) == 2
    assert other.position(handed_out=True) == 2
    queue.resume(info.partition)
    assert offsets(stream, 5) == [2, 3, 4, 5, 6]


def test_pausing_between_taking_and_handing_out_a_batch(queue, info, monkeypatch):
    stream = MessageStream(queue, name="g_c-0", kind=Message, timeout_ms=QUICK_MS)
    queue.put(make_fetched_chunk(info, 0, 4))
    begin = queue.begin

    def pause_and_begin(handover):
        queue.pause(info.partition)
        return begin(handover)

    monkeypatch.setattr(queue, "begin", pause_and_begin)
    assert stream.next_batch(max_rows=3) is None
    assert info.position(handed_out=True) == 0
    monkeypatch.undo()
    queue.resume(info.partition)
    assert offsets(stream, 4) == [0, 1, 2, 3]


def test_the_next_message_or_none(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 2))
    assert [stream.next_message().offset, stream.next_message(timeout=0).offset] == [0, 1]
    waiting = MessageStream(queue, name="g_c-1", kind=Message)
    assert waiting.next_message(timeout=0.01) is None
    assert waiting.next_batch(timeout=0) is None
    queue.put(make_fetched_chunk(info, 2, 3))
    assert waiting.next_message(timeout=0).offset == 2
    assert "headers" not in waiting.next_batch(max_rows=1, headers=False).schema.names
    assert waiting.next_batch().column("offset").to_pylist() == [4]
    with pytest.raises(UsageError, match="must be at least 1"):
        waiting.next_batch(max_rows=0)


def test_a_timeout_is_that_of_one_request(stream, queue):
    """The others wait as ``consumer.timeout.ms`` says."""
    assert stream.next_message(timeout=0) is None
    with pytest.raises(ConsumerTimeout, match=f"within {QUICK_MS / 1000} s"):
        next(stream)
    assert stream.next_batch(timeout=0) is None
    with pytest.raises(ConsumerTimeout, match=f"within {QUICK_MS / 1000} s"):
        stream.peek()


def test_after_the_shutdown_there_is_no_next_message(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 1))
    assert stream.next_message().offset == 0
    stream.close()
    for request in (stream.next_message, stream.next_batch, lambda: stream.next_message(timeout=0)):
        with pytest.raises(ConsumerClosed, match="stream g_c-0 has ended: its connector was shut down"):
            request()


def test_peek_after_a_batch_that_was_cut_shows_its_rest(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 4))
    queue.put(make_fetched_chunk(info, 4, 1))
    assert stream.next_batch(max_rows=3).num_rows == 3
    assert stream.peek().offset == 3
    assert (info.position(handed_out=True), info.position(handed_out=False)) == (3, 0)
    assert stream.next_batch().column("offset").to_pylist() == [3]


def test_a_stream_with_decoders_decodes_when_asked(queue, info):
    asked = []

    def decode(data):
        asked.append(data)
        return int(data.rstrip(b"."))

    stream = MessageStream(queue, name="g_c-0", kind=decoded_message(bytes.decode, decode), timeout_ms=QUICK_MS)
    queue.put(make_fetched_chunk(info, 5, 2))
    message = next(stream)
    assert (message.key, message.topic, message.offset, message.headers) == ("k", "t", 5, (("h", b"x"),))
    assert not asked
    assert (message.value, message.value) == (5, 5)
    assert asked == [message[6]] * 2
    assert stream.peek().value == 6


def test_a_failing_decoder_does_not_break_the_stream(queue, info):
    """ConsumerIteratorTest.testConsumerIteratorDecodingFailure."""

    def fail(data):
        raise UnsupportedOperation(data)

    stream = MessageStream(queue, name="g_c-0", kind=decoded_message(fail, None), timeout_ms=QUICK_MS)
    queue.put(make_fetched_chunk(info, 0, 5))
    for expected in range(5):
        message = next(stream)
        with pytest.raises(UnsupportedOperation):
            message.key  # noqa: B018 - it is a call
        assert message.offset == expected
        assert info.position(handed_out=True) == expected + 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_cannot_read_its_parents_stream(stream, queue, info):
    queue.put(make_fetched_chunk(info, 0, 10))
    begun, batches = iter(stream), stream.batches()
    assert next(begun).offset == 0
    requests = [lambda: next(begun), lambda: next(stream), lambda: next(batches), lambda: iter(stream)]
    for request in (*requests, stream.peek, stream.next_batch, stream.release):
        assert refused_in_forked_child(request, "stream g_c-0")
    assert offsets(begun, 9) == list(range(1, 10))
