"""Fetch requests and responses by hand: the one API on the hot path, in versions 0 to 12.

The response is taken apart while it arrives, and the records of a partition are received to where they stay. What a
request names is decided by a session (``fetch_session.py``), or by the caller where there is none. Layouts are those of
Kafka's ``FetchRequest`` and ``FetchResponse`` message definitions; versions from 13 on name topics by id and would need
a metadata lookup.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from zkconsumer.errors import ProtocolError
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.errorcodes import ErrorCode, error_name
from zkconsumer.kafka.fetch_session import FIRST_VERSION, PartitionFetch, SessionStep
from zkconsumer.kafka.fields import told_malformed
from zkconsumer.kafka.isolation import ISOLATION_LEVELS, READ_COMMITTED, READ_UNCOMMITTED
from zkconsumer.kafka.response import Memory, ResponseBytes, WholeResponse, new_memory

FETCH: Final = 1
OLDEST_VERSION: Final = 0
NEWEST_VERSION: Final = 12
FLEXIBLE: Final = 12
"""The first version with compact lengths and tagged fields (KIP-482)."""

_FIRST_WITH_LIMIT: Final = 3  # of a whole response (KIP-74)
_CONSUMER: Final = -1  # replica id of everything that is not a follower
_UNKNOWN: Final = -1  # leader epoch, last fetched epoch, follower's log start


class FetchedPartition(NamedTuple):
    """One partition's share of a response.

    ``records`` is memory of their own: record batches, the last of which may be cut off. Offsets that the version does
    not tell are -1. ``aborted`` holds pairs (producer id, first offset) of aborted transactions whose records are among
    these; brokers tell them under read_committed only. ``is_last``: no other partition follows in the response.
    """

    topic: str
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]]
    records: memoryview
    is_last: bool

    def readable_end(self, isolation: str) -> int:
        """Offset up to which there is something to read under a value of ``isolation.level``; -1 if not told."""
        committed = isolation == READ_COMMITTED and self.last_stable_offset >= 0
        return self.last_stable_offset if committed else self.high_watermark


class FetchResponse(NamedTuple):
    """A whole response: an error of its own, in which case there are no partitions, and the session's id (or 0)."""

    error: int
    session_id: int
    partitions: list[FetchedPartition]


class FetchStream(NamedTuple):
    """The same while it arrives."""

    error: int
    session_id: int
    partitions: Iterator[FetchedPartition]

    def require_success(self, broker: object) -> None:
        """Raise ProtocolError where the response reports an error as a whole; it names ``broker``."""
        if self.error != ErrorCode.NONE:
            raise ProtocolError(f"{broker} refuses the fetch: {error_name(self.error)}")


def fetch_version(connection: BrokerConnection) -> int:
    """Newest Fetch version that both sides know.

    Raises:
        ProtocolError: there is none.
    """
    return connection.version(FETCH, "Fetch", OLDEST_VERSION, NEWEST_VERSION)


def limits_responses(connection: BrokerConnection) -> bool:
    """True if the broker keeps the limit for a whole response; False before 0.10.1 (KIP-74), where there is none."""
    return fetch_version(connection) >= _FIRST_WITH_LIMIT


def send_fetch(
    connection: BrokerConnection,
    step: SessionStep,
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation: str = READ_UNCOMMITTED,
) -> int:
    """Send a fetch request; returns its correlation id.

    Args:
        connection: to the leader of all partitions.
        step: the partitions in the order of preference, since ``max_bytes`` may cut the list short (KIP-74), and how
            they relate to what the broker remembers. Versions before 7 have no sessions and need all partitions.
        max_wait_ms: how long the broker may wait for ``min_bytes``.
        min_bytes: answer as soon as so many bytes are there.
        max_bytes: limit for the whole response; the broker exceeds it by at most one batch.
        isolation: a value of ``isolation.level``. Under read_committed the broker holds back what lies behind the
            first open transaction, and tells which transactions were aborted; it still sends their records.

    Raises:
        BrokerUnavailable: the connection broke.
        ProtocolError: no common version.
    """
    version = fetch_version(connection)
    body = encode_fetch(
        version, step, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation=isolation
    )
    return connection.send(FETCH, version, body, flexible=version >= FLEXIBLE)


