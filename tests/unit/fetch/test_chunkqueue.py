import functools
import sys
import threading
import time

import pytest

from tests.fixtures.chunks import make_chunk, make_fetched_chunk, make_info, make_queue, offsets
from tests.fixtures.chunks import take as take_from
from tests.fixtures.waiting import eventually
from zkconsumer.errors import AuthenticationFailed, CorruptRecord
from zkconsumer.fetch.chunkqueue import END, ChunkQueue
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.handedout import HandOver


@pytest.fixture
def queue():
    return make_queue()


@pytest.fixture
def info(queue):
    return make_info(queue)


def take(queue, timeout=0):
    return take_from(queue, queue, timeout)


def hand_over(queue):
    """Begin to hand out the next chunk record by record."""
    chunk = queue.request(0)
    handover = HandOver(chunk, offsets(chunk.batch), offsets(chunk.batch))
    assert queue.begin(handover)
    return handover


def claim(handover):
    return next(handover.claims)


def is_full(queue, info):
    return queue.room.to_fetch([info]) == []


def test_chunks_keep_their_order(queue, info):
    other = make_info(queue, 1)
    chunks = [make_chunk(info, 0, 3), make_chunk(other, 0, 1), make_chunk(info, 3, 2)]
    for chunk in chunks:
        assert queue.put(chunk)
    assert len(queue) == 3
    assert [take(queue) for _ in range(4)] == [*chunks, None]


def test_a_partition_is_full_at_its_number_of_chunks_and_others_are_not(queue, info):
    other = make_info(queue, 1)
    queue.put(make_chunk(info, 0, 1))
    assert not is_full(queue, info)
    queue.put(make_chunk(info, 1, 1))
    assert is_full(queue, info)
    assert not is_full(queue, other)
    take(queue)
    assert not is_full(queue, info)


def test_no_partition_is_fetched_until_half_of_the_chunks_are_taken(queue):
    infos = [make_info(queue, number) for number in range(3)]
    for offset in range(2):
        for info in infos:
            queue.put(make_chunk(info, offset, 1))
    wanted = []
    while take(queue) is not None:
        wanted.append(queue.room.to_fetch(infos))
    assert wanted == [[], [], infos, infos, infos, infos]


def test_a_busy_partition_does_not_prevent_fetching_idle_ones(queue):
    busy, *quiet = (make_info(queue, number) for number in range(3))
    queue.put(make_chunk(busy, 0, 1))
    queue.put(make_chunk(busy, 1, 1))
    assert queue.room.to_fetch([busy, *quiet]) == quiet


def test_nothing_is_fetched_until_half_of_the_bytes_are_taken():
    one = make_chunk(make_info(make_queue()), 0, 1).nbytes
    queue = make_queue(max_bytes=4 * one)
    infos = [make_info(queue, number) for number in range(4)]
    for info in infos[:3]:
        assert queue.room.to_fetch(infos) == infos
        queue.put(make_chunk(info, 0, 1))
    assert queue.room.to_fetch(infos) == []
    take(queue)
    assert queue.room.to_fetch(infos) == infos


def test_a_chunk_that_is_coming_counts(queue):
    one, two = infos = [make_info(queue, number) for number in range(2)]
    queue.put(make_chunk(one, 0, 1))
    assert queue.room.to_fetch(infos, coming=two, coming_bytes=10) == infos
    assert queue.room.to_fetch(infos, coming=one, coming_bytes=10) == [two]
    assert queue.room.to_fetch(infos, coming=two, coming_bytes=1 << 20) == []
    queue.put(make_chunk(one, 1, 1))
    assert queue.room.to_fetch(infos, coming=two, coming_bytes=10) == []


def test_all_are_full_at_the_number_of_bytes_and_a_large_chunk_fits_into_an_empty_queue():
    queue = make_queue(max_bytes=1000)
    info, other = make_info(queue), make_info(queue, 1)
    assert queue.room.allowance() == 1000
    assert queue.put(make_chunk(info, 0, 100))
    assert queue.room.allowance() == 0
    assert is_full(queue, info)
    assert is_full(queue, other)
    take(queue)
    assert queue.room.allowance() == 1000
    assert not is_full(queue, info)


