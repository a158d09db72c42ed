"""Simulated brokers: one process acts as up to a hundred brokers, with prepared bytes.

Real brokers need a JVM and some hundred MiB each. For a consumer there is no difference: each simulated broker has a
port, leads its partitions, keeps fetch sessions (KIP-227), respects the limits of a request, and lets a request wait if
there are no data. Its partitions are endless: for every requested offset it sends the same batches with other offsets,
which their checksums do not cover.

The process prints one JSON line with its ports when it is ready. For each line of its standard input it prints another
one, a :class:`Counts`, and a last one when that is closed, and ends.
"""

from __future__ import annotations

import heapq
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.content import records
from benchmarks.datasets import DATA_SETS
from benchmarks.logsegment import encode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOPIC: Final = "simulated"
_FETCH, _LIST_OFFSETS, _METADATA, _API_VERSIONS = 1, 2, 3, 18
_VERSIONS: Final = {_FETCH: (4, 11), _LIST_OFFSETS: (1, 1), _METADATA: (1, 1), _API_VERSIONS: (0, 0)}
_FETCH_VERSION: Final = 11
_FULL_EPOCHS: Final = (-1, 0)  # without a session, and the first of one
_END: Final = 1 << 60
"""High watermark of partitions with data."""
_ANSWER_BYTES: Final = 1 << 20
"""Maximum bytes of one partition in a response."""
_RECEIVE_BYTES: Final = 1 << 16
_LATEST: Final = -1


class Simulation(NamedTuple):
    """The parameters of a simulation.

    Attributes:
        brokers: number of brokers.
        partitions: number of partitions; broker ``p % brokers`` leads partition ``p``.
        busy: number of partitions with data, the first ones; the others are empty.
        batch_records: records in each batch.
        batches_per_second: how fast the log end of each partition grows that has data, as ListOffsets reports it.
    """

    brokers: int = 100
    partitions: int = 1000
    busy: int = 1000
    batch_records: int = 75
    batches_per_second: float = 0.0


class Counts(NamedTuple):
    """The counts of the brokers.

    Attributes:
        requests: number of fetch requests.
        named: number of partitions named in them, including those to be forgotten.
        sent: bytes of the responses to them.
        connected: connections that are open.
        accepted: connections that were opened.
        questions: number of requests for offsets.
    """

    requests: int
    named: int
    sent: int
    connected: int = 0
    accepted: int = 0
    questions: int = 0


