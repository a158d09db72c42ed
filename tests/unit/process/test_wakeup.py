"""Latch: a flag that stays raised."""

import threading

from zkconsumer.process.wakeup import Latch, Notifier


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
