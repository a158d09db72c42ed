"""Streaming queries against a real group on a real ZooKeeper and Kafka."""

import json
import threading
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

from tests.fixtures.spark import BOTH_PROTOCOLS, DEADLINE_S, Sink, await_until

AVAILABLE_NOW = {"availableNow": True}
PARTITIONS = 4


def numbered(count: int, first: int = 0) -> list[dict]:
    return [{"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(first, first + count)]


def run_available_now(start_query, topic, sink, **more):
    query = start_query(topic, sink, trigger=AVAILABLE_NOW, **more)
    assert query.awaitTermination(DEADLINE_S)
    return query


def ends(positions: list[tuple[int, int]]) -> dict[int, int]:
    """Next offset of each partition."""
    result: dict[int, int] = {}
    for partition, offset in positions:
        result[partition] = max(result.get(partition, 0), offset + 1)
    return result


@BOTH_PROTOCOLS
def test_available_now_reads_and_commits_all_records_and_leaves(start_query, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(1000))
    sink = Sink()
    sessions = set()

    def look(frame, number):
        sessions.update(group.sessions())
        sink(frame, number)

    run_available_now(start_query, topic, look)
    (session,) = sessions
    group.await_leaving(topic, session, sandbox)
    assert sink.positions() == Counter(produced)
    assert {(p, o): v for p, o, v in sink.rows()} == {position: b"%d" % n for n, position in enumerate(produced)}
    assert group.offsets(topic) == ends(produced)


@BOTH_PROTOCOLS
def test_every_batch_is_committed_at_once_and_a_restart_reads_nothing_twice(
    start_query, sandbox, group, topic_factory, produce
):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(100))
    sink = Sink()
    query = start_query(topic, sink)
    await_until(lambda: group.offsets(topic) == ends(produced), "the first batch is committed")
    produced += produce(topic, numbered(100, first=100))
    await_until(lambda: group.offsets(topic) == ends(produced), "it is committed before auto.commit.interval.ms")
    assert len(group.owners(topic)) == PARTITIONS
    (session,) = group.sessions()
    query.stop()
    group.await_leaving(topic, session, sandbox)

    produced += produce(topic, numbered(100, first=200))
    run_available_now(start_query, topic, sink)
    assert sink.positions() == Counter(produced)
    assert group.offsets(topic) == ends(produced)


@BOTH_PROTOCOLS
def test_two_queries_of_one_group_share_the_partitions(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    sinks = [Sink(), Sink()]
    for number, sink in enumerate(sinks):
        start_query(topic, sink, checkpoint=f"c{number}", options={"memberName": f"c{number}"})
    await_until(
        lambda: sorted(Counter(group.owners(topic).values()).values()) == [2, 2], "each query owns two partitions"
    )
    produced = produce(topic, numbered(400))
    await_until(lambda: len(sinks[0].rows()) + len(sinks[1].rows()) >= 400, "both queries have read")
    read = [{partition for partition, _ in sink.positions()} for sink in sinks]
    assert sorted(map(len, read)) == [2, 2]
    assert not read[0] & read[1]
    assert sinks[0].positions() + sinks[1].positions() == Counter(produced)
    await_until(lambda: group.offsets(topic) == ends(produced), "all batches are committed")


def test_a_rebalance_waits_for_the_batch_in_flight(start_query, group, topic_factory, produce):
    for attempt in range(6):
        topic = topic_factory(partitions=PARTITIONS)
        produced = produce(topic, numbered(100))
        slow, other = Sink(hold=threading.Event()), Sink()
        options = {"rebalance.max.retries": "10"}
        queries = [start_query(topic, slow, checkpoint=f"slow-{attempt}", options={**options, "memberName": "slow"})]
        assert slow.entered.wait(DEADLINE_S)
        named = {**options, "memberName": "other"}
        queries.append(start_query(topic, other, checkpoint=f"other-{attempt}", options=named))
        await_until(lambda: len(group.ids()) == 2, "the second query has registered")
        owners_meanwhile = set(group.owners(topic).values())
        slow.hold.set()
        if group.await_drained(topic, ends(produced)):
            break
        for query in queries:  # the machine was too slow for a meaningful result
            query.stop()
    else:
        pytest.fail("the batch in flight always took longer than the drain timeout")
    assert len(owners_meanwhile) == 1, "the first query has released before its batch was done"
    await_until(lambda: len(set(group.owners(topic).values())) == 2, "both own partitions")
    produced += produce(topic, numbered(100, first=100))
    await_until(lambda: len(slow.rows()) + len(other.rows()) >= 200, "all is read")
    assert slow.positions() + other.positions() == Counter(produced), "the second query has read no record again"


@BOTH_PROTOCOLS
def test_a_failed_batch_is_replayed_as_it_was_and_counts(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(100))
    failing = Sink(failure=RuntimeError("the sink is broken"))
    query = start_query(topic, failing)
    with pytest.raises(Exception, match="the sink is broken"):
        query.awaitTermination(DEADLINE_S)
    assert group.offsets(topic) == {}, "a batch that failed was committed"

    later = produce(topic, numbered(100, first=100))
    sink = Sink()
    run_available_now(start_query, topic, sink)
    assert sink.batches[0] == failing.batches[0]
    assert sink.positions() == Counter(produced + later)
    assert group.offsets(topic) == ends(later)


@BOTH_PROTOCOLS
def test_a_query_follows_a_reset_of_the_groups_offset(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(100))
    first, second = Sink(), Sink()
    run_available_now(start_query, topic, first)
    produce(topic, numbered(4, first=100))
    run_available_now(start_query, topic, first)
    group.await_left()
    group.set_offset(topic, 0, 10)  # outside of the last batch: an operator moved it back
    run_available_now(start_query, topic, second)
    end = ends(produced)[0] + 1
    assert second.positions() == Counter((0, offset) for offset in range(10, end))
    assert group.offsets(topic)[0] == end


def test_a_query_follows_a_reset_into_its_last_batch(start_query, group, topic_factory, produce):
    topic = topic_factory()
    produced = produce(topic, [b"v"] * 20)
    first, second = Sink(), Sink()
    run_available_now(start_query, topic, first)
    for offset in (5, 0):  # within the last batch, then to where it began
        group.await_left()
        group.set_offset(topic, 0, offset)
        second.batches.clear()
        run_available_now(start_query, topic, second)
        assert second.positions() == Counter(produced[offset:])


def test_the_checkpoint_takes_precedence_over_a_deleted_group(start_query, group, zookeeper, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(40))
    sink = Sink()
    largest = {"startingOffsets": "earliest", "auto.offset.reset": "largest"}
    run_available_now(start_query, topic, sink, options=largest)
    group.await_left()
    zookeeper.delete(f"/consumers/{group.group}", recursive=True)
    produced += produce(topic, numbered(30, first=40))
    run_available_now(start_query, topic, sink, options=largest)
    assert sink.positions() == Counter(produced)
    assert group.offsets(topic) == ends(produced)


def test_a_nightly_run_with_latest_reads_records_since_the_last(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produce(topic, numbered(40))
    sink = Sink()
    latest = {"startingOffsets": "latest"}
    run_available_now(start_query, topic, sink, options=latest)
    assert sink.rows() == []
    for night in (1, 2):
        produced = produce(topic, numbered(20, first=40 + 20 * night))
        sink.batches.clear()
        run_available_now(start_query, topic, sink, options=latest)
        assert sink.positions() == Counter(produced)


@BOTH_PROTOCOLS
def test_partitions_and_topics_that_appear_while_the_query_is_stopped_are_read(
    start_query, group, topics, topic_factory, produce
):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": n % 2} for n in range(40)])
    sink = Sink()
    pattern = {"subscribePattern": f"{topic}.*", "startingOffsets": "group", "auto.offset.reset": "largest"}
    run_available_now(start_query, None, sink, options=pattern)
    topics.grow(topic, 4)
    produce(topic, [{"value": b"v", "partition": 2 + n % 2} for n in range(40)])
    new = topics.create(f"{topic}-new", 1)
    produce(new, [b"new"] * 20)
    run_available_now(start_query, None, sink, options=pattern)
    values = Counter(value for _, _, value in sink.rows())
    assert values == {b"v": 40, b"new": 20}
    added = topic_factory()
    produce(added, [b"added"] * 20)
    by_name = {"subscribe": f"{topic},{new},{added}", "auto.offset.reset": "largest"}
    run_available_now(start_query, None, sink, options=by_name)
    assert Counter(value for _, _, value in sink.rows())[b"added"] == 20


def test_the_checkpoint_of_a_renamed_group_is_continued_when_it_is_named(start_query, group, topic_factory, produce):
    topic = topic_factory()
    produced = produce(topic, [b"v"] * 20)
    sink = Sink()
    run_available_now(start_query, topic, sink)
    produced += produce(topic, [b"v"] * 5)
    renamed = {"group.id": f"{group.group}-renamed", "auto.offset.reset": "largest"}
    with pytest.raises(Exception, match=f"set checkpointGroup={group.group} to continue from this one"):
        run_available_now(start_query, topic, sink, options=renamed)
    run_available_now(start_query, topic, sink, options={**renamed, "checkpointGroup": group.group})
    assert sink.positions() == Counter(produced)


def test_max_offsets_per_trigger_caps_every_batch(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(250))
    sink = Sink()
    run_available_now(start_query, topic, sink, options={"maxOffsetsPerTrigger": "100"})
    assert [len(batch) for batch in sink.batches] == [100, 100, 50]
    assert sink.positions() == Counter(produced)
    assert group.offsets(topic) == ends(produced)


@pytest.mark.parametrize(
    ("starting", "expected"), [("earliest", 100), ("latest", 0), ("group", 98), ('{{"{topic}":{{"0":24,"1":20}}}}', 55)]
)
def test_starting_offsets_of_a_new_query(start_query, group, topic_factory, produce, starting, expected):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(100))
    group.set_offset(topic, 0, 2)
    if starting.startswith("{"):
        starting = starting.format(topic=topic)
        expected = 1 + 5 + 2 * 25
    sink = Sink()
    run_available_now(start_query, topic, sink, options={"startingOffsets": starting})
    assert len(sink.rows()) == expected
    assert group.offsets(topic) == ends(produced)


def test_a_pattern_reads_all_topics_that_match(start_query, group, topic_factory, produce):
    topics = [topic_factory(partitions=1) for _ in range(2)]
    for topic in topics:
        produce(topic, [b"x"] * 10)
    seen: Counter[str] = Counter()

    def sink(frame, _):
        seen.update(row.topic for row in frame.collect())

    run_available_now(start_query, None, sink, options={"subscribePattern": f"{group.group}-t[0-9]+"})
    assert seen == dict.fromkeys(topics, 10)


def test_starting_at_a_time_and_ignoring_it_after_a_restart(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    records = numbered(100)
    for number, record in enumerate(records):
        record["timestamp"] = 1_700_000_000_000 + number
    produced = produce(topic, records)
    options = {"startingTimestamp": str(1_700_000_000_000 + 40)}
    sink = Sink()
    run_available_now(start_query, topic, sink, options=options)
    assert sink.positions() == Counter(produced[40:])
    produced += produce(topic, numbered(20, first=100))
    run_available_now(start_query, topic, sink, options=options)
    assert sink.positions() == Counter(produced[40:]), "startingTimestamp does not apply to a checkpoint"


@pytest.mark.parametrize("dual", ["false", "true"])
def test_offsets_stored_in_kafka_follow_the_checkpoint_too(start_query, sandbox, group, topic_factory, produce, dual):
    from confluent_kafka import Consumer, TopicPartition

    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(100))
    sink = Sink()
    options = {"offsets.storage": "kafka", "dual.commit.enabled": dual}
    run_available_now(start_query, topic, sink, options=options)
    watcher = Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": group.group})
    stored = watcher.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=30)
    watcher.close()
    assert {each.partition: each.offset for each in stored} == ends(produced)
    assert group.offsets(topic) == (ends(produced) if dual == "true" else {})
    produced += produce(topic, numbered(100, first=100))
    run_available_now(start_query, topic, sink, options=options, checkpoint="another")
    assert sink.positions() == Counter(produced), "a new query continues at the group's offset"


def test_progress_shows_the_end_of_the_log_so_lag_can_be_computed(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=1)
    produce(topic, [b"x"] * 100)
    sink = Sink()
    query = run_available_now(start_query, topic, sink, options={"maxOffsetsPerTrigger": "60"})
    first = next(progress for progress in query.recentProgress if progress["numInputRows"])
    (source,) = first["sources"]
    planned = json.loads(source["endOffset"])
    assert (planned["v"], planned["n"], planned["group"]) == (3, 1, group.group)
    assert planned["topics"] == {topic: {"0": [0, 60, None, None]}}, "there was no offset to mark"
    report = json.loads(source["latestOffset"])
    assert report.pop("acknowledge").endswith("/acknowledge")
    assert report.pop("rebalances") >= 1
    assert report == {"v": 1, "group": group.group, "owned": {topic: [0]}, "topics": {topic: {"0": [0, 100]}}}


def test_an_option_of_batch_reads_is_the_error_of_the_query(start_query, unique_name):
    query = start_query(unique_name, Sink(), options={"endingOffsets": "latest"})
    with pytest.raises(StreamingQueryException, match=r"endingOffsets.*only apply to spark\.read"):
        query.awaitTermination(DEADLINE_S)
