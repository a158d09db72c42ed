"""BrokerConnection with small servers on real sockets."""

import contextlib
import random
import socket
import struct
import sys
import threading
import tracemalloc

import pytest

from tests.fixtures.fork import in_forked_child, refused_in_forked_child
from tests.fixtures.kafka import MetadataRequest
from tests.fixtures.waiting import eventually
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ProtocolError
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.sasl import log_in

API_VERSIONS = struct.pack(">hi", 0, 2) + struct.pack(">hhh", 18, 0, 4) + struct.pack(">hhh", 1, 4, 16)


def read_exactly(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def read_request(sock):
    """(api key, version, correlation id, client id, rest) of one request."""
    (length,) = struct.unpack(">i", read_exactly(sock, 4))
    frame = read_exactly(sock, length)
    key, version, correlation_id, size = struct.unpack_from(">hhih", frame)
    return key, version, correlation_id, frame[10 : 10 + size].decode(), frame[10 + size :]


def answer(sock, correlation_id, body):
    sock.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


@pytest.fixture
def serve():
    """Start a server that runs ``script(socket)`` for each connection; returns its port."""
    listeners = []

    def start(script, api_versions=API_VERSIONS):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run():
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock, contextlib.suppress(ConnectionError, OSError):
                    if api_versions is not None:
                        answer(sock, read_request(sock)[2], api_versions)
                    script(sock)

        threading.Thread(target=run, daemon=True).start()
        return listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def connect():
    made = []

    def make(port, **settings):
        connection = BrokerConnection("127.0.0.1", port, **{"client_id": "me", "timeout_ms": 60_000, **settings})
        made.append(connection)
        return connection

    yield make
    for connection in made:
        connection.close()


def test_a_request_and_its_response(serve, connect):
    seen = []

    def script(sock):
        seen.append(read_request(sock))
        answer(sock, seen[0][2], b"hello")
        seen.append(read_request(sock))
        answer(sock, seen[1][2], b"\x00world")

    connection = connect(serve(script))
    connection.connect()
    first = connection.send(1, 11, b"body")
    assert bytes(connection.receive(first)) == b"hello"
    second = connection.send(1, 12, b"body", flexible=True)
    assert bytes(connection.receive(second, flexible=True)) == b"world"
    assert seen == [(1, 11, first, "me", b"body"), (1, 12, second, "me", b"\x00body")]


def test_the_newest_common_version_is_chosen(serve, connect):
    connection = connect(serve(lambda sock: sock.recv(1)))
    connection.connect()
    assert connection.version(1, "Fetch", 0, 12) == 12
    assert connection.version(1, "Fetch", 0, 17) == 16
    with pytest.raises(ProtocolError, match=r"Fetch.*this client has 0 to 3, the broker supports versions 4 to 16"):
        connection.version(1, "Fetch", 0, 3)
    with pytest.raises(ProtocolError, match="does not support it"):
        connection.version(99, "Oddity", 0, 3)


def test_a_response_longer_than_the_buffer_arrives_whole_and_keeps_older_views_intact(serve, connect):
    big = bytes(range(256)) * 20_000

    def script(sock):
        for body in (b"small", big):
            answer(sock, read_request(sock)[2], body)

    connection = connect(serve(script))
    connection.connect()
    small = connection.receive(connection.send(1, 4, b""))
    assert bytes(small) == b"small"
    assert connection.receive(connection.send(1, 4, b"")) == big


def test_memory_is_reused(serve, connect):
    def script(sock):
        while True:
            answer(sock, read_request(sock)[2], b"x" * 100_000)

    connection = connect(serve(script))
    connection.connect()
    first = connection.receive(connection.send(1, 4, b""))
    second = connection.receive(connection.send(1, 4, b""))
    assert first.obj is second.obj


def test_closing_from_another_thread_wakes_a_blocked_receive(serve, connect):
    ended = threading.Event()
    connection = connect(serve(lambda sock: ended.wait(60)), timeout_ms=60_000)
    connection.connect()
    correlation_id = connection.send(1, 4, b"")

    def close_once_it_receives():
        eventually(lambda: connection._transport._in_use)
        connection.close()

    closer = threading.Thread(target=close_once_it_receives)
    closer.start()
    with pytest.raises(BrokerUnavailable, match="closed by this process"):
        connection.receive(correlation_id)
    ended.set()
    closer.join()
    with pytest.raises(BrokerUnavailable, match="the connection is closed"):
        connection.send(1, 4, b"")


def test_a_connection_closed_before_connecting_stays_closed(serve, connect):
    connection = connect(serve(lambda sock: None))
    connection.close()
    connection.close()
    with pytest.raises(BrokerUnavailable, match="closed"):
        connection.connect()


def test_silence_is_a_timeout(serve, connect):
    ended = threading.Event()
    connection = connect(serve(lambda sock: ended.wait(60)), timeout_ms=2000)

    def ask():
        connection.connect()  # on a machine that stands still the silence begins here
        connection.receive(connection.send(1, 4, b""))

    with pytest.raises(BrokerUnavailable, match="no answer in time"):
        ask()
    ended.set()


def test_a_broker_that_hangs_up_in_the_middle_of_a_response(serve, connect):
    def script(sock):
        read_request(sock)
        sock.sendall(struct.pack(">ii", 1000, 2) + b"only a part")

    connection = connect(serve(script))
    connection.connect()
    with pytest.raises(BrokerUnavailable, match="broker closed the connection"):
        connection.receive(connection.send(1, 4, b""))


@pytest.mark.parametrize(
    ("head", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"\x15\x03\x01\x00\x02\x02\x50", "TLS"),
        (struct.pack(">ii", -5, 1), "-5 bytes"),
        (struct.pack(">ii", 0, 1), "0 bytes"),
        (struct.pack(">ii", 2**31 - 1, 1), "limit"),
    ],
)
def test_servers_other_than_kafka_brokers_are_recognised(serve, connect, head, hint):
    connection = connect(
        serve(lambda sock: (read_request(sock), sock.sendall(head + bytes(8))), None), max_response_bytes=1 << 20
    )
    with pytest.raises(ProtocolError, match=hint):
        connection.connect()


