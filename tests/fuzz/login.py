"""The fuzz target of a connection: the bytes of a peer from connecting on, and the invariants for any bytes.

An input is one byte for the settings, then steps of the peer: one byte for the kind, two for the length, the bytes.
"""

import contextlib
import hashlib
import hmac
import itertools
import socket
import struct
import tracemalloc
import uuid
from base64 import b64encode
from collections.abc import Iterator
from typing import NamedTuple

from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.brokerclient import fetch_metadata, list_offsets
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fetchmessages import receive_fetch, send_fetch
from zkconsumer.wire.fetchsession import PartitionFetch, without_session
from zkconsumer.wire.kafkapython import load_kafka_python
from zkconsumer.wire.response import ResponseStream
from zkconsumer.wire.transport import Transport

load_kafka_python()

from kafka.net.sasl import scram  # noqa: E402

FRAME, RAW, HANG_UP, BARE = range(4)
_KINDS = 4
_STEP = struct.Struct(">BH")
_NONCE = "0123456789abcdef"
_PASSWORD = "hush"
_MECHANISMS = [None, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_HELD = 1 << 20
"""Bytes that a connection may take by itself."""
_PER_BYTE = 200
"""Further bytes for each byte that it receives: an object for two bytes of an array."""
_PARTITION = TopicPartition("t", 0)


class Step(NamedTuple):
    """An action of the peer: answer in a frame, send raw bytes, close the connection, or answer in a bare frame."""

    kind: int
    data: bytes = b""


def steps_of(data: bytes) -> Iterator[Step]:
    """The steps in an input, without the byte of settings; the last one may be cut off."""
    at = 0
    while at + _STEP.size <= len(data):
        kind, length = _STEP.unpack_from(data, at)
        at += _STEP.size
        yield Step(kind % _KINDS, data[at : at + length])
        at += length


def encode(settings: int, steps: list[Step]) -> bytes:
    """Encode an input."""
    parts = [_STEP.pack(kind, len(data[:0xFFFF])) + data[:0xFFFF] for kind, data in steps]
    return bytes([settings]) + b"".join(parts)


class FixedNonce:
    """Replaces the module ``uuid``, so that the peer can predict the client's messages."""

    @staticmethod
    def uuid4() -> str:
        return _NONCE


class Peer(Transport):
    """A transport whose peer has sent all its bytes already; each connection has its own part of them."""

    script: list[bytes]
    ends: list[socket.socket]

    def connect(self) -> None:
        ours, theirs = socket.socketpair()
        self.ends.append(theirs)
        theirs.sendall(self.script.pop(0) if self.script else b"")
        theirs.shutdown(socket.SHUT_WR)
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = ours


def script_of(steps: Iterator[Step]) -> list[bytes]:
    """The bytes that arrive on each connection."""
    connections = [b""]
    numbers = itertools.count(1)
    for step in steps:
        if step.kind == FRAME:
            connections[-1] += struct.pack(">ii", len(step.data) + 4, next(numbers)) + step.data
        elif step.kind == BARE:
            connections[-1] += struct.pack(">i", len(step.data)) + step.data
        elif step.kind == RAW:
            connections[-1] += step.data
        else:
            next(numbers)
            connections.append(b"")
    return connections


def run(data: bytes) -> None:
    """Connect to a peer that acts as the input specifies, and send it some requests.

    Raises:
        AssertionError: too much memory was used.
        Exception: an error that a connection must not raise.
    """
    if not data:
        return
    mechanism = _MECHANISMS[data[0] % len(_MECHANISMS)]
    security = BrokerSecurity()
    if mechanism is not None:
        security = BrokerSecurity("SASL_PLAINTEXT", mechanism=mechanism, username="alice", password=_PASSWORD)
    connection = BrokerConnection("peer", 9092, client_id="c", timeout_ms=1000, security=security)
    peer = Peer("peer", 9092, timeout_ms=1000, receive_buffer_bytes=0, security=security)
    peer.script, peer.ends = script_of(steps_of(data[1:])), []
    connection._transport, connection._response = peer, ResponseStream(peer)
    scram.uuid = FixedNonce
    with memory_traced():
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        # The only errors that a connection may raise.
        try:
            with contextlib.suppress(AuthenticationFailed, BrokerUnavailable, ProtocolError):
                ask(connection)
        finally:
            scram.uuid = uuid
            connection.close()
            for end in peer.ends:
                end.close()
        used = tracemalloc.get_traced_memory()[1] - before
        assert used <= _HELD + _PER_BYTE * len(data), f"{used} bytes of memory for {len(data)} bytes"


@contextlib.contextmanager
def memory_traced() -> Iterator[None]:
    """Trace memory, unless it is traced already: starting loses some memory of Python, so the fuzzer does it once."""
    if tracemalloc.is_tracing():
        yield
        return
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def ask(connection: BrokerConnection) -> None:
    connection.connect()
    with contextlib.suppress(ProtocolError):
        fetch_metadata(connection, ["t"])
    with contextlib.suppress(ProtocolError):
        list_offsets(connection, {_PARTITION: -1})
    wanted = without_session([PartitionFetch(*_PARTITION, 0, 100)])
    number = send_fetch(connection, wanted, max_wait_ms=0, min_bytes=1, max_bytes=1000)
    for part in receive_fetch(connection, number, isolation="read_committed"):
        list(part.aborted)


# -- where the fuzzer begins -------------------------------------------------------------------------------------------


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _versions(*ranges: tuple[int, int, int]) -> Step:
    return Step(FRAME, struct.pack(">hi", 0, len(ranges)) + b"".join(struct.pack(">hhh", *one) for one in ranges))


def _metadata() -> Step:
    broker = struct.pack(">ii", 1, 0) + _string("host") + struct.pack(">i", 9092) + _string("rack")
    partition = struct.pack(">hiiiiii", 0, 0, 0, 1, 0, 1, 0)
    topic = struct.pack(">h", 0) + _string("t") + b"\0" + struct.pack(">i", 1) + partition
    return Step(FRAME, broker + struct.pack(">ii", 0, 1) + topic)


def _fetch() -> Step:
    part = struct.pack(">ihqq", 0, 0, 7, 7) + struct.pack(">iqqi", 1, 5, 3, 4) + b"data"
    return Step(FRAME, struct.pack(">ii", 0, 1) + _string("t") + struct.pack(">i", 1) + part)


def _scram(mechanism: str) -> tuple[bytes, bytes]:
    """The two messages of a server that knows the password."""
    hashed = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salt, iterations = b"salt", 4096
    first = f"r={_NONCE}server,s={b64encode(salt).decode()},i={iterations}"
    authenticated = ",".join([f"n=alice,r={_NONCE}", first, f"c=biws,r={_NONCE}server"]).encode()
    salted = hashlib.pbkdf2_hmac(hashed, _PASSWORD.encode(), salt, iterations)
    signature = hmac.digest(hmac.digest(salted, b"Server Key", hashed), authenticated, hashed)
    return first.encode(), b"v=" + b64encode(signature)


def _conversation(settings: int, framed: bool) -> bytes:
    apis = [(18, 0, 3), (1, 0, 4), (2, 0, 1), (3, 0, 1), (17, 0, 1), *([(36, 0, 1)] if framed else [])]
    mechanism = _MECHANISMS[settings]
    steps = [_versions(*apis)]
    if mechanism is not None:
        steps.append(Step(FRAME, struct.pack(">hi", 0, 1) + _string(mechanism)))
        for token in [b""] if mechanism == "PLAIN" else _scram(mechanism):
            answer = struct.pack(">hhi", 0, -1, len(token)) + token + struct.pack(">q", 60_000)
            steps.append(Step(FRAME, answer) if framed else Step(BARE, token))
    offsets = struct.pack(">i", 1) + _string("t") + struct.pack(">iihqq", 1, 0, 0, -1, 42)
    return encode(settings, [*steps, _metadata(), Step(FRAME, offsets), _fetch()])


def seeds() -> Iterator[tuple[str, bytes]]:
    """(name, input) of valid conversations, and of some with errors."""
    for settings, framed in itertools.product(range(len(_MECHANISMS)), [False, True]):
        yield f"conversation-{settings}-{framed:d}", _conversation(settings, framed)
    yield "old-broker", encode(0, [Step(HANG_UP), Step(FRAME, bytes(4)), Step(HANG_UP), Step(FRAME, bytes(4))])
    refused = Step(FRAME, struct.pack(">h", 58) + _string("wrong password") + bytes(4 + 8))
    handshake = Step(FRAME, struct.pack(">hi", 0, 0))
    yield "refused", encode(1, [_versions((17, 0, 1), (36, 0, 1)), handshake, refused])
    yield "not-offered", encode(2, [_versions((17, 0, 1)), Step(FRAME, struct.pack(">hi", 33, 1) + _string("PLAIN"))])
    for length in (-1, 0, 3, 1 << 16, 1 << 20, (1 << 20) + 1, 2**31 - 1):
        yield f"frame-{length}", encode(0, [Step(RAW, struct.pack(">ii", length, 1) + b"rest")])
        yield f"bare-{length}", encode(1, [_versions((17, 0, 0)), handshake, Step(RAW, struct.pack(">i", length))])
