"""A query in a group that brokers coordinate: what other members get, and when (adr/0020)."""

import json
import threading
from collections import Counter
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from tests.fixtures.brokergroup import leave_in_place_of
from tests.fixtures.sourceprocess import SourceProcess, next_batch, positions_of
from tests.fixtures.spark import DEADLINE_S, ObservedGroup, Sink, await_until
from tests.fixtures.waiting import eventually
from zkconsumer.errors import UsageError
from zkconsumer.spark.rules.offsetsjson import decode_offset, initial_offset

PARTITIONS = 4
LEAVING, STAYING = (0, 1), (2, 3)
"""Partitions that cooperative-sticky moves to a second member, and those that it leaves with the first."""


@pytest.fixture
def protocol():
    return "kafka"


@pytest.fixture
def source(sandbox, group, topic_factory):
    """Sources of queries of the group, without a JVM; all are stopped at the end."""
    made = []

    def make(topic, **options):
        given = {**group.connection, "group.id": group.group, "subscribe": topic, "auto.offset.reset": "smallest"}
        made.append(SourceProcess({**given, **options}))
        return made[-1]

    yield make
    for one in made:
        if one.runs:
            one.stop()


def spread(count, partitions):
    return [{"value": b"v", "partition": partitions[n % len(partitions)]} for n in range(count)]


def owned(source):
    """Partitions that a query uses; None during a rebalance."""
    share = source.ask("share")
    return None if share is None else [partition for _, partition in share[0]]


def identities(source):
    share = source.ask("share")
    return None if share is None else share[1]


def sizes(group, topic):
    return sorted(Counter(group.owners(topic).values()).values())


def test_a_batch_delays_the_move_of_the_partitions_that_it_reads(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(100, range(PARTITIONS)))
    slow, other = Sink(hold=threading.Event()), Sink()
    start_query(topic, slow, checkpoint="slow", options={"memberName": "slow"})
    assert slow.entered.wait(DEADLINE_S)
    start_query(topic, other, checkpoint="other", options={"memberName": "other"})
    await_until(lambda: len(group.ids()) == 2 and set(group.owners(topic)) == set(STAYING), "it has to release two")
    assert (sizes(group, topic), other.rows()) == ([2], []), "the batch holds what it reads"
    slow.hold.set()
    await_until(lambda: sizes(group, topic) == [2, 2], "they share")
    produced += produce(topic, spread(100, range(PARTITIONS)))
    await_until(lambda: len(slow.rows()) + len(other.rows()) >= 200, "all is read")
    assert slow.positions() + other.positions() == Counter(produced), "nothing is read twice"
    assert {partition for partition, _ in other.positions()} == set(LEAVING)
    await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 50), "all is committed")


def test_a_batch_does_not_delay_the_move_of_other_partitions(source, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(10, STAYING))
    slow, other = source(topic), source(topic)
    start = initial_offset(group.group)
    planned = next_batch(slow, start)  # in flight from here on
    other.ask("join")
    await_until(lambda: owned(other) == list(LEAVING), "the second query owns what the batch does not read")
    produced += produce(topic, spread(10, LEAVING))
    read = positions_of(other, start, next_batch(other, start))
    assert {partition for partition, _ in read} == set(LEAVING)
    read += positions_of(slow, start, planned)
    assert slow.ask("latest_offset", planned, None) == planned
    assert read == Counter(produced)
    assert group.offsets(topic) == dict.fromkeys(STAYING, 5), "what it kept is committed when the batch is done"


def test_a_batch_past_the_drain_limit_is_read_again_by_the_next_owner(source, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(100, range(PARTITIONS)))
    slow, other = source(topic, **{"max.poll.interval.ms": "8000"}), source(topic)
    start = initial_offset(group.group)
    planned = next_batch(slow, start)
    other.ask("join")
    await_until(lambda: owned(other) == list(LEAVING), "the batch was given up")
    again = positions_of(other, start, next_batch(other, start))
    assert again == Counter(position for position in produced if position[0] in LEAVING)
    assert slow.ask("latest_offset", planned, None) == planned
    assert group.offsets(topic) == dict.fromkeys(STAYING, 25), "what moved away is its owner's to commit"
    (warning,) = [text for text in slow.ask("warnings") if "did not finish within" in text]
    assert "raise max.poll.interval.ms" in warning


