"""A minimal producer that loads topics for the demo, the benchmark and tests; brokers acknowledge the records.

It sends one partition's batches at a time over plain connections, with the batch encoder of kafka-python. It waits for
leaders; no batch that a broker may have written is sent again. No partitioner: the caller names the partition.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from zkconsumer.errors import BrokerUnavailable, ProtocolError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.kafkapython import load_kafka_python

_BATCH_BYTES: Final = 900_000
"""Batches close below the broker's default ``message.max.bytes`` of 1,048,588."""
_LEADER_POLL_S: Final = 0.1
FORMAT_1: Final = 1
FORMAT_2: Final = 2
"""Formats of record batches, as in their field "magic"; brokers before 0.11 know only format 1 and older ones."""
_PRODUCE_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {FORMAT_1: (2, 9), FORMAT_2: (3, 9)}
"""Versions of produce requests that carry batches of a format."""
_MAGIC_AT: Final = 16  # in batches of each format
_CLIENT_ID: Final = "zkconsumer-producer"
_ALL_REPLICAS: Final = -1


class Record(NamedTuple):
    """One record to produce; ``timestamp`` in milliseconds since the epoch."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


def produce(
    live_brokers: Callable[[], Sequence[Broker]],
    records: Mapping[TopicPartition, Iterable[Record]],
    *,
    batch_bytes: int = _BATCH_BYTES,
    timeout_ms: int = 30_000,
) -> dict[TopicPartition, int]:
    """Append records to existing topics, wait for all in-sync replicas and return the first offset of each partition.

    Args:
        live_brokers: returns the brokers to ask for the leaders.
        records: records to append to each partition, in order.
        batch_bytes: size at which a batch is closed; each has at least one record.
        timeout_ms: limit for finding all leaders, for connecting and for each answer, in ms.

    Raises:
        BrokerUnavailable: the topic is unknown, or a leader is, or it cannot be reached; earlier batches may have been
            written.
        ProtocolError: the broker refused a batch.
    """
    encoded = {tp: encode_batches(of_partition, batch_bytes=batch_bytes) for tp, of_partition in records.items()}
    return append_batches(live_brokers, encoded, timeout_ms=timeout_ms)


def append_batches(
    live_brokers: Callable[[], Sequence[Broker]],
    batches: Mapping[TopicPartition, Iterable[bytes]],
    *,
    timeout_ms: int = 30_000,
) -> dict[TopicPartition, int]:
    """Append encoded record batches, as :func:`produce` does; the brokers assign their offsets.

    Raises:
        BrokerUnavailable, ProtocolError: as :func:`produce`.
    """
    first: dict[TopicPartition, int] = {}
    with contextlib.closing(_Leaders(live_brokers, batches, timeout_ms)) as leaders:
        for tp, of_partition in batches.items():
            for batch in of_partition:
                first.setdefault(tp, leaders.append(tp, batch))
    return first


class _Leaders:
    """Connections to the leaders of some partitions, which are found again when they have moved."""

    def __init__(
        self, live_brokers: Callable[[], Sequence[Broker]], partitions: Collection[TopicPartition], timeout_ms: int
    ) -> None:
        self._client = BrokerClient(live_brokers, client_id=_CLIENT_ID, timeout_ms=timeout_ms)
        self._partitions = list(partitions)
        self._timeout_ms = timeout_ms
        self._connections: dict[Broker, BrokerConnection] = {}
        self._leaders: dict[TopicPartition, Broker] = {}

    def append(self, tp: TopicPartition, batch: bytes) -> int:
        """Append a batch once, and return its first offset."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        while True:
            if tp not in self._leaders:
                self._find(deadline)
            try:
                connection = self._connection(self._leaders[tp])
            except BrokerUnavailable:  # it has registered, and does not listen yet
                if time.monotonic() >= deadline:
                    raise
            else:
                error, offset = send_batches(connection, {tp: batch}, self._timeout_ms)[tp]
                if not error:
                    return offset
                if error != ErrorCode.NOT_LEADER_OR_FOLLOWER or time.monotonic() >= deadline:
                    raise ProtocolError(f"{connection} refused a batch for {tp}: {error_name(error)}")
            # Nothing was written: the broker no longer leads, or does not know yet that it does.
            self._leaders.clear()
            time.sleep(_LEADER_POLL_S)

    def close(self) -> None:
        self._client.close()
        for connection in self._connections.values():
            connection.close()

    def _find(self, deadline: float) -> None:
        """Wait until each partition has a leader, as after a pause of its broker."""
        while True:
            metadata = self._client.metadata({tp.topic for tp in self._partitions})
            missing = [tp for tp in self._partitions if tp not in metadata.leaders]
            if not missing:
                self._leaders = {tp: metadata.leaders[tp] for tp in self._partitions}
                return
            if any(tp not in metadata.leaderless for tp in missing):
                raise BrokerUnavailable(f"{missing[0]} has no leader; create the topic and wait for it first")
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(
                    f"{missing[0]} had no leader for {self._timeout_ms} ms; check the logs of its brokers"
                )
            time.sleep(_LEADER_POLL_S)  # brokers report a new leader only when asked

    def _connection(self, broker: Broker) -> BrokerConnection:
        if broker not in self._connections:
            connection = BrokerConnection(broker.host, broker.port, client_id=_CLIENT_ID, timeout_ms=self._timeout_ms)
            connection.connect()
            self._connections[broker] = connection
        return self._connections[broker]


def encode_batches(
    records: Iterable[Record], *, batch_bytes: int = _BATCH_BYTES, magic: int = FORMAT_2
) -> Iterator[bytes]:
    """Record batches that hold ``records`` in order; see :func:`produce` for the arguments.

    Of :data:`FORMAT_1` are message sets, which have no headers.
    """
    load_kafka_python()
    from kafka.record import MemoryRecordsBuilder

    builder = None
    for value, key, timestamp, headers in records:
        if builder is None or builder.append(timestamp, key, value, list(headers)) is None:
            if builder is not None:
                builder.close()
                yield bytes(builder.buffer())
            builder = MemoryRecordsBuilder(magic=magic, compression_type=0, batch_size=batch_bytes)
            builder.append(timestamp, key, value, list(headers))
    if builder is not None:
        builder.close()
        yield bytes(builder.buffer())


def send_batches(
    connection: BrokerConnection, batches: Mapping[TopicPartition, bytes], timeout_ms: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Send batches by one request, and return the error code and the first offset of each; the broker leads all."""
    load_kafka_python()
    from kafka.protocol.producer import ProduceRequest

    make = ProduceRequest.TopicProduceData
    newest = max(batch[_MAGIC_AT] for batch in batches.values())
    versions = _PRODUCE_VERSIONS[FORMAT_2 if newest >= FORMAT_2 else FORMAT_1]
    topics: dict[str, list[Any]] = {}
    for tp, batch in batches.items():
        topics.setdefault(tp.topic, []).append(make.PartitionProduceData(index=tp.partition, records=batch))
    request = ProduceRequest(
        version=connection.version(ProduceRequest.API_KEY, ProduceRequest.name, *versions),
        acks=_ALL_REPLICAS,
        timeout_ms=timeout_ms,
        topic_data=[make(name=topic, partition_data=partition_data) for topic, partition_data in topics.items()],
    )
    return {
        TopicPartition(topic.name, partition.index): (int(partition.error_code), int(partition.base_offset))
        for topic in connection.call(request).responses
        for partition in topic.partition_responses
    }
