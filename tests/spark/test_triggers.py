"""When the group's offsets follow the checkpoint, under each trigger (architecture.md#spark-source)."""

from collections import Counter

import pytest

from tests.fixtures.spark import BOTH_PROTOCOLS, DEADLINE_S, Sink, await_until
from zkconsumer.spark import register

PARTITIONS = 2


def numbered(count: int, first: int = 0) -> list[dict]:
    return [{"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(first, first + count)]


def test_processing_time_commits_a_batch_at_the_next_trigger(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(20))
    sink = Sink()
    committed: list[dict[int, int]] = []

    def look(frame, number):
        committed.append(group.offsets(topic))
        sink(frame, number)
        if number == 0:  # from here, so that no trigger sees only a part of it
            produced.extend(produce(topic, numbered(20, first=20)))

    start_query(topic, look, trigger={"processingTime": "3 seconds"})
    await_until(lambda: sink.batches, "the first batch")
    await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 20), "the trigger after the last")
    # While a batch runs, the committed offsets are the end of the previous batch.
    assert committed == [{}, dict.fromkeys(range(PARTITIONS), 10)]
    assert sink.positions() == Counter(produced)


@BOTH_PROTOCOLS
def test_a_registered_session_commits_a_batch_before_the_next_trigger(
    start_query, spark, group, topic_factory, produce
):
    register(spark)
    topic = topic_factory(partitions=PARTITIONS)
    produce(topic, numbered(20))
    sink = Sink()
    options = {"auto.commit.interval.ms": "3600000"}  # neither the timer nor a trigger commits
    query = start_query(topic, sink, options=options, trigger={"processingTime": "1 hour"})
    await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 10), "the batch is acknowledged")
    query.stop()
    assert group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 10)
    assert len(sink.batches) == 1


@pytest.fixture
def unregistered(spark):
    """Without the monitor that a test may have registered: it acknowledges a batch, unless the query ends before."""
    monitor = register(spark)
    spark.streams.removeListener(monitor)
    yield
    spark.streams.addListener(monitor)


@pytest.mark.usefixtures("unregistered")
def test_an_uncommitted_finished_batch_is_committed_at_the_next_start(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(20))
    sink = Sink()
    query = start_query(topic, sink, trigger={"once": True})
    assert query.awaitTermination(DEADLINE_S)
    assert group.offsets(topic) == {}, "trigger once requests no offset afterwards"
    query = start_query(topic, sink, trigger={"availableNow": True})
    assert query.awaitTermination(DEADLINE_S)
    assert group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 10)
    assert sink.positions() == Counter(produced), "nothing is read twice"


def test_trigger_once_ignores_limits(start_query, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produce(topic, numbered(100))
    for options in ({"maxOffsetsPerTrigger": "10"}, {"minOffsetsPerTrigger": "1000"}):
        sink = Sink()
        start = {"startingOffsets": "earliest", **options}
        query = start_query(topic, sink, checkpoint=min(options), options=start, trigger={"once": True})
        assert query.awaitTermination(DEADLINE_S)
        assert [len(batch) for batch in sink.batches] == [100]


def test_few_records_wait_for_more(start_query, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produce(topic, numbered(10))
    sink = Sink()
    start_query(topic, sink, options={"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"})
    await_until(lambda: len(sink.rows()) == 10, "the first batch")
    for first in range(10, 20, 2):
        produce(topic, numbered(2, first=first))
    await_until(lambda: len(sink.rows()) == 20, "the second batch")
    assert [len(batch) for batch in sink.batches] == [10, 10]


def test_available_now_ends_at_the_log_ends_of_its_start(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(100))
    sink = Sink()
    later: list[tuple[int, int]] = []

    def produce_more(frame, number):
        sink(frame, number)
        later.extend(produce(topic, numbered(10, first=100 + 10 * number)))

    query = start_query(topic, produce_more, options={"maxOffsetsPerTrigger": "40"}, trigger={"availableNow": True})
    assert query.awaitTermination(DEADLINE_S)
    assert sink.positions() == Counter(produced)
    assert later
    query = start_query(topic, sink, trigger={"availableNow": True})
    assert query.awaitTermination(DEADLINE_S)
    assert sink.positions() == Counter(produced + later), "the next run reads the records produced meanwhile"


def test_available_now_fails_while_a_stored_offset_cannot_be_read(start_query, group, topic_factory, produce):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, numbered(20))
    group.set_offset(topic, 0, "abc")
    sink = Sink()
    with pytest.raises(Exception, match=f"offsets/{topic}/0: holds no offset, so the start of {topic}-0 is unknown"):
        start_query(topic, sink, trigger={"availableNow": True}).awaitTermination(DEADLINE_S)
    assert sink.positions() == Counter(position for position in produced if position[0] == 1)
    group.set_offset(topic, 0, 0)
    assert start_query(topic, sink, trigger={"availableNow": True}).awaitTermination(DEADLINE_S)
    assert sink.positions() == Counter(produced)
