"""``run`` with a connector in memory: order, retries, dead letters, and what stops it."""

import os
import signal
import threading
import time
from collections import defaultdict

import pytest

from tests.fixtures.chunks import make_fetched_chunk, make_info, make_queue
from zkconsumer import ConsumerConfig, Retry, UsageError, run
from zkconsumer.connector import handlerrun
from zkconsumer.connector.stream import MessageStream
from zkconsumer.errors import TopicUnreadable
from zkconsumer.model import ConsumerThreadId, Message

CONFIG = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", consumer_timeout_ms=10)
AT_ONCE = Retry(attempts=3, backoff_s=0)


class Connector:
    """A connector of one stream over two partitions of the topic ``t``."""

    release_s = 60.0

    def __init__(self, config):
        assert (config.commit_on, config.auto_commit_enable, config.consumer_timeout_ms) == ("done", True, -1)
        self.consumer_id = "g_c"
        self.queue = make_queue(max_chunks=100, max_unfinished=config.max_unfinished_records)
        self.infos = [make_info(self.queue, number) for number in range(2)]
        self.shut_down = False
        self.withheld = set()

    def may_hand_out(self, partition):
        return partition not in self.withheld

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shut_down = True
        self.end_streams()

    def create_message_streams(self, topics):
        assert topics == {"t": 1}
        self.joining()
        return {"t": [MessageStream(self.queue, name="g_c-0", kind=Message)]}

    def set_rebalance_listener(self, listener):
        self.listener = listener

    def commit_offsets(self):
        self.committed = self.positions()

    def end_streams(self):
        self.queue.close()

    def put(self, number, start, count):
        self.queue.put(make_fetched_chunk(self.infos[number], start, count))

    def positions(self):
        return [info.position(handed_out=False) for info in self.infos]


class Runs:
    """Calls ``run`` with records that are there already."""

    def __init__(self, monkeypatch):
        self.filled = (5, 5)
        self.connector = None
        self.joining = lambda: None
        monkeypatch.setattr(handlerrun, "ConsumerConnector", self._connect)

    def _connect(self, config):
        self.connector = Connector(config)
        self.connector.joining = self.joining
        for number, count in enumerate(self.filled):
            if count:
                self.connector.put(number, 0, count)
        return self.connector

    def __call__(self, handler, *, config=CONFIG, stop_after=None, **how):
        handled, lock = [], threading.Lock()

        def handle(message):
            handler(message)
            with lock:
                handled.append((message.partition, message.offset))
                if len(handled) == stop_after:
                    os.kill(os.getpid(), signal.SIGTERM)

        run(handle, config, ["t"], **how)
        return handled


@pytest.fixture
def runs(monkeypatch):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    yield Runs(monkeypatch)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def of(handled, partition):
    return [offset for number, offset in handled if number == partition]


@pytest.mark.parametrize("workers", [1, 4])
def test_records_of_a_partition_are_handled_in_their_order(runs, workers):
    handled = runs(lambda _: time.sleep(0.001), stop_after=10, workers=workers)
    assert of(handled, 0) == of(handled, 1) == [0, 1, 2, 3, 4]
    assert runs.connector.positions() == [5, 5]
    assert runs.connector.shut_down


def test_partitions_are_handled_at_the_same_time(runs):
    both = threading.Barrier(2, timeout=20)
    runs(lambda _: both.wait(), stop_after=10, workers=2)


def test_with_order_by_key_the_records_of_a_key_are_handled_one_by_one(runs):
    """All records of the fixture have the same key, in each partition."""
    running, most = defaultdict(int), []

    def handle(message):
        running[message.partition] += 1
        most.append(running[message.partition])
        time.sleep(0.001)
        running[message.partition] -= 1

    handled = runs(handle, stop_after=10, ordered_by="key")
    assert set(most) == {1}
    assert of(handled, 0) == [0, 1, 2, 3, 4]


def test_a_signal_lets_handlers_finish_and_hands_out_no_more(runs):
    runs.filled = (5, 0)
    begun, ended = [], []

    def handle(message):
        begun.append(message.offset)
        if message.offset == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        ended.append(message.offset)

    runs(handle)
    assert begun == ended == [0, 1, 2]
    assert runs.connector.positions()[0] == 3


