"""JVM consumers and ours share a group: they agree on owners, nothing is lost, each continues where another was."""

from tests.fixtures.jvm import offsets_of, offsets_received, spread
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from zkconsumer import TopicPartition, Whitelist


def of(topic, *threads):
    """Owners of partitions 0, 1, ..."""
    return {TopicPartition(topic, number): thread for number, thread in enumerate(threads)}


def test_jvm_first_then_ours(group, topic_factory, produce):
    """The example of Kafka's documentation: five partitions, two members of two threads."""
    topic = topic_factory(partitions=5)
    produce(topic, spread(values(500), 5))
    first = group.join_jvm("C1", {topic: 2})
    group.expect_all(values(500))
    second = group.join("C2", {topic: 2})
    c1, c2 = first.consumer_id, second.consumer_id
    assert group.settle() == of(topic, f"{c1}-0", f"{c1}-0", f"{c1}-1", f"{c2}-0", f"{c2}-1")
    produce(topic, spread(values(500, start=500), 5))
    group.expect_all(values(1000))
    continued = sorted((partition, offset) for _, partition, offset, _ in second.received())
    assert continued == [(partition, offset) for partition in (3, 4) for offset in range(100, 200)]


def test_ours_first_then_jvm(group, topic_factory, produce):
    topic = topic_factory(partitions=5)
    produce(topic, spread(values(500), 5))
    first = group.join("C2", {topic: 2})
    group.expect_all(values(500))
    second = group.join_jvm("C1", {topic: 2})
    c1, c2 = second.consumer_id, first.consumer_id
    assert group.settle() == of(topic, f"{c1}-0", f"{c1}-0", f"{c1}-1", f"{c2}-0", f"{c2}-1")
    produce(topic, spread(values(500, start=500), 5))
    group.expect_all(values(1000))
    assert group.repeated_by_ours() == set()
    assert {record[1] for record in second.received()} == {0, 1, 2}


def test_members_of_both_kinds_come_and_go_while_records_flow(group, topic_factory, feed):
    topic = topic_factory(partitions=7)
    flowing = feed(topic)
    jvm1 = group.join_jvm("jvm1", {topic: 2})
    group.settle()
    ours1 = group.join("ours1", {topic: 2})
    group.settle()
    jvm2 = group.join_jvm("jvm2", {topic: 1})
    group.settle()
    group.join("a-first", {topic: 3})
    group.settle()
    for member in (jvm1, ours1, jvm2):
        group.leave(member)
        group.settle()
    last = group.join_jvm("jvm1", {topic: 1})
    group.settle()
    produced = flowing.stop()
    group.expect_all(produced)
    # In each rebalance a stream may be handling one record whose offset is not committed
    # (jvm-consumer.md#in-flight-data, delivery.md#what-a-commit-covers).
    assert len(group.repeated_by_ours()) <= 8 * 5

    def all_is_committed():
        # What a member left in flight was received, and its next owner receives it again: that may be still to come.
        for member in group.members:
            member.commit()
        return sum(group.offsets(topic).values()) == len(produced)

    eventually(all_is_committed)
    for member in (last, *group.members[:1]):
        group.leave(member)
    assert all_is_committed()


def test_each_continues_where_the_other_was(group, topic_factory, produce):
    topic = topic_factory(partitions=3)
    produce(topic, spread(values(300), 3))
    member = group.join_jvm("c", {topic: 1}, auto_commit_enable="false")
    group.expect_all(values(300))
    group.commit_until(member, topic, dict.fromkeys(range(3), 100))
    group.leave(member)
    for turn in range(1, 5):
        produce(topic, spread(values(300, start=300 * turn), 3))
        join = group.join if turn % 2 else group.join_jvm
        member = join("c", {topic: 1}, auto_commit_enable="false")
        group.expect_all(values(300 * (turn + 1)))
        assert offsets_received(member) == offsets_of(range(3), range(100 * turn, 100 * (turn + 1)))
        assert group.repeated_by_ours() == set()
        group.commit_until(member, topic, dict.fromkeys(range(3), 100 * (turn + 1)))
        group.leave(member)
        assert sum(group.offsets(topic).values()) == 300 * (turn + 1)


def test_a_topic_that_grows_is_shared_by_both(group, topics, topic_factory, produce):
    topic = topic_factory(partitions=2)
    group.join_jvm("a", {topic: 1})
    group.join("b", {topic: 1})
    group.settle()
    topics.grow(topic, 5)
    owners = group.settle()
    assert len(owners) == 5
    produce(topic, spread(values(100), 5))
    group.expect_all(values(100))
    assert group.repeated_by_ours() == set()


def test_a_jvm_member_follows_when_ours_subscribes_to_other_topics(group, topic_factory, produce):
    """JVM members do not watch the data of a registration: it is replaced."""
    stays, goes, comes = (topic_factory(partitions=4) for _ in range(3))
    jvm = group.join_jvm("a", {stays: 1, goes: 1})
    ours = group.join("b", topic_filter=("Whitelist", f"{stays}|{goes}"))
    group.settle()
    for number, topic in enumerate((stays, goes, comes)):
        produce(topic, spread(values(80, start=80 * number), 4))
    group.expect_all(values(160))
    ours.connector.subscribe([stays, comes])
    eventually(lambda: TopicPartition(comes, 0) in group.owners())
    owners = group.settle()
    assert {owners[TopicPartition(goes, number)] for number in range(4)} == {f"{jvm.consumer_id}-0"}
    assert {owners[TopicPartition(comes, number)] for number in range(4)} == {f"{ours.consumer_id}-0"}
    for number, topic in enumerate((stays, goes, comes)):
        produce(topic, spread(values(80, start=240 + 80 * number), 4))
    group.expect_all(values(480))
    ours.connector.subscribe(Whitelist(f"{stays}|{goes}|{comes}"))
    eventually(lambda: group.owners().get(TopicPartition(goes, 3)) == f"{ours.consumer_id}-0")
    group.settle()
    assert group.repeated_by_ours() == set()


def test_filters_release_a_deleted_topic(group, topics, topic_factory, unique_name):
    stays, goes = topic_factory(partitions=2), topic_factory(partitions=2)
    group.join_jvm("a", topic_filter=("Whitelist", f"{unique_name}.*"))
    group.join("b", topic_filter=("Whitelist", f"{unique_name}.*"))
    assert len(group.settle()) == 4
    topics.delete(goes)
    owners = group.settle()
    assert {partition.topic for partition in owners} == {stays}
    assert group.children("owners") == sorted([stays, goes])


def test_a_static_topic_that_is_deleted_and_comes_back(group, topics, topic_factory, produce):
    """The JVM keeps owning a deleted topic, ours releases it; when the topic is back they agree again.

    See jvm-consumer.md#subscriptions.
    """
    topic = topic_factory(partitions=4)
    a = group.join_jvm("a", {topic: 1})
    group.join("b", {topic: 1})
    group.settle()
    topics.delete(topic)
    eventually(lambda: set(group.owners().values()) == {f"{a.consumer_id}-0"})
    topics.create(topic, 6)
    assert len(group.settle()) == 6
    produce(topic, spread(values(60), 6))
    group.expect_all(values(60))
