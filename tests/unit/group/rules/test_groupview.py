import pytest

from zkconsumer.group.rules.groupview import GroupView, describe_changes, format_partitions
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import ConsumerThreadId, Topic, TopicIdentity, TopicPartition

STATIC = Subscription.static({"t": 1})


def test_threads_of_filters_and_names_meet():
    view = GroupView(
        members={"g_b": STATIC, "g_a": Subscription.by_filter(Whitelist("t.*"), 2)},
        partitions={},
        topics=frozenset({"t", "t2", "u"}),
    )
    a0, a1, b0 = ConsumerThreadId("g_a", 0), ConsumerThreadId("g_a", 1), ConsumerThreadId("g_b", 0)
    assert view.threads_by_topic(exclude_internal=True) == {"t": [a0, a1, b0], "t2": [a0, a1]}


def group(ours, **members):
    return GroupView(members={**dict.fromkeys(ours, STATIC), **members}, partitions={}, our_clients=ours)


def test_members_that_agree_may_assign():
    assert group({"g_a": "range", "g_b": "range"}, g_jvm=STATIC).disagreement("range", shared_with_jvm=True) is None


def test_members_that_disagree_are_named():
    view = group({"g_a": "range", "g_b": "roundrobin", "g_c": "roundrobin-0.8"})
    reason = view.disagreement("roundrobin", shared_with_jvm=True)
    assert "g_a (range), g_c (roundrobin-0.8)" in reason
    assert "g_b" not in reason


def test_members_are_named_in_order():
    names = [f"g_{letter}" for letter in "fbdaec"]
    reason = group(dict.fromkeys(names, "range")).disagreement("roundrobin", shared_with_jvm=True)
    assert ", ".join(f"{name} (range)" for name in sorted(names)) in reason
    reason = group({}, **dict.fromkeys(names, STATIC)).disagreement("natural", shared_with_jvm=False)
    assert ", ".join(sorted(names)) in reason


def test_what_jvm_members_cannot_compute_is_refused_while_they_are_there():
    view = group({"g_a": "roundrobin-natural"}, g_jvm=STATIC)
    assert "g_jvm" in view.disagreement("roundrobin-natural", shared_with_jvm=False)
    alone = group({"g_a": "roundrobin-natural"})
    assert alone.disagreement("roundrobin-natural", shared_with_jvm=False) is None


def view(partitions=(), **members):
    return GroupView(members=members, partitions=dict(partitions))


def test_the_changes_of_a_group_are_described():
    before = view({"t": (0, 1), "gone": (0,)}, g_a=STATIC, g_b=STATIC, g_c=STATIC)
    after = view({"t": (0, 1, 2, 3)}, g_a=Subscription.static({"t": 2}), g_b=STATIC, g_d=STATIC)
    assert describe_changes(before, after) == (
        "g_d joined; g_c left; g_a changed subscription; topic gone has 0 partitions, it had 1; "
        "topic t has 4 partitions, it had 2"
    )
    assert describe_changes(None, before) == "joining a group of 3: g_a, g_b, g_c"
    assert describe_changes(after, after).startswith("the same group: an attempt failed")


def test_changes_are_described_in_order():
    names = "fbdaec"
    before = GroupView(
        members=dict.fromkeys(names, STATIC),
        partitions=dict.fromkeys(names, (0,)),
    )
    after = GroupView(
        members=dict.fromkeys(names, Subscription.static({"u": 1})),
        partitions=dict.fromkeys(names, (0, 1)),
    )
    assert describe_changes(before, after) == "; ".join(
        ["a, b, c, d, e, f changed subscription"]
        + [f"topic {name} has 2 partitions, it had 1" for name in sorted(names)]
    )


@pytest.mark.parametrize(
    ("numbers", "text"), [([], "nothing"), ([3], "t 3"), ([0, 1, 2, 5, 7, 8], "t 0-2,5,7-8"), ([1, 0], "t 0-1")]
)
def test_partitions_are_formatted_as_ranges(numbers, text):
    assert format_partitions(TopicPartition("t", number) for number in numbers) == text


def test_partitions_are_formatted_by_topic():
    assert format_partitions([TopicPartition("u", 0), TopicPartition("t", 1), TopicPartition("t", 0)]) == "t 0-1; u 0"


def test_a_topic_with_another_identity_was_recreated():
    def seen(**identities):
        return GroupView(members={}, partitions=dict.fromkeys(identities, (0,)), identities=identities)

    before = seen(t=TopicIdentity("A", 5), u=TopicIdentity("B", 6), v=TopicIdentity(None, 7), w=TopicIdentity(None, 8))
    after = seen(t=TopicIdentity("A", 9), u=TopicIdentity("C", 9), v=TopicIdentity("D", 7), w=TopicIdentity(None, 9))
    assert after.recreated_since(before, "tuvwx") == {"u", "w"}, "an id that an upgrade assigns is no other topic"


def test_subscribed_topics_are_those_that_exist():
    view = GroupView(
        members={"g_a": Subscription.static({"t": 1, "missing": 1})},
        partitions={"t": (0, 1), "u": (0,)},
        identities={"t": TopicIdentity("A", 5), "u": TopicIdentity("B", 6)},
    )
    expected = {"t": Topic((0, 1), TopicIdentity("A", 5))}
    assert view.subscribed_topics("g_a", exclude_internal=True) == expected
    assert view.subscribed_topics("g_left", exclude_internal=True) == {}


def test_equal_filters_are_matched_once_for_each_topic():
    matched = []

    class Counting(Whitelist):
        def allows(self, topic):
            matched.append(topic)
            return super().allows(topic)

    topics = frozenset(f"t{number}" for number in range(50))
    for _ in range(2):
        members = {f"g_{number}": Subscription.by_filter(Counting("t.*"), 1) for number in range(20)}
        view = GroupView(members, dict.fromkeys(topics, (0,)), frozenset(topics))
        threads = view.threads_by_topic(exclude_internal=True)
    assert len(threads) == 50
    assert all(len(of_topic) == 20 for of_topic in threads.values())
    assert len(matched) == 50


def test_threads_of_unequal_members_are_those_of_each_alone():
    members = {
        "g_a": Subscription.by_filter(Whitelist("t[01]"), 2),
        "g_b": Subscription.by_filter(Whitelist("t[01]"), 2),
        "g_c": Subscription.static({"t1": 1, "u": 3}),
        "g_d": Subscription.static({"t1": 2}),
    }
    view = GroupView(members, {}, frozenset({"t0", "t1", "u"}))
    threads = {topic: [str(one) for one in of] for topic, of in view.threads_by_topic(exclude_internal=True).items()}
    assert threads == {
        "t0": ["g_a-0", "g_a-1", "g_b-0", "g_b-1"],
        "t1": ["g_a-0", "g_a-1", "g_b-0", "g_b-1", "g_c-0", "g_d-0", "g_d-1"],
        "u": ["g_c-0", "g_c-1", "g_c-2"],
    }


@pytest.mark.parametrize(
    ("ours", "nudger"), [(("g_c", "g_b"), "g_b"), (("g_a", "g_c"), "g_c"), (("g_a",), None), ((), None)]
)
def test_the_smallest_registered_id_of_ours_nudges(ours, nudger):
    """A session node may remain without its registration, of a member that is stuck: g_a."""
    members = dict.fromkeys(("g_b", "g_c", "g_jvm"), Subscription.static({"t": 1}))
    view = GroupView(members, {}, our_clients=dict.fromkeys(ours, ""))
    assert view.nudger == nudger
    assert view.jvm_members == {"g_b", "g_c", "g_jvm"} - set(ours)