def test_chunks_of_released_partitions_are_refused(queue, info):
    assert queue.put(make_chunk(info, 0, 1))
    queue.release_all()
    assert not queue.put(make_chunk(info, 1, 1))
    again = make_info(queue, generation=2)
    assert not queue.put(make_chunk(info, 1, 1)), "the partition was assigned again, but with another object"
    assert queue.put(make_chunk(again, 1, 1))
    assert len(queue) == 1


def test_releasing_one_partition_leaves_the_others_alone(queue, info):
    other = make_info(queue, 1)
    for one in (info, other):
        queue.put(make_chunk(one, 0, 2))
    handover = hand_over(queue)
    claim(handover)
    assert handover.chunk.info is info
    queue.release([info])
    with pytest.raises(StopIteration):
        claim(handover)
    assert not queue.put(make_chunk(info, 2, 1))
    assert info.position(handed_out=True) == 1
    assert take(queue).info is other
    assert info.position(handed_out=False) == 1, "the request released the records handed out before"
    assert queue.put(make_chunk(other, 2, 1))
    assert take(queue) is not None


def test_a_record_of_another_partition_being_handed_out_stays(queue, info):
    other = make_info(queue, 1)
    queue.put(make_chunk(info, 0, 2))
    handover = hand_over(queue)
    claim(handover)
    queue.release([other])
    assert claim(handover) == 1


def test_a_released_partition_is_not_paused_when_acquired_again(queue, info):
    other = make_info(queue, 1)
    for one in (info, other):
        queue.pause(one.partition)
    queue.release([info])
    again = make_info(queue, generation=2)
    assert queue.put(make_chunk(again, 0, 1))
    assert queue.put(make_chunk(other, 0, 1))
    assert take(queue).info is again
    assert take(queue) is None, "the other is still paused"


def test_releasing_a_partition_forgets_its_errors(queue, info):
    other = make_info(queue, 1)
    queue.faults.fail(info, CorruptRecord("bad"))
    queue.faults.complain(info, AuthenticationFailed("no"))
    queue.faults.deny("t", info.partition, PermissionError("denied"), info)
    queue.release([info])
    assert take(queue) is None
    queue.faults.fail(info, CorruptRecord("late"))
    assert take(queue) is None, "it is not this stream's partition any more"
    queue.faults.fail(other, CorruptRecord("worse"))
    with pytest.raises(CorruptRecord, match="worse"):
        take(queue)


def test_a_release_makes_room_for_the_others():
    queue = make_queue(max_bytes=1000)
    info, other = make_info(queue), make_info(queue, 1)
    queue.put(make_chunk(info, 0, 100))
    woken = []
    queue.room.add(woken.clear)
    wake = functools.partial(woken.append, 1)
    queue.room.add(wake)
    assert queue.room.wait(wake, [other])
    queue.release([info])
    assert woken == [1]
    assert queue.room.to_fetch([other]) == [other]


def waiting_fetcher(queue, *infos):
    """Let a fetcher of these partitions wait; when called it adds those that it can fetch to the result."""
    heard = []
    assert queue.room.wait(lambda: heard.append(queue.room.to_fetch(infos)), infos)
    return heard


def test_a_fetcher_is_woken_when_its_partitions_have_room(queue, info):
    other = make_info(queue, 1)
    for offset in range(2):
        queue.put(make_chunk(other, offset, 1))
    for offset in range(2):
        queue.put(make_chunk(info, offset, 1))
    heard = waiting_fetcher(queue, info)
    take(queue)
    take(queue)
    assert not heard, "those were chunks of another fetcher"
    take(queue)
    assert heard == [[info]]


