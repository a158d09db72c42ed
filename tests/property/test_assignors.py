"""Invariants of every assignment, for any group."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from zkconsumer.group.rules.assignors import ASSIGNORS, range_assignor
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.stickyassignor import sticky_assignor
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition

TOPICS = ["alpha", "beta", "gamma", "delta"]

subscriptions = st.dictionaries(
    st.text("abAB-_.019", min_size=1, max_size=6).map("g_".__add__),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 4), max_size=4),
    min_size=1,
    max_size=6,
)
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 30), max_size=4)


def view_of(members, counts):
    return GroupView(
        members={consumer: Subscription.static(topics) for consumer, topics in members.items()},
        partitions={topic: tuple(range(count)) for topic, count in counts.items()},
    )


def assignable(threads, partitions):
    return {TopicPartition(topic, n) for topic in threads for n in partitions.get(topic, ())}


@given(subscriptions, partition_counts)
def test_every_partition_has_one_owner_that_subscribes_to_it(members, counts):
    view = view_of(members, counts)
    threads = view.threads_by_topic(exclude_internal=True)
    for assignor in ASSIGNORS.values():
        assignment = assignor(threads, view.partitions)
        assert assignment.keys() == assignable(threads, view.partitions)
        assert all(owner in threads[partition.topic] for partition, owner in assignment.items())


@given(subscriptions, partition_counts, st.randoms())
def test_the_order_of_the_input_does_not_matter(members, counts, random):
    view = view_of(members, counts)
    mixed = list(members.items())
    random.shuffle(mixed)
    other = view_of(dict(mixed), dict(reversed(counts.items())))
    for assignor in ASSIGNORS.values():
        first = assignor(view.threads_by_topic(exclude_internal=True), view.partitions)
        assert assignor(other.threads_by_topic(exclude_internal=True), other.partitions) == first


@given(subscriptions, partition_counts)
def test_range_spreads_each_topic_evenly(members, counts):
    view = view_of(members, counts)
    threads = view.threads_by_topic(exclude_internal=True)
    assignment = range_assignor(threads, view.partitions)
    for topic, of_topic in threads.items():
        shares = Counter(owner for partition, owner in assignment.items() if partition.topic == topic)
        sizes = [shares[thread] for thread in of_topic]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


@given(st.integers(1, 6), st.integers(1, 3), partition_counts)
def test_round_robin_spreads_evenly_where_subscriptions_are_equal(consumers, streams, counts):
    members = {f"g_{n}": dict.fromkeys(TOPICS, streams) for n in range(consumers)}
    view = view_of(members, counts)
    for name in ("roundrobin", "roundrobin-0.8", "roundrobin-natural"):
        assignment = ASSIGNORS[name](view.threads_by_topic(exclude_internal=True), view.partitions)
        sizes = Counter(assignment.values())
        loads = [sizes[thread] for thread in view.threads_by_topic(exclude_internal=True)["alpha"]]
        assert max(loads) - min(loads) <= 1


def load_of(assignment, threads):
    sizes = Counter(assignment.values())
    return {thread: sizes[thread] for of_topic in threads.values() for thread in of_topic}


@given(subscriptions, subscriptions, partition_counts, partition_counts)
def test_sticky_is_balanced_and_settles(before, after, counts_before, counts_after):
    old, new = view_of(before, counts_before), view_of(after, counts_after)
    previous = sticky_assignor(old.threads_by_topic(exclude_internal=True), old.partitions, {})
    threads = new.threads_by_topic(exclude_internal=True)
    assignment = sticky_assignor(threads, new.partitions, previous)
    assert assignment.keys() == assignable(threads, new.partitions)
    load = load_of(assignment, threads)
    for partition, owner in assignment.items():
        assert all(load[owner] <= load[other] + 1 for other in threads[partition.topic])
    assert sticky_assignor(threads, new.partitions, assignment) == assignment


@example(2, 5, {"alpha": 6, "beta": 1}, {"alpha": 6, "beta": 1})  # one thread lost more partitions than necessary
@given(st.integers(1, 6), st.integers(1, 6), partition_counts, partition_counts)
def test_sticky_moves_no_more_than_balance_requires(consumers_before, consumers_after, counts_before, counts_after):
    topics = dict.fromkeys(TOPICS, 1)
    old = view_of({f"g_{n}": topics for n in range(consumers_before)}, counts_before)
    new = view_of({f"g_{n}": topics for n in range(consumers_after)}, counts_after)
    previous = sticky_assignor(old.threads_by_topic(exclude_internal=True), old.partitions, {})
    threads = new.threads_by_topic(exclude_internal=True)
    assignment = sticky_assignor(threads, new.partitions, previous)
    kept = {p: owner for p, owner in previous.items() if p in assignment and owner in threads["alpha"]}
    moved = sum(assignment[partition] != owner for partition, owner in kept.items())
    share, extra = divmod(len(assignment), consumers_after)
    held = sorted(load_of(kept, threads).values(), reverse=True)
    needed = sum(max(0, count - share - (position < extra)) for position, count in enumerate(held))
    assert moved == needed
