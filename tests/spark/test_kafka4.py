"""Queries that read from Kafka 4.2.0, which does not use ZooKeeper; their group is on ZooKeeper, or the brokers'."""

import json
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.sourceprocess import SourceProcess, next_batch, positions_of
from tests.fixtures.spark import BOTH_PROTOCOLS, DEADLINE_S, Sink, await_until
from tests.fixtures.waiting import eventually
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.spark.rules.offsetsjson import initial_offset

AVAILABLE_NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def sandbox():
    """In the place of the sandbox that other tests share."""
    # Where the machine stands still for longer than that, the only broker is fenced for a while.
    properties = {
        "broker.session.timeout.ms": "9000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "300",
    }
    with Sandbox(kafka_version="4.2.0", kafka_properties=properties, progress=Progress()) as started:
        yield started


@pytest.fixture
def brokers(sandbox):
    return {"bootstrap.servers": sandbox.bootstrap_servers, "metadata.max.age.ms": "500"}


def values(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


@BOTH_PROTOCOLS
def test_a_batch_read(spark, sandbox, group, brokers, unique_name):
    topic = Topics(sandbox.bootstrap_servers).create(unique_name, 2)
    produce_records(sandbox.bootstrap_servers, topic, values(20))
    where = {**group.connection, **brokers, "group.id": group.group, "subscribePattern": unique_name}
    frame = spark.read.format("zkconsumer").options(**where, startingOffsets="earliest").load()
    assert sorted(bytes(row.value) for row in frame.select("value").collect()) == sorted(values(20))


@BOTH_PROTOCOLS
def test_a_query_reads_on_through_a_restart_and_new_partitions(start_query, sandbox, group, brokers, unique_name):
    topics = Topics(sandbox.bootstrap_servers)
    topic = topics.create(unique_name, 2)
    sink = Sink()
    query = start_query(topic, sink, options=brokers)
    produced = produce_records(sandbox.bootstrap_servers, topic, values(20))
    await_until(lambda: sink.positions() == Counter(produced), "the first records are read")
    sandbox.brokers[0].kill()
    sandbox.brokers[0].start()
    topics.grow(topic, 4)
    await_until(lambda: len(group.owners(topic)) == 4, "the query owns the new partitions")
    more = [{"value": value, "partition": number % 4} for number, value in enumerate(values(20, 20))]
    produced += produce_records(sandbox.bootstrap_servers, topic, more)
    await_until(lambda: sink.positions() == Counter(produced), "records of the new partitions are read")
    await_until(lambda: sum(group.offsets(topic).values()) == 40, "all offsets are committed")
    checkpointed = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert checkpointed["known"][topic][0] == 2
    assert isinstance(checkpointed["known"][topic][1], str)
    query.stop()

    produced += produce_records(sandbox.bootstrap_servers, topic, values(5, 40))
    again = start_query(topic, sink, options=brokers, trigger=AVAILABLE_NOW)
    assert again.awaitTermination(DEADLINE_S)
    assert sink.positions() == Counter(produced)


def _owned(source):
    """Partitions that a query uses; empty during a rebalance."""
    share = source.ask("share")
    return set() if share is None else {partition for _, partition in share[0]}


def test_queries_share_a_group_in_which_the_broker_assigns(sandbox, brokers, unique_name):
    topic = Topics(sandbox.bootstrap_servers).create(unique_name, 4)
    records = [{"value": b"v", "partition": number % 4} for number in range(20)]
    produced = produce_records(sandbox.bootstrap_servers, topic, records)
    group = {"group.protocol": "consumer", "group.id": unique_name, "subscribe": topic}
    options = {**brokers, **group, "auto.offset.reset": "smallest"}
    start = initial_offset(unique_name)
    with ExitStack() as running:
        one, other = SourceProcess(options), SourceProcess(options)
        running.callback(other.stop)
        running.callback(one.stop)
        first = next_batch(one, start)
        read = positions_of(one, start, first)
        other.ask("join")
        eventually(lambda: one.ask("latest_offset", first, None) and len(_owned(one)) == len(_owned(other)) == 2)
        assert _owned(one) | _owned(other) == {0, 1, 2, 3}
        produced += produce_records(sandbox.bootstrap_servers, topic, records)
        for source, before in ((one, first), (other, start)):
            end = next_batch(source, before)
            read += positions_of(source, before, end)
    assert read == Counter(produced), "what moves is read on at the commit of its last owner"