def test_fetchers_are_woken_when_half_of_the_bytes_are_taken():
    one = make_chunk(make_info(make_queue()), 0, 1).nbytes
    queue = make_queue(max_bytes=4 * one)
    infos = [make_info(queue, number) for number in range(6)]
    for info in infos[:4]:
        queue.put(make_chunk(info, 0, 1))
    heard = [waiting_fetcher(queue, info) for info in infos[3:]]
    take(queue)
    assert heard == [[], [], []]
    take(queue)
    assert heard == [[[info]] for info in infos[3:]]


def test_a_fetcher_does_not_wait_where_there_is_room(queue, info):
    heard = []
    assert not queue.room.wait(lambda: heard.append(1), [info])
    queue.put(make_chunk(info, 0, 1))
    take(queue)
    assert not heard


def test_a_fetcher_does_not_wait_where_a_partition_was_sent_back(queue, info):
    other = make_info(queue, 1)
    for one in (other, info):
        for offset in range(4):
            queue.put(make_fetched_chunk(one, offset, 1))
    heard = waiting_fetcher(queue, other, info)
    queue.send_back(queue.request(0), CorruptRecord("bad"))
    assert heard == [[]], "there is no room for the other"
    assert not queue.room.wait(lambda: None, [other, info])
    assert queue.take_damage(other).offset == 0


def test_a_fetcher_that_stopped_waiting_is_not_called(queue, info):
    heard = []
    for offset in range(2):
        queue.put(make_chunk(info, offset, 1))
    listener = heard.append
    queue.room.wait(listener, [info])
    queue.room.end_wait(listener)
    queue.room.end_wait(listener)
    take(queue)
    assert not heard


def test_after_an_interrupt_the_next_request_wakes_the_fetchers(queue, info):
    heard = []

    def interrupted():
        heard.append(1)
        if len(heard) == 1:
            raise KeyboardInterrupt

    for offset in range(2):
        queue.put(make_chunk(info, offset, 1))
    queue.room.wait(interrupted, [info])
    with pytest.raises(KeyboardInterrupt):
        take(queue)
    queue.request(0)
    assert heard == [1, 1]


def test_a_blocked_taker_gets_the_next_chunk(queue, info):
    chunk = make_chunk(info, 0, 1)
    timer = threading.Timer(0.05, queue.put, [chunk])
    timer.start()
    assert take(queue, 60) is chunk
    timer.join()


def test_a_request_ends_at_its_timeout(queue):
    began = time.monotonic()
    assert take(queue, 0.05) is None
    assert time.monotonic() - began > 0.04


def test_a_closed_queue_shows_what_waits(queue, info):
    """Whether it came before or after, no thread reads it: ``max.stream.idle.ms`` applies."""
    queue.close()
    queue.put(make_chunk(info, 0, 1))
    assert queue.reading().unread == {info.partition}
    queue.release([info])
    assert queue.reading().unread == set()


def test_closing_wakes_the_taker_which_gets_no_more(queue, info):
    timer = threading.Timer(0.05, queue.close)
    timer.start()
    assert take(queue, 60) is END
    timer.join()
    queue.put(make_chunk(info, 0, 1))
    assert take(queue) is END


def test_a_failure_is_raised_after_the_chunks_before_it_until_cleared(queue, info):
    chunk = make_chunk(info, 0, 1)
    queue.put(chunk)
    queue.faults.fail(info, CorruptRecord("bad"))
    queue.faults.fail(info, CorruptRecord("later"))
    assert take(queue) is chunk
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="bad"):
            take(queue)
    queue.release_all()
    assert take(queue) is None


def test_a_failure_wakes_the_taker(queue, info):
    timer = threading.Timer(0.05, queue.faults.fail, [info, CorruptRecord("bad")])
    timer.start()
    with pytest.raises(CorruptRecord):
        take(queue, 60)
    timer.join()


