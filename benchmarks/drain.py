"""Plain drain: receives a topic's bytes from its brokers by prepared fetch requests, without parsing them.

A thread per broker sends the next request before it receives the previous response, so that the broker always has a
request, and receives into the same buffer. A reader that is as fast is limited by the broker. A reader can even be
faster: the drain uses one connection to each broker and receives one response at a time.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.logsegment import CUT_BYTES, Log

_FETCH: Final = 1
_TOGETHER: Final = 8
"""Partitions in a request, for responses of 8 MiB."""
_MAX_WAIT_MS: Final = 100
_TIMEOUT_S: Final = 30.0
_WINDOW: Final = 2
_CLIENT: Final = b"drain"


class Prepared(NamedTuple):
    """The requests of a drain.

    Attributes:
        requests: broker, as host:port, to requests in hexadecimal digits and the number of records in each response.
        ca_location: certificate to verify the brokers with; empty without TLS.
    """

    requests: Mapping[str, Sequence[tuple[str, int]]]
    ca_location: str

    def save(self, path: Path) -> None:
        """Write a file for :meth:`load`."""
        path.write_text(json.dumps(self), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Prepared:
        """Read a file written by :meth:`save`."""
        return cls(*json.loads(path.read_text(encoding="utf-8")))


def prepare(version: int, topic: str, partitions: Sequence[int], log: Log) -> Iterator[tuple[str, int]]:
    """Requests that read all of these partitions, each filled with the log, from one broker."""
    for first, after in pairwise([*log.cuts, log.records]):
        for at in range(0, len(partitions), _TOGETHER):
            together = partitions[at : at + _TOGETHER]
            yield fetch_request(version, topic, together, first).hex(), (after - first) * len(together)


def fetch_request(version: int, topic: str, partitions: Sequence[int], offset: int) -> bytes:
    """A fetch request of version 0 to 4 for the same offset in each partition."""
    body = struct.pack(">iii", -1, _MAX_WAIT_MS, 1)
    body += struct.pack(">i", 2 * CUT_BYTES * len(partitions)) if version >= 3 else b""
    body += b"\0" if version >= 4 else b""  # isolation level: read uncommitted
    body += struct.pack(">i", 1) + _text(topic.encode()) + struct.pack(">i", len(partitions))
    body += b"".join(struct.pack(">iqi", partition, offset, CUT_BYTES) for partition in partitions)
    message = struct.pack(">hhi", _FETCH, version, 0) + _text(_CLIENT) + body
    return struct.pack(">i", len(message)) + message


def drain(prepared: Prepared, seconds: float) -> tuple[int, float, float]:
    """Receive repeatedly until the time is over.

    Returns:
        Number of records after each broker's first response, seconds, and start time of that period.
    """
    threads = [_Drain(broker, list(pairs), prepared.ca_location) for broker, pairs in prepared.requests.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.ready.wait(_TIMEOUT_S)
    began = time.monotonic()
    before = sum(thread.records for thread in threads)
    while time.monotonic() < began + seconds and all(thread.is_alive() for thread in threads):
        time.sleep(0.01)
    counted, elapsed = sum(thread.records for thread in threads) - before, time.monotonic() - began
    for thread in threads:
        thread.stop = True
        thread.join()
        if thread.failure is not None:
            raise thread.failure
    return counted, elapsed, began


class _Drain(threading.Thread):
    """Drains one broker. ``records`` is written by this thread, ``stop`` by the one that started it."""

    def __init__(self, broker: str, pairs: Sequence[tuple[str, int]], ca_location: str) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._pairs = [(bytes.fromhex(request), records) for request, records in pairs]
        self._ca_location = ca_location
        self.records = 0
        self.stop = False
        self.ready = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with self._connect() as connection:
                self._receive_all(connection)
        except (OSError, EOFError) as error:
            self.failure = error
        finally:
            self.ready.set()

    def _connect(self) -> socket.socket:
        host, _, port = self._broker.rpartition(":")
        connection = socket.create_connection((host, int(port)), _TIMEOUT_S)
        if not self._ca_location:
            return connection
        return ssl.create_default_context(cafile=self._ca_location).wrap_socket(connection, server_hostname=host)

    def _receive_all(self, connection: socket.socket) -> None:
        buffer = bytearray(CUT_BYTES)
        awaited: list[int] = []
        for request, records in _again(self._pairs):
            connection.sendall(request)
            awaited.append(records)
            if len(awaited) == _WINDOW:
                buffer = _receive(connection, buffer)
                self.records += awaited.pop(0)
                self.ready.set()
            if self.stop:
                return


def _again(pairs: Sequence[tuple[bytes, int]]) -> Iterable[tuple[bytes, int]]:
    while True:
        yield from pairs


def _receive(connection: socket.socket, buffer: bytearray) -> bytearray:
    """Receive one response into the buffer, or into a larger one, and return it."""
    size = bytearray(4)
    _fill(connection, memoryview(size))
    (length,) = struct.unpack(">i", size)
    if length > len(buffer):
        buffer = bytearray(length)
    _fill(connection, memoryview(buffer)[:length])
    return buffer


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise EOFError("a broker closed the connection; see its log")
        view = view[count:]


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