def open_response(connection: BrokerConnection, correlation_id: int, memory: Memory = new_memory) -> FetchStream:
    """Wait for the beginning of the response to :func:`send_fetch`; the records go into ``memory``.

    Its partitions must be iterated to the end before anything else is received on the connection. While they are, other
    errors may come up: BrokerUnavailable, and ProtocolError for a malformed response; the connection is closed then.

    Raises:
        BrokerUnavailable: the connection broke, timed out or was closed.
        ProtocolError: the response is malformed.
    """
    version = fetch_version(connection)
    flexible = version >= FLEXIBLE
    source = connection.open_response(correlation_id, flexible=flexible, memory=memory)
    reader = _Reader(source, flexible)

    @contextmanager
    def closing() -> Iterator[None]:
        try:
            with told_malformed("Fetch", version):
                yield
        except ProtocolError as error:
            connection.close()  # what the next bytes on it mean cannot be known
            raise ProtocolError(f"{connection} {error}") from error

    def partitions() -> Iterator[FetchedPartition]:
        with closing():
            yield from _partitions(version, reader)

    with closing():
        error, session_id = _beginning(version, reader)
    return FetchStream(error, session_id, partitions())


def receive_fetch(
    connection: BrokerConnection, correlation_id: int, memory: Memory = new_memory
) -> list[FetchedPartition]:
    """The whole response to a request without session.

    Raises:
        BrokerUnavailable: the connection broke, timed out or was closed.
        ProtocolError: the response is malformed or reports an error as a whole.
    """
    response = open_response(connection, correlation_id, memory)
    response.require_success(connection)
    return list(response.partitions)


def encode_fetch(
    version: int,
    step: SessionStep,
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation: str = READ_UNCOMMITTED,
) -> bytes:
    """Body of a fetch request in one version; see :func:`send_fetch` for the arguments."""
    flexible = version >= FLEXIBLE
    tags = b"\x00" if flexible else b""
    parts = [struct.pack(">iii", _CONSUMER, max_wait_ms, min_bytes)]
    if version >= _FIRST_WITH_LIMIT:
        parts.append(struct.pack(">i", max_bytes))
    if version >= 4:
        parts.append(struct.pack(">b", ISOLATION_LEVELS[isolation]))
    if version >= FIRST_VERSION:
        parts.append(struct.pack(">ii", step.session_id, step.epoch))
    wanted = [(fetch.topic, _encode_partition(version, fetch) + tags) for fetch in step.partitions]
    parts.append(_encode_topics(wanted, flexible))
    if version >= FIRST_VERSION:
        forgotten = [(partition.topic, struct.pack(">i", partition.partition)) for partition in step.forgotten]
        parts.append(_encode_topics(forgotten, flexible))
    if version >= 11:
        parts.append(b"\x01" if flexible else b"\x00\x00")  # rack id: empty
    parts.append(tags)
    return b"".join(parts)


def _encode_topics(partitions: Iterable[tuple[str, bytes]], flexible: bool) -> bytes:
    """An array of topics, each with its array of partitions, which are encoded already."""
    topics: list[tuple[str, list[bytes]]] = []
    for topic, encoded in partitions:  # a topic may come up again later: the order of partitions is kept
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(encoded)
    parts = [_length(len(topics), flexible)]
    for topic, theirs in topics:
        name = topic.encode()
        parts += [_length(len(name), flexible) if flexible else struct.pack(">h", len(name)), name]
        parts += [_length(len(theirs), flexible), *theirs]
        parts.append(b"\x00" if flexible else b"")
    return b"".join(parts)


