"""Fetch requests and responses, encoded by hand: the only API on the hot path, in versions 0 to 12.

The response is parsed while it arrives, and the records of a partition are received into their final memory. A session
(``fetchsession.py``), or the caller if there is none, decides which partitions a request names. Layouts are those of
Kafka's ``FetchRequest`` and ``FetchResponse`` message definitions; versions from 13 on name topics by id and would need
a metadata lookup.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, cast

from zkconsumer.errors import ProtocolError
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.fetchsession import FIRST_VERSION, PartitionFetch, SessionStep
from zkconsumer.wire.fields import (
    Fields,
    encode_compact_string,
    encode_string,
    encode_varint,
    reporting_malformed,
)
from zkconsumer.wire.isolation import ISOLATION_LEVELS, READ_COMMITTED, READ_UNCOMMITTED
from zkconsumer.wire.response import Memory, new_memory
from zkconsumer.wire.rules.readreplica import NO_REPLICA

FETCH: Final = 1
OLDEST_VERSION: Final = 0
NEWEST_VERSION: Final = 12
FLEXIBLE: Final = 12
"""The first version with compact lengths and tagged fields (KIP-482)."""

_FIRST_WITH_LIMIT: Final = 3  # limit of a whole response (KIP-74)
_CONSUMER: Final = -1  # replica id of every client that is not a follower
_UNKNOWN: Final = -1  # last fetched epoch, follower's log start

_INT32: Final = struct.Struct(">i")
_ERROR_AND_SESSION: Final = struct.Struct(">hi")
_PARTITION: Final = struct.Struct(">ihq")  # number, error, high watermark
_PARTITION_4: Final = struct.Struct(">ihqq")  # the same, last stable offset
_PARTITION_5: Final = struct.Struct(">ihqqq")  # the same, log start offset
_ABORTED: Final = struct.Struct(">qq")  # producer id, first offset


class AbortedTransactions(Collection[tuple[int, int]]):
    """Aborted transactions as pairs (producer id, first offset), created on access.

    A broker may list as many as a response has room for, and most chunks need none of them.
    """

    __slots__ = ("_packed",)

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return len(self._packed) // _ABORTED.size

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return cast(Iterator[tuple[int, int]], _ABORTED.iter_unpack(self._packed))

    def __contains__(self, transaction: object) -> bool:
        return transaction in list(self)


class FetchedPartition(NamedTuple):
    """One partition's part of a response.

    ``records`` has memory of its own: record batches, the last of which may be cut off. Offsets that the version does
    not contain are -1. ``aborted`` holds pairs (producer id, first offset) of aborted transactions with records among
    these; brokers send them under read_committed only. ``is_last``: no other partition follows in the response.
    ``read_replica``: id of the broker to fetch from instead (KIP-392), else -1.
    """

    topic: str
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Collection[tuple[int, int]]
    records: memoryview
    is_last: bool
    read_replica: int = NO_REPLICA

    def readable_end(self, isolation: str) -> int:
        """Offset up to which records can be read under a value of ``isolation.level``; -1 if unknown."""
        committed = isolation == READ_COMMITTED and self.last_stable_offset >= 0
        return self.last_stable_offset if committed else self.high_watermark


class FetchStream(NamedTuple):
    """A response while it arrives."""

    error: int
    session_id: int
    partitions: Iterator[FetchedPartition]

    def require_success(self, broker: object) -> None:
        """Raise ProtocolError, which names ``broker``, if the response has a top-level error."""
        if self.error != ErrorCode.NONE:
            raise ProtocolError(f"{broker} refused the fetch: {error_name(self.error)}")


def fetch_version(connection: BrokerConnection) -> int:
    """Newest Fetch version that both sides know.

    Raises:
        ProtocolError: there is none.
    """
    return connection.version(FETCH, "Fetch", OLDEST_VERSION, NEWEST_VERSION)


def limits_responses(connection: BrokerConnection) -> bool:
    """True if the broker supports a limit for the whole response; False before 0.10.1 (KIP-74)."""
    return fetch_version(connection) >= _FIRST_WITH_LIMIT


def send_fetch(
    connection: BrokerConnection,
    step: SessionStep,
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation: str = READ_UNCOMMITTED,
    rack: str = "",
) -> int:
    """Send a fetch request; returns its correlation id.

    Args:
        connection: connection to the leader of all partitions.
        step: the partitions in order of priority, since ``max_bytes`` may cut the response short (KIP-74), and the
            state of the fetch session. Versions before 7 have no sessions and need all partitions.
        max_wait_ms: how long the broker may wait for ``min_bytes``, in ms.
        min_bytes: the broker answers as soon as it has this many bytes.
        max_bytes: limit for the whole response; the broker exceeds it by at most one batch.
        isolation: a value of ``isolation.level``. Under read_committed the broker withholds the records from the first
            open transaction on, and lists the aborted transactions; it still sends their records.
        rack: ``client.rack``, with which a leader may name another broker to fetch from; "" to get records from it.

    Raises:
        BrokerUnavailable: the connection broke.
        ProtocolError: no common version.
    """
    version = fetch_version(connection)
    body = encode_fetch(
        version, step, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation=isolation, rack=rack
    )
    return connection.send(FETCH, version, body, flexible=version >= FLEXIBLE)


def open_response(
    connection: BrokerConnection,
    correlation_id: int,
    memory: Memory = new_memory,
    *,
    isolation: str,
) -> FetchStream:
    """Wait for the beginning of the response to :func:`send_fetch`; records are received into ``memory``.

    ``isolation`` is that of the request: under read_uncommitted the list of aborted transactions is skipped.

    The partitions must be iterated to the end before another response is received on the connection. The iteration may
    raise BrokerUnavailable, and ProtocolError for a malformed response; the connection is closed then.

    Raises:
        BrokerUnavailable: the connection broke, timed out or was closed.
        ProtocolError: the response is malformed.
    """
    version = fetch_version(connection)
    flexible = version >= FLEXIBLE
    source = connection.open_response(correlation_id, flexible=flexible, memory=memory)
    fields = Fields(source, flexible=flexible)

    @contextmanager
    def closing() -> Iterator[None]:
        try:
            with reporting_malformed("Fetch", version):
                yield
        except ProtocolError as error:
            connection.close()  # the meaning of the next bytes is unknown
            raise ProtocolError(f"{connection} {error}") from error

    def partitions() -> Iterator[FetchedPartition]:
        with closing():
            yield from _partitions(version, fields, aborted=isolation == READ_COMMITTED)

    with closing():
        error, session_id, throttle_ms = _beginning(version, fields)
    connection.throttled(FETCH, version, throttle_ms)
    return FetchStream(error, session_id, partitions())


def receive_fetch(
    connection: BrokerConnection,
    correlation_id: int,
    memory: Memory = new_memory,
    *,
    isolation: str,
) -> list[FetchedPartition]:
    """Receive the whole response to a request without session.

    Raises:
        BrokerUnavailable: the connection broke, timed out or was closed.
        ProtocolError: the response is malformed or has a top-level error.
    """
    response = open_response(connection, correlation_id, memory, isolation=isolation)
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
    rack: str = "",
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
        parts.append(encode_compact_string(rack) if flexible else encode_string(rack))
    parts.append(tags)
    return b"".join(parts)


def _encode_topics(partitions: Iterable[tuple[str, bytes]], flexible: bool) -> bytes:
    """An array of topics, each with its array of partitions, which are encoded already."""
    topics: list[tuple[str, list[bytes]]] = []
    for topic, encoded in partitions:  # a topic may occur again later: the order of partitions is kept
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(encoded)
    parts = [_length(len(topics), flexible)]
    for topic, encoded_partitions in topics:
        name = topic.encode()
        parts += [_length(len(name), flexible) if flexible else struct.pack(">h", len(name)), name]
        parts += [_length(len(encoded_partitions), flexible), *encoded_partitions]
        parts.append(b"\x00" if flexible else b"")
    return b"".join(parts)


def _encode_partition(version: int, wanted: PartitionFetch) -> bytes:
    _, partition, offset, max_bytes, leader_epoch = wanted
    if version >= 12:
        return struct.pack(">iiqiqi", partition, leader_epoch, offset, _UNKNOWN, _UNKNOWN, max_bytes)
    if version >= 9:
        return struct.pack(">iiqqi", partition, leader_epoch, offset, _UNKNOWN, max_bytes)
    if version >= 5:
        return struct.pack(">iqqi", partition, offset, _UNKNOWN, max_bytes)
    return struct.pack(">iqi", partition, offset, max_bytes)


def _length(count: int, flexible: bool) -> bytes:
    """Length of an array (or, if flexible, of a string): four bytes, or a varint of the length plus one."""
    return encode_varint(count + 1) if flexible else struct.pack(">i", count)


def _beginning(version: int, fields: Fields) -> tuple[int, int, int]:
    """The top-level error of the response, the session id, and the throttle time in ms."""
    (throttle_ms,) = fields.take(_INT32) if version >= 1 else (0,)
    if version < FIRST_VERSION:
        return ErrorCode.NONE, 0, throttle_ms
    error, session_id = fields.take(_ERROR_AND_SESSION)
    return error, session_id, throttle_ms


def _partitions(version: int, fields: Fields, *, aborted: bool) -> Iterator[FetchedPartition]:
    """The partitions of a response; the records of each are taken when the iteration reaches it.

    The last one is returned when the whole response has been taken, so that another may follow on the connection.
    """
    last: FetchedPartition | None = None
    for topics_left in reversed(range(fields.count())):
        topic = fields.text()
        for left in reversed(range(fields.count())):
            is_last = not left and not topics_left
            fetched = _decode_partition(version, topic, fields, aborted=aborted, is_last=is_last)
            fields.tags()
            if is_last:
                last = fetched
            else:
                yield fetched
        fields.tags()
    fields.tags()
    fields.end()
    if last is not None:
        yield last


def _decode_partition(version: int, topic: str, fields: Fields, *, aborted: bool, is_last: bool) -> FetchedPartition:
    last_stable_offset = log_start_offset = -1
    read_replica = NO_REPLICA
    transactions: Collection[tuple[int, int]] = ()
    if version >= 5:
        partition, error, high_watermark, last_stable_offset, log_start_offset = fields.take(_PARTITION_5)
    elif version >= 4:
        partition, error, high_watermark, last_stable_offset = fields.take(_PARTITION_4)
    else:
        partition, error, high_watermark = fields.take(_PARTITION)
    if version >= 4 and (packed := fields.packed(_ABORTED, wanted=aborted)):
        transactions = AbortedTransactions(packed)
    if version >= 11:
        (read_replica,) = fields.take(_INT32)  # set only for clients that send their rack
    records = fields.data_to_keep()
    return FetchedPartition(
        topic,
        partition,
        error,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        transactions,
        records,
        is_last,
        read_replica,
    )
