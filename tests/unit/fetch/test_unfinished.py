"""``commit.on=done``: what was handed out and is not done bounds the position, and how much more is handed out."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.chunks import make_fetched_chunk, make_info, make_queue
from tests.fixtures.fork import refused_in_forked_child
from zkconsumer.connector.stream import MessageStream
from zkconsumer.errors import ConsumerTimeout, UsageError
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.partitioninfo import PartitionInfo
from zkconsumer.model import Message, TopicPartition

LIMIT = 6


@pytest.fixture
def queue():
    return make_queue(max_chunks=100, max_unfinished=LIMIT)


@pytest.fixture
def info(queue):
    return make_info(queue)


@pytest.fixture
def stream(queue):
    return MessageStream(queue, name="g_c-0", kind=Message, timeout_ms=0)


def put(info, start, count, gap=0):
    info.queue.put(make_fetched_chunk(info, start, count, gap))


def take(stream, count):
    return [stream.next_message() for _ in range(count)]


def finish(stream, items):
    for item in items:
        stream.done(item)


def continued(info, **changes):
    """The partition after a rebalance in which it stayed."""
    start = info.position(handed_out=True)
    newer = PartitionInfo(info.partition, info.thread, info.generation + 1, info.queue, start, 1 << 20)
    newer.unfinished = info.unfinished
    info.queue.release_all()
    info.queue.admit([newer])
    return newer


def lost_and_regained(info, start):
    info.queue.release_all()
    info.queue.discard([info])
    return make_info(info.queue, generation=info.generation + 1, start=start)


def test_the_lowest_unfinished_offset_bounds_the_position(stream, info):
    put(info, 0, 5)
    messages = take(stream, 4)
    seen = [info.position(handed_out=False)]
    for number in (2, 0, 3, 1):
        stream.done(messages[number])
        seen.append(info.position(handed_out=False))
    assert seen == [0, 0, 1, 1, 4]
    assert info.position(handed_out=True) == 4


def test_requests_release_nothing(stream, info):
    put(info, 0, 2)
    put(info, 2, 2)
    messages = take(stream, 4)
    stream.release()
    assert stream.next_message() is None
    assert info.position(handed_out=False) == 0
    finish(stream, messages)
    assert info.position(handed_out=False) == 4


def test_gaps_and_control_records_are_covered_once_everything_is_done(stream, info):
    put(info, 0, 2, gap=3)
    messages = take(stream, 2)
    info.queue.put(Chunk(info, None, 9, 0))
    stream.done(messages[0])
    assert info.position(handed_out=False) == 1
    stream.done(messages[1])
    assert info.position(handed_out=False) == info.position(handed_out=True) == 5
    assert stream.next_message() is None
    assert info.position(handed_out=False) == 9


def test_control_records_are_passed_while_a_record_is_unfinished(stream, info):
    put(info, 3, 1)
    info.queue.put(Chunk(info, None, 9, 0))
    (message,) = take(stream, 1)
    assert stream.next_message() is None
    assert (info.position(handed_out=False), info.position(handed_out=True)) == (3, 9)
    stream.done(message)
    assert info.position(handed_out=False) == 9


def test_batches_are_done_as_a_whole(stream, info):
    put(info, 0, 3)
    put(info, 3, 2)
    first, second = (stream.next_batch() for _ in range(2))
    stream.done(second)
    assert info.position(handed_out=False) == 0
    stream.done(first)
    assert info.position(handed_out=False) == 5


def test_partitions_are_independent(stream, queue, info):
    other = make_info(queue, 1)
    put(info, 0, 1)
    put(other, 0, 1)
    messages = {message.partition: message for message in take(stream, 2)}
    stream.done(messages[1])
    assert (info.position(handed_out=False), other.position(handed_out=False)) == (0, 1)


def test_at_the_limit_a_partition_waits_until_half_is_done_and_others_continue(stream, queue, info):
    other = make_info(queue, 1)
    put(info, 0, 10)
    messages = take(stream, LIMIT)
    put(other, 0, 1)
    assert take(stream, 2)[0].partition == 1
    assert queue.room.to_fetch([info, other]) == [other]
    finish(stream, messages[:2])
    assert stream.next_message() is None
    stream.done(messages[2])
    assert stream.next_message().offset == LIMIT
    assert queue.room.to_fetch([info, other]) == [info, other]


def test_peek_respects_the_limit(stream, info):
    put(info, 0, 10)
    messages = take(stream, LIMIT)
    with pytest.raises(ConsumerTimeout):
        stream.peek()
    finish(stream, messages)
    assert stream.peek().offset == stream.next_message().offset == LIMIT


def test_a_batch_may_exceed_the_limit(stream, info):
    put(info, 0, 4)
    put(info, 4, 4)
    put(info, 8, 1)
    batches = [stream.next_batch() for _ in range(3)]
    assert [None if batch is None else batch.num_rows for batch in batches] == [4, 4, None]
    stream.done(batches[0])
    assert stream.next_batch() is None, "four are more than half of the limit"
    stream.done(batches[1])
    assert stream.next_batch().num_rows == 1


@pytest.mark.parametrize("limit", [1, 2])
def test_a_reader_that_waits_at_the_limit_is_woken(limit):
    queue = make_queue(max_chunks=100, max_unfinished=limit)
    info = make_info(queue)
    stream = MessageStream(queue, name="g_c-0", kind=Message)
    put(info, 0, 50)
    with ThreadPoolExecutor(2) as workers:
        for offset in range(50):
            message = stream.next_message(timeout=20)
            assert message.offset == offset
            workers.submit(stream.done, message)
    assert info.position(handed_out=False) == 50


def test_a_pause_of_the_user_outlasts_the_limit(stream, queue, info):
    put(info, 0, 10)
    messages = take(stream, LIMIT)
    assert stream.next_message() is None
    queue.pause(info.partition)
    finish(stream, messages)
    assert stream.next_message() is None
    queue.resume(info.partition)
    assert stream.next_message().offset == LIMIT


def test_the_limit_outlasts_a_pause_of_the_user(stream, queue, info):
    put(info, 0, 10)
    messages = take(stream, LIMIT)
    assert stream.next_message() is None
    queue.pause(info.partition)
    queue.resume(info.partition)
    assert stream.next_message() is None
    finish(stream, messages)
    assert stream.next_message().offset == LIMIT


def test_a_partition_that_stays_keeps_what_is_unfinished(stream, info):
    put(info, 0, 5)
    messages = take(stream, 3)
    newer = continued(info)
    assert (newer.position(handed_out=False), newer.position(handed_out=True)) == (0, 3)
    finish(stream, messages[:2])
    assert newer.position(handed_out=False) == 2
    put(newer, 3, 2)
    finish(stream, take(stream, 2))
    assert newer.position(handed_out=False) == 2
    stream.done(messages[2])
    assert newer.position(handed_out=False) == 5


def test_what_is_done_of_a_lost_partition_moves_nothing_when_it_comes_back(stream, info):
    put(info, 0, 5)
    late = take(stream, 3)
    newer = lost_and_regained(info, 0)
    put(newer, 0, 5)
    messages = take(stream, 2)
    finish(stream, late)
    assert (info.position(handed_out=False), newer.position(handed_out=False)) == (0, 0)
    finish(stream, messages)
    assert newer.position(handed_out=False) == 2


def test_what_is_taken_back_is_not_unfinished(stream, queue, info):
    put(info, 0, 5)
    (message,) = take(stream, 1)
    assert queue.count_unfinished(info) == 1
    queue.withhold()
    stream.done(message)
    assert info.position(handed_out=False) == 1
    assert queue.count_unfinished(info) == 0
    finish(stream, take(stream, 4))
    assert info.position(handed_out=False) == 5


def test_a_log_that_was_cut_off_forgets_what_it_lost(stream, info):
    put(info, 0, 6)
    messages = take(stream, 6)
    finish(stream, messages[:2])
    info.queue.put(Chunk(info, None, 4, 0))  # as after an unclean election
    put(info, 4, 1)
    (newer,) = take(stream, 1)
    assert (newer.offset, info.position(handed_out=False)) == (4, 2)
    finish(stream, messages[2:])
    assert info.position(handed_out=False) == 4, "offset 4 is another record now"
    stream.done(newer)
    assert info.position(handed_out=False) == 5


def test_an_item_may_be_declared_done_twice(stream, info):
    put(info, 0, 5)
    messages = take(stream, 3)
    finish(stream, [messages[0], messages[0]])
    assert info.position(handed_out=False) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda message: message._replace(), "copy"),
        (lambda message: message._replace(offset=77), "t-0 offset 77 was not handed out"),
        (lambda message: message._replace(topic="other"), "other-0 offset 0 was not handed out"),
        (tuple, "not a tuple"),
        (lambda message: message.value, "not a bytes"),
        (lambda _: None, "not a NoneType"),
    ],
)
def test_what_the_stream_has_not_handed_out_cannot_be_done(stream, info, change, reason):
    put(info, 0, 3)
    (message,) = take(stream, 1)
    with pytest.raises(UsageError, match=reason):
        stream.done(change(message))
    assert info.position(handed_out=False) == 0


def test_a_part_of_a_batch_cannot_be_done(stream, info):
    put(info, 0, 3)
    batch = stream.next_batch()
    for part in (batch.slice(1, 1), batch.slice(0)):
        with pytest.raises(UsageError, match="part"):
            stream.done(part)


def test_a_peeked_record_cannot_be_done(stream, info):
    put(info, 0, 3)
    with pytest.raises(UsageError, match="was not handed out"):
        stream.done(stream.peek())


def test_without_commit_on_done_the_error_names_the_property():
    queue = make_queue()
    stream = MessageStream(queue, name="g_c-0", kind=Message, timeout_ms=0)
    put(make_info(queue), 0, 1)
    with pytest.raises(UsageError, match=r"g_c-0.*commit\.on=done"):
        stream.done(stream.next_message())


def test_a_forked_child_cannot_finish(stream, info):
    put(info, 0, 1)
    message = stream.next_message()
    assert refused_in_forked_child(lambda: stream.done(message), "stream g_c-0")


def test_many_threads_finish_while_positions_are_read(info):
    queue = make_queue(max_chunks=100, max_unfinished=1000)
    info = make_info(queue)
    stream = MessageStream(queue, name="g_c-0", kind=Message, timeout_ms=0)
    put(info, 0, 1000)
    messages, over, positions = take(stream, 1000), threading.Event(), [0]

    def look():
        while not over.is_set():
            positions.append(info.position(handed_out=False))

    looking = threading.Thread(target=look)
    looking.start()
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(stream.done, messages))
    over.set()
    looking.join()
    assert positions == sorted(positions)
    assert info.position(handed_out=False) == 1000
    assert queue.count_unfinished(info) == 0
    assert TopicPartition("t", 0) == info.partition
