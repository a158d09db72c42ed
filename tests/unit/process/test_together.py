"""call_together: calls that meet, fail, are interrupted, or get no thread."""

import threading

import pytest

from zkconsumer.errors import BrokerUnavailable, ThreadLimit
from zkconsumer.process import together
from zkconsumer.process.together import call_together


def no_end():
    raise AssertionError("nothing was interrupted")


def test_calls_run_at_the_same_time_and_results_keep_their_order():
    meeting = threading.Barrier(3)
    calls = [lambda number=number: (meeting.wait(10), number)[1] for number in range(3)]
    assert call_together(calls, no_end, name="test") == [0, 1, 2]
    assert call_together([], no_end, name="test") == []


def test_one_call_needs_no_thread():
    assert call_together([threading.current_thread], no_end, name="test") == [threading.current_thread()]


def test_an_error_is_an_outcome_of_its_call():
    def fail():
        raise BrokerUnavailable("gone")

    outcomes = call_together([fail, lambda: 5, fail], no_end, name="test")
    assert [type(outcome) for outcome in outcomes] == [BrokerUnavailable, int, BrokerUnavailable]


def test_without_threads_the_calls_are_made_one_after_the_other(monkeypatch):
    def refuse(_):
        raise ThreadLimit("no more")

    monkeypatch.setattr(together, "start_thread", refuse)
    assert call_together([lambda: 1, lambda: 2, lambda: 3], no_end, name="test") == [1, 2, 3]


def test_an_interrupt_ends_the_other_calls_before_it_is_raised():
    ended, running = threading.Event(), threading.Event()

    def wait():
        running.set()
        assert ended.wait(10)

    def interrupt():
        assert running.wait(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_together([interrupt, wait], ended.set, name="interrupted-call")
    assert "interrupted-call" not in {thread.name for thread in threading.enumerate()}


def test_an_interrupted_call_is_undone_if_it_is_the_only_one():
    ended = []

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_together([interrupt], lambda: ended.append(True), name="test")
    assert ended == [True]
