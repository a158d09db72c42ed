"""A minimal producer that loads topics for the demo, the benchmark and tests; brokers acknowledge the records.

It sends one partition's batches at a time over plain connections, with the batch encoder of kafka-python. No retries,
no partitioner: the caller names the partition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from zkconsumer.errors import BrokerUnavailable, ProtocolError
from zkconsumer.kafka.client import BrokerClient
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.errorcodes import error_name
from zkconsumer.kafka.library import load_kafka_python
from zkconsumer.model import Broker, TopicPartition

CODECS: Final[Mapping[str, int]] = {"none": 0, "gzip": 1, "lz4": 3, "zstd": 4}
"""Compression codecs by name, with their number in the attributes of a batch."""

_BATCH_BYTES: Final = 900_000
"""Batches close below the broker's default ``message.max.bytes`` of 1,048,588."""
_PRODUCE_VERSIONS: Final = (3, 9)
_MAGIC: Final = 2
_LENGTH_END: Final = 12  # a batch's length counts the bytes after this position
_CHECKED_FROM: Final = 21  # attributes: the checksum, right before, covers the bytes from here on
_HEADER_BYTES: Final = 61
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
    codec: str = "none",
    batch_bytes: int = _BATCH_BYTES,
    timeout_ms: int = 30_000,
) -> dict[TopicPartition, int]:
    """Append records to existing topics, wait for all in-sync replicas and return the first offset of each partition.

    Args:
        live_brokers: returns the brokers to ask for the leaders.
        records: records to append to each partition, in order.
        codec: a name in :data:`CODECS`.
        batch_bytes: size, before compression, at which a batch is closed; each has at least one record.
        timeout_ms: limit for connecting and for each answer, in ms.

    Raises:
        BrokerUnavailable: a leader is unknown or cannot be reached; earlier batches may have been written.
        ProtocolError: the broker refused a batch.
    """
    encoded = {tp: encode_batches(theirs, codec=codec, batch_bytes=batch_bytes) for tp, theirs in records.items()}
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
    client = BrokerClient(live_brokers, client_id=_CLIENT_ID, timeout_ms=timeout_ms)
    connections: dict[Broker, BrokerConnection] = {}
    first: dict[TopicPartition, int] = {}
    try:
        leaders = client.metadata({tp.topic for tp in batches}).leaders
        for broker in {leaders[tp] for tp in batches if tp in leaders}:
            connection = BrokerConnection(broker.host, broker.port, client_id=_CLIENT_ID, timeout_ms=timeout_ms)
            connections[broker] = connection
            connection.connect()
        for tp, theirs in batches.items():
            if tp not in leaders:
                raise BrokerUnavailable(f"{tp} has no leader; create the topic and wait for it first")
            for batch in theirs:
                first.setdefault(tp, _send(connections[leaders[tp]], tp, batch, timeout_ms))
    finally:
        client.close()
        for connection in connections.values():
            connection.close()
    return first


def encode_batches(
    records: Iterable[Record], *, codec: str = "none", batch_bytes: int = _BATCH_BYTES
) -> Iterator[bytes]:
    """Record batches (format v2) that hold ``records`` in order; see :func:`produce` for the arguments."""
    load_kafka_python()
    from kafka.record import MemoryRecordsBuilder

    builder = None
    for value, key, timestamp, headers in records:
        if builder is None or builder.append(timestamp, key, value, list(headers)) is None:
            if builder is not None:
                builder.close()
                yield _compressed(bytes(builder.buffer()), codec)
            builder = MemoryRecordsBuilder(magic=_MAGIC, compression_type=CODECS["none"], batch_size=batch_bytes)
            builder.append(timestamp, key, value, list(headers))
    if builder is not None:
        builder.close()
        yield _compressed(bytes(builder.buffer()), codec)


def _compressed(batch: bytes, codec: str) -> bytes:
    """An uncompressed batch with its records compressed; kafka-python needs more packages for some codecs."""
    if codec == "none":
        return batch
    import cramjam
    from crc32c import crc32c

    # The brokers refuse lz4 frames whose blocks depend on each other, cramjam's default.
    compressor = cramjam.lz4.Compressor(block_linked=False) if codec == "lz4" else getattr(cramjam, codec).Compressor()
    compressor.compress(batch[_HEADER_BYTES:])
    records = bytes(compressor.finish())
    checked = struct.pack(">h", CODECS[codec]) + batch[_CHECKED_FROM + 2 : _HEADER_BYTES] + records
    length = struct.pack(">i", _CHECKED_FROM - _LENGTH_END + len(checked))
    crc = struct.pack(">I", crc32c(checked))
    return batch[: _LENGTH_END - 4] + length + batch[_LENGTH_END : _CHECKED_FROM - 4] + crc + checked


def _send(connection: BrokerConnection, tp: TopicPartition, batch: bytes, timeout_ms: int) -> int:
    load_kafka_python()
    from kafka.protocol.producer import ProduceRequest

    make = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        version=connection.version(ProduceRequest.API_KEY, ProduceRequest.name, *_PRODUCE_VERSIONS),
        acks=_ALL_REPLICAS,
        timeout_ms=timeout_ms,
        topic_data=[make(name=tp.topic, partition_data=[make.PartitionProduceData(index=tp.partition, records=batch)])],
    )
    answer = connection.call(request).responses[0].partition_responses[0]
    if answer.error_code:
        raise ProtocolError(f"{connection} refused a batch for {tp}: {error_name(answer.error_code)}")
    return int(answer.base_offset)
