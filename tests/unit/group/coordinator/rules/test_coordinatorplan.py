"""What the coordinator commands next, given commands, owners and the target."""

import pytest

from zkconsumer.group.coordinator.rules.coordinatorplan import (
    Awaited,
    CommandPlan,
    Roles,
    awaited_since,
    brokers_for,
    longest_wait_seconds,
    overdue,
    plan,
    previous,
    refusals,
    roles,
    target,
    undecided,
)
from zkconsumer.group.rules.assignors import ASSIGNORS
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition

P = [TopicPartition("t", number) for number in range(8)]


def shares(**members):
    """``shares(a=[0, 1])``: partitions of topic t, all for the first consumer thread."""
    return {name: {P[number]: ConsumerThreadId(name, 0) for number in numbers} for name, numbers in members.items()}


def aim(**members):
    return {partition: thread for share in shares(**members).values() for partition, thread in share.items()}


def owned(**members):
    """Owner znodes of what was read: ``owned(a=[0], none=[1])``."""
    return {
        P[number]: None if name == "none" else f"{name}-0" for name, numbers in members.items() for number in numbers
    }


def view(counts=8, **streams):
    return GroupView(
        members={name: Subscription.static({"t": count}) for name, count in streams.items()},
        partitions={"t": tuple(range(counts))},
    )


def test_commands_name_different_brokers():
    brokers = [Broker(number, "host", 9092) for number in range(10)]
    named = [brokers_for(f"g_{number}", brokers) for number in range(200)]
    assert {broker for some in named for broker in some} == set(brokers)
    assert {len(set(some)) for some in named} == {3}
    assert brokers_for("g_a", brokers[:1]) == (brokers[0],)
    assert brokers_for("g_a", []) == ()


def test_free_partitions_are_granted():
    assert plan(aim(a=[0, 1], b=[2]), shares(a=[], b=[]), owned(none=[0, 1, 2])) == CommandPlan(
        shares(a=[0, 1], b=[2]), frozenset()
    )


def test_a_partition_is_withdrawn_before_it_is_granted():
    aimed = aim(a=[0], b=[1])
    first = plan(aimed, shares(a=[0, 1], b=[]), {})
    assert first == CommandPlan(shares(a=[0]), frozenset([P[1]]))
    held = plan(aimed, shares(a=[0], b=[]), owned(a=[1]))
    assert held == CommandPlan({}, frozenset([P[1]]))
    free = plan(aimed, shares(a=[0], b=[]), owned(none=[1]))
    assert free == CommandPlan(shares(b=[1]), frozenset())


def test_a_partition_withdrawn_and_granted_in_one_plan_is_impossible():
    """Its owner znode may not exist yet although its holder is about to claim it."""
    assert plan(aim(b=[0]), shares(a=[0], b=[]), owned(none=[0])).shares == shares(a=[])


def test_a_partition_whose_owner_was_not_read_is_awaited():
    assert plan(aim(a=[0]), shares(a=[]), {}) == CommandPlan({}, frozenset([P[0]]))


def test_a_partition_that_its_target_still_owns_is_granted():
    assert plan(aim(a=[0]), shares(a=[]), owned(a=[0])).shares == shares(a=[0])


def test_the_owner_znode_of_another_program_blocks_only_its_partition():
    owners = {P[0]: "no thread id", P[1]: None}
    assert plan(aim(a=[0, 1]), shares(a=[]), owners) == CommandPlan(shares(a=[1]), frozenset([P[0]]))


def test_a_member_that_keeps_its_share_gets_no_command():
    assert plan(aim(a=[0], b=[1]), shares(a=[0], b=[1]), {}) == CommandPlan({}, frozenset())


def test_another_thread_of_the_holder_gets_a_partition_at_once():
    moved = {P[0]: ConsumerThreadId("a", 1)}
    assert plan(moved, shares(a=[0]), {}).shares == {"a": moved}


def test_what_foreign_members_should_own_is_withdrawn_and_not_granted():
    assert plan(aim(jvm=[0], a=[1]), shares(a=[0, 1]), {}) == CommandPlan(shares(a=[1]), frozenset())


def test_a_partition_in_two_commands_remains_in_the_right_one():
    assert plan(aim(a=[0], b=[1]), shares(a=[0], b=[0, 1]), {}).shares == shares(b=[1])


def test_only_partitions_without_a_command_are_read():
    assert undecided(aim(b=[2], a=[1, 0], jvm=[3]), shares(a=[0], b=[])) == [P[1], P[2]]


def test_only_a_group_that_obeys_waits_for_half_a_session():
    assert longest_wait_seconds(2000, 30.0, patient=True) == 15.0
    assert longest_wait_seconds(2000, 30.0, patient=False) == 1.0
    assert longest_wait_seconds(2000, 1.0, patient=True) == 1.0


def test_members_with_a_short_session_or_an_unreadable_registration_are_refused():
    seen = GroupView(
        members={},
        partitions={},
        unreadable={"u": "not JSON"},
        session_ms={"short": 5999, "u": 5999, "enough": 6000, "jvm": 1},
    )
    found = refusals(seen, ["short", "u", "enough", "old"], 6000)
    assert found.keys() == {"short", "u"}
    assert "5999 ms is below coordinator.min.session.ms=6000" in found["short"]
    assert "not JSON" in found["u"]


