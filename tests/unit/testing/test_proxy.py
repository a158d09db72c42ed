"""TcpProxy between a client and a server: what passes, what is held back, what ends."""

import socket
import threading
import time

import pytest

from tests.fixtures.waiting import eventually
from zkconsumer.testing.proxy import TcpProxy


class Echo:
    """A server that sends back what it gets, and remembers it."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.received = b""
        self.ended = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                while data := connection.recv(1024):
                    self.received += data
                    connection.sendall(data)
            except OSError:
                pass
        self.ended += 1

    def close(self):
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


@pytest.fixture
def echo():
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo):
    with TcpProxy(echo.address) as made:
        yield made


@pytest.fixture
def connect(proxy):
    made = []

    def connection():
        host, _, port = proxy.address.rpartition(":")
        made.append(socket.create_connection((host, int(port)), timeout=30))
        return made[-1]

    yield connection
    for one in made:
        one.close()


def test_everything_passes_in_both_directions(connect):
    client = connect()
    for text in (b"a", b"b" * 100_000):
        client.sendall(text)
        received = b""
        while len(received) < len(text):
            received += client.recv(65_536)
        assert received == text


def test_a_cut_connection_hangs_and_delivers_later(proxy, connect, echo):
    client = connect()
    client.sendall(b"before")
    assert client.recv(100) == b"before"
    proxy.cut()
    client.sendall(b"during")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(100)
    assert echo.received == b"before"
    proxy.heal()
    client.settimeout(30)
    assert client.recv(100) == b"during"


def test_a_connection_that_is_made_while_cut_begins_later(proxy, connect):
    proxy.cut()
    client = connect()
    client.sendall(b"a")
    proxy.heal()
    assert client.recv(100) == b"a"


def test_a_request_passes_whose_answer_is_cut(proxy, connect, echo):
    client = connect()
    met = proxy.cut_at(b"offsets/t/0")
    client.sendall(b"ids")
    assert client.recv(100) == b"ids"
    assert not met.is_set()
    client.sendall(b"get offsets/t/0")
    assert met.wait(30)
    eventually(lambda: echo.received == b"idsget offsets/t/0")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(100)
    proxy.heal()
    client.settimeout(30)
    assert client.recv(100) == b"get offsets/t/0"


def test_a_later_connection_is_served_first(proxy, connect, echo):
    former = connect()
    former.sendall(b"a")
    assert former.recv(100) == b"a"
    proxy.overtake()
    former.sendall(b"late")
    former.close()
    later = connect()
    later.sendall(b"early")
    assert later.recv(100) == b"early"
    proxy.heal()
    eventually(lambda: echo.received == b"aearlylate")


def test_a_refusing_proxy_resets_old_and_new_connections(proxy, connect, echo):
    client = connect()
    client.sendall(b"a")
    assert client.recv(100) == b"a"
    proxy.refuse()
    with pytest.raises(ConnectionError):
        ended(client)
    eventually(lambda: echo.ended == 1)
    with pytest.raises(ConnectionError):
        ended(connect())
    proxy.heal()
    client = connect()
    client.sendall(b"b")
    assert client.recv(100) == b"b"


def ended(client):
    """Read until the end; raises what ends it otherwise."""
    while client.recv(100):
        pass
    client.sendall(b"x")
    while client.recv(100):
        pass
    raise ConnectionResetError("closed")


def test_a_half_closed_connection_still_sends(proxy, connect, echo):
    client = connect()
    client.sendall(b"a")
    assert client.recv(100) == b"a"
    proxy.half_close()
    assert client.recv(100) == b""
    client.sendall(b"b")
    eventually(lambda: echo.received == b"ab")


@pytest.mark.parametrize("hurt", [lambda proxy: proxy.delay(0.2), lambda proxy: proxy.throttle(50.0)])
def test_what_is_delayed_or_throttled_takes_longer(proxy, connect, hurt):
    client = connect()
    hurt(proxy)
    began = time.monotonic()
    client.sendall(b"0123456789")
    assert client.recv(100) == b"0123456789"
    assert time.monotonic() - began >= 0.35


def test_the_end_of_the_server_is_the_end_of_the_connection(proxy, connect, echo):
    echo.close()
    with pytest.raises(ConnectionError):
        ended(connect())


def test_closing_twice_does_nothing(echo):
    proxy = TcpProxy(echo.address)
    proxy.close()
    proxy.close()


def test_a_proxy_that_is_closed_under_its_connections_logs_nothing(proxy, connect, echo, caplog):
    connect().sendall(b"x")
    eventually(lambda: echo.received == b"x")
    proxy.cut()
    connect()
    proxy.close()
    eventually(lambda: echo.ended == 1)
    assert caplog.records == []