def test_a_failing_handler_is_called_again(runs):
    failures = defaultdict(int)

    def handle(message):
        failures[message[1:3]] += 1
        if failures[message[1:3]] < 3:
            raise ValueError

    handled = runs(handle, stop_after=10, retry=AT_ONCE)
    assert sorted(handled) == [(number, offset) for number in range(2) for offset in range(5)]
    assert set(failures.values()) == {3}


def poisoned(message):
    if message[1:3] == (0, 2):
        raise ValueError("poison")


def test_without_a_dead_letter_the_run_ends_and_nothing_is_skipped(runs):
    runs.filled = (5, 0)
    with pytest.raises(ValueError, match="poison"):
        runs(poisoned, retry=AT_ONCE)
    assert runs.connector.positions()[0] == 2
    assert runs.connector.shut_down


def test_a_dead_letter_replaces_the_handler(runs):
    letters = []

    def handle(message):
        if message.partition == 0 and message.offset == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        poisoned(message)

    runs.filled = (5, 0)
    runs(handle, retry=AT_ONCE, dead_letter=lambda message, error: letters.append((message.offset, str(error))))
    assert letters == [(2, "poison")]
    assert runs.connector.positions()[0] == 5


def test_a_record_that_no_attempt_cures_is_a_dead_letter_at_once(runs):
    calls, letters = [], []

    def handle(message):
        calls.append(message.offset)
        if message.partition == 0 and message.offset == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        poisoned(message)

    runs.filled = (5, 0)
    retry = Retry(attempts=3, backoff_s=0, unless=(ValueError,))
    runs(handle, retry=retry, dead_letter=lambda message, _: letters.append(message.offset))
    assert (calls.count(2), letters) == (1, [2])


def test_a_failing_dead_letter_ends_the_run(runs):
    def dead_letter(_, error):
        raise OSError("disk is full") from error

    runs.filled = (5, 0)
    with pytest.raises(OSError, match="disk is full"):
        runs(poisoned, retry=AT_ONCE, dead_letter=dead_letter)
    assert runs.connector.positions()[0] == 2


def test_an_exit_of_the_handler_is_not_retried(runs):
    def handle(_):
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        runs(handle, retry=AT_ONCE, dead_letter=lambda *_: None)
    assert runs.connector.positions() == [0, 0]


def test_a_stop_ends_the_pause_before_a_retry(runs):
    def handle(_):
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError

    begin = time.monotonic()
    runs(handle, retry=Retry(backoff_s=100, limit_s=100))
    assert time.monotonic() - begin < 50
    assert runs.connector.positions() == [0, 0]


def test_an_error_of_the_stream_ends_the_run(runs):
    def handle(message):
        runs.connector.queue.faults.deny("t", 1, TopicUnreadable("t", "refused"))

    with pytest.raises(TopicUnreadable):
        runs(handle, workers=1)


def test_records_of_a_lost_partition_are_not_handled(runs):
    runs.filled = (5, 1)
    lost = threading.Event()

    def handle(message):
        if message.partition == 0 and message.offset == 1:
            connector = runs.connector
            connector.queue.release([connector.infos[0]])
            connector.queue.discard([connector.infos[0]])
            lost.set()
        if message.partition == 1 and lost.wait(20):
            os.kill(os.getpid(), signal.SIGTERM)

    handled = runs(handle, workers=2)
    assert of(handled, 0) == [0, 1]


def test_records_of_a_lost_partition_give_their_room_back(runs):
    """1. Records wait; 2. the membership is lost, without a release; 3. the next share is without their partition."""
    runs.filled = (4, 0)

    def handle(message):
        connector = runs.connector
        if message.partition == 0:
            info = connector.infos[0]
            connector.withheld.add(info.partition)
            connector.queue.release([info])
            connector.queue.discard([info])
            connector.put(1, 0, 8)
        elif message.offset == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    handled = runs(handle, workers=1, config=CONFIG.replace(max_unfinished_records=4))
    assert handled == [(0, 0), *((1, offset) for offset in range(8))]


