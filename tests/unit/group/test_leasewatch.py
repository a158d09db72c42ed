"""LeaseWatch turn by turn, and its thread."""

import threading

import pytest

from tests.fixtures.waiting import eventually
from zkconsumer.group.leasewatch import LeaseWatch


class Lease:
    """A lease that ends at a time that the test sets."""

    def __init__(self):
        self.now, self.until = 0.0, 10.0

    def holds(self):
        return self.now < self.until

    def remaining(self):
        return self.until - self.now


@pytest.fixture
def lease():
    return Lease()


def test_it_tells_when_a_lease_has_lapsed_and_when_it_holds_again(lease):
    notified = []
    watch = LeaseWatch("watch", lease, notified.append)
    watch.turn()
    lease.now = 10
    watch.turn()
    watch.turn()
    assert (notified, watch.held, watch.lapses) == ([False], False, 1)
    lease.until = 20
    watch.turn()
    lease.until = 5
    watch.turn()
    assert (notified, watch.held, watch.lapses) == ([False, True, False], False, 2)


def test_a_lapse_that_it_has_not_noticed_is_reported_when_it_is_over(lease):
    """A stream may have noticed it, and waits."""
    notified = []
    watch = LeaseWatch("watch", lease, notified.append)
    watch.look(was_lapsed=True)
    watch.turn()
    watch.look()
    watch.turn()
    assert (notified, watch.held, watch.lapses) == ([True], True, 0)
    lease.now = 10
    watch.look(was_lapsed=True)
    watch.turn()
    assert notified == [True, False], "it has lapsed again"


def test_it_looks_exactly_when_the_lease_lapses_and_at_least_each_second(lease):
    watch = LeaseWatch("watch", lease, lambda held: None)
    assert watch.turn() == 1
    lease.now = 9.75
    assert watch.turn() == 0.25
    lease.now = 11
    assert watch.turn() == 1


def test_its_work_comes_after_the_look_and_sets_the_pace(lease):
    seen = []
    watch = LeaseWatch("watch", lease, lambda held: seen.append("lapsed"), lambda: seen.append("worked") or 3)
    assert watch.turn() == 3
    lease.now = 8
    assert watch.turn() == 2
    lease.now = 10
    assert watch.turn() == 3
    assert seen == ["worked", "worked", "lapsed", "worked"]


def test_work_that_extends_the_lease_puts_off_the_next_look(lease):
    lease.now = 9

    def extend():
        lease.until = 20
        return 5

    assert LeaseWatch("watch", lease, lambda held: None, extend).turn() == 5


def test_its_thread_looks_at_once_when_it_is_asked_to(lease):
    notified, asked = [], []
    watch = LeaseWatch("watch", lease, notified.append, lambda: asked.append(threading.current_thread().name) or 1000)
    watch.open(seconds=1000)
    watch.look()
    eventually(lambda: asked == ["watch"])
    lease.now = 1e9
    watch.look()
    eventually(lambda: notified == [False])
    watch.close()
    lease.until = 1e10
    watch.look()
    watch.close()
    assert (notified, asked) == ([False], ["watch", "watch"])


def test_it_can_be_closed_before_it_is_opened_and_by_itself(lease):
    LeaseWatch("watch", lease, lambda held: None).close()
    ended = threading.Event()

    def end():
        watch.close()
        ended.set()
        return 1000

    watch = LeaseWatch("watch", lease, lambda held: None, end)
    watch.open()
    assert ended.wait(60)