def _encode_partition(version: int, wanted: PartitionFetch) -> bytes:
    _, partition, offset, max_bytes = wanted
    if version >= 12:
        return struct.pack(">iiqiqi", partition, _UNKNOWN, offset, _UNKNOWN, _UNKNOWN, max_bytes)
    if version >= 9:
        return struct.pack(">iiqqi", partition, _UNKNOWN, offset, _UNKNOWN, max_bytes)
    if version >= 5:
        return struct.pack(">iqqi", partition, offset, _UNKNOWN, max_bytes)
    return struct.pack(">iqi", partition, offset, max_bytes)


def _length(count: int, flexible: bool) -> bytes:
    """Length of an array (or, flexible, of a string): four bytes, or a varint of one more."""
    if not flexible:
        return struct.pack(">i", count)
    out = bytearray()
    count += 1
    while count > 0x7F:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    out.append(count)
    return bytes(out)


def decode_fetch(version: int, body: memoryview) -> FetchResponse:
    """Take a whole response apart.

    Raises:
        ProtocolError: the response is malformed.
    """
    with told_malformed("Fetch", version):
        reader = _Reader(WholeResponse(body), version >= FLEXIBLE)
        return FetchResponse(*_beginning(version, reader), list(_partitions(version, reader)))


def _beginning(version: int, reader: _Reader) -> tuple[int, int]:
    """The error of the whole response, and the session's id."""
    if version >= 1:
        reader.take(">i")  # throttle time: the broker has waited already, or will not read before it is over
    if version < FIRST_VERSION:
        return ErrorCode.NONE, 0
    error, session_id = reader.take(">hi")
    return error, session_id


def _partitions(version: int, reader: _Reader) -> Iterator[FetchedPartition]:
    """What follows the beginning; of each partition the records are taken last, when it is asked for."""
    for topics_left in reversed(range(reader.length(4))):
        topic = reader.text()
        for left in reversed(range(reader.length(4))):
            yield _decode_partition(version, topic, reader, is_last=not left and not topics_left)
            reader.tags()
        reader.tags()
    reader.tags()
    reader.end()


def _decode_partition(version: int, topic: str, reader: _Reader, *, is_last: bool) -> FetchedPartition:
    partition, error, high_watermark = reader.take(">ihq")
    last_stable_offset = log_start_offset = -1
    aborted: list[tuple[int, int]] = []
    if version >= 4:
        (last_stable_offset,) = reader.take(">q")
    if version >= 5:
        (log_start_offset,) = reader.take(">q")
    if version >= 4:
        for _ in range(reader.length(4)):
            producer_id, first_offset = reader.take(">qq")
            aborted.append((producer_id, first_offset))
            reader.tags()
    if version >= 11:
        reader.take(">i")  # preferred read replica: only told to clients that name their rack
    records = reader.to_keep(reader.length(4))
    return FetchedPartition(
        topic, partition, error, high_watermark, last_stable_offset, log_start_offset, aborted, records, is_last
    )


class _Reader:
    """What the fields of a response are read with. Reading past the end raises ProtocolError."""

    def __init__(self, source: ResponseBytes, flexible: bool) -> None:
        self._source = source
        self._flexible = flexible

    def take(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._source.take(struct.calcsize(layout)))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._source.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ProtocolError("a varint is longer than five bytes")

    def length(self, size: int) -> int:
        """Length of an array, string or byte field, at most what is left of the response; null counts as 0."""
        count = self.varint() - 1 if self._flexible else self.take({2: ">h", 4: ">i"}[size])[0]
        if count > self._source.left:
            raise ProtocolError(f"{count} items are announced, {self._source.left} bytes are left")
        return max(count, 0)

    def view(self, count: int) -> memoryview:
        return self._source.take(count)

    def to_keep(self, count: int) -> memoryview:
        return self._source.take_to_keep(count)

    def text(self) -> str:
        return bytes(self.view(self.length(2))).decode()

    def tags(self) -> None:
        """Skip the tagged fields of a flexible structure."""
        if self._flexible:
            for _ in range(self.varint()):
                self.varint()
                self.view(self.varint())

    def end(self) -> None:
        """Nothing may follow: it would belong to something that this version has not."""
        if self._source.left:
            raise ProtocolError(f"{self._source.left} bytes follow its end")
