"""Znodes of brokers, and how unreadable ones are refused."""

import pytest

from zkconsumer.errors import MalformedZnode
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.rules.clusterznodes import (
    LeaderAndIsr,
    decode_consumer_rate,
    decode_partition_state,
    partition_state_path,
)


def test_the_state_of_a_partition():
    assert partition_state_path(TopicPartition("t", 3)) == "/brokers/topics/t/partitions/3/state"
    data = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":7,"isr":[2,3]}'
    assert decode_partition_state("/p", data) == LeaderAndIsr(-1, 7, (2, 3))


@pytest.mark.parametrize(
    ("data", "rate"),
    [
        (b'{"config":{"consumer_byte_rate":"1024"}}', 1024.0),
        (b'{"config":{"consumer_byte_rate":0}}', 0.0),
        (b'{"config":{"producer_byte_rate":"1024"}}', None),
        (b'{"config":[]}', None),
        (b"{}", None),
    ],
)
def test_the_quota_of_fetches(data, rate):
    assert decode_consumer_rate("/p", data) == rate


@pytest.mark.parametrize("decode", [decode_partition_state, decode_consumer_rate])
@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"1"])
def test_what_is_no_object_is_refused(decode, data):
    with pytest.raises(MalformedZnode, match="JSON"):
        decode("/p", data)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_partition_state, b"{}"),
        (decode_partition_state, b'{"leader":1,"leader_epoch":0,"isr":1}'),
        (decode_partition_state, b'{"leader":"a","leader_epoch":0,"isr":[]}'),
        (decode_consumer_rate, b'{"config":{"consumer_byte_rate":"a"}}'),
        (decode_consumer_rate, b'{"config":{"consumer_byte_rate":[]}}'),
    ],
)
def test_what_has_other_contents_is_refused(decode, data):
    with pytest.raises(MalformedZnode, match="unreadable"):
        decode("/p", data)