def test_a_query_that_the_coordinator_removed_joins_again_and_repeats_nothing(source, group, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produced = produce(topic, spread(20, (0, 1)))
    query = source(topic)
    first = next_batch(query, initial_offset(group.group))
    read = positions_of(query, initial_offset(group.group), first)
    (before,) = group.ids()
    leave_in_place_of(group.connection["bootstrap.servers"], group.group, before)
    eventually(lambda: group.ids() not in ([], [before]))
    produced += produce(topic, spread(20, (0, 1)))
    second = next_batch(query, first)
    read += positions_of(query, first, second)
    assert read == Counter(produced)
    assert query.ask("latest_offset", second, None) == second
    assert group.offsets(topic) == {0: 20, 1: 20}


def test_an_eager_strategy_releases_everything_and_reads_nothing_twice(source, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(40, range(PARTITIONS)))
    queries = [source(topic, **{"partition.assignment.strategy": "range"}) for _ in range(2)]
    offsets = [initial_offset(group.group)] * 2
    offsets[0] = next_batch(queries[0], offsets[0])
    read = positions_of(queries[0], initial_offset(group.group), offsets[0])
    joining = threading.Thread(target=queries[1].ask, args=["join"])
    joining.start()
    while joining.is_alive():  # the end of the batch lets it release; Spark asks again and again
        assert queries[0].ask("latest_offset", offsets[0], None) == offsets[0]
    await_until(lambda: [len(owned(query) or ()) for query in queries] == [2, 2], "they share")
    produced += produce(topic, spread(40, range(PARTITIONS)))
    for number, query in enumerate(queries):
        end = next_batch(query, offsets[number])
        read += positions_of(query, offsets[number], end)
    assert read == Counter(produced)


def test_a_query_shares_its_group_with_another_client(source, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(40, range(PARTITIONS)))
    query = source(topic)
    start = initial_offset(group.group)
    planned = next_batch(query, start)
    read = positions_of(query, start, planned)
    settings = {
        "bootstrap.servers": group.connection["bootstrap.servers"],
        "group.id": group.group,
        "partition.assignment.strategy": "cooperative-sticky",
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])

        def poll():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                read[message.partition(), message.offset()] += 1

        def shared():
            poll()
            assert query.ask("latest_offset", planned, None) == planned
            return sizes(group, topic) == [2, 2]

        eventually(shared)
        produced += produce(topic, spread(40, range(PARTITIONS)))
        read += positions_of(query, planned, next_batch(query, planned))

        def everything():
            poll()
            return read.keys() == set(produced)

        eventually(everything)
        assert read == Counter(produced), "the consumer continued at the offsets of the query"


def test_a_topic_that_is_created_again_while_the_query_runs_is_noticed(source, group, topics, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [b"old"] * 5)
    query = source(topic, **{"failOnDataLoss": "false", "metadata.max.age.ms": "3600000"})
    start = initial_offset(group.group)
    planned = next_batch(query, start)
    assert len(positions_of(query, start, planned)) == 5
    topics.delete(topic)
    topics.create(topic)
    produce(topic, [b"new"] * 9)  # also past the position in the old topic
    query.ask("read_topics")
    # The release waits for the batch, which the next request reports as finished.
    eventually(lambda: identities(query) != {topic: decode_offset(planned).known[topic].identity})
    end = next_batch(query, planned)
    assert query.ask("read", planned, end) == [(topic, 0, offset, b"new") for offset in range(9)]


