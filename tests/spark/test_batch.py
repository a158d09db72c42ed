"""Batch reads: rows, types, tasks and messages, against a real ZooKeeper and Kafka."""

from datetime import datetime

import pytest

from tests.fixtures.spark import DEADLINE_S, in_time
from zkconsumer.config.consumerconfig import PROPERTIES
from zkconsumer.spark.rows import spark_schema

TIMESTAMP_MS = 1_700_000_000_123


def reader(spark, sandbox, group, topic, **options):
    given = {
        "zookeeper.connect": sandbox.zookeeper_connect,
        "group.id": group.group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **options,
    }
    return spark.read.format("zkconsumer").options(**{name: each for name, each in given.items() if each is not None})


def test_rows_are_the_produced_records_with_sparks_own_types(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(
        topic,
        [
            {"value": b"v0", "key": b"k0", "partition": 0, "timestamp": TIMESTAMP_MS},
            {"value": None, "key": None, "partition": 1, "timestamp": TIMESTAMP_MS},
            {
                "value": b"",
                "key": b"",
                "partition": 1,
                "timestamp": TIMESTAMP_MS,
                "headers": [("h", b"1"), ("h", None)],
            },
        ],
    )
    frame = reader(spark, sandbox, group, topic, includeHeaders="true").load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema.fields)
    assert frame.schema == spark_schema(include_headers=True)
    at = datetime.fromtimestamp(TIMESTAMP_MS / 1000)
    rows = [tuple(row) for row in frame.sort("partition", "offset").collect()]
    assert [row[:-1] for row in rows] == [
        (b"k0", b"v0", topic, 0, 0, at, 0),
        (None, None, topic, 1, 0, at, 0),
        (b"", b"", topic, 1, 1, at, 0),
    ]
    assert [(h.key, h.value) for h in rows[2][-1]] == [("h", b"1"), ("h", None)]
    assert not rows[0][-1]


def test_without_headers_there_is_no_such_column(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [{"value": b"v", "headers": [("h", b"1")]}] * 10)
    frame = reader(spark, sandbox, group, topic).load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert frame.selectExpr("count(*)", "max(offset)", "min(cast(value as string))").first() == (10, 9, "v")


