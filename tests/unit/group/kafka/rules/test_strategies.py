"""The strategies that a leader assigns by, and the division of a member's partitions over its threads."""

import pytest

from tests.fixtures.assignors import ByRack, Eager
from zkconsumer.group.kafka.rules.strategies import STRATEGIES, MemberSubscription, OwnStrategy, configured_strategies
from zkconsumer.group.rules.stickyassignor import divide
from zkconsumer.model import ConsumerThreadId, TopicPartition


def parts(*numbers, topic="t"):
    return frozenset(TopicPartition(topic, number) for number in numbers)


def member(member_id, *, topics=("t",), owned=frozenset(), generation=1, instance_id=None, streams=None):
    return MemberSubscription(member_id, topics, owned, generation, instance_id, streams or {})


def assign(name, members, **partitions):
    topics = {topic: tuple(range(count)) for topic, count in partitions.items()}
    return STRATEGIES[name].assign(members, topics)


def test_range_gives_consecutive_partitions_in_the_order_of_ids():
    assert assign("range", [member("b"), member("a")], t=3) == {"a": parts(0, 1), "b": parts(2)}


def test_roundrobin_deals_in_natural_order():
    assert assign("roundrobin", [member("b"), member("a")], t=3) == {"a": parts(0, 2), "b": parts(1)}


def test_static_members_come_first_in_the_order_of_their_instance_ids():
    members = [member("a"), member("z", instance_id="1"), member("y", instance_id="2")]
    assert assign("range", members, t=3) == {"z": parts(0), "y": parts(1), "a": parts(2)}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_member_without_a_topic_that_exists_gets_nothing(name):
    assert assign(name, [member("a", topics=("missing",)), member("b")], t=2) == {"a": frozenset(), "b": parts(0, 1)}


@pytest.mark.parametrize("name", STRATEGIES)
def test_topics_go_to_their_subscribers_only(name):
    assigned = assign(name, [member("a", topics=("t",)), member("b", topics=("u",))], t=2, u=2)
    assert assigned == {"a": parts(0, 1), "b": parts(0, 1, topic="u")}


def test_sticky_keeps_what_it_can():
    members = [member("a", owned=parts(1, 3)), member("b", owned=parts(0, 2))]
    assert assign("sticky", members, t=4) == {"a": parts(1, 3), "b": parts(0, 2)}


def test_sticky_moves_at_once():
    assigned = assign("sticky", [member("a", owned=parts(0, 1, 2, 3)), member("b")], t=4)
    assert (len(assigned["a"]), len(assigned["b"])) == (2, 2)


def test_cooperative_sticky_moves_nothing_before_its_owner_has_given_it_up():
    first = assign("cooperative-sticky", [member("a", owned=parts(0, 1, 2, 3)), member("b")], t=4)
    assert (len(first["a"]), first["b"]) == (2, frozenset())
    second = assign("cooperative-sticky", [member("a", owned=first["a"]), member("b")], t=4)
    assert second == {"a": first["a"], "b": parts(0, 1, 2, 3) - first["a"]}


def test_of_two_claims_the_newer_generation_counts():
    members = [member("a", owned=parts(0, 1), generation=3), member("b", owned=parts(0, 1), generation=4)]
    assert assign("sticky", members, t=4) == {"a": parts(2, 3), "b": parts(0, 1)}


def test_what_two_members_claim_is_given_to_neither_before_one_gives_it_up():
    members = [member("a", owned=parts(0)), member("b", owned=parts(0))]
    assert assign("cooperative-sticky", members, t=1) == {"a": frozenset(), "b": frozenset()}


def test_a_claim_without_a_generation_counts_alone():
    assert assign("sticky", [member("a", owned=parts(1), generation=-1), member("b")], t=2)["a"] == parts(1)


def sizes(assigned):
    return {member_id: len(theirs) for member_id, theirs in assigned.items()}


def test_a_member_gets_as_much_as_its_number_of_streams():
    members = [member("a", streams={"t": 3}), member("b"), member("c", streams={"t": 2})]
    assert sizes(assign("zkconsumer", members, t=12)) == {"a": 6, "b": 2, "c": 4}


def test_a_member_with_many_streams_leaves_partitions_to_others():
    assert sizes(assign("zkconsumer", [member("a", streams={"t": 100}), member("b")], t=2)) == {"a": 1, "b": 1}


@pytest.mark.parametrize("wrong", [0, -5, 2**31 - 1])
def test_a_number_of_streams_that_makes_no_sense_does_no_harm(wrong):
    found = sizes(assign("zkconsumer", [member("a", streams={"t": wrong}), member("b")], t=4))
    assert found in ({"a": 2, "b": 2}, {"a": 3, "b": 1})


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_streams_count_for_our_own_strategy_only(name):
    assert sizes(assign(name, [member("a", streams={"t": 3}), member("b")], t=4)) == {"a": 2, "b": 2}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
