"""What changed between two samples of a group."""

from tests.fixtures.groups import followed
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.groupchanges import GONE, Change, GroupMoment, group_began, group_changes
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus, evaluate_group
from zkconsumer.operate.groups.rules.lagstretches import LagSample

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def lag(committed) -> GroupLag:
    return evaluate_group({P0: followed([LagSample(0.0, committed, 1, 0, 9, None, False)])}, 2, members=1)


def test_nothing_changed():
    moment = GroupMoment(frozenset({"g_a"}), {P0: "g_a-0"}, lag(9))
    assert list(group_changes(moment, moment)) == []


def test_a_group_comes_and_goes():
    assert str(group_began(GroupMoment(frozenset(), {}, lag(9)))) == "watching, OK, lag 0"
    assert str(group_began(GroupMoment(frozenset(), {}, lag(None)))) == "watching, UNKNOWN, lag unknown"
    assert str(GONE) == "gone, it does not exist any more"


def test_members_owners_and_status():
    before = GroupMoment(frozenset({"g_a", "g_b"}), {P0: "g_a-0"}, lag(9))
    after = GroupMoment(frozenset({"g_b", "g_c"}), {P0: "g_b-0", P1: "g_c-0"}, lag(10))
    changes = list(group_changes(before, after))
    assert changes == [
        Change("joined", "g_c", None, "g_c"),
        Change("left", "g_a", "g_a", None),
        Change("owner", "t-0", "g_a-0", "g_b-0"),
        Change("owner", "t-1", None, "g_c-0"),
        Change("status", "t-0", LagStatus.OK.value, LagStatus.RANGE.value),
    ]
    assert [str(change) for change in changes[1:4]] == [
        "g_a left",
        "owner of t-0: g_a-0 -> g_b-0",
        "owner of t-1: none -> g_c-0",
    ]