def test_a_complaint_is_raised_once_if_no_chunk_is_queued(queue, info):
    chunk = make_chunk(info, 0, 1)
    queue.put(chunk)
    queue.faults.complain(info, AuthenticationFailed("no"))
    assert take(queue) is chunk
    with pytest.raises(AuthenticationFailed, match="no"):
        take(queue)
    for ask, error in ((queue.request, AuthenticationFailed("no")), (queue.look, AuthenticationFailed("no"))):
        queue.faults.complain(info, error)
        queue.faults.complain(make_info(queue, 1), error)
        with pytest.raises(AuthenticationFailed, match="no"):
            ask(0)
        queue.faults.complain(make_info(queue, 2), error)
        assert take(queue) is None


def test_a_complaint_wakes_the_taker(queue, info):
    timer = threading.Timer(0.05, queue.faults.complain, [info, AuthenticationFailed("no")])
    timer.start()
    with pytest.raises(AuthenticationFailed):
        take(queue, 60)
    timer.join()


def test_a_complaint_is_forgotten_when_its_partition_arrives(queue, info):
    other = make_info(queue, 1)
    queue.faults.complain(info, AuthenticationFailed("no"))
    queue.put(make_chunk(info, 0, 1))
    queue.faults.complain(other, AuthenticationFailed("still"))
    queue.put(make_chunk(info, 1, 1))
    take(queue)
    take(queue)
    with pytest.raises(AuthenticationFailed, match="still"):
        take(queue)
    assert take(queue) is None


def test_complaints_end_with_the_release_and_with_the_stream(queue, info):
    queue.faults.complain(info, AuthenticationFailed("no"))
    queue.release_all()
    queue.faults.complain(info, AuthenticationFailed("no"))
    assert take(queue) is None
    queue.faults.complain(make_info(queue, generation=2), AuthenticationFailed("no"))
    queue.close()
    assert take(queue) is END


def test_chunks_without_records_only_move_the_position(queue, info):
    queue.put(Chunk(info, None, 7, 0))
    chunk = make_chunk(info, 7, 1)
    queue.put(chunk)
    assert info.position(handed_out=True) == 0
    assert queue.request(0) is chunk
    assert info.position(handed_out=True) == info.position(handed_out=False) == 7
    assert not is_full(queue, info)


@pytest.mark.parametrize("ask", [ChunkQueue.request, ChunkQueue.look])
def test_chunks_without_records_fill_a_queue_until_its_reader_asks(queue, info, ask):
    """A reader that stands still must not download aborted transactions without end; one that asks needs what follows.

    It may only look, while its user holds the record before them, which is not released.
    """
    woken = []
    for offset in (2, 4, 6):
        assert not is_full(queue, info)
        for number in range(2):
            queue.put(Chunk(info, None, offset - 1 + number, 0))
        assert is_full(queue, info)
        assert queue.room.wait(lambda: woken.append(True), [info])
        assert woken == []
        assert ask(queue, 0) is None
        assert woken
        woken.clear()
    assert info.position(handed_out=True) == (6 if ask is ChunkQueue.request else 0)


def test_positions_follow_the_user(queue, info):
    queue.put(make_chunk(info, 0, 3, gap=4))
    handover = hand_over(queue)
    seen = []
    for _ in range(4):
        seen.append((info.position(handed_out=True), info.position(handed_out=False)))
        try:
            claim(handover)
        except StopIteration:
            queue.request(0)
    seen.append((info.position(handed_out=True), info.position(handed_out=False)))
    assert seen == [(0, 0), (1, 0), (2, 1), (3, 2), (7, 7)]


def test_a_rebalance_takes_back_records_not_handed_out_yet(queue, info):
    queue.put(make_chunk(info, 0, 5))
    handover = hand_over(queue)
    claim(handover)
    claim(handover)
    queue.release_all()
    with pytest.raises(StopIteration):
        claim(handover)
    assert info.position(handed_out=True) == 2
    assert info.position(handed_out=False) == 1
    assert take(queue) is None
    assert info.position(handed_out=False) == 2


def test_a_chunk_that_was_taken_before_a_rebalance_cannot_be_handed_out_after_it(queue, info):
    queue.put(make_chunk(info, 0, 5))
    chunk = queue.request(0)
    queue.release_all()
    assert not queue.begin(HandOver(chunk, offsets(chunk.batch), offsets(chunk.batch)))
    assert info.position(handed_out=True) == 0


