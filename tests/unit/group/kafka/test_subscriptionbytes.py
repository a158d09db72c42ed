"""Subscriptions and assignments as bytes; Java wrote the golden ones, see ``tests/interop/test_groupbytes.py``."""

import json
from pathlib import Path

import pytest

from tests.fixtures.groupbytes import (
    ASSIGNMENT_VERSIONS,
    GENERATION,
    INTENT,
    OWNED,
    STREAMS,
    SUBSCRIPTION_VERSIONS,
    USER_DATA,
)
from zkconsumer.errors import ProtocolError
from zkconsumer.group.kafka.rules.strategies import MemberSubscription
from zkconsumer.group.kafka.subscriptionbytes import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "groupbytes.json").read_text())
# topics [a, t]; owned partitions a: [1], t: [0, 2]; generation 7
TOPICS = bytes.fromhex("00000002 0001 61 0001 74")
PLACES = bytes.fromhex("00000002 0001 61 00000001 00000001 0001 74 00000002 00000000 00000002")
SEVEN = bytes.fromhex("00000007")


def golden_user_data(name):
    return bytes.fromhex(GOLDEN["user data"][name])


def with_user_data(version, data):
    """A subscription as Java writes it, with other user data."""
    golden = bytes.fromhex(GOLDEN["subscriptions"][str(version)])
    assert golden.count(USER_DATA) == 1
    size = -1 if data is None else len(data)
    former = len(USER_DATA).to_bytes(4) + USER_DATA
    return golden.replace(former, size.to_bytes(4, signed=True) + (data or b""))


@pytest.mark.parametrize(
    ("strategy", "data"),
    [
        ("range", None),
        ("roundrobin", None),
        ("cooperative-sticky", golden_user_data("cooperative-sticky 3.9.1")),
        ("sticky", golden_user_data("sticky 3.9.1")),
        ("zkconsumer", bytes.fromhex("0000 00000001 00000003")),
    ],
)
def test_a_subscription_has_the_bytes_of_version_2(strategy, data):
    assert encode_subscription(strategy, STREAMS, INTENT) == with_user_data(2, data)


@pytest.mark.parametrize("version", SUBSCRIPTION_VERSIONS)
def test_subscriptions_of_all_versions_are_read(version):
    found = decode_subscription("range", "m", None, bytes.fromhex(GOLDEN["subscriptions"][str(version)]))
    assert found.topics == ("a", "t")
    assert found.owned == (OWNED if version >= 1 else frozenset())
    assert found.generation == (GENERATION if version >= 2 else -1)


@pytest.mark.parametrize(("name", "generation"), [("sticky 1.1.1", -1), ("sticky 3.9.1", GENERATION)])
@pytest.mark.parametrize("version", SUBSCRIPTION_VERSIONS)
def test_sticky_data_of_all_versions_are_read(version, name, generation):
    found = decode_subscription("sticky", "m", None, with_user_data(version, golden_user_data(name)))
    assert (found.owned, found.generation) == (OWNED, generation)


@pytest.mark.parametrize("version", ASSIGNMENT_VERSIONS)
def test_assignments_of_all_versions_are_read(version):
    assert decode_assignment(bytes.fromhex(GOLDEN["assignments"][str(version)])) == OWNED


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky", "zkconsumer"])
def test_a_subscription_is_read_as_it_was_written(strategy):
    found = decode_subscription(strategy, "m", "here", encode_subscription(strategy, STREAMS, INTENT))
    streams = STREAMS if strategy == "zkconsumer" else {}
    assert found == MemberSubscription("m", ("a", "t"), OWNED, GENERATION, "here", streams)


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


def test_older_clients_send_the_generation_as_user_data():
    """KafkaConsumer up to 3.4, and librdkafka, send version 1 with cooperative-sticky."""
    metadata = b"\0\1" + TOPICS + bytes.fromhex("00000004") + SEVEN + PLACES
    found = decode_subscription("cooperative-sticky", "m", None, metadata)
    assert (found.owned, found.generation) == (OWNED, 7)


def test_later_versions_are_read_as_far_as_they_are_known():
    metadata = b"\0\x09" + TOPICS + bytes.fromhex("ffffffff") + PLACES + SEVEN + bytes.fromhex("0001 72") + b"new"
    assert decode_subscription("range", "m", None, metadata).generation == 7


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


@pytest.mark.parametrize("written", [b"", b"rack 7"])
def test_user_data_of_an_own_assignor_follows_the_numbers_of_streams(written):
    metadata = encode_subscription("by-rack", STREAMS, INTENT, written)
    found = decode_subscription("by-rack", "m", None, metadata, is_own=True)
    assert (found.streams, found.user_data, found.owned) == (STREAMS, written, INTENT.owned)
    assert decode_subscription("by-rack", "m", None, metadata).user_data == b"", "tools do not know whose it is"
