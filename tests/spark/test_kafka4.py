"""Queries that read from Kafka 4.2.0, which does not use ZooKeeper; their group is on ZooKeeper, or the brokers'."""

import json
from collections import Counter

import pytest

from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.spark import BOTH_PROTOCOLS, DEADLINE_S, Sink, await_until
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress

AVAILABLE_NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def sandbox():
    """In the place of the sandbox that other tests share."""
    # Where the machine stands still for longer than that, the only broker is fenced for a while.
    properties = {"broker.session.timeout.ms": "9000"}
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
