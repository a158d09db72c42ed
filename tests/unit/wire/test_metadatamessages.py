"""Metadata messages compared with kafka-python's encoders, which are generated from Kafka's definitions."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.kafka import MetadataRequest, MetadataResponse
from zkconsumer.errors import ProtocolError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.apiversions import METADATA
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.metadatamessages import (
    METADATA_VERSIONS,
    TOPIC_ID_VERSIONS,
    decode_metadata,
    encode_metadata,
    has_topic_ids,
)

WITH_TOPIC_IDS = range(TOPIC_ID_VERSIONS[0], TOPIC_ID_VERSIONS[1] + 1)
VERSIONS = (*range(METADATA_VERSIONS[0], METADATA_VERSIONS[1] + 1), *WITH_TOPIC_IDS)
TOPIC_IDS = {"ü": UUID(int=1)}
ONE, TWO = Broker(1, "one", 9092), Broker(2, "zwei.örtlich", 65535)


def response(version, *, brokers=(ONE, TWO), controller=2, topics=()):
    """Bytes of a response; ``topics`` holds (error, name, [(error, partition, leader, replicas)])."""
    make = MetadataResponse.MetadataResponseTopic
    racks = {ONE: "a rack", TWO: None}
    return bytes(
        MetadataResponse(
            version=version,
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=b.id, host=b.host, port=b.port, rack=racks.get(b))
                for b in brokers
            ],
            cluster_id="a cluster" if version % 2 else None,
            controller_id=controller,
            topics=[
                make(
                    error_code=error,
                    name=name,
                    topic_id=TOPIC_IDS.get(name, UUID(int=0)),
                    is_internal=name.startswith("_"),
                    partitions=[
                        make.MetadataResponsePartition(
                            error_code=code,
                            partition_index=number,
                            leader_id=leader,
                            leader_epoch=number % 5,
                            replica_nodes=replicas,
                            isr_nodes=replicas[:1],
                            offline_replicas=replicas[1:],
                        )
                        for code, number, leader, replicas in partitions
                    ],
                )
                for error, name, partitions in topics
            ],
        ).encode()
    )


def decode(version, data):
    return decode_metadata(version, memoryview(data))


def test_the_number_of_the_api():
    assert MetadataRequest.API_KEY == METADATA


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [[], ["t"], ["clicks", "ü" * 60], [f"t{number}" for number in range(300)]])
def test_requests_are_those_of_the_message_definitions(version, topics):
    make = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(
        version=version, topics=[make(name=topic) for topic in topics], allow_auto_topic_creation=False
    )
    assert encode_metadata(version, topics) == bytes(request.encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_for_all_topics_are_those_of_the_message_definitions(version):
    every = [] if version == 0 else None
    request = MetadataRequest(version=version, topics=every, allow_auto_topic_creation=False)
    assert encode_metadata(version, None) == bytes(request.encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_with_topic_ids_are_flexible(version):
    assert MetadataRequest.flexible_version_q(version) is has_topic_ids(version)


TOPICS = [
    (0, "ü", [(0, 0, 1, [1]), (ErrorCode.REPLICA_NOT_AVAILABLE, 1, 2, [1, 2])]),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no", []),
    (0, "_t", [(ErrorCode.LEADER_NOT_AVAILABLE, 0, -1, []), (0, 7, 3, [3]), (72, 8, 2, [2, 1])]),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_is_decoded(version):
    metadata = decode(version, response(version, topics=TOPICS))
    assert metadata.brokers == {1: ONE, 2: TWO}
    assert metadata.controller == (2 if version >= 1 else None)
    assert metadata.cluster_id == ("a cluster" if version % 2 and version >= 2 else None)
    assert metadata.leaders == {("ü", 0): ONE, ("ü", 1): TWO}
    assert metadata.leaderless == {
        ("_t", 0): ErrorCode.LEADER_NOT_AVAILABLE,
        ("_t", 7): ErrorCode.LEADER_NOT_AVAILABLE,  # the leader is not among the live brokers
        ("_t", 8): 72,
    }
    assert metadata.failed_topics == {"no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert metadata.epochs == ({("ü", 0): 0, ("ü", 1): 1} if version >= 7 else {})
    assert metadata.topic_ids == ({"ü": "AAAAAAAAAAAAAAAAAAAAAQ"} if version in WITH_TOPIC_IDS else {})


@pytest.mark.parametrize("version", VERSIONS)
def test_no_controller(version):
    assert decode(version, response(version, controller=-1)).controller is None


numbers = st.integers(0, 2**31 - 1)
partitions = st.lists(
    st.tuples(st.integers(0, 100), numbers, st.integers(-1, 4), st.lists(st.integers(0, 9), max_size=4)),
    max_size=5,
    unique_by=lambda partition: partition[1],
)
topics = st.lists(
    st.tuples(st.integers(-1, 100), st.text(max_size=20), partitions), max_size=5, unique_by=lambda topic: topic[1]
)


@given(version=st.sampled_from(VERSIONS), topics=topics, controller=st.integers(-1, 9))
def test_every_response_is_understood(version, topics, controller):
    metadata = decode(version, response(version, topics=topics, controller=controller))
    encoded = {TopicPartition(name, p[1]): p for _, name, partitions in topics for p in partitions}
    assert metadata.leaders.keys() | metadata.leaderless.keys() == encoded.keys()
    assert not metadata.leaders.keys() & metadata.leaderless.keys()
    for key, leader in metadata.leaders.items():
        assert encoded[key][0] in (0, 9)
        assert encoded[key][2] == leader.id
    for key, code in metadata.leaderless.items():
        assert code == (encoded[key][0] or ErrorCode.LEADER_NOT_AVAILABLE)
    assert metadata.failed_topics == {name: error for error, name, _ in topics if error}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_is_cut_or_too_long_is_malformed(version):
    whole = response(version, topics=TOPICS)
    for data in (*(whole[:length] for length in range(len(whole))), whole + b"\0"):
        with pytest.raises(ProtocolError, match=rf"sent a malformed Metadata response \(version {version}\)"):
            decode(version, data)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("absurd", [b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff"])
def test_invalid_lengths_neither_hang_nor_allocate(version, absurd):
    whole = response(version, topics=TOPICS)
    for position in range(len(whole)):
        with contextlib.suppress(ProtocolError):
            decode(version, whole[:position] + absurd + whole[position + 4 :])
