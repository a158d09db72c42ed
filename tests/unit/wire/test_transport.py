"""Transport to a TLS server that requires a client certificate; its alerts are OpenSSL's, not Java's."""

import contextlib
import itertools
import random
import socket
import ssl
import struct
import sys
import threading
import time

import pytest

from tests.fixtures.certificates import Authority
from tests.fixtures.scriptedserver import close_in_order
from tests.fixtures.waiting import error_of, eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ZkConsumerError
from zkconsumer.model import Broker
from zkconsumer.process.deadline import NO_DEADLINE, Deadline
from zkconsumer.wire import transport as transport_module
from zkconsumer.wire.brokersecurity import PLAINTEXT, BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.transport import Transport

HOST = "127.0.0.1"
TLS = {"tls1.2": ssl.TLSVersion.TLSv1_2, "tls1.3": ssl.TLSVersion.TLSv1_3}


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "ca")


@pytest.fixture(params=TLS)
def port(request, authority):
    """Port of a server that sends one byte to clients with a certificate of the authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.location)
    context.load_cert_chain(authority.broker_properties(HOST)["ssl.keystore.location"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = TLS[request.param]
    with socket.create_server((HOST, 0)) as listener:

        def serve():
            with contextlib.suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True) as sock:
                sock.sendall(b"x")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(60)


def read_a_byte(port, authority, *, host=HOST, **settings):
    config = ConsumerConfig(
        group_id="g",
        zookeeper_connect="unused:1",
        security_protocol="SSL",
        ssl_ca_location=authority.location,
        **settings,
    )
    security = BrokerSecurity.from_config(config)
    transport = Transport(host, port, timeout_ms=60_000, receive_buffer_bytes=0, security=security)
    try:
        transport.connect()
        received = memoryview(bytearray(1))
        transport.fill(received)
        return bytes(received)
    finally:
        transport.close()


@pytest.mark.parametrize("password", [None, "it's secret"])
def test_with_a_certificate(port, authority, password):
    assert read_a_byte(port, authority, **authority.client_settings("client", password)) == b"x"


def test_without_a_certificate(port, authority):
    # With OpenSSL and TLS 1.2 the failure may have other reasons, too.
    with pytest.raises(BrokerUnavailable, match=r"requires a client certificate \(.*ssl\.certificate\.location"):
        read_a_byte(port, authority)


def test_with_a_certificate_of_another_authority(port, authority, tmp_path):
    settings = Authority(tmp_path, "other").client_settings("client")
    with pytest.raises(AuthenticationFailed, match=r"refused .*other-client\.pem \(unknown ca\); check that the"):
        read_a_byte(port, authority, **settings)


def test_a_certificate_with_another_host_name(port, authority):
    with pytest.raises(ZkConsumerError, match="localhost"):
        read_a_byte(port, authority, host="localhost", **authority.client_settings("client"))


def test_a_certificate_with_another_host_name_where_it_is_not_compared(port, authority):
    settings = {**authority.client_settings("client"), "ssl_endpoint_identification_algorithm": "none"}
    assert read_a_byte(port, authority, host="localhost", **settings) == b"x"


@pytest.fixture
def silent_listener():
    """A listener that never sends a byte."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener


@pytest.fixture
def unanswered_port():
    """Port of a listener with a full backlog, so that the kernel drops further attempts to connect."""
    with contextlib.ExitStack() as cleaning:
        listener = cleaning.enter_context(socket.socket())
        listener.bind((HOST, 0))
        listener.listen(0)
        for _ in range(3):
            waiting = cleaning.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def end_of_connect(transport, close_when=None, trace=None):
    """Connect on another thread, close as soon as a condition holds if there is one, and return the error."""
    raised = []

    def connect():
        sys.settrace(trace)
        try:
            transport.connect()
        except BrokerUnavailable as error:
            raised.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    if close_when is not None:
        eventually(close_when)
        transport.close()
    thread.join(60)  # the time limit of the transport is much longer
    assert not thread.is_alive()
    return str(raised[0])


LONG_MS = 3_600_000


def test_closing_ends_a_tls_handshake(silent_listener):
    security, port = BrokerSecurity(protocol="SSL"), silent_listener.getsockname()[1]
    transport = Transport(HOST, port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=security)
    accepted = []

    def has_begun():
        accepted.append(silent_listener.accept()[0])
        return accepted[0].recv(1) == b"\x16"

    error = end_of_connect(transport, has_begun)
    accepted[0].close()
    assert "TLS handshake failed: closed by this process" in error


