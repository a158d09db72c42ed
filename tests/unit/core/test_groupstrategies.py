"""The strategies that a leader assigns by, and the division of a member's partitions over its threads."""

import pytest

from zkconsumer.core.groupstrategies import STRATEGIES, MemberSubscription, configured_strategies, divide
from zkconsumer.model import ConsumerThreadId, TopicPartition


def parts(*numbers, topic="t"):
    return frozenset(TopicPartition(topic, number) for number in numbers)


def member(member_id, *, topics=("t",), owned=frozenset(), generation=1, instance_id=None):
    return MemberSubscription(member_id, topics, owned, generation, instance_id)


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


def test_strategies_are_named_as_in_the_property():
    assert [one.name for one in configured_strategies("cooperative-sticky, range")] == ["cooperative-sticky", "range"]
    assert [one.name for one in configured_strategies("roundrobin-natural")] == ["roundrobin"]


def thread(number):
    return ConsumerThreadId("g_a", number)


def test_partitions_are_divided_over_the_threads_of_their_topic():
    found = divide("g_a", parts(0, 1, 2, 3), {"t": 2}, {})
    assert sorted(found) == sorted(parts(0, 1, 2, 3))
    assert sorted(one.number for one in found.values()) == [0, 0, 1, 1]


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