def test_a_stop_ends_pauses_although_the_reader_waits_for_room(runs):
    def handle(message):
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGTERM]).start()
        raise OSError("no database")

    begin = time.monotonic()
    runs(handle, workers=1, config=CONFIG.replace(max_unfinished_records=2), retry=Retry(backoff_s=100, limit_s=100))
    assert time.monotonic() - begin < 50


def test_memory_is_bounded_and_no_partition_keeps_another_from_its_worker(runs):
    runs.filled = (50, 3)
    others_handled = threading.Event()

    def handle(message):
        if message.partition == 0:
            assert others_handled.wait(20)
        elif message.offset == 2:
            others_handled.set()

    config = CONFIG.replace(max_unfinished_records=4)
    handled = runs(handle, stop_after=4, workers=2, config=config)
    assert of(handled, 1) == [0, 1, 2]


def test_outside_of_the_main_thread_signals_are_left_alone(runs):
    caught, before = [], signal.getsignal(signal.SIGTERM)

    def handle(_):
        caught.append(signal.getsignal(signal.SIGTERM) is before)
        raise SystemExit

    def call():
        with pytest.raises(SystemExit):
            runs(handle)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    assert caught[0]
    assert not thread.is_alive()


async def handle_later(_message):
    """Nothing would run it, and its record would be committed."""


@pytest.mark.parametrize("how", [{"handler": handle_later}, {"handler": print, "dead_letter": handle_later}])
def test_coroutine_functions_are_refused(how):
    with pytest.raises(UsageError, match="AsyncConsumerConnector"):
        run(config=CONFIG, topics=["t"], **how)


class Later:
    """No coroutine function, and what it returns has to be awaited all the same."""

    async def __call__(self, *_):
        raise AssertionError("never")


def fail(_):
    raise ValueError


@pytest.mark.parametrize("how", [{"handler": Later()}, {"handler": fail, "dead_letter": Later()}])
def test_a_record_whose_handler_returns_a_coroutine_is_not_done(runs, how):
    with pytest.raises(UsageError, match="AsyncConsumerConnector"):
        run(config=CONFIG, topics=["t"], retry=Retry(attempts=1), **how)
    assert runs.connector.positions() == [0, 0]


def test_a_signal_ends_a_run_that_joins(runs):
    """JoinGroup waits for the other members as long as their handlers take."""
    runs.joining = lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(60))
    begin = time.monotonic()
    runs(print)
    assert time.monotonic() - begin < 30
    assert runs.connector.shut_down


def test_no_record_is_begun_while_another_member_may_own_its_partition(runs):
    """1. The lease lapses while records wait for workers; 2. it holds again for one of the partitions."""
    begun = []

    def regain(connector):
        time.sleep(0.3)
        begun.append("lapsed")
        connector.withheld.discard(connector.infos[1].partition)

    def handle(message):
        begun.append((message.partition, message.offset))
        if len(begun) == 1:
            time.sleep(0.1)  # the others wait
            runs.connector.withheld.update(info.partition for info in runs.connector.infos)
            threading.Thread(target=regain, args=[runs.connector]).start()
        elif message[1:3] == (1, 4):
            os.kill(os.getpid(), signal.SIGTERM)

    runs(handle, workers=1)
    assert begun == [(0, 0), "lapsed", *((1, offset) for offset in range(5))]


@pytest.mark.parametrize(
    ("topics", "how", "reason"),
    [
        ("t", {}, r"\['t'\]"),
        ([], {}, "at least one topic"),
        (["t"], {"workers": 0}, "workers"),
        (["t"], {"ordered_by": "topic"}, "partition, key"),
    ],
)
def test_wrong_arguments_are_refused(topics, how, reason):
    with pytest.raises(UsageError, match=reason):
        run(print, CONFIG, topics, **how)


