"""Offsets of other layouts, from golden bytes."""

import doctest

import pytest

from zkconsumer.errors import MalformedZnode, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules import layoutdecoding as migrationlayouts
from zkconsumer.operate.migrate.rules.layoutdecoding import (
    format_starting_offsets,
    last_committed,
    older_receiver_offset,
    parse_offset_log,
    parse_starting_offsets,
    receiver_offset,
    storm_offset,
)

STORM = (
    b'{"topology":{"id":"words-1-1436542000","name":"words"},"offset":4211,"partition":3,'
    b'"broker":{"host":"kafka-1","port":9092},"topic":"clicks"}'
)
RECEIVER = (
    b'{"consumer":{"id":"c1"},"offset":4211,"partition":3,"broker":{"host":"kafka-1","port":9092},"topic":"clicks"}'
)
LOG = (
    "v1\n"
    '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{"spark.sql.shuffle.partitions":"200"}}\n'
    '{"clicks":{"2":5,"0":7}}\n'
    "-\n"
    '{"views":{"0":0}}'
)
OTHER_SOURCE = "v1\n{}\n" + '{"logOffset":4}'


def test_examples():
    assert doctest.testmod(migrationlayouts).failed == 0


@pytest.mark.parametrize("parent", ["/kafkaspout/words", "/kafkaspout/words/clicks"])
def test_a_spout_stores_the_next_offset(parent):
    assert storm_offset(f"{parent}/partition_3", STORM) == (TopicPartition("clicks", 3), 4211)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("partition_4", STORM),
        ("3", STORM),
        ("partition_3", STORM.replace(b"4211", b"-2")),
        ("partition_3", STORM.replace(b"4211", b'"4211"')),
        ("partition_3", STORM.replace(b'"topic"', b'"other"')),
        ("partition_3", b"4211"),
        ("partition_3", b""),
        ("partition_3", None),
    ],
)
def test_another_znode_is_no_spouts(name, data):
    with pytest.raises(MalformedZnode):
        storm_offset(f"/r/id/{name}", data)


def test_receivers_store_the_last_processed_offset():
    assert receiver_offset("/p/id/offsets/clicks/3", b"4210") == 4211
    assert older_receiver_offset("/p/id/clicks/processed/partition_3", RECEIVER) == 4212
    assert receiver_offset("/p/id/offsets/clicks/3", b"0") == 1
    assert receiver_offset("/p/id/offsets/clicks/3", b"9223372036854775806") == 2**63 - 1


@pytest.mark.parametrize("data", [b"", None, b"-1", b"x", b"4.5", b"99999999999999999999", b"9223372036854775807"])
def test_what_is_no_offset_of_a_receiver_is_refused(data):
    with pytest.raises(MalformedZnode):
        receiver_offset("/p/id/offsets/clicks/3", data)
    with pytest.raises(MalformedZnode):
        older_receiver_offset("/p/id/clicks/processed/partition_3", data)


def test_starting_offsets_are_read_as_they_were_written():
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 0}
    text = format_starting_offsets(offsets)
    assert text == '{"a": {"0": 0}, "b": {"9": 2, "10": 1}}\n'
    assert parse_starting_offsets("f", text) == offsets
    assert parse_starting_offsets("f", '{"t": {"0": 9223372036854775806}}') == {TopicPartition("t", 0): 2**63 - 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "earliest",
        "[]",
        "1",
        '{"t": 1}',
        '{"t": {"0": -1}}',
        '{"t": {"0": -2}}',
        '{"t": {"x": 1}}',
        '{"t": {" 1": 1}}',
        '{"t": {"0": 9223372036854775807}}',
        '{"t": {"0": "1"}}',
        '{"t": {"0": true}}',
        '{"t": {"0": 1.5}}',
        '{"t": {"0": null}}',
    ],
)
def test_what_is_no_position_in_starting_offsets_is_refused(text):
    with pytest.raises(ZkConsumerError, match="does not hold offsets"):
        parse_starting_offsets("f", text)


@pytest.mark.parametrize(
    ("offsets", "commits", "expected"),
    [
        (["0", "1", "2"], ["0", "1", "2"], (2, False)),
        (["0", "1", "2"], ["0", "1"], (1, True)),
        (["8", "9", "10"], ["8", "9", "10", ".10.crc"], (10, False)),
        (["5", "6", ".6.uuid.tmp"], ["4", "5"], (5, True)),
        (["0"], [], None),
        ([], [], None),
    ],
)
def test_the_last_finished_batch_counts(offsets, commits, expected):
    assert last_committed(offsets, commits) == expected


def test_all_kafka_sources_of_a_query_count():
    assert parse_offset_log("f", LOG) == {
        TopicPartition("clicks", 2): 5,
        TopicPartition("clicks", 0): 7,
        TopicPartition("views", 0): 0,
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LOG.replace("v1", "v2"), "version v2"),
        ("", "version"),
        ("v1\n{}\n-", "no offsets of a Kafka source"),
        (LOG.replace("views", "clicks"), "two sources of the query read clicks-0"),
        (
            LOG + "\n" + "{}".join(("", "")).replace("{}", '{"a":{"5":1,"4":1,"3":1,"2":1,"1":1,"0":1}}\n') * 2,
            "read a-0",
        ),
        (LOG.replace('{"clicks"', '["clicks"'), "line 3,"),
        (OTHER_SOURCE, "does not hold offsets"),
    ],
)
def test_an_offset_log_that_is_not_understood_is_refused(text, reason):
    with pytest.raises(ZkConsumerError, match=reason):
        parse_offset_log("f", text)
