"""One lock around the state of a member: changes are seen together, and end waits."""

import threading

import pytest

from zkconsumer.errors import InstanceIdInUse
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.group.kafka.rules.generationmember import Assigned, GenerationMember
from zkconsumer.group.kafka.sharedmembership import SharedMembership


class Shared(SharedMembership):
    """At a time that the test sets; it records what it calls."""

    def __init__(self):
        self.now, self.calls = 0.0, []
        super().__init__(
            GenerationMember(cooperative=True, lease=BrokerLease(10, 100)),
            lambda: self._record("changed"),
            clock=lambda: self.now,
        )
        self.look = lambda was_lapsed: self._record("look, it was lapsed" if was_lapsed else "look")

    def _record(self, call):
        assert self._condition.acquire(timeout=30), "it is called with the lock"
        self._condition.release()
        self.calls.append(call)

    def join(self):
        with self.changing() as member:
            member.begin()
            member.join()
            member.joined("m", 1, 100)
            member.synchronised(Assigned(1, frozenset()), 0.0, 0.0)


@pytest.fixture
def shared():
    return Shared()


def test_the_lease_is_that_of_the_last_change(shared):
    assert shared.holds()
    assert shared.remaining() == 0
    shared.join()
    assert (shared.holds(), shared.remaining()) == (True, 8)
    shared.now = 9
    assert (shared.holds(), shared.remaining()) == (False, 0)
    with shared.changing() as member:
        member.confirmed(member.beat(), 5)
        assert not shared.holds(), "not before the end of the change"
    assert (shared.holds(), shared.remaining()) == (True, 4)


def test_whether_the_lease_holds_is_answered_while_another_thread_has_the_lock(shared):
    shared.join()
    answers = []
    with shared.changing():
        asking = threading.Thread(target=lambda: answers.append((shared.holds(), shared.remaining())))
        asking.start()
        asking.join()
    assert answers == [(True, 8)]


def test_only_news_is_told_and_the_lease_is_looked_at_after_every_change(shared):
    shared.join()
    assert shared.calls == ["look", "changed"]
    with shared.changing() as member:
        member.topics_changed = True
    assert shared.calls == ["look", "changed", "look"]


def test_a_look_after_a_lapse_knows_of_it(shared):
    """A stream that asked in between waits."""
    shared.join()
    shared.now = 8
    with shared.changing() as member:
        member.confirmed(member.beat(), 5)
    with shared.changing() as member:
        member.confirmed(member.beat(), 6)
    assert shared.calls == ["look", "changed", "look, it was lapsed", "look"]


def test_a_change_that_fails_is_told_as_far_as_it_got(shared):
    shared.join()

    def begin_when_fenced():
        with shared.changing() as member:
            member.fence(stopped=InstanceIdInUse("another one"))
            member.begin()

    with pytest.raises(InstanceIdInUse):
        begin_when_fenced()
    assert not shared.holds()
    assert shared.calls[-2:] == ["look", "changed"]


def test_a_wait_ends_with_the_state_that_it_is_for(shared):
    reached = []
    waiting = threading.Thread(target=lambda: reached.append(shared.wait(lambda member: member.views)))
    waiting.start()
    with shared.changing() as member:
        member.topics_changed = True
    assert waiting.is_alive()
    shared.join()
    waiting.join()
    assert reached == [True]


def test_a_wait_ends_when_its_time_has_passed_on_the_clock(shared):
    reached = []
    waiting = threading.Thread(target=lambda: reached.append(shared.wait(lambda member: False, 1000)))
    waiting.start()
    while waiting.is_alive():
        shared.now += 1000
        with shared.changing():
            pass
        waiting.join(0.01)
    assert reached == [True]
    assert shared.wait(lambda member: False, -1)


def test_all_waits_end_when_the_member_leaves(shared):
    reached = []
    waiting = threading.Thread(target=lambda: reached.append(shared.wait(lambda member: False)))
    waiting.start()
    with shared.changing() as member:
        member.leave()
    waiting.join()
    assert reached == [False]
    assert not shared.wait(lambda member: True)


def test_a_question_is_answered_from_the_present_state(shared):
    assert shared.read(lambda member: member.in_group) is False
    shared.join()
    assert shared.read(lambda member: (member.in_group, member.views)) == (True, 1)