class Batches:
    """Prepared batches of one length, available from any offset on."""

    def __init__(self, batch_records: int) -> None:
        import numpy as np

        data = DATA_SETS["batches-75"]._replace(batch_records=batch_records)
        content = records(data, batch_records)
        (batch,) = encode(data, content)
        self._number = max(1, _ANSWER_BYTES // len(batch))
        self._body = np.frombuffer(batch * self._number, np.uint8)
        self._starts: NDArray[np.int64] = np.arange(self._number) * len(batch)
        self._firsts: NDArray[np.int64] = np.arange(self._number) * batch_records
        self._bytes = len(batch)

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Whole batches from an offset on, which must be the first offset of a batch."""
        import numpy as np

        number = max(min(self._number, max_bytes // self._bytes), int(at_least_one))
        body = self._body[: number * self._bytes].copy()
        fields = (self._firsts[:number] + offset).astype(">i8").view(np.uint8).reshape(-1, 8)
        body[self._starts[:number, None] + np.arange(8)] = fields
        return body.tobytes()


class FetchRequest(NamedTuple):
    """The relevant fields of a fetch request of version 11."""

    max_wait_ms: int
    max_bytes: int
    session_id: int
    epoch: int
    partitions: Mapping[int, tuple[int, int]]
    """Partition to offset and maximum bytes."""
    forgotten: Sequence[int]


def parse_fetch(body: memoryview) -> FetchRequest:
    """Parse the body of a request of version 11."""
    _, max_wait_ms, _, max_bytes, _, session_id, epoch = struct.unpack_from(">iiiibii", body)
    at = struct.calcsize(">iiiibii")
    partitions: dict[int, tuple[int, int]] = {}
    for begin, end in (spans := _topics(body, at, struct.calcsize(">iiqqi"))):
        for number, _, offset, _, most in struct.iter_unpack(">iiqqi", body[begin:end]):
            partitions[number] = offset, most
    forgotten: list[int] = []
    for begin, end in _topics(body, max(end for _, end in spans), struct.calcsize(">i")):
        forgotten += (number for (number,) in struct.iter_unpack(">i", body[begin:end]))
    return FetchRequest(max_wait_ms, max_bytes, session_id, epoch, partitions, forgotten)


def _topics(body: memoryview, at: int, size: int) -> list[tuple[int, int]]:
    """Start and end of the partitions of each topic; an empty span at the end if there are none."""
    (topics,) = struct.unpack_from(">i", body, at)
    at += 4
    spans = []
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", body, at)
        (partitions,) = struct.unpack_from(">i", body, at + 2 + length)
        begin = at + 6 + length
        at = begin + partitions * size
        spans.append((begin, at))
    return spans or [(at, at)]


class Session:
    """The broker's state of one connection's fetch session."""

    def __init__(self, batches: Batches, busy: int) -> None:
        self._batches = batches
        self._busy = busy
        self._held: dict[int, tuple[int, int]] = {}

    def fetch(self, request: FetchRequest) -> list[tuple[int, int, bytes]]:
        """Number, high watermark and records of each partition with changes."""
        fresh = {number for number in request.partitions if number >= self._busy and number not in self._held}
        if request.epoch in _FULL_EPOCHS:
            self._held = {}
            fresh = {number for number in request.partitions if number >= self._busy}
        for number in request.forgotten:
            self._held.pop(number, None)
        self._held.update(request.partitions)
        answers = [(number, self._held[number][0], b"") for number in fresh]
        left = request.max_bytes
        for number, (offset, most) in list(self._held.items()):
            if left <= 0:
                break
            if number < self._busy:
                found = self._batches.read(offset, min(most, left), at_least_one=left == request.max_bytes)
                if not found:
                    break
                left -= len(found)
                answers.append((number, _END, found))
                self._held[number] = self._held.pop(number)  # the others come first in the next response
        return answers


class Cluster:
    """All brokers. One thread serves them."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._batches = Batches(simulation.batch_records)
        self._selector = selectors.DefaultSelector()
        self._listeners = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(simulation.brokers)]
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        self._delayed: list[tuple[float, int, socket.socket, bytes]] = []
        self._order = count()
        self._ended = False
        self._requests = self._named = self._sent = 0
        self._connected = self._accepted = self._questions = 0
        self._began = time.monotonic()

    def counts(self) -> Counts:
        """The counts until now."""
        counted = self._requests, self._named, self._sent, self._connected, self._accepted, self._questions
        return Counts(*counted)

    def serve(self, until: int, asked: Callable[[], None] = lambda: None) -> Counts:
        """Serve until the end of the file ``until``; ``asked`` is called when something else is read from it."""
        self._selector.register(until, selectors.EVENT_READ, None)
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, listener)
        while not self._ended:
            wait = max(0.0, self._delayed[0][0] - time.monotonic()) if self._delayed else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    self._ended = not os.read(until, _RECEIVE_BYTES)
                    if not self._ended:
                        asked()
                elif isinstance(key.data, _Connection):
                    self._receive(key.data)
                else:
                    self._accept(key.data)
            while self._delayed and self._delayed[0][0] <= time.monotonic():
                _, _, sock, answer = heapq.heappop(self._delayed)
                _send(sock, answer)
        return self.counts()

    def _accept(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(sock, Session(self._batches, self._simulation.busy))
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self._connected += 1
        self._accepted += 1

    def _receive(self, connection: _Connection) -> None:
        try:
            received = connection.sock.recv(_RECEIVE_BYTES)
        except OSError:
            received = b""
        if not received:
            self._selector.unregister(connection.sock)
            self._connected -= 1
            connection.sock.close()
            return
        for frame in connection.frames(received):
            self._answer(connection, memoryview(frame))

    def _answer(self, connection: _Connection, frame: memoryview) -> None:
        api, _, correlation_id, client = struct.unpack_from(">hhih", frame)
        body = frame[10 + max(0, client) :]
        if api == _FETCH:
            request = parse_fetch(body)
            found = connection.session.fetch(request)
            answer = _response(correlation_id, fetch_response(found))
            self._requests += 1
            self._named += len(request.partitions) + len(request.forgotten)
            self._sent += len(answer)
            if not any(data for _, _, data in found):
                due = time.monotonic() + request.max_wait_ms / 1000
                heapq.heappush(self._delayed, (due, next(self._order), connection.sock, answer))
                return
        elif api == _LIST_OFFSETS:
            self._questions += 1
            answer = _response(correlation_id, self._offsets(body))
        else:
            answer = _response(correlation_id, _api_versions() if api == _API_VERSIONS else self._metadata())
        _send(connection.sock, answer)

    def _offsets(self, body: memoryview) -> bytes:
        """Response to ListOffsets: where logs begin, and where they end now, which is the end of a batch."""
        simulation = self._simulation
        grown = int((time.monotonic() - self._began) * simulation.batches_per_second) * simulation.batch_records
        size = struct.calcsize(">iq")
        ((begin, end),) = _topics(body, struct.calcsize(">i"), size)
        parts = [struct.pack(">i", 1), _text(TOPIC), struct.pack(">i", (end - begin) // size)]
        for number, timestamp in struct.iter_unpack(">iq", body[begin:end]):
            offset = grown if timestamp == _LATEST and number < simulation.busy else 0
            parts.append(struct.pack(">ihqq", number, 0, -1, offset))
        return b"".join(parts)

    def _metadata(self) -> bytes:
        brokers, partitions = self._simulation.brokers, self._simulation.partitions
        parts = [struct.pack(">i", brokers)]
        for number, port in enumerate(self.ports):
            parts.append(struct.pack(">i", number) + _text("127.0.0.1") + struct.pack(">ih", port, -1))
        parts.append(struct.pack(">iih", 0, 1, 0) + _text(TOPIC) + struct.pack(">bi", 0, partitions))
        parts += (struct.pack(">hiiii", 0, number, number % brokers, 0, 0) for number in range(partitions))
        return b"".join(parts)


class _Connection:
    def __init__(self, sock: socket.socket, session: Session) -> None:
        self.sock = sock
        self.session = session
        self._buffer = bytearray()

    def frames(self, received: bytes) -> Iterator[bytes]:
        """The complete requests."""
        self._buffer += received
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            yield bytes(self._buffer[4:end])
            del self._buffer[:end]


def fetch_response(found: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Body of a response of version 11 in session 1."""
    parts = [struct.pack(">ihii", 0, 0, 1, 1 if found else 0)]
    if found:
        parts += [_text(TOPIC), struct.pack(">i", len(found))]
    for number, end, data in found:
        parts += [struct.pack(">ihqqqiii", number, 0, end, end, 0, -1, -1, len(data)), data]
    return b"".join(parts)


def _api_versions() -> bytes:
    ranges = (struct.pack(">hhh", api, *versions) for api, versions in _VERSIONS.items())
    return struct.pack(">hi", 0, len(_VERSIONS)) + b"".join(ranges)


def _response(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _send(sock: socket.socket, answer: bytes) -> None:
    try:
        sock.sendall(answer)
    except OSError:
        return  # the client has closed the connection; the selector detects that


def main() -> None:
    """Serve the simulation in the first argument, a :class:`Simulation` as JSON."""
    cluster = Cluster(Simulation(*json.loads(sys.argv[1])))
    _report(cluster.ports)
    _report(cluster.serve(sys.stdin.fileno(), lambda: _report(cluster.counts())))


def _report(values: Sequence[int]) -> None:
    print(json.dumps(values), flush=True)  # noqa: T201 - read by the parent


if __name__ == "__main__":
    main()