def test_a_deleted_topic_does_not_stop_the_others_before_the_query_has_noticed_it(
    source, group, topics, topic_factory, produce
):
    deleted, kept = topic_factory(), topic_factory()
    produce(deleted, [b"v"] * 5)
    produce(kept, [b"v"] * 5)
    query = source(f"{deleted},{kept}", **{"failOnDataLoss": "false", "metadata.max.age.ms": "3600000"})
    start = initial_offset(group.group)
    planned = next_batch(query, start)
    assert positions_of(query, start, planned).total() == 10
    topics.delete(deleted)
    produce(kept, [b"new"] * 5)
    end = next_batch(query, planned)  # the coordinator refuses the offset of the deleted topic
    assert len(positions_of(query, planned, end)) == 5
    query.ask("read_topics")
    eventually(lambda: identities(query) is not None and identities(query).keys() == {kept})
    produce(kept, [b"new"] * 5)
    assert {p.topic for p in decode_offset(next_batch(query, end)).spans} == {kept}


def test_the_checkpoint_is_continued_under_another_protocol(
    start_query, sandbox, group, topic_factory, produce, zookeeper
):
    topic = topic_factory(partitions=2)
    sink = Sink()
    znodes = {"zookeeper.connect": sandbox.zookeeper_connect, "group.protocol": "zookeeper"}
    runs = [znodes, group.connection, {**znodes, "offsets.storage": "kafka"}, group.connection]
    produced, committed = [], []
    in_zookeeper = ObservedGroup(zookeeper, group.group)
    for options in runs:
        produced += produce(topic, spread(20, (0, 1)))
        await_until(lambda: not in_zookeeper.ids() and not group.ids(), "the query before this one has left")
        query = start_query(topic, sink, options=options, trigger={"availableNow": True})
        assert query.awaitTermination(DEADLINE_S)
        assert sink.positions() == Counter(produced), options
        committed.append((in_zookeeper.offsets(topic), group.offsets(topic)))
        written = json.loads(query.lastProgress["sources"][0]["endOffset"])
        assert sorted(written) == ["epochs", "group", "known", "n", "q", "topics", "v"]
    first, second, third, fourth = ({0: count, 1: count} for count in (10, 20, 30, 40))
    assert committed == [(first, {}), (first, second), (third, third), (third, fourth)]


def test_a_new_query_warns_of_members_that_share_its_partitions(source, group, topic_factory):
    topic = topic_factory(partitions=2)
    first, second = source(topic), source(topic)
    first.ask("join")
    (member,) = group.ids()
    second.ask("join")
    (text,) = [text for text in second.ask("warnings") if "has live zkconsumer members" in text]
    assert member in text


def test_a_static_query_that_does_not_share_ends_when_a_member_joins(source, group, topic_factory):
    topic = topic_factory(partitions=PARTITIONS)
    static = {"group.instance.id": "only", "group.share": "false", "auto.offset.reset": "largest"}
    query, other = source(topic, **static), source(topic)
    planned = next_batch(query, initial_offset(group.group))
    other.ask("join")
    await_until(lambda: owned(other) == list(LEAVING), "the other query owns a part")
    with pytest.raises(UsageError, match=r"own a part of its partitions: [^,;(]+; with group\.share=false"):
        query.ask("latest_offset", planned, None)


def test_a_static_query_that_was_killed_is_replaced_at_once(source, group, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produced = produce(topic, spread(20, (0, 1)))
    options = {"group.instance.id": "only", "session.timeout.ms": "300000"}  # longer than the test may take
    first, start = source(topic, **options), initial_offset(group.group)
    planned = next_batch(first, start)
    read = positions_of(first, start, planned)
    assert first.ask("latest_offset", planned, None) == planned
    first.kill(ends_session=False)
    second = source(topic, **options)
    produced += produce(topic, spread(20, (0, 1)))
    read += positions_of(second, planned, next_batch(second, planned))
    assert read == Counter(produced)
    assert not [text for text in second.ask("warnings") if "has live zkconsumer members" in text]
