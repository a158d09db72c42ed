"""WakeUp, Latch, Notifier."""

import signal
import threading

import pytest

from zkconsumer.process import wakeup
from zkconsumer.process.wakeup import Latch, Notifier, WakeUp


@pytest.mark.parametrize("flag", [WakeUp, Latch])
@pytest.mark.parametrize("timeout", [None, 20])
def test_a_signal_that_another_thread_received_is_handled_during_a_wait(monkeypatch, flag, timeout):
    """The kernel may choose any thread, after SIGSTOP and SIGCONT for example."""
    monkeypatch.setattr(wakeup, "SIGNALS_S", 0.01)
    raised, ended = flag(), threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    former = signal.signal(signal.SIGUSR2, lambda *_: raised.set())
    sender = threading.Timer(0.05, lambda: signal.pthread_kill(other.ident, signal.SIGUSR2))
    sender.start()
    try:
        assert raised.wait(timeout)
    finally:
        signal.signal(signal.SIGUSR2, former)
        ended.set()
        other.join()


def test_a_wait_ends_with_its_timeout(monkeypatch):
    monkeypatch.setattr(wakeup, "SIGNALS_S", 0.01)
    for flag in (WakeUp(), Latch()):
        for timeout in (0.035, 0, -1):
            assert not flag.wait(timeout)


def test_a_latch_that_was_raised_twice_lets_every_thread_pass():
    latch, passed = Latch(), []
    threads = [threading.Thread(target=lambda: passed.append(latch.wait(30))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert not latch.wait(0.01)
    latch.set()
    latch.set()
    for thread in threads:
        thread.join(30)
    assert passed == [True] * 5
    assert latch.is_set()
    assert latch.wait()


def test_a_notifier_calls_back_whenever_it_is_raised():
    notifier, calls = Notifier(), []
    notifier.set()
    notifier.call_back(lambda: calls.append(None))
    assert notifier.wait(0)
    assert not notifier.wait(0)
    notifier.set()
    notifier.set()
    assert len(calls) == 2
    notifier.call_back(None)
    notifier.set()
    assert len(calls) == 2
    assert notifier.wait(0)