def test_an_answer_to_another_request_is_refused(serve, connect):
    connection = connect(serve(lambda sock: answer(sock, read_request(sock)[2] + 1, b"")))
    connection.connect()
    with pytest.raises(ProtocolError, match="instead of"):
        connection.receive(connection.send(1, 4, b""))


def test_a_refused_connection_has_a_hint_what_to_check(connect):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BrokerUnavailable, match=r"refused.*advertised listener"):
        connect(port).connect()


def test_a_broker_that_hangs_up_at_once_gets_the_likely_reasons(serve, connect):
    connection = connect(serve(lambda sock: None, None))
    with pytest.raises(BrokerUnavailable, match="TLS or SASL, or a broker that is starting"):
        connection.connect()


def test_a_malformed_api_versions_response(serve, connect):
    connection = connect(serve(lambda sock: None, struct.pack(">hi", 0, 3) + b"\x00" * 7))
    with pytest.raises(ProtocolError, match="malformed ApiVersions"):
        connection.connect()


def test_settings_of_connections_show_no_secrets():
    security = BrokerSecurity(password="hush1", token="hush2", key_password="hush3")
    assert "hush" not in repr(security)


def sasl_versions(authenticate):
    ranges = [(18, 0, 3), (1, 0, 4), (17, 0, 1), *([(36, 0, 1)] if authenticate else [])]
    return struct.pack(">hi", 0, len(ranges)) + b"".join(struct.pack(">hhh", *one) for one in ranges)


LOGIN = BrokerSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password="hush")


def test_a_broker_before_1_0_gets_the_bare_login(serve, connect):
    seen = []

    def script(sock):
        key, version, correlation_id, _, body = read_request(sock)
        seen.append((key, version, body))
        answer(sock, correlation_id, struct.pack(">hi", 0, 1) + b"\x00\x05PLAIN")
        (length,) = struct.unpack(">i", read_exactly(sock, 4))
        seen.append(read_exactly(sock, length))
        sock.sendall(bytes(4))
        answer(sock, read_request(sock)[2], b"in")

    connection = connect(serve(script, sasl_versions(authenticate=False)), security=LOGIN)
    connection.connect()
    assert bytes(connection.receive(connection.send(1, 0, b""))) == b"in"
    assert seen == [(17, 0, b"\x00\x05PLAIN"), b"alice\x00alice\x00hush"]


def test_a_broker_before_1_0_refuses_by_hanging_up(serve, connect):
    def script(sock):
        answer(sock, read_request(sock)[2], struct.pack(">hi", 0, 0))
        read_exactly(sock, 4)

    connection = connect(serve(script, sasl_versions(authenticate=False)), security=LOGIN)
    with pytest.raises(AuthenticationFailed, match=r"closed the connection during the login; check sasl\.mechanism"):
        connection.connect()


class LastToken:
    """A mechanism whose last token is the client's, as with Kerberos."""

    def __init__(self):
        self.heard = []
        self.sent = 0

    def auth_bytes(self):
        self.sent += 1
        return b"%d" % self.sent

    def receive(self, token):
        self.heard.append(token)

    def is_done(self):
        return self.sent == 2

    is_authenticated = is_done


