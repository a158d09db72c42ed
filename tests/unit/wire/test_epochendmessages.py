"""OffsetForLeaderEpoch messages compared with kafka-python's encoders, which are generated from Kafka's definitions."""

import pytest

from tests.fixtures.kafka import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.epochendmessages import (
    EPOCH_END_VERSIONS,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEnd,
    EpochQuestion,
    decode_epoch_ends,
    encode_epoch_ends,
    epoch_ends,
)

VERSIONS = range(EPOCH_END_VERSIONS[0], EPOCH_END_VERSIONS[1] + 1)
T0, T1, U7 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("ü" * 60, 7)
WANTED = {T1: EpochQuestion(6, 5), U7: EpochQuestion(-1, 0), T0: EpochQuestion(2**31 - 1, 2**31 - 2)}


def response(version, topics):
    """Bytes of a response; ``topics`` holds (name, [(error, partition, epoch, end)])."""
    make = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return bytes(
        OffsetForLeaderEpochResponse(
            version=version,
            throttle_time_ms=0,
            topics=[
                make(
                    topic=name,
                    partitions=[
                        make.EpochEndOffset(error_code=e, partition=p, leader_epoch=epoch, end_offset=end)
                        for e, p, epoch, end in ends
                    ],
                )
                for name, ends in topics
            ],
        ).encode()
    )


ANSWER = [("t", [(0, 1, 5, 2**40), (74, 0, -1, -1)]), ("ü" * 60, [(0, 7, -1, -1)])]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_those_of_the_message_definitions(version):
    make = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    one = make.OffsetForLeaderPartition
    topics = [("t", [(1, 6, 5), (0, 2**31 - 1, 2**31 - 2)]), ("ü" * 60, [(7, -1, 0)])]
    reference = OffsetForLeaderEpochRequest(
        version=version,
        replica_id=-1,
        topics=[
            make(
                topic=name,
                partitions=[
                    one(partition=p, current_leader_epoch=leader, leader_epoch=epoch) for p, leader, epoch in wanted
                ],
            )
            for name, wanted in topics
        ],
    )
    assert encode_epoch_ends(version, WANTED) == bytes(reference.encode())
    assert OffsetForLeaderEpochRequest.API_KEY == OFFSET_FOR_LEADER_EPOCH
    assert not OffsetForLeaderEpochRequest.flexible_version_q(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_is_decoded(version):
    answer = decode_epoch_ends(version, memoryview(response(version, ANSWER)))
    assert answer.found == {T1: EpochEnd(5, 2**40)}
    assert answer.errors == {T0: 74}
    assert answer.unknown == {U7: "its log has no leader epochs"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_leaves_the_end_unknown(version):
    answer = decode_epoch_ends(version, memoryview(response(version, [("t", [(31, 0, -1, -1)])])))
    assert (answer.errors, answer.unknown) == ({}, {T0: "CLUSTER_AUTHORIZATION_FAILED (31)"})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_is_cut_or_too_long_is_malformed(version):
    whole = response(version, ANSWER)
    for data in (*(whole[:length] for length in range(len(whole))), whole + b"\0"):
        with pytest.raises(ProtocolError, match=r"sent a malformed OffsetForLeaderEpoch response"):
            decode_epoch_ends(version, memoryview(data))


class Connection:
    """A connection to a broker that supports one version, with one answer."""

    def __init__(self, version, answer=b""):
        self.newest, self.answer = version, answer

    def knows(self, key, version):
        return key == OFFSET_FOR_LEADER_EPOCH and self.newest >= version

    def version(self, key, name, oldest, newest):
        return min(newest, self.newest)

    def exchange(self, key, version, body, decode):
        assert body == encode_epoch_ends(version, WANTED)
        return decode(memoryview(self.answer))


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_newest_common_version_is_used(version):
    connection = Connection(version, response(min(version, 3), ANSWER))
    assert epoch_ends(connection, WANTED).errors == {T0: 74}


def test_a_broker_without_the_request_knows_no_end():
    assert epoch_ends(Connection(1), WANTED).unknown.keys() == WANTED.keys()


def test_a_partition_without_an_answer_is_an_error():
    with pytest.raises(ProtocolError, match="without 1 partitions"):
        epoch_ends(Connection(3, response(3, ANSWER[:1])), WANTED)
