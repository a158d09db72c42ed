"""Owners of a mixed group are those that the JVM's own assignors compute from the group's znodes."""

import pytest

from tests.fixtures.jvm import spread
from tests.fixtures.sandbox import values
from zkconsumer import TopicPartition

ROUNDROBIN = {"partition_assignment_strategy": "roundrobin"}


def test_range_with_several_topics_and_unequal_streams(group, topic_factory):
    x, y, z = topic_factory(partitions=4), topic_factory(partitions=7), topic_factory(partitions=1)
    group.join_jvm("a", {x: 1, y: 2})
    group.join("b", {y: 1, z: 2})
    group.join_jvm("c", {x: 2, y: 1, z: 1})
    owners = group.settle()
    assert len(owners) == 12


def test_range_orders_threads_as_text(group, topic_factory):
    topic = topic_factory(partitions=9)
    for number, name in enumerate(("a", "a-1", "A", "a_1", "a.b", "B", "10")):
        (group.join if number % 2 else group.join_jvm)(name, {topic: 1})
    g = group.name
    order = ["10", "10", "A", "A", "B", "a", "a-1", "a.b", "a_1"]
    assert [group.settle()[TopicPartition(topic, p)] for p in range(9)] == [f"{g}_{name}-0" for name in order]


def test_twelve_threads_of_one_member(group, topic_factory):
    """Thread 10 sorts before thread 2."""
    topic = topic_factory(partitions=8)
    group.join("c", {topic: 12})
    owners = group.settle()
    threads = [int(owners[TopicPartition(topic, p)].rpartition("-")[2]) for p in range(8)]
    assert threads == [0, 1, 10, 11, 2, 3, 4, 5]


def test_roundrobin(group, topic_factory, produce):
    """Hashes of names like these do not put partitions in their natural order."""
    x, y = topic_factory(partitions=12), topic_factory(partitions=5)
    group.join_jvm("a", {x: 2, y: 2}, **ROUNDROBIN)
    group.join("b", {x: 1, y: 1}, **ROUNDROBIN)
    group.settle("roundrobin")
    # Since 0.10.2 the subscriptions may differ.
    group.join_jvm("c", {y: 1}, **ROUNDROBIN)
    group.settle("roundrobin")
    group.join("d", {x: 3}, **ROUNDROBIN)
    assert len(set(group.settle("roundrobin").values())) == 7
    produce(x, spread(values(200), 12))
    produce(y, spread(values(200, start=200), 5))
    group.expect_all(values(400))
    assert group.repeated_by_ours() == set()


def test_roundrobin_with_members_before_1_0(group, topic_factory, old_jvm):
    """Up to 0.11 the hash is that of another text, which orders partitions differently (KAFKA-5822)."""
    x, y = topic_factory(partitions=12), topic_factory(partitions=5)
    group.join_jvm("a", {x: 1, y: 1}, jvm=old_jvm, **ROUNDROBIN)
    group.join("b", {x: 1, y: 1}, roundrobin_hash_era="0.8", **ROUNDROBIN)
    group.join_jvm("c", {x: 1, y: 1}, jvm=old_jvm, **ROUNDROBIN)
    owners = group.settle("roundrobin", jvm=old_jvm)
    assert len(owners) == 17


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_filters_against_static(group, topics, unique_name, produce, strategy):
    names = [f"{unique_name}-{suffix}" for suffix in ("orders", "order_lines", "audit")]
    for name, partitions in zip(names, (3, 2, 4), strict=True):
        topics.create(name, partitions)
    orders, _, audit = names
    chosen = {"partition_assignment_strategy": strategy}
    group.join_jvm("w", topic_filter=("Whitelist", f"{unique_name}-order.*"), streams=2, **chosen)
    group.settle(strategy)
    group.join("s", {orders: 1, audit: 1}, **chosen)
    group.settle(strategy)
    group.join("v", topic_filter=("Whitelist", f" '{unique_name}-order.*, {audit}' "), **chosen)
    assert len(group.settle(strategy)) == 9
    later = topics.create(f"{unique_name}-orders-later", 3)
    assert len(group.settle(strategy)) == 12
    for number, name in enumerate((*names, later)):
        produce(name, values(50, start=50 * number))
    group.expect_all(values(200))
    assert group.repeated_by_ours() == set()