@pytest.mark.parametrize("framed", [False, True])
def test_the_last_token_of_a_client_is_answered_only_in_a_frame(serve, connect, framed):
    mechanism = LastToken()

    def script(sock):
        answer(sock, read_request(sock)[2], struct.pack(">hi", 0, 0))
        for reply in (b"challenge", b""):
            if framed:
                answer(sock, read_request(sock)[2], struct.pack(">hhi", 0, -1, len(reply)) + reply + bytes(8))
            else:
                read_exactly(sock, 5)
                sock.sendall(struct.pack(">i", len(reply)) + reply if reply else b"")
        answer(sock, read_request(sock)[2], b"in")

    connection = connect(serve(script, sasl_versions(authenticate=framed)))
    connection.connect()
    log_in(connection, LOGIN, lambda wire, security: mechanism)
    assert bytes(connection.receive(connection.send(1, 0, b""))) == b"in"
    assert mechanism.heard == [b"challenge", b""]


def test_kerberos_without_its_package_has_an_installation_hint(serve, connect, monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)  # as if it was not installed
    kerberos = BrokerSecurity(protocol="SASL_PLAINTEXT", mechanism="GSSAPI")
    connection = connect(serve(lambda sock: None, sasl_versions(authenticate=True)), security=kerberos)
    with pytest.raises(AuthenticationFailed, match=r"package gssapi is missing: pip install 'zkconsumer\[gssapi\]'"):
        connection.connect()


@pytest.mark.parametrize("reply", [b"", struct.pack(">hi", 33, 9), struct.pack(">hi", 0, 0)])
def test_a_login_with_a_malformed_answer_is_refused(serve, connect, reply):
    def script(sock):
        answer(sock, read_request(sock)[2], reply)
        answer(sock, read_request(sock)[2], b"\x00")

    connection = connect(serve(script, sasl_versions(authenticate=True)), security=LOGIN)
    with pytest.raises((BrokerUnavailable, ProtocolError)):
        connection.connect()


def test_an_announced_length_costs_no_memory(serve, connect):
    def script(sock):
        _, _, correlation_id, _, _ = read_request(sock)
        sock.sendall(struct.pack(">ii", 1 << 30, correlation_id) + bytes(1000))

    connection = connect(serve(script))
    connection.connect()
    correlation_id = connection.send(1, 4, b"")
    tracemalloc.start()
    try:
        with pytest.raises(BrokerUnavailable, match="broker closed the connection"):
            connection.receive(correlation_id)
        assert tracemalloc.get_traced_memory()[1] < 1 << 27
    finally:
        tracemalloc.stop()


def test_a_response_larger_than_the_first_allocation_arrives_whole(serve, connect):
    big = random.Random(5).randbytes(1 << 20) * 150

    connection = connect(serve(lambda sock: answer(sock, read_request(sock)[2], big)))
    connection.connect()
    assert connection.receive(connection.send(1, 4, b"")) == big


def test_wrong_counts_in_a_metadata_response(serve, connect):
    connection = connect(serve(lambda sock: answer(sock, read_request(sock)[2], b"\x7f\xff\xff\xff" * 3)))
    connection.connect()
    with pytest.raises(ProtocolError, match="malformed Metadata"):
        connection.call(MetadataRequest(version=0, topics=[]))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_neither_closes_nor_uses_its_parents_connection(serve, connect):
    def script(sock):
        _, _, correlation_id, _, body = read_request(sock)
        answer(sock, correlation_id, body)

    connection = connect(serve(script))
    connection.connect()
    assert in_forked_child(connection.close)
    assert refused_in_forked_child(lambda: connection.send(3, 0, b"in between"), "connection to broker .*")
    assert refused_in_forked_child(lambda: connection.receive(1), "connection to broker .*")
    assert bytes(connection.receive(connection.send(3, 0, b"still open"))) == b"still open"


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">hih", 33, 2**31 - 1, -2) + bytes(2),
        struct.pack(">hi", 33, 2**31 - 1),
        struct.pack(">hih", 33, 1, 5) + b"PLA",
        struct.pack(">hih", 33, 1, 2) + b"\xff\xfe",
        b"\0",
    ],
    ids=["a negative length", "no mechanisms", "cut off", "no text", "no error code"],
)
def test_a_malformed_list_of_mechanisms_is_refused(serve, connect, body):
    """The first one caused an endless loop: each mechanism moved the position back to its start."""

    def script(sock):
        answer(sock, read_request(sock)[2], body)

    connection = connect(serve(script, sasl_versions(authenticate=True)), security=LOGIN)
    with pytest.raises(ProtocolError, match=r"broker .* sent a malformed SaslHandshake response"):
        connection.connect()


def test_before_the_login_only_short_responses_are_accepted(serve, connect):
    def script(sock):
        sock.sendall(struct.pack(">ii", (1 << 20) + 1, read_request(sock)[2]))

    connection = connect(serve(script, sasl_versions(authenticate=True)), security=LOGIN)
    with pytest.raises(ProtocolError, match="announced a response of 1048577 bytes; the limit is 1048576"):
        connection.connect()


def test_a_connected_broker_may_send_long_responses(serve, connect):
    def script(sock):
        answer(sock, read_request(sock)[2], bytes(2 << 20))

    connection = connect(serve(script))
    connection.connect()
    assert len(connection.receive(connection.send(1, 4, b""))) == 2 << 20
