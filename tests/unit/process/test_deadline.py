"""When an operation ends, on a clock of the test's own."""

import math

from zkconsumer.process.deadline import NO_DEADLINE, Deadline


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_what_is_left_becomes_less_until_nothing_may_begin():
    clock = Clock()
    deadline = Deadline.after(10, clock)
    assert (deadline.left(), deadline.limit(3), deadline.limit(30), deadline.passed) == (10, 3, 10, False)
    clock.now += 8
    assert (deadline.left(), deadline.limit(3), deadline.passed) == (2, 2, False)
    clock.now += 2
    assert (deadline.left(), deadline.limit(3), deadline.passed) == (0, 0, True)
    clock.now += 5
    assert deadline.left() == 0


def test_without_a_deadline_nothing_is_limited():
    for none in (NO_DEADLINE, Deadline.after(math.inf, Clock())):
        assert not none.exists
        assert not none.passed
        assert none.limit(30) == 30
