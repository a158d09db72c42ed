"""FetchConversation with a scripted broker: requests in flight, and which answers are used."""

import socket
import struct
import threading

import pytest

from tests.fixtures.kafka import FetchRequest, FetchResponse
from zkconsumer.errors import ProtocolError
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fetchconversation import FetchConversation
from zkconsumer.wire.fetchsession import PartitionFetch
from zkconsumer.wire.response import new_memory

VERSION = 11
ISOLATION = "read_uncommitted"
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
def talk():
    """Create a conversation whose broker gives these responses; it records (session, epoch, partitions, forgotten)."""
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
                    assert piece.wait(60)

        threading.Thread(target=serve, daemon=True).start()
        connection = BrokerConnection("127.0.0.1", listener.getsockname()[1], client_id="me", timeout_ms=60_000)
        connections.append(connection)
        connection.connect()
        return Talk(FetchConversation(connection, new_memory, min_bytes=1, isolation=ISOLATION, keeps_session=True))

    make.seen = seen
    yield make
    listener.close()
    for connection in connections:
        connection.close()


class Talk:
    """A conversation, and its caller's position in each partition."""

    def __init__(self, conversation) -> None:
        self.conversation = conversation
        self.positions = {}

    def send(self, wanted):
        for number, offset in wanted.items():
            self.positions.setdefault(number, offset)
        fetches = [PartitionFetch("t", number, offset, 500) for number, offset in wanted.items()]
        self.conversation.send(fetches, max_wait_ms=10, max_bytes=1000)

    def receive(self):
        return self.conversation.receive(lambda partition: self.positions.get(partition.partition))


def test_only_changes_are_requested_and_only_received_partitions_answered(talk):
    pipe = talk(response(7, [(0, b""), (1, b"bytes")]), response(7, [(1, b"more")]), response(7))
    pipe.send({0: 0, 1: 0})
    assert pipe.conversation.in_flight
    answers = list(pipe.receive())
    assert not pipe.conversation.in_flight
    assert [(one.partition.partition, bytes(one.fetched.records), one.is_first) for one in answers] == [
        (0, b"", False),
        (1, b"bytes", True),
    ]
    pipe.send({0: 0, 1: 5})
    pipe.positions[1] = 5  # decoded meanwhile
    assert [(one.partition.partition, bytes(one.fetched.records)) for one in pipe.receive()] == [(1, b"more")]
    pipe.send({1: 5})
    assert list(pipe.receive()) == []
    assert talk.seen == [(0, 0, [(0, 0), (1, 0)], []), (7, 1, [(1, 5)], []), (7, 2, [], [0])]


def test_partitions_arrive_one_by_one_and_the_last_allows_a_request(talk):
    whole = response(7, [(0, b"first"), (1, b"second")])
    cut = whole.index(b"second")
    go_on = threading.Event()
    pipe = talk([whole[:cut], go_on, whole[cut:]], response(7, [(0, b"third")]))
    pipe.send({0: 0, 1: 0})
    answers = pipe.receive()
    answer = next(answers)
    assert (answer.partition.partition, bytes(answer.fetched.records), answer.fetched.is_last) == (0, b"first", False)
    pipe.positions[0] = 5
    go_on.set()
    answer = next(answers)
    assert (answer.partition.partition, bytes(answer.fetched.records), answer.fetched.is_last) == (1, b"second", True)
    pipe.send({0: 5, 1: 0})
    assert list(answers) == []
    assert pipe.conversation.in_flight, "the new request is not confused with the answered one"
    assert [bytes(one.fetched.records) for one in pipe.receive()] == [b"third"]


def test_an_answer_for_a_wrongly_expected_offset_is_dropped(talk):
    pipe = talk(response(7, [(0, b"behind")]), response(7, [(0, b"right")]))
    pipe.send({0: 5})
    pipe.positions[0] = 3  # decoding ended before the offset in the headers
    assert list(pipe.receive()) == []
    pipe.send({0: 3})
    assert [bytes(one.fetched.records) for one in pipe.receive()] == [b"right"]
    assert [asked for _, _, asked, _ in talk.seen] == [[(0, 5)], [(0, 3)]]


def test_a_forgotten_session_is_begun_again(talk):
    pipe = talk(response(7), response(0, error=ID_NOT_FOUND), response(8, [(0, b"bytes")]))
    for expected in (0, 0, 1):
        pipe.send({0: 0})
        assert len(list(pipe.receive())) == expected
    assert talk.seen == [(0, 0, [(0, 0)], []), (7, 1, [], []), (0, 0, [(0, 0)], [])]


def test_another_error_of_the_whole_response_names_broker_and_error(talk):
    pipe = talk(response(0, error=STORAGE_ERROR))
    pipe.send({0: 0})
    with pytest.raises(ProtocolError, match=r"broker 127\.0\.0\.1:\d+ refused the fetch: KAFKA_STORAGE_ERROR"):
        list(pipe.receive())


def test_a_malformed_response_ends_the_connection(talk):
    pipe = talk(response(7, [(0, b"bytes")])[:-3])
    pipe.send({0: 0})
    with pytest.raises(ProtocolError, match=r"broker 127\.0\.0\.1:\d+ sent a malformed Fetch response|announced"):
        list(pipe.receive())
    with pytest.raises(Exception, match="the connection is closed"):
        pipe.send({0: 0})