def test_withheld_records_are_handed_out_first(queue, info):
    queue.put(make_chunk(info, 0, 5))
    queue.put(make_chunk(make_info(queue, 1), 0, 5))
    handover = hand_over(queue)
    claim(handover)
    queue.withhold()
    queue.withhold()
    with pytest.raises(StopIteration):
        claim(handover)
    again = queue.request(0)
    assert again.info is info
    assert offsets(again.batch) == [1, 2, 3, 4]
    assert info.position(handed_out=True) == 1
    rest = hand_over(queue)
    for _ in range(4):
        claim(rest)
    assert info.position(handed_out=True) == 5
    queue.withhold()
    assert take(queue).info is not info
    assert info.position(handed_out=True) == 5


def test_nothing_is_delivered_without_a_lease():
    lease = threading.Event()
    queue = make_queue(may_deliver=lease.is_set)
    info = make_info(queue)
    chunk = make_chunk(info, 0, 5)
    queue.put(chunk)
    assert take(queue, 0.1) is None
    lease.set()
    assert queue.request(1) is chunk
    lease.clear()  # while the chunk was being converted
    assert not queue.begin(HandOver(chunk, offsets(chunk.batch), offsets(chunk.batch)))
    assert take(queue) is None
    lease.set()
    assert take(queue) is chunk


def test_a_reader_without_a_lease_waits_until_it_is_told_to_ask_again():
    lease, asked, received = threading.Event(), [], []

    def may_deliver():
        asked.append(lease.is_set())
        return lease.is_set()

    queue = make_queue(may_deliver=may_deliver)
    chunk = make_chunk(make_info(queue), 0, 5)
    queue.put(chunk)
    assert queue.request(0.2) is None
    assert len(asked) <= 4, "at the beginning, when the chunk has come, and at the end of the wait"
    asked.clear()
    reader = threading.Thread(target=lambda: received.append(queue.request(None)), daemon=True)
    reader.start()
    eventually(lambda: asked)
    lease.set()
    queue.deliver()
    reader.join(60)
    assert received == [chunk]


def test_a_reset_before_anything_was_fetched_moves_the_start(queue):
    info = make_info(queue, start=None)
    assert info.position(handed_out=True) is None
    assert not info.reset_to(40)
    assert info.position(handed_out=False) == info.fetched == 40
    assert not info.reset_to(50)
    assert info.position(handed_out=False) == 50


def test_a_later_reset_waits_for_queued_chunks(queue):
    info = make_info(queue, start=10)
    queue.put(make_chunk(info, 10, 5))
    info.fetched = 15
    assert info.reset_to(100)
    queue.put(Chunk(info, None, 100, 0))
    assert info.position(handed_out=True) == 10
    handover = hand_over(queue)
    for _ in range(5):
        claim(handover)
    assert info.position(handed_out=True) == 15
    assert take(queue) is None
    assert info.position(handed_out=True) == 100


@pytest.fixture
def frantic_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("how", ["clear", "withhold", "pause"])
@pytest.mark.usefixtures("frantic_switching")
def test_no_record_is_lost_or_counted_twice_when_user_and_rebalance_race(how):
    for attempt in range(150):
        queue = make_queue()
        info = make_info(queue)
        queue.put(make_chunk(info, 0, 400))
        handover = hand_over(queue)
        claimed = []
        go = threading.Event()

        def use(handover=handover, claimed=claimed, go=go):
            go.set()
            for offset in handover.claims:
                claimed.append(offset)  # one by one, so that the other thread comes in between

        user = threading.Thread(target=use)
        user.start()
        go.wait()
        for _ in range(attempt % 40):
            assert 0 <= info.position(handed_out=True) <= 400
        if how == "clear":
            queue.release_all()
        elif how == "pause":
            queue.pause(info.partition)
        else:
            queue.withhold()
        reported = info.position(handed_out=True)
        user.join()
        assert reported == len(claimed) == info.position(handed_out=True)
        assert claimed == list(range(len(claimed)))
        queue.resume(info.partition)
        if how != "clear" and len(claimed) < 400:
            assert offsets(take(queue).batch)[0] == len(claimed)


