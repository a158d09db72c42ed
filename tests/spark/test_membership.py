"""A query among other members of its group: queries, applications, JVM consumers (architecture.md#spark-source)."""

import os
import signal
import threading
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

from tests.fixtures.jvm import SETTINGS, JvmMember, offsets_received
from tests.fixtures.spark import BOTH_PROTOCOLS, DEADLINE_S, LONG_SESSION, Sink, await_until, start_application
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import MigratedNode, MigrationMark

PARTITIONS = 4


def numbered(count: int, first: int = 0) -> list[dict]:
    return [{"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(first, first + count)]


def test_a_batch_past_the_drain_timeout_is_read_again_by_the_next_owner(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(100))
    slow, other = Sink(hold=threading.Event()), Sink()
    options = {"rebalance.backoff.ms": "500", "rebalance.max.retries": "5", "memberName": "slow"}  # drained for 1 s
    start_query(topic, slow, checkpoint="slow", options=options)
    assert slow.entered.wait(DEADLINE_S)
    start_query(topic, other, checkpoint="other", options={"rebalance.max.retries": "10", "memberName": "other"})
    await_until(lambda: len(other.rows()) == 50, "the second query reads its partitions, which were never committed")
    taken = {partition for partition, _ in other.positions()}
    slow.hold.set()
    produced += produce(topic, numbered(100, first=100))
    await_until(lambda: len(slow.rows()) + len(other.rows()) >= 250, "all is read")
    delivered = slow.positions() + other.positions()
    assert delivered.keys() == set(produced), "nothing is lost"
    assert {position for position, times in delivered.items() if times > 1} == {
        (p, offset) for p, offset in produced[:100] if p in taken
    }, "records of one batch that the other query took over are read twice"
    await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 50), "all is committed")


def test_a_query_of_a_group_that_was_migrated_ends_and_names_where_it_continues(
    start_query, group, zookeeper, topic_factory, produce
):
    topic = topic_factory(partitions=1)
    produce(topic, [b"v"] * 3)
    mark = MigratedNode.encode(MigrationMark("migrated", f"kafka:{group.group}", 1))
    zookeeper.create(GroupPaths(group.group).migrated, mark, makepath=True)
    sink = Sink()
    query = start_query(topic, sink)
    with pytest.raises(StreamingQueryException, match=f"was migrated to kafka:{group.group}"):
        query.awaitTermination(DEADLINE_S)
    assert sink.rows() == []


@BOTH_PROTOCOLS
def test_added_partitions_are_read_from_their_first_record(start_query, group, topics, topic_factory, produce):
    topic = topic_factory(partitions=1)
    produce(topic, [b"before"] * 10)
    sink = Sink()
    start_query(topic, sink, options={"startingOffsets": "latest", "auto.offset.reset": "largest"})
    await_until(lambda: group.offsets(topic) == {0: 10}, "the query starts at the end")
    topics.grow(topic, 3)
    produced = produce(topic, [{"value": b"v", "partition": n % 3} for n in range(30)])
    await_until(lambda: len(sink.rows()) >= 30, "the new partitions are read")
    assert sink.positions() == Counter(produced)
    await_until(lambda: group.offsets(topic) == {0: 20, 1: 10, 2: 10}, "and committed")


def test_two_applications_share_a_group_and_one_takes_over_when_the_other_is_killed(
    sandbox, start_query, group, topic_factory, produce, tmp_path
):
    topic = topic_factory(partitions=PARTITIONS)
    sink = Sink()
    start_query(topic, sink)
    # Owners exist before the first plan. It stores offsets, without which the application would begin at the log end.
    await_until(lambda: len(group.offsets(topic)) == PARTITIONS, "the query owns all partitions")
    with start_application(sandbox, group, topic, tmp_path) as (_, jvm_pid):
        await_until(lambda: sorted(Counter(group.owners(topic).values()).values()) == [2, 2], "the applications share")
        produced = produce(topic, numbered(100))
        await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 25), "both have committed")
        assert len(sink.rows()) == 50
        os.kill(jvm_pid, signal.SIGKILL)
        await_until(lambda: len(set(group.owners(topic).values())) == 1, "the query takes over")
        produced += produce(topic, numbered(100, first=100))
        await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 50), "and continues to read")
    assert len(sink.rows()) == 150, "records that the other application had committed are not read again"


@pytest.mark.interop
def test_a_jvm_consumer_joins_waits_for_the_batch_in_flight_and_leaves_again(
    sandbox, start_query, group, topic_factory, produce, jvm
):
    properties = {
        **SETTINGS,
        "zookeeper.connect": sandbox.zookeeper_connect,
        **LONG_SESSION,
        "group.id": group.group,
        "rebalance.backoff.ms": "1000",
        "auto.commit.interval.ms": "500",
    }
    for attempt in range(6):
        topic = topic_factory(partitions=PARTITIONS)
        produced = produce(topic, numbered(100))
        sink = Sink(hold=threading.Event())
        options = {"rebalance.max.retries": "10", "rebalance.backoff.ms": "1000"}
        query = start_query(topic, sink, checkpoint=f"c{attempt}", options=options)
        assert sink.entered.wait(DEADLINE_S)
        member = JvmMember(jvm, {**properties, "consumer.id": f"jvm-{attempt}"})
        joining = threading.Thread(target=member.subscribe, args=({topic: 1}, None, 1))
        joining.start()
        try:
            await_until(lambda: len(group.ids()) == 2, "the JVM consumer has registered")
            owners_meanwhile = set(group.owners(topic).values())
            sink.hold.set()
            in_time = group.await_drained(topic, dict.fromkeys(range(PARTITIONS), 25))
        finally:
            joining.join()
        if in_time:
            break
        member.leave()  # the machine was too slow for a meaningful result
        query.stop()
    else:
        pytest.fail("the batch in flight always took longer than the drain timeout")
    assert len(owners_meanwhile) == 1, "the batch in flight holds the partitions"
    await_until(lambda: sorted(Counter(group.owners(topic).values()).values()) == [2, 2], "they share")
    produced += produce(topic, numbered(100, first=100))
    await_until(lambda: sink.positions().keys() | offsets_received(member) == set(produced), "all is read")
    member.leave()
    await_until(lambda: len(set(group.owners(topic).values())) == 1, "the query takes over")
    produced += produce(topic, numbered(100, first=200))
    await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 75), "and continues to read")
    assert sink.positions().keys() | offsets_received(member) == set(produced)
    assert max(sink.positions().values()) == 1, "the query reads nothing twice"
