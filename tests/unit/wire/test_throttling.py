"""A quota mutes a connection for the throttle time of an answer (KIP-219), and no other one."""

import struct
import threading
import time

import pytest

from tests.fixtures.scriptedserver import ScriptedServer, answer, running
from tests.fixtures.waiting import error_of
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.process.deadline import Deadline
from zkconsumer.wire.apiversions import API_VERSIONS, FETCH, METADATA
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fetchconversation import FetchConversation
from zkconsumer.wire.fetchsession import PartitionFetch
from zkconsumer.wire.response import new_memory
from zkconsumer.wire.throttletimes import THROTTLE_TIMES

THROTTLE_MS, LONG_MS = 300, 600_000
MUTES_SINCE = 6


class Throttling(ScriptedServer):
    """Answers each request with the throttle time, and notes when it came."""

    throttle_ms = THROTTLE_MS

    def __init__(self, listener):
        super().__init__(listener)
        self.came = []

    def _respond(self, sock, key, number, content):
        if key == API_VERSIONS:
            ranges = [(API_VERSIONS, 0, 0), (METADATA, 0, 8), (FETCH, 4, 8)]
            return answer(
                sock, number, struct.pack(">hi", 0, 3) + b"".join(struct.pack(">hhh", *one) for one in ranges)
            )
        self.came.append(time.monotonic())
        of_fetch = struct.pack(">hii", 0, 0, 0) if key == FETCH else b""
        return answer(sock, number, struct.pack(">i", self.throttle_ms) + of_fetch)

    def pause_s(self):
        """Between its last two requests."""
        return self.came[-1] - self.came[-2]


@pytest.fixture
def broker():
    with running(Throttling) as server:
        yield server


@pytest.fixture
def connect(broker):
    made = []

    def connected():
        made.append(BrokerConnection("127.0.0.1", broker.port, client_id="me", timeout_ms=60_000))
        made[-1].connect()
        return made[-1]

    yield connected
    for connection in made:
        connection.close()


def ask(connection, version=MUTES_SINCE):
    connection.exchange(METADATA, version, b"", len)


def test_the_next_request_is_sent_when_the_time_is_over(broker, connect):
    connection = connect()
    ask(connection)
    assert connection.muted
    ask(connection)
    assert broker.pause_s() >= THROTTLE_MS / 1000 * 0.95


def test_a_fetch_waits_as_well(broker, connect):
    fetching = FetchConversation(connect(), new_memory, min_bytes=1, isolation="read_uncommitted", keeps_session=False)
    for _ in range(2):
        fetching.send([PartitionFetch("t", 0, 0, 500)], max_wait_ms=10, max_bytes=1000)
        assert list(fetching.receive(lambda _: 0)) == []
        assert fetching.muted
    assert broker.pause_s() >= THROTTLE_MS / 1000 * 0.95


def test_an_earlier_version_was_held_back_by_the_broker(broker, connect):
    broker.throttle_ms = LONG_MS
    connection = connect()
    ask(connection, MUTES_SINCE - 1)
    assert not connection.muted
    ask(connection, MUTES_SINCE - 1)


def test_other_connections_are_not_muted(broker, connect):
    broker.throttle_ms = LONG_MS
    first, second = connect(), connect()
    ask(first)
    ask(second)
    assert first.muted


def test_a_wait_ends_when_the_connection_is_closed(broker, connect):
    broker.throttle_ms = LONG_MS
    connection, errors = connect(), []
    ask(connection)
    waiting = threading.Thread(target=lambda: errors.append(error_of(lambda: ask(connection))), daemon=True)
    waiting.start()
    connection.close()
    waiting.join(60)
    assert isinstance(errors[0], BrokerUnavailable)
    assert len(broker.came) == 1


def test_throttle_times_are_added_up_for_the_client_id(broker, connect):
    before = THROTTLE_TIMES.seconds("me")
    for connection in (connect(), connect()):
        ask(connection)
    ask(connection, MUTES_SINCE - 1)
    assert THROTTLE_TIMES.seconds("me") - before == pytest.approx(2 * THROTTLE_MS / 1000)
    assert THROTTLE_TIMES.seconds("you") == 0


def test_an_operation_without_the_time_fails_at_once(broker, connect):
    broker.throttle_ms = LONG_MS
    connection = connect()
    ask(connection)
    with connection.within(Deadline.after(5.0)):
        error = error_of(lambda: ask(connection))
    assert "check the client's quotas" in str(error)
