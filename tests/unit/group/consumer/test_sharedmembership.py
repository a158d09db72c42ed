"""The lease of a member of a group in which the broker assigns, and a commit that waits for its next epoch."""

import threading

import pytest

from zkconsumer.errors import InstanceIdInUse
from zkconsumer.group.consumer.rules.membership import ConsumerMembership, IdPartition
from zkconsumer.group.consumer.sharedmembership import SharedConsumerMembership
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.model import ConsumerThreadId, TopicPartition

THREAD = ConsumerThreadId("g_a", 0)
TOPICS = ("t",)


def ids(*numbers):
    return frozenset(IdPartition("id", number) for number in numbers)


def share(*numbers):
    return {TopicPartition("t", number): THREAD for number in numbers}


class Member(SharedConsumerMembership):
    """At a time that the test sets; the session timeout is 10 s, the rebalance timeout 100 s."""

    def __init__(self):
        self.now, self.signals = 0.0, 0
        super().__init__(ConsumerMembership("m"), BrokerLease(10, 100), self._count, clock=lambda: self.now)
        self.name_topics({"t": "id"})

    def _count(self):
        self.signals += 1

    def send(self, epoch, target=None):
        """A heartbeat that is answered half a second later."""
        beat, sent = self.beat(TOPICS), self.now
        self.now += 0.5
        return self.answered(beat, epoch, target, sent)


@pytest.fixture
def member():
    one = Member()
    one.begin()
    one.send(1, ids(0, 1))
    one.acquire(share(0, 1))
    one.send(1)
    return one


def test_the_lease_counts_from_when_the_answered_heartbeat_was_sent(member):
    assert member.remaining() == 0.5 + 8 - 1
    member.now = 8.4
    assert member.holds()
    member.now = 8.5
    assert not member.holds()
    member.send(1)
    assert member.holds()


def test_while_it_revokes_heartbeats_do_not_extend_the_lease_past_the_rebalance_timeout(member):
    member.set_timeouts(100, 20)
    member.send(1)  # sent at 1
    for _ in range(40):
        member.send(1, ids(0))
    assert member.now > 17
    assert not member.holds(), "0.8 of 20 s have passed"
    member.release(share(1))
    member.send(2)
    assert member.holds()


def test_the_lease_is_never_longer_than_the_rebalance_timeout_allows(member):
    member.set_timeouts(100, 5)
    member.send(1)
    assert member.remaining() == 0.8 * 5 - 0.5


def test_only_news_is_signalled(member):
    before = member.signals
    assert not member.send(1)
    assert member.signals == before
    assert member.send(1, ids(0))
    assert member.signals == before + 1


def test_a_release_and_the_wish_to_join_do_not_wait_for_the_next_heartbeat(member):
    member.send(1, ids(0))
    assert member.await_turn(0), "the lease is to be checked"
    assert not member.is_urgent()
    member.release(share(1))
    assert member.is_urgent()
    assert member.await_turn(1000), "at once"
    member.fence()
    member.lose()
    assert member.await_turn(0), "as above"
    member.begin()
    assert member.is_urgent()
    assert member.await_turn(1000), "at once"
    member.close()
    assert not member.await_turn(1000)


def test_a_commit_waits_for_the_answer_that_advances_the_epoch(member):
    outdated = member.identity()
    renewed = []
    waiting = threading.Thread(target=lambda: renewed.append(member.await_renewed(outdated, 60)))
    waiting.start()
    member.send(2)
    waiting.join()
    assert renewed == [True]
    assert member.identity().generation == 2


@pytest.mark.parametrize("end", ["fence", "close"])
def test_a_commit_does_not_wait_for_a_member_that_is_gone(member, end):
    outdated = member.identity()
    getattr(member, end)()
    assert not member.await_renewed(outdated, 60)


def test_a_commit_waits_only_for_a_while(member):
    assert member.await_renewed(member.identity(), 0), "the coordinator may accept the same epoch by now"


def test_a_member_that_is_fenced_for_good_does_not_begin_again(member):
    member.fence(stopped=InstanceIdInUse("another one"))
    member.lose()
    with pytest.raises(InstanceIdInUse):
        member.begin()


def test_topics_are_read_before_joining_when_they_have_changed_and_while_one_has_no_name():
    one = Member()
    assert not one.take_topics_change()
    one.begin()
    assert one.take_topics_change()
    one.send(1, ids(0))
    assert not one.take_topics_change()
    one.note_topics()
    assert one.take_topics_change()
    one.send(1, frozenset({IdPartition("another", 0)}))
    assert one.take_topics_change()
