import pytest

from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.rebalancetimes import (
    RebalanceCause,
    given_up,
    held_by_others,
    longest_settling_seconds,
    my_share,
    orphan_delay_seconds,
    rebalance_cause,
    release_seconds,
    retry_seconds,
    retry_window_seconds,
    settle_seconds,
    total_wait_covers_session,
    view_change,
)
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import ConsumerThreadId, TopicPartition


def test_events_settle_for_a_tenth_of_the_backoff_at_most_50_ms():
    assert settle_seconds(2000) == 0.05
    assert settle_seconds(100) == 0.01
    assert longest_settling_seconds(2000) == 1.0


def test_pauses_grow_with_each_outage_to_half_a_minute():
    assert [retry_seconds(2000, outages) for outages in range(6)] == [2, 2, 4, 8, 16, 30]
    assert retry_seconds(2000, 1000) == 30
    assert retry_seconds(60_000, 3) == 60  # a longer backoff was configured


def test_an_orphan_waits_for_two_backoffs_and_a_jvm_member_tries_as_often_as_it_may():
    assert orphan_delay_seconds(2000) == 4
    assert retry_window_seconds(4, 2000) == 8


def test_my_share():
    mine, other = ConsumerThreadId("g_a", 0), ConsumerThreadId("g_b", 0)
    assignment = {TopicPartition("t", 0): mine, TopicPartition("t", 1): other}
    assert my_share(assignment, "g_a") == {TopicPartition("t", 0): mine}


def test_jvm_defaults_outlast_a_session():
    assert total_wait_covers_session(4, 2000, 6000)
    assert not total_wait_covers_session(3, 2000, 6000)


def test_only_partitions_of_living_jvm_members_are_orphans():
    jvm, ours, dead = (ConsumerThreadId(member, 0) for member in ("g_jvm", "g_ours", "g_dead"))
    partitions = [TopicPartition("t", number) for number in range(4)]
    assignment = dict(zip(partitions, (jvm, jvm, ours, dead), strict=True))
    owned = {partitions[0]: "g_jvm-0", partitions[1]: None, partitions[2]: None, partitions[3]: None}
    assert given_up(assignment, owned, {"g_jvm"}) == [partitions[1]]
    backwards = dict.fromkeys(reversed(partitions), jvm)
    assert given_up(backwards, {}, {"g_jvm"}) == partitions


@pytest.mark.parametrize(
    ("owners", "held"),
    [
        (("g_jvm-0", None, "g_ours-0"), False),
        (("g_ours-0", None, "g_ours-0"), True),
        (("g_jvm-0", "g_ours-0", None), True),
        ((None, None, "g_jvm-0"), False),  # what zkconsumer members wait for is no reason
    ],
)
def test_jvm_members_may_give_up_while_others_hold_what_is_theirs(owners, held):
    jvm, ours = ConsumerThreadId("g_jvm", 0), ConsumerThreadId("g_ours", 0)
    partitions = [TopicPartition("t", number) for number in range(3)]
    assignment = dict(zip(partitions, (jvm, jvm, ours), strict=True))
    assert held_by_others(assignment, dict(zip(partitions, owners, strict=True)), {"g_jvm"}) is held


@pytest.mark.parametrize(
    ("is_first", "joined_again", "has_recreated", "cause"),
    [
        (True, True, False, RebalanceCause.START),
        (False, True, True, RebalanceCause.SESSION),
        (False, False, True, RebalanceCause.TOPICS),
        (False, False, False, RebalanceCause.MEMBERS),
    ],
)
def test_the_cause_of_a_rebalance_is_what_changed_unless_more_is_known(is_first, joined_again, has_recreated, cause):
    known = {"is_first": is_first, "joined_again": joined_again, "has_recreated": has_recreated}
    assert rebalance_cause(RebalanceCause.MEMBERS, **known) is cause


def test_what_has_changed_is_what_differs():
    one = GroupView(members={"g_a": Subscription.static({"t": 1})}, partitions={"t": (0,)})
    two = GroupView(members={**one.members, "g_b": Subscription.static({"t": 1})}, partitions=one.partitions)
    grown = GroupView(members=one.members, partitions={"t": (0, 1)})
    for before, after, change in [
        (None, one, RebalanceCause.MEMBERS),
        (one, two, RebalanceCause.MEMBERS),
        (one, grown, RebalanceCause.TOPICS),
        (one, one, RebalanceCause.OWNERSHIP),
    ]:
        assert view_change(before, after) is change


@pytest.mark.parametrize(
    ("retries", "backoff", "expected"), [(4, 2000, 3), (10, 2000, 4), (1, 2000, 0), (0, 2000, 0), (4, 100, 0.15)]
)
def test_a_release_leaves_jvm_members_half_of_their_window(retries, backoff, expected):
    assert release_seconds(retries, backoff) == expected