def test_closing_ends_an_attempt_to_connect(unanswered_port):
    transport = Transport(HOST, unanswered_port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=PLAINTEXT)
    error = end_of_connect(transport, lambda: transport._in_use)
    assert "connecting failed: closed by this process" in error


def before_instructions(transport, act):
    """A trace function that calls ``act`` before each instruction of the transport, unless its lock is held."""

    def trace(frame, event, _):
        if frame.f_code.co_filename != transport_module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not transport._lock.locked():
            act()
        return trace

    return trace


def test_closing_before_any_instruction_ends_an_attempt_to_connect(unanswered_port):
    def attempt(timeout_ms, act):
        transport = Transport(HOST, unanswered_port, timeout_ms=timeout_ms, receive_buffer_bytes=0, security=PLAINTEXT)
        return end_of_connect(transport, trace=before_instructions(transport, lambda: act(transport)))

    times, start = [], time.monotonic()
    assert "no answer in time" in attempt(200, lambda _: times.append(time.monotonic() - start))
    before_the_wait = [elapsed for elapsed in times if elapsed < 0.2]
    assert before_the_wait
    for point in range(len(before_the_wait)):
        left = itertools.count(-point)
        error = attempt(LONG_MS, lambda transport, left=left: next(left) or transport.close())
        assert "closed" in error


def test_closing_between_connecting_and_tls_ends_both(silent_listener):
    class Security(BrokerSecurity):
        def tls_sessions(self):
            transport.close()
            return super().tls_sessions()

    security, port = Security(protocol="SSL"), silent_listener.getsockname()[1]
    transport = Transport(HOST, port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=security)
    assert "the connection is closed" in end_of_connect(transport)


def test_a_server_that_hangs_up_in_the_handshake_is_unavailable(silent_listener):
    security, port = BrokerSecurity(protocol="SSL"), silent_listener.getsockname()[1]
    transport = Transport(HOST, port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=security)

    def hang_up():
        silent_listener.accept()[0].close()

    serving = threading.Thread(target=hang_up, daemon=True)
    serving.start()
    assert "TLS handshake failed" in end_of_connect(transport)
    serving.join(60)


@pytest.mark.parametrize("version", TLS)
def test_bytes_of_any_number_of_tls_records_arrive_in_order(authority, version):
    """Records of one byte, of the maximum size, and of sizes between; read into views of other sizes."""
    context = authority.server_context(HOST)
    context.minimum_version = context.maximum_version = TLS[version]
    sizes = [1, 16384, 51, 16384, 16384, 51, 300_000, 2, 1] * 5
    data = random.Random(1).randbytes(sum(sizes))
    with socket.create_server((HOST, 0)) as listener:

        def serve():
            with context.wrap_socket(listener.accept()[0], server_side=True) as sock:
                assert sock.recv(7) == b"x" * 7
                rest = memoryview(data)
                for size in sizes:
                    sock.sendall(rest[:size])
                    rest = rest[size:]

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        security = BrokerSecurity(protocol="SSL", ca_location=authority.location)
        port = listener.getsockname()[1]
        transport = Transport(HOST, port, timeout_ms=60_000, receive_buffer_bytes=0, security=security)
        transport.connect()
        transport.send(b"x" * 7)
        received = memoryview(bytearray(len(data)))
        at = 0
        for size in itertools.cycle([5, 70_000, 1, 16_384, 400_000]):
            transport.fill(received[at : at + size], received[at + size : at + size + 3])
            at += size + 3
            if at >= len(data):
                break
        assert received == data
        with pytest.raises(BrokerUnavailable, match="closed the connection"):
            transport.fill(memoryview(bytearray(1)))
        server.join(60)


@contextlib.contextmanager
def tls_server(authority, version, script):
    """A server that runs ``script`` with one connection, and keeps it open until the end; a transport to it."""
    context = authority.server_context(HOST)
    context.minimum_version = context.maximum_version = TLS[version]
    over = threading.Event()
    with socket.create_server((HOST, 0)) as listener:

        def serve():
            with context.wrap_socket(listener.accept()[0], server_side=True) as sock:
                script(sock)
                over.wait(60)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        security = BrokerSecurity(protocol="SSL", ca_location=authority.location)
        port = listener.getsockname()[1]
        try:
            yield Transport(HOST, port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=security)
        finally:
            over.set()
            server.join(60)


@pytest.mark.parametrize("version", TLS)
@pytest.mark.parametrize("sent", [0, 3])
def test_an_orderly_close_ends_a_receive_as_the_end_of_tcp_does(authority, version, sent):
    def script(sock):
        sock.sendall(b"x" * sent)
        close_in_order(sock)

    def receive():
        view = memoryview(bytearray(4))
        transport.fill(view[:2], view[2:])

    with tls_server(authority, version, script) as transport:
        transport.connect()
        error = error_of(receive)
    assert "the broker closed the connection" in str(error)
    assert isinstance(error.__cause__, ConnectionError)


