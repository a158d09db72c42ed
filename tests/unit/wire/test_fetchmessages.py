"""Fetch messages compared with kafka-python's encoders, which are generated from Kafka's message definitions."""

import contextlib

import pytest

from tests.fixtures.fetchresponses import decode_fetch
from tests.fixtures.kafka import FetchRequest, FetchResponse
from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.fetchmessages import NEWEST_VERSION, OLDEST_VERSION, encode_fetch
from zkconsumer.wire.fetchsession import PartitionFetch, SessionStep, without_session

VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)


def reference_request(
    version, topics, *, max_wait_ms, min_bytes, max_bytes, isolation, session=(0, -1), forgotten=(), rack=""
):
    make = FetchRequest.FetchTopic
    return bytes(
        FetchRequest(
            version=version,
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(isolation == "read_committed"),
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                make(
                    topic=name,
                    partitions=[
                        make.FetchPartition(
                            partition=p,
                            fetch_offset=offset,
                            partition_max_bytes=size,
                            current_leader_epoch=epoch[0] if epoch else -1,
                        )
                        for p, offset, size, *epoch in partitions
                    ],
                )
                for name, partitions in topics
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=name, partitions=numbers) for name, numbers in forgotten
            ],
            rack_id=rack,
        ).encode()
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    "topics",
    [
        [],
        [("t", [(0, 0, 1)])],
        [("clicks", [(0, 5, 1 << 20), (7, 2**40, 100)]), ("ü" * 60, [(3, 1, 2)])],
        [("many", [(p, p, 4096) for p in range(300)])],
        [("a", [(0, 1, 1)]), ("b", [(0, 1, 1)]), ("a", [(1, 1, 1)])],
        [("t", [(0, 0, 1, 7), (1, 0, 1, 2**31 - 1)])],
    ],
)
def test_requests_are_those_of_the_message_definitions(version, isolation, topics):
    limits = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 52_428_800, "isolation": isolation}
    wanted = [PartitionFetch(name, *partition) for name, partitions in topics for partition in partitions]
    assert encode_fetch(version, without_session(wanted), **limits) == reference_request(version, topics, **limits)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rack", ["", "r1", "ü" * 100])
def test_a_rack_is_named_where_the_version_has_it(version, rack):
    limits = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1000, "isolation": "read_uncommitted"}
    step = without_session([PartitionFetch("t", 0, 0, 1)])
    expected = reference_request(version, [("t", [(0, 0, 1)])], **limits, rack=rack if version >= 11 else "")
    assert encode_fetch(version, step, **limits, rack=rack) == expected


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 7])
def test_steps_of_a_session_are_those_of_the_message_definitions(version):
    limits = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 52_428_800, "isolation": "read_uncommitted"}
    forgotten = [TopicPartition("a", 3), TopicPartition("a", 1), TopicPartition("b", 0)]
    step = SessionStep(123, 7, [PartitionFetch("c", 2, 9, 100)], forgotten)
    expected = reference_request(
        version, [("c", [(2, 9, 100)])], **limits, session=(123, 7), forgotten=[("a", [3, 1]), ("b", [0])]
    )
    assert encode_fetch(version, step, **limits) == expected


def reference_response(version, *, error_code=0, session_id=0):
    make = FetchResponse.FetchableTopicResponse
    data = make.PartitionData
    full = data(
        partition_index=3,
        error_code=0,
        high_watermark=77,
        last_stable_offset=70,
        log_start_offset=5,
        aborted_transactions=[
            data.AbortedTransaction(producer_id=9, first_offset=12),
            data.AbortedTransaction(producer_id=10, first_offset=60),
        ],
        preferred_read_replica=6,
        records=b"some record batches",
    )
    empty = data(
        partition_index=4,
        error_code=6,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=None if version >= 4 else b"",
    )
    return bytes(
        FetchResponse(
            version=version,
            throttle_time_ms=0,
            error_code=error_code,
            session_id=session_id,
            responses=[make(topic="clicks", partitions=[full, empty]), make(topic="ü", partitions=[empty])],
        ).encode()
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_those_of_the_message_definitions(version):
    full, empty, other = decode_fetch(version, memoryview(bytearray(reference_response(version)))).partitions
    assert (full.topic, full.partition, full.error, full.high_watermark) == ("clicks", 3, 0, 77)
    assert full.last_stable_offset == (70 if version >= 4 else -1)
    assert full.log_start_offset == (5 if version >= 5 else -1)
    assert list(full.aborted) == ([(9, 12), (10, 60)] if version >= 4 else [])
    assert full.readable_end("read_uncommitted") == 77
    assert full.readable_end("read_committed") == (70 if version >= 4 else 77)
    assert bytes(full.records) == b"some record batches"
    assert (full.read_replica, empty.read_replica) == (6 if version >= 11 else -1, -1)
    assert (empty.topic, empty.partition, empty.error, len(empty.records)) == ("clicks", 4, 6, 0)
    assert (other.topic, other.partition) == ("ü", 4)


@pytest.mark.parametrize("version", VERSIONS)
def test_aborted_transactions_are_skipped_under_read_uncommitted(version):
    response = memoryview(reference_response(version))
    committed = decode_fetch(version, response).partitions
    uncommitted = decode_fetch(version, response, isolation="read_uncommitted").partitions
    assert [list(part.aborted) for part in uncommitted] == [[], [], []]
    assert [part._replace(aborted=()) for part in committed] == [part._replace(aborted=()) for part in uncommitted]


def test_aborted_transactions_are_created_on_access():
    aborted = decode_fetch(4, memoryview(reference_response(4))).partitions[0].aborted
    assert (len(aborted), (10, 60) in aborted, list(aborted)) == (2, True, [(9, 12), (10, 60)])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_session_and_an_error_of_the_whole_response(version):
    response = decode_fetch(version, memoryview(reference_response(version, error_code=70, session_id=99)))
    assert (response.error, response.session_id) == ((70, 99) if version >= 7 else (0, 0))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_response_is_never_accepted_as_a_whole_one(version):
    whole = reference_response(version)
    for length in range(len(whole)):
        with pytest.raises(ProtocolError, match="Fetch response"):
            decode_fetch(version, memoryview(whole[:length]))


@pytest.mark.parametrize("version", [4, 12])
def test_invalid_counts_neither_hang_nor_allocate(version):
    whole = reference_response(version)
    for position in range(len(whole)):
        hostile = bytearray(whole)
        hostile[position : position + 4] = b"\x7f\xff\xff\xff"
        with contextlib.suppress(ProtocolError):
            decode_fetch(version, memoryview(hostile))
