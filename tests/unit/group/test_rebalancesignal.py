"""The flag that watches raise, and the waits of the one thread that reacts to it."""

import threading

from zkconsumer.group.rebalancesignal import RebalanceSignal

LONG_S = 600.0


def test_wait_in_the_middle_of_something_ends_when_the_flag_is_raised():
    signal = RebalanceSignal()
    thread = threading.Timer(0.02, signal.raise_flag)
    thread.start()
    assert signal.wait_raised(LONG_S)
    thread.join()
    assert signal.wait(LONG_S)
    assert signal.take()


def test_wait_in_the_middle_of_something_ends_when_the_signal_is_closed():
    signal = RebalanceSignal()
    signal.close()
    assert signal.wait_raised(LONG_S)
    assert not signal.raised


def test_wake_up_for_another_reason_does_not_end_it_and_is_not_lost():
    signal = RebalanceSignal()
    signal.wake()
    assert not signal.wait_raised(0.01)
    assert signal.wait(LONG_S)