def test_a_batch_read_starts_at_the_groups_offset_and_leaves_no_trace(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": n % 2} for n in range(20)])
    fresh = reader(spark, sandbox, group, topic, startingOffsets="group").load()
    assert fresh.count() == 0, "auto.offset.reset is largest"
    assert not group.exists()
    group.set_offset(topic, 0, 4)
    group.set_offset(topic, 1, 10)
    from_group = reader(spark, sandbox, group, topic, startingOffsets="group").load()
    assert [tuple(row) for row in from_group.select("partition", "offset").sort("offset").collect()] == [
        (0, offset) for offset in range(4, 10)
    ]
    assert group.offsets(topic) == {0: 4, 1: 10}
    assert group.is_deserted(topic)


def test_a_partition_with_a_malformed_offset_is_never_skipped(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": n % 2} for n in range(20)])
    group.set_offset(topic, 0, "many")
    with pytest.raises(Exception, match=f"znode /consumers/{group.group}/offsets/{topic}/0: holds no offset"):
        reader(spark, sandbox, group, topic, startingOffsets="group").load().count()
    assert reader(spark, sandbox, group, topic).load().count() == 20


def test_ranges_as_json_are_read_exactly(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": n % 2} for n in range(20)])
    frame = reader(
        spark,
        sandbox,
        group,
        topic,
        startingOffsets=f'{{"{topic}":{{"0":3,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":5}}}}',
    ).load()
    assert sorted(tuple(row) for row in frame.select("partition", "offset").collect()) == [
        (0, 3),
        (0, 4),
        *((1, offset) for offset in range(10)),
    ]


def test_min_partitions_splits_tasks_and_num_streams_joins_them(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=4)
    produced = produce(topic, [{"value": b"v", "partition": n % 4} for n in range(100)])
    for options, tasks in (({"numStreams": "1"}, 1), ({"numStreams": "3"}, 3), ({"minPartitions": "7"}, 7)):
        frame = reader(spark, sandbox, group, topic, **options).load()
        assert frame.rdd.getNumPartitions() == tasks
        assert sorted(tuple(row) for row in frame.select("partition", "offset").collect()) == sorted(produced)


def test_all_mistakes_are_named_at_load(spark):
    with pytest.raises(Exception, match="ConfigError") as caught:
        spark.readStream.format("zkconsumer").options(
            **{"kafka.bootstrap.servers": "h:9092", "subscribe": "t", "maxOffsetsPerTriger": "1", "numStreams": "x"}
        ).load()
    message = str(caught.value)
    assert len(message.splitlines()) <= 6, "without the way through the source"
    for part in (
        "set zookeeper.connect (host:port[,...][/chroot]) and group.id instead",
        "did you mean maxOffsetsPerTrigger?",
        "numStreams must be a positive integer, not 'x'",
        "group.id is missing",
    ):
        assert part in message


def test_assigned_partitions_are_read_and_no_others(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=3)
    produced = produce(topic, [{"value": b"v", "partition": n % 3} for n in range(30)])
    options = {"subscribe": None, "assign": f'{{"{topic}":[0,2]}}', "endingOffsets": f'{{"{topic}":{{"2":4}}}}'}
    frame = reader(spark, sandbox, group, topic, **options).load().select("partition", "offset")
    expected = [
        (partition, offset) for partition, offset in produced if partition == 0 or (partition == 2 and offset < 4)
    ]
    assert sorted(tuple(row) for row in frame.collect()) == sorted(expected)


def test_a_topic_that_does_not_exist_is_named(spark, sandbox, group):
    with pytest.raises(Exception, match="topic no-such-topic does not exist"):
        reader(spark, sandbox, group, "no-such-topic").load().count()


def test_offsets_no_longer_in_the_log_fail_or_are_skipped(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [b"v"] * 10)
    group.set_offset(topic, 0, 50)
    options = {"startingOffsets": "group", "auto.offset.reset": "smallest"}
    with pytest.raises(Exception, match=r"wanted 50, the log has \[0, 10\)"):
        reader(spark, sandbox, group, topic, **options).load().count()
    assert reader(spark, sandbox, group, topic, **options, failOnDataLoss="false").load().count() == 0


def test_a_stream_has_no_ending_offsets(spark, sandbox, tmp_path):
    given = {"zookeeper.connect": sandbox.zookeeper_connect, "group.id": "g", "subscribe": "t"}
    frame = spark.readStream.format("zkconsumer").options(**given, endingOffsets="latest").load()

    def run():
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)

    with pytest.raises(Exception, match=r"only apply to spark\.read"):
        in_time(run)


def test_times_become_offsets_of_the_first_records_not_older(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": n % 2, "timestamp": TIMESTAMP_MS + 1000 * n} for n in range(20)])
    frame = reader(
        spark,
        sandbox,
        group,
        topic,
        startingOffsets=None,
        startingTimestamp=str(TIMESTAMP_MS + 5000),
        endingOffsetsByTimestamp=f'{{"{topic}":{{"0":{TIMESTAMP_MS + 14_000},"1":{TIMESTAMP_MS + 60_000}}}}}',
    ).load()
    assert sorted(tuple(row) for row in frame.select("partition", "offset").collect()) == [
        *((0, offset) for offset in range(3, 7)),
        *((1, offset) for offset in range(2, 10)),
    ]
    late = {"startingOffsets": None, "startingTimestamp": str(TIMESTAMP_MS + 60_000)}
    with pytest.raises(Exception, match="no record is as new as the start time"):
        reader(spark, sandbox, group, topic, **late).load().count()
    assert reader(spark, sandbox, group, topic, **late, startingOffsetsByTimestampStrategy="latest").load().count() == 0


def test_no_task_reads_more_than_max_records_per_partition(spark, sandbox, group, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produced = produce(topic, [{"value": b"v", "partition": n % 2} for n in range(100)])
    frame = reader(spark, sandbox, group, topic, maxRecordsPerPartition="15", numStreams="1").load()
    sizes = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert sorted(sizes) == [10, 15, 15, 15, 15, 15, 15]
    assert sorted(tuple(row) for row in frame.select("partition", "offset").collect()) == sorted(produced)


def test_a_batch_read_starts_at_an_offset_that_is_stored_in_kafka(spark, sandbox, group, topic_factory, produce):
    from confluent_kafka import Consumer, TopicPartition

    topic = topic_factory()
    produce(topic, [b"v"] * 20)
    committer = Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": group.group})
    committer.commit(offsets=[TopicPartition(topic, 0, 13)], asynchronous=False)
    committer.close()
    options = {"startingOffsets": "group", "offsets.storage": "kafka", "dual.commit.enabled": "false"}
    assert reader(spark, sandbox, group, topic, **options).load().count() == 7
    assert not group.exists()


def test_no_secret_is_shown_in_a_plan(spark):
    options = {"zookeeper.connect": "h:1", "group.id": "g", "subscribe": "t", "zookeeper.digest.username": "user"}
    secrets = {row.name: "hunter2" for row in PROPERTIES.values() if row.secret and row.name != "zookeeper.digest"}
    frame = spark.readStream.format("zkconsumer").options(**options, **secrets).load()
    shown = frame._jdf.queryExecution().toString()
    assert "zookeeper.digest.username=user" in shown, "the plan has the options"
    assert "hunter2" not in shown


def test_no_secret_of_a_login_module_is_shown_in_a_plan(spark):
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='hunter2';"
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": login, "group.id": "g"}
    reader = spark.readStream.format("zkconsumer").options(**options, **{"zookeeper.connect": "h:1", "subscribe": "t"})
    shown = reader.load()._jdf.queryExecution().toString()
    assert "kafka.security.protocol=SASL_SSL" in shown, "the plan has the options"
    assert "hunter2" not in shown
