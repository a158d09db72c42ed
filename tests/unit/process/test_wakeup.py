"""Latch: a flag that stays raised."""

import threading

from zkconsumer.process.wakeup import Latch


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
