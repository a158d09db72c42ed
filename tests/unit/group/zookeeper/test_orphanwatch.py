"""OrphanWatch: when JVM members that gave up are nudged, by a clock that the test turns."""

import pytest

from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.group.zookeeper.orphanwatch import OrphanWatch
from zkconsumer.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WINDOW_S = 8.0


class Group:
    """The group as the watch reads it, and the nudges that the group gets."""

    def __init__(self):
        self.time = 100.0
        self.is_ours = True
        self.seen = [], False
        self.failure = None
        self.nudged_at = []
        self.watch = OrphanWatch("g", WINDOW_S, self, self, lambda: self.time)

    def nudges(self):
        return self.is_ours

    def orphans(self):
        return self.seen

    def nudge(self):
        self.nudged_at.append(self.time)
        if self.failure is not None:
            raise self.failure

    def look(self, *orphans, held=False, after_s=0.0):
        self.time += after_s
        self.seen = list(orphans), held
        return self.watch.look()


@pytest.fixture
def group():
    return Group()


def test_orphans_are_nudged_for_once(group):
    for _ in range(3):
        assert group.look(T0, after_s=WINDOW_S) is False
    assert group.nudged_at == [108.0]


def test_only_the_chosen_member_nudges(group):
    group.is_ours = False
    assert group.look(T0) is False
    assert group.nudged_at == []


def test_without_orphans_there_is_no_nudge(group):
    assert group.look() is False
    assert group.nudged_at == []


def test_what_another_member_holds_is_looked_at_again(group):
    assert group.look(held=True) is True
    assert group.look(T0) is False
    assert group.nudged_at == [100.0]


def test_other_orphans_wait_for_the_window(group):
    group.look(T0)
    assert group.look(T0, T1, after_s=WINDOW_S - 1) is True, "check again: the window is not over"
    assert group.look(T0, T1, after_s=1) is False
    assert group.nudged_at == [100.0, 108.0]


def test_orphans_that_come_back_are_nudged_for_again(group):
    group.look(T0)
    group.look(after_s=WINDOW_S)
    group.look(T0)
    assert group.nudged_at == [100.0, 108.0]


def test_an_unanswered_nudge_is_repeated_after_the_window(group, caplog):
    group.failure = ZooKeeperUnavailable("the connection broke")
    with caplog.at_level("INFO"):
        assert group.look(T0) is False
    assert "could not look for orphaned partitions: the connection broke" in caplog.text
    group.failure = None
    group.look(T0, after_s=WINDOW_S - 1)
    group.look(T0, after_s=1)
    assert group.nudged_at == [100.0, 108.0]
