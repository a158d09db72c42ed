"""The sandbox's JVM consumer itself: the records that it returns, and its errors."""

import time

import pytest

from jvmclients.zookeeperconsumer import read_output
from tests.fixtures.jvm import SETTINGS
from tests.fixtures.waiting import eventually
from zkconsumer.errors import SandboxError


@pytest.fixture
def properties(sandbox, unique_name):
    return {
        **SETTINGS,
        "zookeeper.connect": sandbox.zookeeper_connect,
        "group.id": unique_name,
        "consumer.id": "c",
    }


def each_once(records):
    """Records in their order, without those that the JVM consumer handed out again (see offsets_received)."""
    return list(dict.fromkeys(tuple(record) for record in records))


def test_records_come_as_they_were_produced(jvm, old_jvm, properties, topic_factory, produce):
    topic = topic_factory()
    records = [(None, b""), (b"", None), (bytes(range(256)), b"\x80\xff"), (b"null", b"[1, 2]"), (b"k", b"v" * 10_000)]
    produce(topic, records)
    for each in (jvm, old_jvm):
        consumer = each.consumer(properties | {"group.id": properties["group.id"] + each.version})
        consumer.create_streams({topic: 1})
        eventually(lambda consumer=consumer: len(each_once(consumer.received())) == len(records))
        wanted = [(topic, 0, number, *record) for number, record in enumerate(records)]
        assert each_once(consumer.received()) == wanted
        consumer.shutdown()


def test_an_output_outlasts_a_killed_jvm(private_jvm, properties, topic_factory, produce, tmp_path):
    topic, output = topic_factory(), tmp_path / "records"
    assert read_output(output) == []
    produce(topic, [(b"k", b"1"), (None, b"2")])
    began = time.monotonic()
    private_jvm.consumer(properties).create_streams({topic: 1}, output=output)
    eventually(lambda: len(each_once(record for record, _ in read_output(output))) == 2)
    private_jvm.kill()
    records = read_output(output)
    wanted = [(topic, 0, 0, b"k", b"1"), (topic, 0, 1, None, b"2")]
    assert each_once(record for record, _ in records) == wanted
    assert all(began <= at <= time.monotonic() for _, at in records)


def test_many_records(jvm, properties, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, [b"%d" % number for number in range(20_000)])
    consumer = jvm.consumer(properties)
    consumer.create_streams({topic: 2})
    eventually(lambda: {int(record.value) for record in consumer.received()} == set(range(20_000)))
    consumer.shutdown()


def test_the_jvm_reports_what_is_wrong(jvm, properties, topic_factory):
    with pytest.raises(SandboxError, match=r"Wrong value .*auto\.offset\.reset"):
        jvm.consumer(properties | {"auto.offset.reset": "earliest"})
    consumer = jvm.consumer(properties)
    consumer.create_streams({topic_factory(): 1})
    with pytest.raises(SandboxError, match="MessageStreamsExistException"):
        consumer.create_streams({})
    consumer.shutdown()


def test_a_killed_jvm_is_reported(private_jvm, properties):
    consumer = private_jvm.consumer(properties)
    private_jvm.kill()
    with pytest.raises(SandboxError, match="not running"):
        consumer.received()
