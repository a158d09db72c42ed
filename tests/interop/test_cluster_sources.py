"""Members that find brokers in ZooKeeper, and members that ask brokers, in one group with a JVM consumer."""

from collections import Counter

from zkconsumer import TopicPartition


def parts(topic, count):
    return {TopicPartition(topic, number) for number in range(count)}


def test_members_that_find_brokers_differently_share_a_group(group, sandbox, topics, topic_factory, feed):
    topic = topic_factory(partitions=4)
    asks_brokers = {"bootstrap_servers": sandbox.bootstrap_servers, "metadata_max_age_ms": 300}
    produced = feed(topic)
    jvm_member = group.join_jvm("a", {topic: 1})
    group.join("b", {topic: 1})
    group.join("c", {topic: 1}, **asks_brokers)
    group.join("d", {topic: 1}, **asks_brokers)
    owners = group.settle()
    assert owners.keys() == parts(topic, 4)
    assert len(set(owners.values())) == 4
    topics.grow(topic, 7)
    owners = group.settle()
    assert owners.keys() == parts(topic, 7)
    assert Counter(owner.rpartition("_")[2] for owner in owners.values()) == {"a-0": 2, "b-0": 2, "c-0": 2, "d-0": 1}
    group.leave(jvm_member)
    assert group.settle().keys() == parts(topic, 7)
    group.expect_all(produced.stop())
