"""Offsets that the log does not hold any more: fail, or continue with a warning."""

from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.fixtures.sandbox import delete_records_before
from tests.fixtures.sourceprocess import SourceProcess, next_batch
from tests.fixtures.spark import DEADLINE_S, LONG_SESSION, Sink
from tests.fixtures.waiting import eventually
from zkconsumer.spark.rules.offsetsjson import initial_offset


def run(start_query, topic, sink, **options):
    query = start_query(topic, sink, trigger={"availableNow": True}, options=options)
    assert query.awaitTermination(DEADLINE_S)


def delete_before(sandbox, topic: str, offset: int) -> None:
    """Delete records at once, as retention does."""
    delete_records_before(AdminClient({"bootstrap.servers": sandbox.bootstrap_servers}), topic, 0, offset)


def test_retention_that_overtook_the_query(start_query, sandbox, group, topic_factory, produce):
    topic = topic_factory()
    produced = produce(topic, [b"v"] * 50)
    sink = Sink()
    run(start_query, topic, sink)
    produced += produce(topic, [b"v"] * 50)
    delete_before(sandbox, topic, 70)
    with pytest.raises(Exception, match=rf"{topic}-0: wanted 50, the log has \[70, 100\), 20 offsets are lost"):
        run(start_query, topic, sink)
    assert group.offsets(topic) == {0: 50}, "offsets of unread records are not committed"
    run(start_query, topic, sink, failOnDataLoss="false")
    assert sink.positions() == Counter(produced[:50] + produced[70:])
    assert group.offsets(topic) == {0: 100}


def test_a_repeated_batch_whose_records_were_deleted_fails(start_query, sandbox, group, topic_factory, produce):
    topic = topic_factory()
    produced = produce(topic, [b"v"] * 50)
    failing = Sink(failure=RuntimeError("the sink is broken"))
    with pytest.raises(Exception, match="the sink is broken"):
        run(start_query, topic, failing)
    delete_before(sandbox, topic, 20)
    with pytest.raises(Exception, match=f"{topic}-0 has lost offsets 0 to 20: its log begins at 20"):
        run(start_query, topic, Sink())
    sink = Sink()
    run(start_query, topic, sink, failOnDataLoss="false")
    assert sink.positions() == Counter(produced[20:])
    assert group.offsets(topic) == {0: 50}


@pytest.mark.parametrize(
    ("protocol", "new"), [("zookeeper", 10), ("zookeeper", 80), ("kafka", 80)], indirect=["protocol"]
)
def test_a_topic_that_was_created_again(start_query, group, topics, topic_factory, produce, new):
    topic = topic_factory()
    produce(topic, [b"old"] * 50)
    sink = Sink()
    run(start_query, topic, sink)
    topics.delete(topic)
    topics.create(topic, 1)
    produce(topic, [b"new"] * new)  # also past the position in the old topic
    with pytest.raises(Exception, match=f"{topic} was deleted and created again since this query read it"):
        run(start_query, topic, sink)
    run(start_query, topic, sink, failOnDataLoss="false")
    assert [value for _, _, value in sink.rows()] == [b"old"] * 50 + [b"new"] * new
    assert group.offsets(topic) == {0: new}


def test_a_finished_batch_of_a_topic_that_was_created_again_is_not_committed(
    sandbox, group, topics, topic_factory, produce
):
    """Brokers are asked for topics once in an hour, so the commit notices it, and makes the group look again."""
    topic = topic_factory()
    produce(topic, [b"old"] * 5)
    named = {**group.connection, "bootstrap.servers": sandbox.bootstrap_servers, "metadata.max.age.ms": "3600000"}
    reading = {"group.id": group.group, "subscribe": topic, "auto.offset.reset": "smallest", "failOnDataLoss": "false"}
    query = SourceProcess({**named, **reading, **LONG_SESSION})
    start = initial_offset(group.group)
    planned = next_batch(query, start)
    assert len(query.ask("read", start, planned)) == 5
    topics.delete(topic)
    topics.create(topic, 1)
    produce(topic, [b"new"] * 9)  # also past the position in the old topic
    batches, rows = [planned], set()

    def all_are_read():
        batches.append(next_batch(query, batches[-1]))
        rows.update(query.ask("read", *batches[-2:]))
        return rows == {(topic, 0, offset, b"new") for offset in range(9)}

    eventually(all_are_read)
    assert any(f"positions of {topic}-0 are not committed" in warning for warning in query.ask("warnings"))
    query.stop()


def test_remaining_records_are_read_for_any_auto_offset_reset(start_query, sandbox, group, topic_factory, produce):
    topic = topic_factory()
    produced = produce(topic, [b"v"] * 100)
    group.set_offset(topic, 0, 10)
    delete_before(sandbox, topic, 50)
    sink = Sink()
    run(start_query, topic, sink, failOnDataLoss="false", **{"auto.offset.reset": "largest"})
    assert sink.positions() == Counter(produced[50:])


def test_an_unfinished_batch_of_a_deleted_topic(start_query, topics, topic_factory, produce):
    deleted, kept = topic_factory(), topic_factory()
    produce(deleted, [b"v"] * 50)
    produced = produce(kept, [b"v"] * 20)
    both = f"{deleted},{kept}"
    with pytest.raises(Exception, match="the sink is broken"):
        run(start_query, both, Sink(failure=RuntimeError("the sink is broken")))
    topics.delete(deleted)
    with pytest.raises(Exception, match=rf"the topics of an unfinished batch were deleted: {deleted}-0 \[0, 50\)"):
        run(start_query, both, Sink())
    sink = Sink()
    run(start_query, both, sink, failOnDataLoss="false")
    assert sink.positions() == Counter(produced)


def test_a_topic_that_was_deleted_while_the_query_was_stopped(start_query, topics, topic_factory, produce):
    deleted, kept = topic_factory(), topic_factory()
    before = produce(deleted, [b"v"] * 50)
    sink = Sink()
    run(start_query, f"{deleted},{kept}", sink)
    topics.delete(deleted)
    produced = produce(kept, [b"v"] * 20)
    with pytest.raises(Exception, match=f"{deleted} was deleted, and this query may not have read all of it"):
        run(start_query, f"{deleted},{kept}", sink)
    run(start_query, f"{deleted},{kept}", sink, failOnDataLoss="false")
    assert sink.positions() == Counter([*before, *produced])
    produced += produce(kept, [b"v"])
    run(start_query, f"{deleted},{kept}", sink)
    assert sink.positions() == Counter([*before, *produced]), "it is forgotten"


def test_an_open_transaction_before_the_groups_offset_is_no_loss(
    start_query, sandbox, group, topic_factory, produce, unique_name
):
    topic = topic_factory()
    produce(topic, [b"before"] * 5)
    producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers, "transactional.id": unique_name})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(120)
    produced = produce(topic, [b"after"] * 10)
    group.set_offset(topic, 0, 10)  # by a member that reads uncommitted records
    sink, committed = Sink(), {"isolation.level": "read_committed"}
    run(start_query, topic, sink, **committed)
    assert (sink.rows(), group.offsets(topic)) == ([], {0: 10})
    producer.commit_transaction(120)
    run(start_query, topic, sink, **committed)
    assert sink.positions() == Counter(produced[4:])