def test_a_reading_has_unread_partitions_and_changes_with_each_item(queue, info):
    other = make_info(queue, 1)
    assert queue.reading().unread == set()
    queue.put(make_chunk(info, 0, 2))
    queue.put(Chunk(other, None, 7, 0))
    first = queue.reading()
    assert first.unread == {info.partition}  # a chunk that only moves the position has no records to hand out
    handover = hand_over(queue)
    begun = queue.reading()
    assert begun.unread == {info.partition}
    claim(handover)
    one = queue.reading()
    assert one.unread == {info.partition}
    claim(handover)
    assert queue.reading().unread == set()
    queue.finish()
    assert len({first.progress, begun.progress, one.progress, queue.reading().progress}) == 4


def test_chunks_that_must_not_be_delivered_are_not_unread():
    queue = make_queue(may_deliver=lambda: False)
    queue.put(make_chunk(make_info(queue), 0, 2))
    assert queue.reading().unread == set()


def test_the_first_cause_of_an_end_is_kept(queue, info):
    queue.put(make_chunk(info, 0, 1))
    queue.close(CorruptRecord("first"))
    queue.close(CorruptRecord("second"))
    queue.release_all()
    queue.close()
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="first"):
            take(queue)


def test_totals_count_records_and_bytes_by_topic(queue, info):
    queue.put(make_chunk(info, 0, 3)._replace(fetched_bytes=70))
    queue.put(make_chunk(info, 3, 4)._replace(fetched_bytes=80))
    assert queue.totals() == ({}, {"t": 150})
    first = hand_over(queue)
    claim(first)
    assert queue.totals().messages == {"t": 1}
    claim(first)
    rest = queue.request(0)
    assert queue.totals().messages == {"t": 2}
    batch = HandOver(rest, [2], [2])
    assert queue.begin(batch)
    assert queue.totals().messages == {"t": 2}
    claim(batch)
    assert queue.totals().messages == {"t": 3}
    take(queue)
    assert queue.totals().messages == {"t": 7}
    queue.release_all()
    queue.finish()
    assert queue.totals() == ({"t": 7}, {"t": 150})


def test_a_paused_partition_is_not_to_be_fetched_and_takes_no_room():
    queue = make_queue(max_bytes=1000)
    info, other = make_info(queue), make_info(queue, 1)
    queue.put(make_chunk(info, 0, 100))
    assert is_full(queue, other)
    queue.pause(info.partition)
    queue.pause(info.partition)
    assert is_full(queue, info)
    assert not is_full(queue, other)
    assert (queue.room.allowance(), len(queue)) == (1000, 0)
    assert queue.put(make_chunk(info, 100, 100))
    assert not is_full(queue, other)
    queue.resume(info.partition)
    queue.resume(info.partition)
    assert (queue.room.allowance(), len(queue)) == (0, 2)
    assert [take(queue).next_offset for _ in range(2)] == [100, 200]
    assert not is_full(queue, info)


def test_resumed_chunks_come_after_the_others_in_their_order(queue, info):
    other = make_info(queue, 1)
    mine = [make_chunk(info, 0, 1), Chunk(info, None, 5, 0), make_chunk(info, 5, 1)]
    theirs = make_chunk(other, 0, 1)
    for chunk in (*mine, theirs):
        queue.put(chunk)
    queue.pause(info.partition)
    assert take(queue) is theirs
    assert take(queue) is None
    assert info.position(handed_out=True) == 0
    queue.put(theirs)
    queue.resume(info.partition)
    assert [take(queue) for _ in range(3)] == [theirs, mine[0], mine[2]]