class ResumingServer:
    """Answers each connection with one byte, and then waits until it is closed.

    Attributes:
        context: of the next connection; another one does not know the sessions of the former.
        resumed: of each connection, whether both sides have resumed a session.
    """

    def __init__(self, authority, version):
        self._authority, self._version = authority, version
        self.renew()
        self.resumed = []

    def renew(self):
        self.context = self._authority.server_context(HOST)
        self.context.minimum_version = self.context.maximum_version = TLS[self._version]

    def serve(self, listener):
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                with contextlib.suppress(OSError), self.context.wrap_socket(accepted, server_side=True) as sock:
                    self.resumed.append(sock.session_reused)
                    sock.sendall(b"x")
                    sock.recv(1)

    def connect(self, port):
        """Open a connection, receive the byte, close the connection; True if a session was resumed."""
        security = BrokerSecurity(protocol="SSL", ca_location=self._authority.location)
        transport = Transport(HOST, port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=security)
        transport.connect()
        transport.fill(memoryview(bytearray(1)))
        transport.close()
        return self.resumed.pop()


@pytest.fixture(params=TLS)
def resuming(request, authority):
    """A server, and its port."""
    server = ResumingServer(authority, request.param)
    with socket.create_server((HOST, 0)) as listener:
        serving = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        serving.start()
        yield server, listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        serving.join(60)


def test_the_next_connection_resumes_the_session(resuming):
    server, port = resuming
    assert [server.connect(port) for _ in range(3)] == [False, True, True]


def test_a_server_with_a_new_certificate_gets_a_full_handshake(resuming):
    server, port = resuming
    server.connect(port)
    server.renew()
    assert [server.connect(port) for _ in range(2)] == [False, True]


def test_a_failed_handshake_makes_the_next_one_a_full_one(resuming, tmp_path):
    server, port = resuming
    server.connect(port)
    accepts, server.context = server.context, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # without a certificate
    with pytest.raises(BrokerUnavailable):
        server.connect(port)
    server.context = accepts
    assert [server.connect(port) for _ in range(2)] == [False, True]


DRIP_S = 0.05


def drip(sock):
    """Send a byte now and then, until the client hangs up."""
    with contextlib.suppress(OSError):
        while True:
            sock.sendall(b"x")
            time.sleep(DRIP_S)


@contextlib.contextmanager
def plain_server(script):
    """As :func:`tls_server`, without TLS."""
    with socket.create_server((HOST, 0)) as listener:

        def serve():
            with contextlib.suppress(OSError), listener.accept()[0] as sock:
                script(sock)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        port = listener.getsockname()[1]
        transport = Transport(HOST, port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=PLAINTEXT)
        try:
            yield transport
        finally:
            transport.close()
            server.join(60)


@pytest.mark.parametrize("script", [drip, lambda sock: sock.recv(1)], ids=["drips", "is silent"])
@pytest.mark.parametrize("version", [None, *TLS])
@pytest.mark.parametrize("receive", ["fill", "receive"])
def test_a_deadline_ends_a_receive_also_from_a_broker_that_sends_now_and_then(authority, version, script, receive):
    server = plain_server(script) if version is None else tls_server(authority, version, script)
    with server as transport:
        transport.connect()
        deadline = Deadline.after(4 * DRIP_S)
        transport.until(deadline)
        view = memoryview(bytearray(100_000))
        if receive == "fill":
            error = error_of(lambda: transport.fill(view[:1], view[1:]))
        else:
            error = error_of(lambda: transport.receive(view, at_least=len(view)))
        assert "no answer in time" in str(error)
        assert deadline.left() < DRIP_S, "the kernel counts in ticks, so it may be a few milliseconds early"
        transport.close()


def test_a_deadline_ends_an_attempt_to_connect(unanswered_port):
    transport = Transport(HOST, unanswered_port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=PLAINTEXT)
    transport.until(Deadline.after(0.1))
    assert "connecting failed: no answer in time" in str(error_of(transport.connect))


def test_nothing_is_sent_after_a_deadline():
    received = []
    with plain_server(lambda sock: received.append(sock.recv(1))) as transport:
        transport.connect()
        transport.until(Deadline.after(0))
        with pytest.raises(BrokerUnavailable, match="sending failed: no answer in time"):
            transport.send(b"x")
    assert received == [b""]


