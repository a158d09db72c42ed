"""Groups on many topics: how many requests a member sends, and what it reads and keeps. The topics are znodes only."""

import pytest

from tests.fixtures.members import Cluster
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import requests_sent
from zkconsumer.group.member import GroupMember
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules.rebalancetimes import orphan_delay_seconds
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import TopicPartition

pytestmark = pytest.mark.integration

FEW = 150
"""Requests: far fewer than topics, and enough for the probes of a member that waits for a busy machine."""


@pytest.fixture
def cluster(sandbox, zookeeper, unique_name):
    made = Cluster(sandbox, zookeeper, unique_name)
    yield made
    for member in made.members:
        member.leave()


def sent(*members: GroupMember) -> list[int]:
    return [requests_sent(member) for member in members]


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_requests_do_not_grow_with_the_number_of_topics(cluster, strategy):
    """Each topic was read, and its parent ensured, in a request of its own."""
    topics = [f"t{number:04}" for number in range(600)]
    cluster.create_topics(*topics)
    first, second = (cluster.member(name, partition_assignment_strategy=strategy) for name in "ab")
    first.join(Subscription.by_filter(Whitelist("t.*"), 1))
    assert len(first.ownership()) == 600
    assert sent(first)[0] < FEW
    second.join(Subscription.by_filter(Whitelist("t.*"), 1))
    assert sent(second)[0] < FEW
    before = sent(first, second)
    cluster.create_topics("tnew")
    eventually(lambda: len({*first.ownership(), *second.ownership()}) == 601)
    assert all(now - then < FEW for now, then in zip(sent(first, second), before, strict=True))
    before = sent(second)
    first.leave()
    eventually(lambda: len(second.ownership()) == 601)
    assert sent(second)[0] - before[0] < FEW


def test_the_first_commit_of_many_topics_takes_few_requests(cluster):
    topics = [f"t{number:04}" for number in range(600)]
    cluster.create_topics(*topics)
    member = cluster.member("a")
    member.join(Subscription.by_filter(Whitelist("t.*"), 1))
    before = sent(member)[0]
    member.commit({partition: 7 for partition in member.ownership()})
    assert sent(member)[0] - before < FEW
    path = f"{cluster.root}/consumers/g/offsets"
    assert len(cluster.zookeeper.get_children(path)) == 600
    assert cluster.zookeeper.get(f"{path}/t0599/0")[0] == b"7"
    assert cluster.zookeeper.get(f"{path}/t0599")[0] is None, "null, as the JVM's"


def test_topics_of_others_do_not_concern_a_member_by_range(cluster, open_session):
    cluster.create_topics("mine", "theirs", partitions=2)
    cluster.register_stranger("b", "theirs")
    member = cluster.member("a")
    member.join(Subscription.static({"mine": 1}))
    session = open_session(cluster.connect)
    assert GroupReader(session).view("g", "g_a").partitions == {"mine": (0, 1)}
    assert GroupReader(session).view("g").partitions == {"mine": (0, 1), "theirs": (0, 1)}
    assert member._protocol._shares._assigned_view.partitions == {"mine": (0, 1)}


def test_a_member_nudges_for_topics_that_are_not_its_own(cluster):
    """Its id is the smallest of ours, so no other member does."""
    cluster.create_topics("mine", "theirs")
    cluster.register_stranger("z-jvm", "theirs")
    ids = f"{cluster.root}/consumers/g/ids"
    member = cluster.member("a", rebalance_backoff_ms=100)
    member.join(Subscription.static({"mine": 1}))
    assert orphan_delay_seconds(100) < 1
    eventually(lambda: cluster.zookeeper.get(ids)[1].cversion == 4)


def test_owner_znodes_of_partitions_that_stay_are_retained(cluster):
    cluster.create_topics("t0", "t1")
    member = cluster.member("a")
    member.join(Subscription.by_filter(Whitelist("t.*"), 1))
    path = f"{cluster.root}/consumers/g/owners/t0/0"
    created = cluster.zookeeper.get(path)[1].czxid
    cluster.create_topics("t2")
    eventually(lambda: len(member.ownership()) == 3)
    assert cluster.zookeeper.get(path)[1].czxid == created
    cluster.zookeeper.delete(path)  # as JVM members may; the next rebalance finds it missing
    cluster.create_topics("t3")
    eventually(lambda: len(member.ownership()) == 4)
    assert cluster.zookeeper.exists(path)


class InStepTwo(ConsumerRebalanceListener):
    """Calls something once when partitions are released, and waits until the member has noticed it."""

    def __init__(self, member: GroupMember, action) -> None:
        self._member = member
        self._action = action

    def before_releasing_partitions(self, owned):
        if owned and self._action is not None:
            action, self._action = self._action, None
            action()
            eventually(lambda: self._member._signal.raised)


def test_what_the_final_assignment_lacks_is_not_retained(cluster):
    cluster.create_topics("t", partitions=4)
    member = cluster.member("z")
    member.set_listener(InStepTwo(member, lambda: cluster.register_stranger("b", "t")))
    member.join(Subscription.static({"t": 1}))
    cluster.register_stranger("a", "t")
    eventually(lambda: member.ownership().keys() == {TopicPartition("t", 3)})
    assert cluster.zookeeper.get_children(f"{cluster.root}/consumers/g/owners/t") == ["3"]


def test_nothing_is_retained_where_no_assignment_is_possible(cluster):
    cluster.create_topics("t", partitions=4)
    member = cluster.member("z")

    def disagree():
        node = b'{"version":1,"client":"zkconsumer","assignor":"roundrobin"}'
        cluster.zookeeper.create(f"{cluster.root}/consumers/g/zkconsumer/members/g_a@1", node)
        cluster.register_stranger("b", "t")

    member.set_listener(InStepTwo(member, disagree))
    member.join(Subscription.static({"t": 1}))
    cluster.register_stranger("a", "t")
    eventually(lambda: cluster.zookeeper.get_children(f"{cluster.root}/consumers/g/owners/t") == [])
    eventually(lambda: member.stats().rebalances.failures)
