"""ListOffsets messages compared with kafka-python's encoders, which are generated from Kafka's definitions."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.kafka import ListOffsetsRequest, ListOffsetsResponse
from zkconsumer.connector.versionzerorequests import segment_offsets
from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.apiversions import LIST_OFFSETS
from zkconsumer.wire.isolation import ISOLATION_LEVELS
from zkconsumer.wire.listoffsetsmessages import (
    LIST_OFFSETS_VERSIONS,
    decode_list_offsets,
    decode_segment_offsets,
    encode_list_offsets,
)

VERSIONS = range(LIST_OFFSETS_VERSIONS[0], LIST_OFFSETS_VERSIONS[1] + 1)
T0, T1, U7 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("ü" * 60, 7)


def request(version, topics, *, isolation="read_uncommitted", max_offsets=1, epoch=-1):
    make = ListOffsetsRequest.ListOffsetsTopic
    one = make.ListOffsetsPartition
    return bytes(
        ListOffsetsRequest(
            version=version,
            isolation_level=ISOLATION_LEVELS[isolation],
            topics=[
                make(
                    name=name,
                    partitions=[
                        one(
                            partition_index=number,
                            timestamp=timestamp,
                            max_num_offsets=max_offsets,
                            current_leader_epoch=epoch,
                        )
                        for number, timestamp in partitions
                    ],
                )
                for name, partitions in topics
            ],
        ).encode()
    )


def response(version, topics):
    """Bytes of a response; ``topics`` holds pairs (name, [(partition, error, offset or, in version 0, offsets)])."""
    make = ListOffsetsResponse.ListOffsetsTopicResponse
    one = make.ListOffsetsPartitionResponse
    return bytes(
        ListOffsetsResponse(
            version=version,
            throttle_time_ms=0,
            topics=[
                make(
                    name=name,
                    partitions=[
                        one(partition_index=number, error_code=error, old_style_offsets=found)
                        if version == 0
                        else one(
                            partition_index=number, error_code=error, timestamp=99, offset=found, leader_epoch=number
                        )
                        for number, error, found in partitions
                    ],
                )
                for name, partitions in topics
            ],
        ).encode()
    )


def test_the_number_of_the_api():
    assert ListOffsetsRequest.API_KEY == LIST_OFFSETS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
def test_requests_are_those_of_the_message_definitions(version, isolation):
    wanted = {T1: -1, U7: 2**40, T0: -2}
    topics = [("t", [(1, -1), (0, -2)]), ("ü" * 60, [(7, 2**40)])]
    expected = request(version, topics, isolation=isolation)
    assert encode_list_offsets(version, wanted, isolation=isolation) == expected
    assert encode_list_offsets(version, {}, isolation=isolation) == request(version, [], isolation=isolation)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_name_the_leader_epoch(version):
    ours = encode_list_offsets(version, {T1: -1}, epochs={T1: 7, T0: 8})
    assert ours == request(version, [("t", [(1, -1)])], epoch=7)


def test_many_segments():
    assert encode_list_offsets(0, {T1: 5}, max_offsets=9) == request(0, [("t", [(1, 5)])], max_offsets=9)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_is_decoded(version):
    def found(offset):
        return ([] if offset < 0 else [offset, 1]) if version == 0 else offset

    topics = [("t", [(1, 0, found(2**40)), (0, 6, found(-1))]), ("ü" * 60, [(7, 0, found(-1))])]
    offsets = decode_list_offsets(version, memoryview(response(version, topics)))
    assert offsets.found == {T1: 2**40, U7: None}
    assert offsets.errors == {T0: 6}
    assert offsets.epochs == ({T1: 1, U7: 7} if version >= 4 else {})
    assert offsets.reasons() == {"NOT_LEADER_OR_FOLLOWER (6)": [T0]}


class Connection:
    """A connection to a broker with one answer."""

    def __init__(self, answer):
        self.answer = answer
        self.sent = []

    def version(self, key, name, oldest, newest):
        assert (oldest, newest) == (0, 0)
        return 0

    def exchange(self, key, version, body, decode):
        self.sent.append((key, version, body))
        return decode(memoryview(self.answer))


def test_segment_offsets_are_requested_in_version_zero():
    connection = Connection(response(0, [("t", [(1, 0, [30, 20, 0])])]))
    assert segment_offsets(connection, T1, 5, 3) == (0, [30, 20, 0])
    assert connection.sent == [(LIST_OFFSETS, 0, request(0, [("t", [(1, 5)])], max_offsets=3))]
    with pytest.raises(ProtocolError, match="ListOffsets response without t-0"):
        segment_offsets(connection, T0, 5, 3)


offsets = st.integers(-(2**63), 2**63 - 1)
partitions = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.integers(-1, 100), offsets), max_size=5, unique_by=lambda one: one[0]
)
topics = st.lists(st.tuples(st.text(max_size=20), partitions), max_size=5, unique_by=lambda topic: topic[0])


@given(version=st.sampled_from(VERSIONS[1:]), topics=topics)
def test_every_response_is_understood(version, topics):
    answer = decode_list_offsets(version, memoryview(response(version, topics)))
    encoded = [(TopicPartition(name, number), error, offset) for name, of in topics for number, error, offset in of]
    assert answer.errors == {key: error for key, error, _ in encoded if error}
    assert answer.found == {key: offset if offset >= 0 else None for key, error, offset in encoded if not error}


@given(topics=topics, more=st.lists(offsets, max_size=3))
def test_every_response_of_version_zero_is_understood(topics, more):
    lists = [(name, [(number, error, [offset, *more]) for number, error, offset in of]) for name, of in topics]
    encoded = {TopicPartition(name, number): (error, found) for name, of in lists for number, error, found in of}
    body = memoryview(response(0, lists))
    assert decode_segment_offsets(body) == encoded
    assert decode_list_offsets(0, body).found == {key: found[0] for key, (error, found) in encoded.items() if not error}


@given(
    version=st.sampled_from(VERSIONS),
    wanted=st.dictionaries(st.tuples(st.text(max_size=9), st.integers(0, 99)), offsets),
)
def test_every_request_is_that_of_the_message_definitions(version, wanted):
    grouped = {}
    for (topic, number), timestamp in wanted.items():
        grouped.setdefault(topic, []).append((number, timestamp))
    ours = encode_list_offsets(version, {TopicPartition(*key): timestamp for key, timestamp in wanted.items()})
    assert ours == request(version, grouped.items())


def whole_response(version):
    found = [5, 3] if version == 0 else 5
    return response(version, [("t", [(0, 0, found), (1, 6, found)]), ("ü", [(7, 0, found)]), ("empty", [])])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_is_cut_or_too_long_is_malformed(version):
    whole = whole_response(version)
    for data in (*(whole[:length] for length in range(len(whole))), whole + b"\0"):
        with pytest.raises(ProtocolError, match=rf"sent a malformed ListOffsets response \(version {version}\)"):
            decode_list_offsets(version, memoryview(data))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("absurd", [b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff"])
def test_invalid_lengths_neither_hang_nor_allocate(version, absurd):
    whole = whole_response(version)
    for position in range(len(whole)):
        with contextlib.suppress(ProtocolError):
            decode_list_offsets(version, memoryview(whole[:position] + absurd + whole[position + 4 :]))
