"""GroupMember over a group, a store and fetchers in memory."""

import threading

import pytest

from tests.fixtures.groupprotocol import CommandedGroup, FetchInMemory, StoreInMemory
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.group.groupprotocol import Standing
from zkconsumer.group.member import GroupMember, MemberParts
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.process.wakeup import Latch

BOUND_S = 30


class Group(CommandedGroup):
    """A group that a member can join and leave."""

    def join(self, subscription):
        pass

    def leave(self):
        pass

    def pause(self, failure=None, *, starting=False):
        pass

    def describe(self):
        return Standing(True, 0, 0, 0, 0)


@pytest.fixture
def hanging():
    """Called before a commit; returns at the end of the test."""
    end = threading.Event()
    yield lambda: end.wait(BOUND_S)
    end.set()


def test_a_member_that_leaves_without_its_last_commit_reports_what_is_not_committed(hanging):
    group, fetch = Group(incremental=False), FetchInMemory()
    group.command(0)
    config = ConsumerConfig(
        zookeeper_connect="unused:1", group_id="g", zookeeper_session_timeout_ms=100, commit_on="delivery"
    )
    parts = MemberParts(group, None, StoreInMemory(), RebalanceSignal(), Latch())
    member = GroupMember(config, "g_c", fetch, parts, before_commit=hanging)
    member.join(Subscription.static({"t": 1}))
    fetch.move(p0=50)
    member.leave()
    assert member.uncommitted == {TopicPartition("t", 0): (None, 50)}