def test_the_next_operation_has_its_own_time():
    """The one before had a deadline that has passed since."""

    def answer_late(sock):
        sock.sendall(sock.recv(1))
        sock.recv(1)
        passed.wait(60)
        time.sleep(DRIP_S)
        sock.sendall(b"b")

    passed = threading.Event()
    with plain_server(answer_late) as transport:
        transport.connect()
        received = memoryview(bytearray(1))
        first = Deadline.after(60)
        transport.until(first)
        transport.send(b"a")
        transport.fill(received)
        transport.until(NO_DEADLINE)
        transport.send(b"a")
        passed.set()
        transport.fill(received)
        assert bytes(received) == b"b"
        limits = struct.unpack("@ll", transport._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
        assert limits == (LONG_MS // 1000, 0)


@pytest.mark.parametrize("farewell", [b"", b"\x15\x03\x03\x00\x02\x01\x00"], ids=["end of TCP", "close_notify"])
def test_a_close_during_a_tls_handshake_is_a_connection_error(silent_listener, farewell):
    security, port = BrokerSecurity(protocol="SSL"), silent_listener.getsockname()[1]
    transport = Transport(HOST, port, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=security)

    def hang_up():
        with silent_listener.accept()[0] as sock:
            sock.recv(1 << 16)
            sock.sendall(farewell)
            if farewell:
                sock.recv(1)  # until the client closes

    serving = threading.Thread(target=hang_up, daemon=True)
    serving.start()
    error = error_of(transport.connect)
    transport.close()
    assert "TLS handshake failed: the broker closed the connection; check" in str(error)
    while not isinstance(error, ConnectionError):
        error = error.__cause__
    serving.join(60)


@pytest.mark.parametrize(
    ("host", "port"), [("a\0b", 9092), ("x" * 70, 9092), ("a..b", 9092), (HOST, 70_000), (HOST, -1), (HOST, 2**31 - 1)]
)
def test_an_invalid_address_is_an_unavailable_broker(host, port):
    """Addresses come from brokers' answers."""
    transport = Transport(host, port, timeout_ms=1000, receive_buffer_bytes=0, security=PLAINTEXT)
    with pytest.raises(BrokerUnavailable, match=r"cannot resolve the host name|port .* is invalid"):
        transport.connect()


def test_closing_ends_the_look_up_of_a_host_name(monkeypatch):
    answered, asked = threading.Event(), threading.Event()
    really = socket.getaddrinfo

    def look_up(host, port, **settings):
        if settings["flags"] & socket.AI_NUMERICHOST:
            return really(host, port, **settings)
        asked.set()
        answered.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    transport = Transport("broker.invalid", 9092, timeout_ms=LONG_MS, receive_buffer_bytes=0, security=PLAINTEXT)
    try:
        assert "closed by this process" in end_of_connect(transport, asked.is_set)
    finally:
        answered.set()


def test_a_host_name_is_resolved():
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        transport = Transport("localhost", port, timeout_ms=60_000, receive_buffer_bytes=0, security=PLAINTEXT)
        transport.connect()
        listener.accept()[0].close()
        transport.close()


def test_the_receive_buffer_is_the_property_and_otherwise_the_kernel_s():
    """Set before connecting, since the window that is announced then depends on it; Linux doubles the value."""

    def size(receive_buffer_bytes):
        with socket.create_server((HOST, 0)) as listener:
            config = ConsumerConfig(
                group_id="g", zookeeper_connect="unused:1", socket_receive_buffer_bytes=receive_buffer_bytes
            )
            broker = Broker(0, HOST, listener.getsockname()[1])
            transport = BrokerConnection.from_config(broker, config)._transport
            transport.connect()
            try:
                return transport._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            finally:
                transport.close()

    with socket.socket() as untouched:
        kernels = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    smaller, larger = kernels // 4, kernels * 4
    for value in (smaller, larger):
        assert value <= size(value) <= 2 * value
    assert size(None) == size(0) == size(-1) >= kernels


def test_a_send_that_is_taken_little_by_little_ends_at_the_deadline():
    with socket.create_server((HOST, 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ended = threading.Event()

        def take():
            with listener.accept()[0] as sock, contextlib.suppress(OSError):
                while not ended.wait(0.05) and sock.recv(16_384):
                    pass

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        transport = Transport(
            HOST, listener.getsockname()[1], timeout_ms=500, receive_buffer_bytes=0, security=PLAINTEXT
        )
        transport.connect()
        transport._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        deadline = Deadline.after(0.5)
        transport.until(deadline)
        with pytest.raises(BrokerUnavailable):
            transport.send(bytes(3_000_000))
        assert deadline.clock() < deadline.at + 2
        ended.set()
        transport.close()
        thread.join()