def test_a_release_waits_for_handlers_and_commits_what_they_finish(runs):
    """What waits is not begun before the partitions are owned again, and dropped where they are not."""
    releasing = []

    def release():
        connector = runs.connector
        connector.listener.before_releasing_partitions({info.partition for info in connector.infos})
        kept = {connector.infos[0].partition: ConsumerThreadId("g_c", 0)}
        connector.listener.before_starting_fetchers("g_c", kept)

    def handle(message):
        if (message.partition, message.offset) == (0, 1):
            releasing.append(threading.Thread(target=release))
            releasing[0].start()
            time.sleep(0.05)
        if (message.partition, message.offset) == (0, 4):
            os.kill(os.getpid(), signal.SIGTERM)

    handled = runs(handle, workers=1)
    releasing[0].join(20)
    assert of(handled, 0) == [0, 1, 2, 3, 4]
    assert len(of(handled, 1)) <= 2, "the others waited when it was released"
    assert runs.connector.committed == [2, len(of(handled, 1))]


def released(runs):
    """Begin to release all partitions; the thread, and how long that takes."""
    connector, took = runs.connector, []

    def release():
        begin = time.monotonic()
        connector.listener.before_releasing_partitions({info.partition for info in connector.infos})
        took.append(time.monotonic() - begin)

    thread = threading.Thread(target=release)
    thread.start()
    return thread, took


def test_a_release_waits_for_the_other_handlers_when_one_has_raised(runs):
    """1. Two handlers have a record; 2. one of them raises: the other one's partition is released when it is done."""
    both, releases, ended = threading.Barrier(2, timeout=20), [], []

    def handle(message):
        both.wait()
        if message.partition == 0:
            releases.append(released(runs))
            time.sleep(0.05)
            raise ValueError("bad")
        time.sleep(0.4)
        ended.append(bool(releases[0][1]))

    with pytest.raises(ValueError, match="bad"):
        runs(handle, workers=2, retry=Retry(attempts=1))
    releases[0][0].join(20)
    assert ended == [False], "it was not released before"
    assert runs.connector.committed[1] == 1


def test_a_release_ends_the_pause_before_a_retry(runs):
    """The record is read again by its next owner, and here if the partition stays."""
    calls, releases = [], []

    def handle(message):
        calls.append(message[1:3])
        if calls.count((0, 0)) == 1 and message[1:3] == (0, 0):
            threading.Timer(0.1, lambda: releases.append(released(runs))).start()
            raise OSError("no connection")

    def resume():
        while not releases:
            time.sleep(0.01)
        releases[0][0].join(20)
        connector = runs.connector
        connector.listener.before_starting_fetchers("g_c", {connector.infos[0].partition: ConsumerThreadId("g_c", 0)})
        while calls.count((0, 4)) == 0:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    resuming = threading.Thread(target=resume)
    resuming.start()
    runs(handle, workers=1, retry=Retry(backoff_s=60, limit_s=60))
    resuming.join(20)
    assert releases[0][1][0] < 20
    assert [offset for number, offset in calls if number == 0] == [0, 0, 1, 2, 3, 4]


def test_a_pause_that_a_rebalance_cuts_short_costs_no_attempt(runs):
    """Members restart one after the other while a database is away."""
    calls, kept = [], {}

    def rebalance(count):
        for number in range(1, count + 1):
            while len(calls) < number:
                time.sleep(0.01)
            time.sleep(0.05)  # the handler has failed, and the worker waits
            runs.connector.listener.before_releasing_partitions({runs.connector.infos[0].partition})
            runs.connector.listener.before_starting_fetchers("g_c", kept)

    def handle(message):
        kept.update({info.partition: ConsumerThreadId("g_c", 0) for info in runs.connector.infos})
        calls.append(message.offset)
        if len(calls) < 4:
            raise OSError("no database")
        os.kill(os.getpid(), signal.SIGTERM)

    runs.filled = (1, 0)
    rebalancing = threading.Thread(target=rebalance, args=[3])
    rebalancing.start()
    handled = runs(handle, workers=1, retry=Retry(attempts=2, backoff_s=60, limit_s=60))
    rebalancing.join(20)
    assert (calls, handled) == ([0] * 4, [(0, 0)])


def test_a_release_does_not_wait_for_a_handler_that_raised(runs):
    releases = []

    def handle(message):
        released = {info.partition for info in runs.connector.infos}
        release = runs.connector.listener.before_releasing_partitions
        releases.append(threading.Thread(target=release, args=[released]))
        releases[0].start()
        time.sleep(0.05)
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        runs(handle, workers=1, retry=Retry(attempts=1))
    releases[0].join(20)
    assert not releases[0].is_alive()