def test_pausing_takes_back_the_chunk_being_handed_out(queue, info):
    queue.put(make_chunk(info, 0, 3))
    handover = hand_over(queue)
    claim(handover)
    queue.pause(make_info(queue, 1).partition)
    claim(handover)
    queue.pause(info.partition)
    with pytest.raises(StopIteration):
        claim(handover)
    assert (info.position(handed_out=True), info.position(handed_out=False)) == (2, 1)
    assert take(queue) is None
    queue.resume(info.partition)
    assert offsets(take(queue).batch) == [2]


def test_pauses_and_resumptions_wake_the_fetchers_for_which_they_make_room(queue, info):
    other = make_info(queue, 1)
    for one in (info, info, other):
        queue.put(make_chunk(one, 0, 1))
    both = waiting_fetcher(queue, info, other)
    queue.pause(info.partition)
    assert both == [[other]]
    paused = waiting_fetcher(queue, info)
    take(queue)
    assert not paused
    queue.resume(info.partition)
    assert not paused, "there are two chunks of it"
    take(queue)
    assert paused == [[info]]


def test_a_resumption_wakes_the_taker(queue, info):
    chunk = make_chunk(info, 0, 1)
    queue.pause(info.partition)
    queue.put(chunk)
    timer = threading.Timer(0.05, queue.resume, [info.partition])
    timer.start()
    assert take(queue, 60) is chunk
    timer.join()


def test_releasing_all_partitions_forgets_pauses(queue, info):
    queue.pause(info.partition)
    queue.put(make_chunk(info, 0, 1))
    queue.release_all()
    newer = make_info(queue, generation=2)
    assert not is_full(queue, newer)
    queue.resume(info.partition)
    assert len(queue) == 0


def test_looking_takes_nothing_and_releases_nothing(queue, info):
    queue.put(make_chunk(info, 0, 1))
    claim(hand_over(queue))
    queue.put(Chunk(info, None, 5, 0))
    assert queue.look(0) is None
    chunk = make_chunk(info, 5, 1)
    queue.put(chunk)
    assert queue.look(0) is queue.look(0) is chunk
    assert info.position(handed_out=False) == 0
    assert take(queue) is chunk
    assert info.position(handed_out=False) == 5
    queue.close()
    assert queue.look(0) is END


def test_fetchers_share_the_room():
    queue = make_queue(max_bytes=40_000)
    assert queue.room.allowance() == 40_000
    for name in ("one", "two"):
        queue.room.add(name.upper)
    assert queue.room.allowance() == 20_000
    assert (queue.room.allowance(coming=2000), queue.room.allowance(coming=30_000)) == (18_000, 0)
    chunk = make_chunk(make_info(queue), 0, 100)
    queue.put(chunk)
    assert queue.room.allowance() == (40_000 - chunk.nbytes) // 2 < 20_000


def test_a_denial_is_raised_although_chunks_wait(queue, info):
    chunk = make_chunk(info, 0, 1)
    queue.put(chunk)
    denied = PermissionError("denied")
    assert queue.faults.deny("u", 0, denied, info)
    released = make_info(queue, 1)
    queue.release([released])
    assert not queue.faults.deny("v", 0, denied, released), "of a released partition"
    with pytest.raises(PermissionError):
        queue.request(0)
    assert queue.request(0) is chunk


def test_a_blocked_taker_gets_a_denial(queue):
    timer = threading.Timer(0.01, lambda: queue.faults.deny("u", 0, PermissionError("denied")))
    timer.start()
    with pytest.raises(PermissionError):
        queue.request(60)
    timer.join()


def test_a_removed_listener_is_not_called(queue, info):
    heard = []
    listeners = [lambda: heard.append("stays"), lambda: heard.append("goes")]
    chunks = [make_chunk(info, offset, 1) for offset in range(2)]
    for chunk in chunks:
        queue.put(chunk)
    for listener in listeners:
        queue.room.add(listener)
        assert queue.room.wait(listener, [info])
    queue.room.remove(listeners[1])
    take(queue)
    assert heard == ["stays"]
    assert queue.room.allowance() == (1 << 20) - chunks[1].nbytes, "the whole room"
