"""A broker on a real socket that answers the requests of one API as badly as a test wants, and all others well."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fix_batches import build
from zkconsumer.model import Broker
from zkconsumer.sandbox.producer import Record

API_VERSIONS, METADATA, LIST_OFFSETS, FETCH = 18, 3, 2, 1
FIND_COORDINATOR, OFFSET_FETCH, OFFSET_COMMIT = 10, 9, 8
HANDSHAKE, AUTHENTICATE = 17, 36
VERSIONS = {
    FETCH: 4,
    LIST_OFFSETS: 1,
    METADATA: 1,
    FIND_COORDINATOR: 0,
    OFFSET_FETCH: 1,
    OFFSET_COMMIT: 2,
    HANDSHAKE: 1,
    AUTHENTICATE: 0,
    API_VERSIONS: 0,
}
TOPIC, OFFSET = "t", 42
BATCH = build([Record(b"value")], offset=OFFSET)

Answer = Callable[[socket.socket, int, bytes], bool]
"""Answers one request, given its correlation id and the body of a good response; False to hang up."""


def _text(length: int = 1) -> bytes:
    return struct.pack(">h", length) + TOPIC.encode()


def response(api: int, port: int, *, count: int = 1, length: int = 1, code: int = 0) -> bytes:
    """The body of a response in the version of :data:`VERSIONS`.

    Args:
        api: whose response.
        port: the broker's, for the responses that name brokers.
        count: length of its first array.
        length: length of its first string.
        code: its first error code.
    """
    size = struct.pack(">i", count)
    one = struct.pack(">i", 1)
    topic = size + _text(length) + one
    broker = struct.pack(">i", 0) + struct.pack(">h", 9) + b"127.0.0.1" + struct.pack(">i", port)
    if api == API_VERSIONS:
        ranges = b"".join(struct.pack(">hhh", key, version, version) for key, version in VERSIONS.items())
        return struct.pack(">hi", code, len(VERSIONS) if count == 1 else count) + ranges
    partition = struct.pack(">hiiiiii", 0, 0, 0, 1, 0, 1, 0)
    described = size + struct.pack(">h", code) + _text(length) + b"\0" + one + partition
    return {
        METADATA: one + broker + _text() + struct.pack(">i", 0) + described,
        LIST_OFFSETS: topic + struct.pack(">ihqq", 0, code, -1, OFFSET),
        FETCH: bytes(4) + topic + struct.pack(">ihqqii", 0, code, OFFSET + 1, OFFSET + 1, 0, len(BATCH)) + BATCH,
        FIND_COORDINATOR: struct.pack(">hih", code, 0, 9 * length) + b"127.0.0.1" + struct.pack(">i", port),
        OFFSET_FETCH: topic + struct.pack(">iq", 0, OFFSET) + _text() + struct.pack(">h", code),
        OFFSET_COMMIT: topic + struct.pack(">ih", 0, code),
        HANDSHAKE: struct.pack(">h", code) + size + struct.pack(">h", 5 * length) + b"PLAIN",
        AUTHENTICATE: struct.pack(">hh", code, length - 2) + struct.pack(">i", count - 1),
    }[api]


def _answer(sock: socket.socket, number: int, body: bytes) -> bool:
    sock.sendall(struct.pack(">ii", len(body) + 4, number) + body)
    return True


def cut_off(sock: socket.socket, number: int, body: bytes) -> bool:
    """Send less than was announced, and hang up."""
    sock.sendall(struct.pack(">ii", len(body) + 4, number) + body[: len(body) // 2])
    return False


def ends_early(sock: socket.socket, number: int, body: bytes) -> bool:
    """Send a frame whose length is right and whose content is not complete."""
    return _answer(sock, number, body[:-1])


def longer_than_the_limit(sock: socket.socket, number: int, body: bytes) -> bool:
    """Announce more than a client accepts, by one byte, once it has logged in."""
    sock.sendall(struct.pack(">ii", (1 << 30) + 1, number) + body)
    return True


def longest(sock: socket.socket, number: int, body: bytes) -> bool:
    """Announce as much as can be announced."""
    sock.sendall(struct.pack(">ii", 2**31 - 1, number) + body)
    return True


def as_long_as_the_limit(sock: socket.socket, number: int, body: bytes) -> bool:
    """Announce all that a client accepts, before or after the login, and send no more than usual."""
    sock.sendall(struct.pack(">ii", 1 << 20, number) + body)
    return False


def negative_length(sock: socket.socket, number: int, body: bytes) -> bool:
    sock.sendall(struct.pack(">ii", -1, number) + body)
    return True


def late(sock: socket.socket, number: int, body: bytes) -> bool:
    """Answer when the client has given up and closed the connection."""
    while sock.recv(1 << 16):
        pass
    return False


def wrong_number(sock: socket.socket, number: int, body: bytes) -> bool:
    """Answer another request."""
    return _answer(sock, number + 1, body)


def hang_up(sock: socket.socket, number: int, body: bytes) -> bool:
    return False


class ScriptedBroker:
    """Tests set the first two attributes, the broker's threads read them.

    Attributes:
        answers: by API, how its requests are answered; well, where there is none.
        bodies: by API, what is answered instead of the usual response.
        bad: how many requests were answered by ``answers`` or from ``bodies``.
        connections: that are open.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.port = listener.getsockname()[1]
        self.answers: dict[int, Answer] = {}
        self.bodies: dict[int, bytes] = {}
        self.bad = 0
        self.connections: set[socket.socket] = set()
        self._listener = listener

    @property
    def broker(self) -> Broker:
        return Broker(0, "127.0.0.1", self.port)

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections.add(sock)
                threading.Thread(target=self._serve, args=[sock], name="scripted broker", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as stream, contextlib.suppress(OSError):
            while head := stream.read(4):
                key, _, number = struct.unpack_from(">hhi", stream.read(struct.unpack(">i", head)[0]))
                self.bad += key in self.answers or key in self.bodies
                body = self.bodies.get(key, response(key, self.port))
                if not self.answers.get(key, _answer)(sock, number, body):
                    break
        self.connections.discard(sock)


@contextmanager
def running_scripted_broker() -> Iterator[ScriptedBroker]:
    """A broker that listens until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = ScriptedBroker(listener)
        threading.Thread(target=broker.accept, name="scripted broker", daemon=True).start()
        try:
            yield broker
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
