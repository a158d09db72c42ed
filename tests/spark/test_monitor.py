"""The view of an operator on a running query: the monitor's state, its metrics, and the driver's log."""

import time

from prometheus_client import REGISTRY

import zkconsumer.spark
from tests.fixtures.spark import BOTH_PROTOCOLS, LONG_SESSION, Sink, await_until
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.model import TopicPartition

PARTITIONS = 2


def test_the_monitor_shows_lag_rows_and_owned_partitions_and_forgets_ended_queries(
    spark, start_query, group, topic_factory, produce
):
    monitor = zkconsumer.spark.register(spark)
    assert zkconsumer.spark.register(spark) is monitor
    topic = topic_factory(partitions=PARTITIONS)
    produce(topic, [{"value": b"v", "partition": n % PARTITIONS} for n in range(100)])
    sink, tasks = Sink(), []

    def count_tasks(frame, number):
        tasks.append(frame.rdd.getNumPartitions())
        sink(frame, number)

    options = {"maxOffsetsPerTrigger": "60", "numStreams": "1"}
    query = start_query(topic, count_tasks, options=options, trigger={"processingTime": "1 second"})

    def state():
        return next((each for each in monitor.snapshot() if each.group == group.group), None)

    # 60 and 40: both batches count.
    await_until(lambda: state() and state().rows == 100 and sum(state().lag.values()) == 0, "both batches are shown")
    assert state().lag.keys() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    labels = {"query": str(query.id), "group": group.group}
    assert REGISTRY.get_sample_value("zkconsumer_spark_owned_partitions", labels) == PARTITIONS
    assert REGISTRY.get_sample_value("zkconsumer_spark_rows_total", labels) == 100
    assert REGISTRY.get_sample_value("zkconsumer_spark_rebalances_total", labels) == 1
    assert REGISTRY.get_sample_value("zkconsumer_spark_lag", {**labels, "topic": topic, "partition": "0"}) == 0
    produce(topic, [{"value": b"v", "partition": n % PARTITIONS} for n in range(20)])
    await_until(lambda: state().rows == 120, "a batch of which the source knows the parallelism")
    assert (tasks[0], tasks[-1]) == (1, 2), "numStreams, then the cores of local[2]"
    query.stop()
    await_until(lambda: state() is None, "an ended query is forgotten")
    assert REGISTRY.get_sample_value("zkconsumer_spark_rows_total", labels) is None


@BOTH_PROTOCOLS
def test_the_monitor_shows_what_an_idle_query_owns(spark, start_query, group, topic_factory, produce):
    monitor = zkconsumer.spark.register(spark)
    topic = topic_factory(partitions=PARTITIONS)
    produce(topic, [{"value": b"v", "partition": n} for n in range(PARTITIONS)])
    query = start_query(topic, Sink(), options={"numStreams": "1"})

    def owned():
        states = [each for each in monitor.snapshot() if each.group == group.group]
        return len(states[0].owned) if states and sum(states[0].lag.values()) == 0 else None

    await_until(lambda: owned() == PARTITIONS, "all is read")
    batches = query.lastProgress["batchId"]
    properties = {**group.connection, **LONG_SESSION, "group.id": group.group, "rebalance.max.retries": "20"}
    with ConsumerConnector(ConsumerConfig.from_properties(properties)) as connector:
        connector.create_message_streams({topic: 1})
        await_until(lambda: len(set(group.owners(topic).values())) == 2, "the other member owns a partition")
        moved = time.monotonic()
        await_until(lambda: owned() == 1, "the query has lost one")
        assert time.monotonic() - moved < 5
        labels = {"query": str(query.id), "group": group.group}
        assert REGISTRY.get_sample_value("zkconsumer_spark_owned_partitions", labels) == 1
    await_until(lambda: owned() == PARTITIONS, "it has gained it again")
    assert query.lastProgress["batchId"] == batches, "no batch was needed"
    query.stop()
