"""Changes to kazoo: what it logs, how its threads start, and requests that are made while there is no connection."""

import logging
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss
from kazoo.protocol.serialization import SASL, Auth, Connect
from kazoo.protocol.states import KeeperState

from tests.fixtures.threads import threads_refused
from zkconsumer.errors import ThreadLimit
from zkconsumer.zookeeper.kazooadapter import NegotiationLog, PollingHandler, Probe, SessionClient, start_client

SECRET = "S3CRET"


@pytest.mark.parametrize(
    "argument",
    [
        Auth(0, "digest", f"user:{SECRET}"),
        SASL(SECRET.encode()),
        Connect(0, 0, 0, 0, SECRET.encode(), False),
        b"S3CRET",
    ],
    ids=lambda argument: type(argument).__name__,
)
@pytest.mark.parametrize("level", [5, logging.DEBUG, logging.ERROR])
def test_no_level_of_kazoos_log_shows_a_secret(caplog, argument, level):
    caplog.set_level(1)
    NegotiationLog(1.0).log(level, "Sending request(xid=%s): %s", 1, argument)
    assert "hidden" in caplog.text
    assert SECRET not in caplog.text


def test_other_arguments_of_kazoos_log_are_kept(caplog):
    caplog.set_level(1)
    NegotiationLog(1.0).debug("Sending request(xid=%s): %s", 1, "Exists(path='/a')")
    assert "Sending request(xid=1): Exists(path='/a')" in caplog.text


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_kazoo_s_threads_end_if_one_of_them_cannot_start(refused):
    """It needs two for callbacks and one for its connection; the next try starts all three."""
    client = KazooClient("127.0.0.1:1", handler=PollingHandler())
    before, left = set(threading.enumerate()), [refused]

    def is_next(name):
        left[0] -= 1
        return left[0] == 0

    with threads_refused(is_next), pytest.raises(ThreadLimit):
        start_client(client)
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may end meanwhile
    start_client(client)
    assert len(set(threading.enumerate()) - before) == 3
    client.stop()
    client.close()
    assert set(threading.enumerate()) <= before


@pytest.fixture
def client():
    """A client whose connection a test makes and breaks; there is no server, and requests that are sent are queued."""

    def make(timeout_s):
        made = SessionClient(hosts="unused:1", timeout=timeout_s, handler=PollingHandler())
        made._connection._write_sock, made._connection._read_sock = made.handler.create_socket_pair()
        sockets.extend((made._connection._write_sock, made._connection._read_sock))
        made._session_callback(KeeperState.CONNECTING)
        made._session_callback(KeeperState.CONNECTED)
        return made

    sockets = []
    yield make
    for sock in sockets:
        sock.close()


def error_of_answer(answer):
    with pytest.raises(Exception) as raised:  # noqa: PT011 - returned
        answer.get(timeout=60)
    return raised.type


def test_requests_are_not_queued_while_zookeeper_is_away(client):
    one = client(0.05)
    one._session_callback(KeeperState.CONNECTING)
    answers = [one.get_async(f"/{number}") for number in range(1000)]
    assert {error_of_answer(answer) for answer in answers} == {ConnectionLoss}
    assert not one._queue


def test_a_request_waits_for_a_connection_that_returns_in_time(client):
    one = client(60)
    one._session_callback(KeeperState.CONNECTING)
    returning = threading.Timer(0.05, one._session_callback, [KeeperState.CONNECTED])
    returning.start()
    one.get_async("/a")
    returning.join()
    assert len(one._queue) == 1


def test_a_probe_never_waits_for_a_connection(client):
    one = client(3600)
    one._session_callback(KeeperState.CONNECTING)
    answer = one.handler.async_result()
    one._call(Probe("/", None), answer)
    assert error_of_answer(answer) is ConnectionLoss
    assert not one._queue


def test_requests_to_a_closed_client_fail_at_once(client):
    one = client(3600)
    one._session_callback(KeeperState.CLOSED)
    assert error_of_answer(one.get_async("/")) is ConnectionClosedError
