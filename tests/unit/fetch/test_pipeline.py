"""FetchPipeline on a scripted broker: what is in flight, and which answers still count."""

import socket
import struct
import threading

import pytest

from tests.fix_kafka import FetchRequest, FetchResponse
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ProtocolError
from zkconsumer.fetch.partition_info import PartitionInfo
from zkconsumer.fetch.pipeline import FetchPipeline
from zkconsumer.fetch.queues import ChunkQueue
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.response import new_memory
from zkconsumer.model import ConsumerThreadId, TopicPartition

VERSION = 11
CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="unused:1")
LIMITS = {"max_wait_ms": 10, "max_bytes": 1000}
NO_ERROR, ID_NOT_FOUND, STORAGE_ERROR = 0, 70, 56


def frame(sock):
    (length,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
    return sock.recv(length, socket.MSG_WAITALL)


def response(session_id, records=(), error=NO_ERROR):
    make = FetchResponse.FetchableTopicResponse
    partitions = [
        make.PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=bytes_,
        )
        for number, bytes_ in records
    ]
    topics = [make(topic="t", partitions=partitions)] if partitions else []
    return bytes(
        FetchResponse(
            version=VERSION, throttle_time_ms=0, error_code=error, session_id=session_id, responses=topics
        ).encode()
    )


@pytest.fixture
def pipeline():
    """Make a pipeline whose broker gives these responses in turn; it notes (session, epoch, partitions, forgotten)."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen, connections = [], []

    def make(*responses):
        def serve():
            sock, _ = listener.accept()
            with sock:
                answer(sock, frame(sock), struct.pack(">hihhh", 0, 1, 1, 0, VERSION))
                for one in responses:
                    request = frame(sock)
                    body = request[10 + struct.unpack_from(">h", request, 8)[0] :]
                    asked = FetchRequest.decode(body, version=VERSION)
                    seen.append(
                        (
                            asked.session_id,
                            asked.session_epoch,
                            [(p.partition, p.fetch_offset) for topic in asked.topics for p in topic.partitions],
                            [number for topic in asked.forgotten_topics_data for number in topic.partitions],
                        )
                    )
                    answer(sock, request, one)

        def answer(sock, request, body):
            """A body may be several pieces; before each but the first the broker waits for an event."""
            pieces = [body] if isinstance(body, bytes) else body
            length = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
            sock.sendall(struct.pack(">i", length + 4) + request[4:8])
            for piece in pieces:
                if isinstance(piece, bytes):
                    sock.sendall(piece)
                else:
                    assert piece.wait(10)

        threading.Thread(target=serve, daemon=True).start()
        connection = BrokerConnection("127.0.0.1", listener.getsockname()[1], client_id="me", timeout_ms=5000)
        connections.append(connection)
        connection.connect()
        return FetchPipeline(connection, CONFIG, new_memory)

    make.seen = seen
    yield make
    listener.close()
    for connection in connections:
        connection.close()


def info(number, offset=0):
    queue = ChunkQueue(max_bytes=100, max_chunks=2)
    return PartitionInfo(TopicPartition("t", number), ConsumerThreadId("g_c", 0), 1, queue, offset, 500)


def test_only_what_changed_is_asked_for_and_only_what_came_is_answered(pipeline):
    pipe = pipeline(response(7, [(0, b""), (1, b"bytes")]), response(7, [(1, b"more")]), response(7))
    first, second = info(0), info(1)
    pipe.send({first: 0, second: 0}, **LIMITS)
    assert pipe.in_flight
    answers = list(pipe.receive())
    assert not pipe.in_flight
    assert [(one.info, bytes(one.fetched.records), one.is_first) for one in answers] == [
        (first, b"", False),
        (second, b"bytes", True),
    ]
    pipe.send({first: 0, second: 5}, **LIMITS)
    second.fetched = 5  # decoded meanwhile
    assert [(one.info, bytes(one.fetched.records)) for one in pipe.receive()] == [(second, b"more")]
    pipe.send({second: 5}, **LIMITS)
    assert list(pipe.receive()) == []
    assert pipeline.seen == [(0, 0, [(0, 0), (1, 0)], []), (7, 1, [(1, 5)], []), (7, 2, [], [0])]


def test_a_partition_is_there_before_the_next_has_arrived_and_from_the_last_on_the_next_request_may_leave(pipeline):
    whole = response(7, [(0, b"first"), (1, b"second")])
    cut = whole.index(b"second")
    go_on = threading.Event()
    pipe = pipeline([whole[:cut], go_on, whole[cut:]], response(7, [(0, b"third")]))
    first, second = info(0), info(1)
    pipe.send({first: 0, second: 0}, **LIMITS)
    answers = pipe.receive()
    answer = next(answers)
    assert (answer.info, bytes(answer.fetched.records), answer.fetched.is_last) == (first, b"first", False)
    first.fetched = 5
    go_on.set()
    answer = next(answers)
    assert (answer.info, bytes(answer.fetched.records), answer.fetched.is_last) == (second, b"second", True)
    pipe.send({first: 5, second: 0}, **LIMITS)
    assert list(answers) == []
    assert pipe.in_flight, "the new request is not taken for the one that was just answered"
    assert [bytes(one.fetched.records) for one in pipe.receive()] == [b"third"]


def test_an_answer_to_what_was_foreseen_wrongly_does_not_count(pipeline):
    pipe = pipeline(response(7, [(0, b"behind")]), response(7, [(0, b"right")]))
    partition = info(0)
    pipe.send({partition: 5}, **LIMITS)
    partition.fetched = 3  # decoding came less far than the headers promised
    assert list(pipe.receive()) == []
    pipe.send({partition: 3}, **LIMITS)
    assert [bytes(one.fetched.records) for one in pipe.receive()] == [b"right"]
    assert [asked for _, _, asked, _ in pipeline.seen] == [[(0, 5)], [(0, 3)]]


def test_a_session_that_the_broker_forgot_is_begun_anew(pipeline):
    pipe = pipeline(response(7), response(0, error=ID_NOT_FOUND), response(8, [(0, b"bytes")]))
    partition = info(0)
    for expected in (0, 0, 1):
        pipe.send({partition: 0}, **LIMITS)
        assert len(list(pipe.receive())) == expected
    assert pipeline.seen == [(0, 0, [(0, 0)], []), (7, 1, [], []), (0, 0, [(0, 0)], [])]


def test_another_error_of_the_whole_response_names_broker_and_error(pipeline):
    pipe = pipeline(response(0, error=STORAGE_ERROR))
    pipe.send({info(0): 0}, **LIMITS)
    with pytest.raises(ProtocolError, match=r"broker 127\.0\.0\.1:\d+ refuses the fetch: KAFKA_STORAGE_ERROR"):
        list(pipe.receive())


def test_a_malformed_response_ends_the_connection(pipeline):
    pipe = pipeline(response(7, [(0, b"bytes")])[:-3])
    pipe.send({info(0): 0}, **LIMITS)
    with pytest.raises(ProtocolError, match=r"broker 127\.0\.0\.1:\d+ sent a malformed Fetch response|announces"):
        list(pipe.receive())
    with pytest.raises(Exception, match="the connection is closed"):
        pipe.send({info(0): 0}, **LIMITS)
