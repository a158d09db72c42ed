"""A commit that waits until its member has joined the next generation of a group whose members assign."""

import threading

import pytest

from zkconsumer.core.brokerlease import BrokerLease
from zkconsumer.core.brokermembership import Assigned, BrokerMembership
from zkconsumer.kafka.sharedmembership import SharedMembership
from zkconsumer.model import ConsumerThreadId, TopicPartition

T0 = TopicPartition("t", 0)


class Member(SharedMembership):
    """Cooperative; it owns a partition in generation 1."""

    def __init__(self):
        super().__init__(BrokerMembership(cooperative=True), BrokerLease(10, 100), lambda: None)
        self.begin()
        self.join()
        self.answer(1)
        self.synchronise(1)
        self.acquire({T0: ConsumerThreadId("g_a", 0)})

    def rejoin(self):
        self.join_again()
        self.join()

    def answer(self, generation):
        self.joined("m", generation)

    def synchronise(self, generation):
        self.synchronised(Assigned(generation, frozenset({T0})), self.clock())
        self.join_ended()


@pytest.fixture
def member():
    return Member()


@pytest.fixture
def commit(member):
    """A commit that was refused just now: whether it may be sent again."""
    found = []
    refused = member.identity()
    thread = threading.Thread(target=lambda: found.append(member.await_renewed(refused, 60)))

    def outcome():
        thread.join()
        return found[0]

    return thread.start, outcome


def test_a_commit_waits_until_the_rebalance_has_ended(member, commit):
    start, outcome = commit
    member.rejoin()
    start()
    assert not member.await_renewed(member.identity(), 0), "JoinGroup is not answered"
    member.answer(2)
    assert not member.await_renewed(member.identity(), 0), "SyncGroup is not answered"
    member.synchronise(2)
    assert outcome()
    assert member.identity().generation == 2


def test_a_commit_is_sent_again_after_an_attempt_to_join_has_failed(member, commit):
    start, outcome = commit
    member.rejoin()
    start()
    member.join_ended()
    assert outcome(), "the former generation may still be the group's"


def test_a_commit_that_was_refused_before_the_answer_arrived_is_sent_again_at_once(member):
    refused = member.identity()
    member.rejoin()
    member.answer(2)
    member.synchronise(2)
    assert member.await_renewed(refused, 0)


@pytest.mark.parametrize("end", [lambda member: member.fence(keeps_id=False), Member.close])
def test_a_commit_does_not_wait_for_a_member_that_is_gone(member, commit, end):
    start, outcome = commit
    member.rejoin()
    start()
    end(member)
    assert not outcome()