def test_eager_strategies_give_what_another_member_owned(name):
    assert sizes(assign(name, [member("a", owned=parts(0, 1, 2, 3)), member("b")], t=4)) == {"a": 2, "b": 2}


def test_a_member_that_reports_no_generation_has_that_of_kafkas_clients():
    assert MemberSubscription("a", ()).generation == -1


def test_streams_count_for_their_own_topic_only():
    members = [member("a", topics=("t", "u"), streams={"t": 2, "u": 1}), member("b", topics=("u",))]
    assigned = assign("zkconsumer", members, t=4, u=4)
    assert {one.topic for one in assigned["b"]} == {"u"}
    assert sizes(assigned) == {"a": 5, "b": 3}


def test_a_balanced_assignment_by_streams_stays():
    members = [member("a", owned=parts(0, 3, 5, 7), streams={"t": 2}), member("b", owned=parts(1, 2))]
    found = assign("zkconsumer", members, t=8)
    assert parts(0, 3, 5, 7) <= found["a"]
    assert parts(1, 2) <= found["b"]
    assert sizes(found) in ({"a": 5, "b": 3}, {"a": 6, "b": 2})


def test_another_stream_draws_as_little_as_it_has_to():
    members = [member("a", owned=parts(0, 1, 2), streams={"t": 2}), member("b", owned=parts(3, 4, 5))]
    first = assign("zkconsumer", members, t=6)
    assert first["a"] == parts(0, 1, 2)
    assert len(parts(3, 4, 5) - first["b"]) == 1, "one partition moves, when its owner has given it up"
    second = assign("zkconsumer", [members[0], member("b", owned=first["b"])], t=6)
    assert sizes(second) == {"a": 4, "b": 2}


def test_strategies_are_named_as_in_the_property():
    assert [one.name for one in configured_strategies("cooperative-sticky, range")] == ["cooperative-sticky", "range"]
    assert [one.name for one in configured_strategies("roundrobin-natural")] == ["roundrobin"]


def thread(number):
    return ConsumerThreadId("g_a", number)


def test_partitions_are_divided_over_the_threads_of_their_topic():
    found = divide("g_a", parts(0, 1, 2, 3), {"t": 2}, {})
    assert sorted(found) == sorted(parts(0, 1, 2, 3))
    assert sorted(one.number for one in found.values()) == [0, 0, 1, 1]
    backwards = sorted(parts(0, 1, 2, 3), reverse=True)
    assert divide("g_a", backwards, {"t": 2}, {}) == found == divide("g_a", sorted(backwards), {"t": 2}, {})


def test_partitions_stay_with_their_threads():
    held = {TopicPartition("t", 0): thread(1), TopicPartition("t", 1): thread(0)}
    found = divide("g_a", parts(0, 1, 2), {"t": 2}, held)
    assert held.items() <= found.items()


def test_partitions_of_topics_that_are_not_subscribed_are_ignored():
    assert divide("g_a", parts(0, topic="other"), {"t": 1}, {}) == {}


def test_each_topic_has_its_own_number_of_threads():
    found = divide("g_a", parts(0) | parts(0, 1, 2, topic="u"), {"t": 1, "u": 3}, {})
    assert found[TopicPartition("t", 0)] == thread(0)
    assert {one.number for partition, one in found.items() if partition.topic == "u"} == {0, 1, 2}


# -- an assignor of the application ------------------------------------------------------------------------------------


def racks(*, owned=()):
    """Two members in two racks, the second of which owns something."""
    return [
        MemberSubscription("m1", ("t",), user_data=b"r0"),
        MemberSubscription("m2", ("t",), frozenset(owned), 1, user_data=b"r1"),
    ]


def test_an_own_assignor_gets_what_members_wrote():
    assert OwnStrategy(ByRack()).assign(racks(), {"t": (0, 1, 2)}) == {"m1": parts(0, 2), "m2": parts(1)}


def test_a_partition_is_withheld_until_its_owner_gives_it_up_unless_the_assignor_is_eager():
    given = racks(owned=parts(0, 1))
    assert OwnStrategy(ByRack()).assign(given, {"t": (0, 1, 2)}) == {"m1": parts(2), "m2": parts(1)}
    assert OwnStrategy(Eager()).assign(given, {"t": (0, 1, 2)}) == {"m1": parts(0, 2), "m2": parts(1)}


def test_own_assignors_and_those_of_the_package_can_be_listed_together():
    own = ByRack()
    found = configured_strategies("racks:OWN, cooperative-sticky,range", {"racks:OWN": own})
    assert [(one.name, one.cooperative) for one in found] == [
        ("by-rack", True),
        ("cooperative-sticky", True),
        ("range", False),
    ]
