"""ShareComputer over groups in memory: what a member should own, why, and what JVM members gave up."""

import logging

import pytest

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import StrategyConflict
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.sharecomputer import ShareComputer
from zkconsumer.model import ConsumerThreadId, TopicIdentity, TopicPartition

ME, JVM = "g_me", "g_jvm"
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def group(members=(ME,), ours=(ME,), identity="id", assignor="range", **changes):
    """A view: all members read topic t with two partitions, in one stream."""
    return GroupView(
        **{
            "members": {name: Subscription.static({"t": 1}) for name in members},
            "partitions": {"t": (0, 1)},
            "identities": {"t": TopicIdentity(identity, 5)},
            "our_clients": dict.fromkeys(ours, assignor),
            **changes,
        }
    )


class GroupReaderInMemory:
    """A reader of one group."""

    def __init__(self, view):
        self.now = view
        self.reads = []
        self.owners = {}
        self.topics = {"t": (0, 1), "u": (0,)}

    def view(self, group, topics_of=None):
        self.reads.append((group, topics_of))
        return self.now

    def owner_threads(self, group, partitions):
        return {partition: self.owners.get(partition) for partition in partitions}

    def partitions(self, topics):
        return {topic: self.topics[topic] for topic in topics}


class Reader:
    """A share reader of this member, and what it reads."""

    def __init__(self, view, **config):
        self.group_reader = GroupReaderInMemory(view)
        self.signal = RebalanceSignal()
        properties = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", **config)
        self.shares = ShareComputer(properties, ME, self.group_reader, self.signal)

    def settle(self):
        """Rebalance successfully to the present group."""
        share = self.shares.target(self.shares.view()).share
        self.shares.settled()
        return share

    def change(self, view):
        """The group changes, and a watch fires."""
        self.group_reader.now = view
        self.signal.raise_flag()
        return self.shares.view()


def test_a_view_is_kept_until_a_watch_fires():
    reader = Reader(group())
    first = reader.shares.view()
    assert reader.shares.view() is first
    assert (reader.shares.views, reader.group_reader.reads) == (1, [("g", ME)])
    reader.change(group((ME, JVM)))
    assert reader.shares.views == 2
    reader.shares.forget_view()
    reader.shares.view()
    assert reader.shares.views == 3


def test_a_change_during_the_read_makes_the_view_outdated():
    reader = Reader(group())
    reader.group_reader.view = lambda *_: reader.signal.raise_flag() or reader.group_reader.now
    reader.shares.view()
    reader.shares.view()
    assert reader.shares.views == 2


def test_round_robin_reads_the_topics_of_all_members():
    reader = Reader(group(assignor="roundrobin"), partition_assignment_strategy="roundrobin")
    reader.shares.view()
    assert reader.group_reader.reads == [("g", None)]


def test_a_share_is_this_members_part_of_the_assignment():
    reader = Reader(group((ME, JVM)))
    target = reader.shares.target(reader.shares.view())
    assert target.share == {T1: ConsumerThreadId(ME, 0)}, "g_jvm is first in the order of names"
    assert target.assignment == {T0: ConsumerThreadId(JVM, 0), **target.share}
    assert target.topics.keys() == {"t"}


def test_members_that_assign_differently_are_a_conflict():
    view = group((ME, "g_other"), (ME,), our_clients={ME: "range", "g_other": "sticky"})
    reader = Reader(view)
    with pytest.raises(StrategyConflict, match=r"group g: .*g_other \(sticky\)"):
        reader.shares.target(view)


def test_what_has_changed_is_compared_with_the_last_success():
    reader = Reader(group())
    assert reader.shares.change(reader.shares.view())[0] == RebalanceCause.MEMBERS
    assert reader.settle().keys() == {T0, T1}
    assert reader.shares.change(reader.change(group((ME, JVM)))) == (RebalanceCause.MEMBERS, "g_jvm joined")
    assert reader.settle().keys() == {T1}
    assert reader.shares.change(reader.shares.view())[0] == RebalanceCause.OWNERSHIP


def test_a_share_is_foreseen_only_for_the_assigned_view():
    reader = Reader(group())
    view = reader.shares.view()
    assert reader.shares.assigned(view) == {}
    reader.shares.assign(view)
    assert reader.shares.assigned(view).keys() == {T0, T1}
    assert reader.shares.assigned(reader.change(group())) == {}


def test_an_unreadable_member_is_reported_once_for_each_reason(caplog):
    reader = Reader(group(unreadable={"g_bad": "no JSON"}))
    with caplog.at_level(logging.ERROR):
        reader.shares.view()
        reader.change(group(unreadable={"g_bad": "no JSON"}))
        assert reader.shares.excluded == "; excluded from the assignment: no JSON"
        reader.change(group(unreadable={"g_bad": "a bad regex"}))
    assert [record.args[-1] for record in caplog.records] == ["no JSON", "a bad regex"]
    reader.change(group())
    assert reader.shares.excluded == ""


def test_a_missing_topic_is_reported_once_until_it_exists(caplog):
    missing = {ME: Subscription.static({"t": 1, "mistyped": 1})}
    reader = Reader(group(members=()))
    for members in (missing, missing, {ME: Subscription.static({"t": 1})}, missing):
        reader.change(GroupView(members, {"t": (0, 1)}))
    assert caplog.text.count("topic mistyped is not found") == 2


@pytest.mark.parametrize(("ours", "expected"), [((ME,), True), ((ME, "g_a"), False), ((ME, "g_z"), True)])
def test_the_smallest_id_of_our_members_nudges(ours, expected):
    reader = Reader(group((*ours, JVM), ours))
    assert reader.shares.nudges() is False, "before the first assignment"
    reader.settle()
    assert reader.shares.nudges() is expected


@pytest.mark.parametrize(
    ("owners", "orphans", "held"),
    [
        ({}, [T0], False),
        ({T0: f"{JVM}-0"}, [], False),
        ({T0: f"{ME}-0"}, [], True),
    ],
    ids=["without owner", "owned as computed", "held by another member"],
)
def test_orphans_are_partitions_that_a_jvm_member_should_own(owners, orphans, held):
    reader = Reader(group((ME, JVM)))
    reader.settle()
    reader.group_reader.owners = owners
    assert reader.shares.orphans() == (orphans, held)


def test_without_jvm_members_there_are_no_orphans():
    reader = Reader(group((ME, "g_z"), (ME, "g_z")))
    reader.settle()
    assert reader.shares.orphans() == ([], False)


def test_orphans_of_topics_that_this_member_does_not_read():
    members = {ME: Subscription.static({"t": 1}), JVM: Subscription.static({"u": 1})}
    reader = Reader(GroupView(members, {"t": (0, 1)}, our_clients={ME: "range"}))
    assert reader.settle().keys() == {T0, T1}
    assert reader.shares.orphans() == ([U0], False)
