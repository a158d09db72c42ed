"""Subscriptions and assignments as bytes; the golden ones are as Kafka's clients write them."""

import pytest

from zkconsumer.core.brokermembership import JoinIntent
from zkconsumer.core.groupstrategies import MemberSubscription
from zkconsumer.errors import ProtocolError
from zkconsumer.kafka.consumerprotocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from zkconsumer.model import TopicPartition

OWNED = frozenset({TopicPartition("t", 2), TopicPartition("t", 0), TopicPartition("a", 1)})
INTENT = JoinIntent("m", 7, OWNED, OWNED)
STREAMS = {"t": 3, "a": 1}
# topics [a, t]; user data; owned partitions a: [1], t: [0, 2]; generation 7
TOPICS = bytes.fromhex("00000002 0001 61 0001 74")
PLACES = bytes.fromhex("00000002 0001 61 00000001 00000001 0001 74 00000002 00000000 00000002")
GENERATION = bytes.fromhex("00000007")


@pytest.mark.parametrize(
    ("strategy", "user_data"),
    [
        ("range", bytes.fromhex("ffffffff")),
        ("cooperative-sticky", bytes.fromhex("00000004") + GENERATION),
        ("zkconsumer", bytes.fromhex("0000000a 0000 00000001 00000003")),
        ("sticky", len(PLACES + GENERATION).to_bytes(4) + PLACES + GENERATION),
    ],
)
def test_a_subscription_has_the_bytes_of_version_2(strategy, user_data):
    expected = b"\0\2" + TOPICS + user_data + PLACES + GENERATION
    assert encode_subscription(strategy, STREAMS, INTENT) == expected


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky", "zkconsumer"])
def test_a_subscription_is_read_as_it_was_written(strategy):
    found = decode_subscription(strategy, "m", "here", encode_subscription(strategy, STREAMS, INTENT))
    streams = STREAMS if strategy == "zkconsumer" else {}
    assert found == MemberSubscription("m", ("a", "t"), OWNED, 7, "here", streams)


@pytest.mark.parametrize(
    ("data", "streams"),
    [
        ("ffffffff", {}),
        ("00000006 0000 00000001", {}),
        ("0000000c 0009 00000001 00000003 6e6577", {"a": 1, "t": 3}),
    ],
    ids=["absent", "too short", "of a later version"],
)
def test_numbers_of_streams_are_read_as_far_as_they_are_known(data, streams):
    metadata = b"\0\0" + TOPICS + bytes.fromhex(data)
    assert decode_subscription("zkconsumer", "m", None, metadata).streams == streams


def test_a_subscription_of_version_0_owns_nothing():
    found = decode_subscription("range", "m", None, b"\0\0" + TOPICS + bytes.fromhex("00000000"))
    assert (found.topics, found.owned, found.generation) == (("a", "t"), frozenset(), -1)


def test_older_clients_send_the_generation_as_user_data():
    """KafkaConsumer up to 3.4, and librdkafka, send version 1 with cooperative-sticky."""
    metadata = b"\0\1" + TOPICS + bytes.fromhex("00000004") + GENERATION + PLACES
    found = decode_subscription("cooperative-sticky", "m", None, metadata)
    assert (found.owned, found.generation) == (OWNED, 7)


def test_later_versions_are_read_as_far_as_they_are_known():
    metadata = b"\0\x09" + TOPICS + bytes.fromhex("ffffffff") + PLACES + GENERATION + bytes.fromhex("0001 72") + b"new"
    assert decode_subscription("range", "m", None, metadata).generation == 7


def test_sticky_data_without_a_generation_is_read():
    metadata = b"\0\0" + TOPICS + len(PLACES).to_bytes(4) + PLACES
    found = decode_subscription("sticky", "m", None, metadata)
    assert (found.owned, found.generation) == (OWNED, -1)


def test_sticky_data_that_cannot_be_read_is_ignored():
    metadata = b"\0\0" + TOPICS + bytes.fromhex("00000003 7fffff")
    assert decode_subscription("sticky", "m", None, metadata).owned == frozenset()


def test_an_assignment_has_the_bytes_of_version_0():
    assert encode_assignment(OWNED) == b"\0\0" + PLACES + bytes.fromhex("ffffffff")
    assert decode_assignment(encode_assignment(OWNED)) == OWNED


def test_a_member_to_which_the_leader_sent_nothing_owns_nothing():
    assert decode_assignment(b"") == frozenset()


@pytest.mark.parametrize("wrong", [b"\0", b"\0\0\0\0\0\x05", b"\0\0\x7f\xff\xff\xff"])
def test_malformed_bytes_are_reported(wrong):
    with pytest.raises(ProtocolError, match="member m joined"):
        decode_subscription("range", "m", None, wrong)
    with pytest.raises(ProtocolError, match="leader sent"):
        decode_assignment(wrong)