def test_a_policy_assigns_members_that_all_obey():
    members, before = Roles(frozenset("ab"), frozenset()), aim(a=range(8))
    after = target(view(a=1, b=1), members, "range", before, exclude_internal=True, policy="roundrobin")
    seen = view(a=1, b=1)
    assert after == ASSIGNORS["roundrobin"](seen.threads_by_topic(exclude_internal=True), seen.partitions)


def test_what_a_refused_member_leaves_is_dealt_to_those_that_have_least():
    seen = GroupView(
        members={name: Subscription.static({"t": 1}) for name in "abcr"}, partitions={"t": tuple(range(16))}
    )
    members = Roles(frozenset("bcr"), frozenset("a"))
    after = target(seen, members, "range", {}, exclude_internal=True, refused=frozenset("r"))
    assert [after[TopicPartition("t", number)].consumer_id for number in range(12, 16)] == ["b", "c", "b", "c"]


def test_a_member_that_left_between_two_listings_is_not_foreign():
    assert roles({"a", "gone", "jvm"}, {"a"}, {"a", "jvm"}) == Roles(frozenset("a"), frozenset(["jvm"]))
    assert roles({"a"}, {"a", "late"}, {"a", "late"}) == Roles(frozenset("a"), frozenset())


def test_a_member_without_its_command_is_about_to_return():
    found = roles({"a", "b", "jvm"}, {"a"}, {"a", "b", "jvm"}, {"a", "b"})
    assert found == Roles(frozenset("a"), frozenset(["jvm"]), frozenset("b"))


def test_a_member_that_returns_keeps_its_share():
    before = aim(a=[0, 1, 2, 3], b=[4, 5, 6, 7])
    members = Roles(frozenset("a"), frozenset(), frozenset("b"))
    assert target(view(a=1, b=1), members, "range", before, exclude_internal=True) == before


def test_alone_members_keep_what_they_have():
    before = aim(a=[0, 1, 2, 3], b=[4, 5, 6, 7])
    after = target(view(a=1, b=1, c=1), Roles(frozenset("abc"), frozenset()), "range", before, exclude_internal=True)
    assert sum(after[p] == before[p] for p in P) == 6


def test_with_foreign_members_all_are_assigned_by_the_shared_assignor():
    after = target(
        view(a=1, b=1), Roles(frozenset("a"), frozenset("b")), "range", aim(b=[0], a=[7]), exclude_internal=True
    )
    assert after == aim(a=[0, 1, 2, 3], b=[4, 5, 6, 7])


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_what_foreign_members_leave_to_a_refused_member_is_given_to_the_others(assignor):
    """Foreign members count it: computed without it, some partitions would be nobody's, others everyone's."""
    seen = view(a=1, b=1, c=2, r=1)
    shared = ASSIGNORS[assignor](seen.threads_by_topic(exclude_internal=True), seen.partitions)
    members = Roles(frozenset("bcr"), frozenset("a"))
    after = target(seen, members, assignor, {}, exclude_internal=True, refused=frozenset("r"))
    assert after.keys() == shared.keys() == set(P)
    theirs = {p: thread for p, thread in shared.items() if thread.consumer_id == "r"}
    assert theirs
    assert {p: thread for p, thread in after.items() if p not in theirs} == {
        p: thread for p, thread in shared.items() if p not in theirs
    }
    assert {after[p].consumer_id for p in theirs} <= {"b", "c"}


def test_what_no_other_follower_subscribes_to_is_not_given():
    members = Roles(frozenset("r"), frozenset("a"))
    after = target(view(a=1, r=1), members, "range", {}, exclude_internal=True, refused=frozenset("r"))
    assert after == aim(a=[0, 1, 2, 3])


def test_without_foreign_members_a_refused_one_is_not_counted():
    members = Roles(frozenset("ar"), frozenset())
    after = target(view(a=1, r=1), members, "range", {}, exclude_internal=True, refused=frozenset("r"))
    assert after == aim(a=range(8))


def test_a_member_that_is_neither_gets_nothing():
    after = target(view(a=1, b=1), Roles(frozenset("a"), frozenset()), "range", {}, exclude_internal=True)
    assert after == aim(a=range(8))


def test_a_move_under_way_keeps_its_direction():
    assert previous(shares(a=[0], b=[]), aim(a=[0], b=[1])) == aim(a=[0], b=[1])
    assert previous(shares(a=[0, 1], b=[]), aim(a=[0], b=[1])) == aim(a=[0, 1])


def test_a_partition_that_is_not_released_in_time_is_overdue():
    awaited = awaited_since({}, {P[0]: "a", P[1]: "a"}, {}, 100.0)
    awaited = awaited_since(awaited, {P[1]: "a", P[2]: None}, {}, 103.0)
    assert awaited == {P[1]: Awaited("a", 100.0), P[2]: Awaited(None, 103.0)}
    assert overdue(awaited, 103.9, 6.0) == {}
    assert overdue(awaited, 104.0, 6.0).keys() == {P[1]}
    backwards = {partition: Awaited("a", 0.0) for partition in reversed(P)}
    assert list(overdue(backwards, 104.0, 6.0)) == P


def test_the_time_begins_again_where_another_member_has_to_act():
    """1. a releases after 20 s; 2. b is granted the partition, and has as long as any member to claim it."""
    awaited = awaited_since({}, {P[0]: "a"}, {}, 100.0)
    awaited = awaited_since(awaited, {}, {P[0]: "b"}, 120.0)
    assert awaited == {P[0]: Awaited("b", 120.0, is_granted=True)}
    assert awaited_since(awaited, {P[0]: "b"}, {}, 130.0) == {P[0]: Awaited("b", 130.0)}
