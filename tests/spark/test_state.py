"""What happens to the state of a query when it gains a partition (spark.md#stateful-queries)."""

import pytest

from tests.fixtures.spark import BOTH_PROTOCOLS, DEADLINE_S, LONG_SESSION, PatientQuery, await_until
from zkconsumer import ConsumerConfig, ConsumerConnector

NOW_MS = 1_700_000_000_000
LATE_MS = NOW_MS - 3_600_000


def counted(frame, _):
    from pyspark.sql import functions as f

    return frame.withWatermark("timestamp", "10 seconds").groupBy(f.window("timestamp", "10 seconds")).count()


def joined(frame, others):
    from pyspark.sql import functions as f

    left = frame.withWatermark("timestamp", "10 seconds").select("value", f.col("timestamp").alias("at"))
    right = others.withWatermark("timestamp", "10 seconds").select(f.col("value").alias("other"), "timestamp")
    near = f.expr("value = other AND timestamp BETWEEN at AND at + INTERVAL 5 SECONDS")
    return left.join(right, near)


@BOTH_PROTOCOLS
@pytest.mark.parametrize(("operation", "in_time_and_late"), [(counted, (3, 1)), (joined, (5, 5))])
def test_the_late_backlog_of_a_gained_partition_is_dropped_by_the_watermark(
    spark, group, topic_factory, produce, tmp_path, operation, in_time_and_late
):
    topic, other = topic_factory(partitions=2), topic_factory()
    timely = [{"value": b"%d" % n, "timestamp": NOW_MS + 10_000 * n} for n in range(5)]
    backlog = [{"value": b"late %d" % n, "timestamp": LATE_MS} for n in range(5)]
    produce(topic, [{**record, "partition": 0} for record in timely])
    produce(topic, [{**record, "partition": 1} for record in backlog])
    produce(other, [*timely, *backlog])

    def frame(named, group_id):
        options = {**group.connection, **LONG_SESSION, "group.id": group_id, "subscribe": named, "consumer.id": "a"}
        options |= {"auto.offset.reset": "smallest", "rebalance.max.retries": "20", "numStreams": "1"}
        return spark.readStream.format("zkconsumer").options(**options).load()

    rows = []

    def run():
        """Read all that the query owns; returns how many rows the watermark has dropped."""
        result = operation(frame(topic, group.group), frame(other, f"{group.group}-other"))
        writer = result.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path)).outputMode("append").trigger(availableNow=True)
        query = PatientQuery(writer.start)
        assert query.awaitTermination(DEADLINE_S)
        progress = [operator for each in query.recentProgress for operator in each["stateOperators"]]
        return sum(operator["numRowsDroppedByWatermark"] for operator in progress)

    properties = {**group.connection, **LONG_SESSION, "group.id": group.group, "consumer.id": "b"}
    properties |= {"auto.offset.reset": "smallest", "rebalance.max.retries": "20", "max.stream.idle.ms": "-1"}
    config = ConsumerConfig.from_properties(properties)
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({topic: 1})
        await_until(lambda: len(group.owners(topic)) == 2, "the other member owns the partitions")
        assert run() == 0, "the partition with the backlog belongs to the other member"
    group.await_left()
    late = run()  # the query has gained the partition
    assert (len(rows), late) == in_time_and_late, "nothing of the backlog is in the result"
