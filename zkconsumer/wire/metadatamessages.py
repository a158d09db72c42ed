"""Metadata messages, encoded by hand: 5,000 partitions are common, and an object for each field is slow.

Layouts are those of Kafka's ``MetadataRequest`` and ``MetadataResponse`` message definitions. Version 7 is the first
with the leaders' epochs (KIP-320). Versions 10 to 12 also have the ids of topics (KIP-516), without which an epoch that
goes back may be that of a topic that was created again. Those between are not used: every broker that supports them
supports version 7.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.fields import (
    Fields,
    encode_array,
    encode_compact_array,
    encode_compact_string,
    encode_string,
    reporting_malformed,
)

METADATA_VERSIONS: Final = (0, 7)
"""Versions without the ids of topics."""
TOPIC_ID_VERSIONS: Final = (10, 12)
"""Versions with the ids of topics."""

_NO_AUTHORIZED_OPERATIONS: Final = b"\0"
_ALL_TOPICS: Final = -1
_NO_TOPIC_ID: Final = bytes(16)
_LAST_WITH_CLUSTER_OPERATIONS: Final = 10
_FIRST_WITH_EPOCHS: Final = 7
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_BOOLEAN: Final = struct.Struct(">?")
_PARTITION: Final = struct.Struct(">hii")  # error, partition, leader
_PARTITION_WITH_EPOCH: Final = struct.Struct(">hiii")  # the same, and the leader's epoch
_UUID: Final = struct.Struct(">16s")


@dataclass(frozen=True, slots=True)
class Metadata:
    """A broker's metadata of some topics.

    Attributes:
        brokers: live brokers by id, with their address for the same listener.
        controller: id of the controller; None if unknown.
        leaders: leader of each partition that has one.
        leaderless: partitions without a usable leader, with the protocol's error code.
        failed_topics: topics that the broker cannot describe (unknown, not allowed), with the error code.
        topic_ids: ids of topics, as Kafka's tools and znodes write them; only in :data:`TOPIC_ID_VERSIONS`.
        epochs: epoch of the leader of each partition that has one; only from version 7 on.
        cluster_id: id of the cluster; None before version 2, which is that of brokers before 0.10.1.
    """

    brokers: Mapping[int, Broker]
    controller: int | None
    leaders: Mapping[TopicPartition, Broker]
    leaderless: Mapping[TopicPartition, int]
    failed_topics: Mapping[str, int]
    topic_ids: Mapping[str, str]
    epochs: Mapping[TopicPartition, int]
    cluster_id: str | None

    def why_leaderless(self, partition: TopicPartition) -> int:
        """Error code of a partition without a leader."""
        of_topic = self.failed_topics.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.leaderless.get(partition, of_topic)


def has_topic_ids(version: int) -> bool:
    """True for a version with topic ids, which is also flexible (KIP-482)."""
    return version >= TOPIC_ID_VERSIONS[0]


def encode_metadata(version: int, topics: Collection[str] | None) -> bytes:
    """Body of a request for ``topics``; from version 4 on it forbids the broker to create missing topics.

    Args:
        version: of the request.
        topics: names; None for all topics that this consumer may describe. In version 0 an empty collection means all
            topics, too.
    """
    if has_topic_ids(version):
        named = None if topics is None else [_NO_TOPIC_ID + encode_compact_string(name) + b"\0" for name in topics]
        cluster = _NO_AUTHORIZED_OPERATIONS if version <= _LAST_WITH_CLUSTER_OPERATIONS else b""
        no_creation = _BOOLEAN.pack(False)
        return encode_compact_array(named) + no_creation + cluster + _NO_AUTHORIZED_OPERATIONS + b"\0"
    no_creation = _BOOLEAN.pack(False) if version >= 4 else b""
    if topics is None and version >= 1:
        return _INT32.pack(_ALL_TOPICS) + no_creation
    return encode_array([encode_string(topic) for topic in topics or ()]) + no_creation


def decode_metadata(version: int, body: memoryview) -> Metadata:
    """Parse a response.

    Raises:
        ProtocolError: the response is malformed.
    """
    with reporting_malformed("Metadata", version):
        fields = Fields(body, flexible=has_topic_ids(version))
        if version >= 3:
            fields.take(_INT32)  # throttle time, which the connection heeds
        brokers = {broker.id: broker for broker in (_broker(version, fields) for _ in range(fields.count()))}
        cluster_id = fields.text() if version >= 2 else ""
        controller = fields.take(_INT32)[0] if version >= 1 else -1
        topics = [_topic(version, fields) for _ in range(fields.count())]
        if version == _LAST_WITH_CLUSTER_OPERATIONS:
            fields.take(_INT32)  # authorized operations on the cluster
        fields.tags()
        fields.end()
    leaders: dict[TopicPartition, Broker] = {}
    leaderless: dict[TopicPartition, int] = {}
    epochs: dict[TopicPartition, int] = {}
    for topic in topics:
        for error, partition, leader_id, *epoch in topic.partitions:
            leader = brokers.get(leader_id)
            # REPLICA_NOT_AVAILABLE concerns followers: the leader in the same answer is valid (other clients agree).
            if leader is not None and error in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                leaders[key := TopicPartition(topic.name, partition)] = leader
                if epoch:
                    epochs[key] = epoch[0]
            else:
                leaderless[TopicPartition(topic.name, partition)] = error or ErrorCode.LEADER_NOT_AVAILABLE
    return Metadata(
        brokers=brokers,
        controller=controller if controller >= 0 else None,
        leaders=leaders,
        leaderless=leaderless,
        failed_topics={topic.name: topic.error for topic in topics if topic.error},
        topic_ids={topic.name: topic.topic_id for topic in topics if topic.topic_id is not None},
        epochs=epochs,
        cluster_id=cluster_id or None,
    )


class _Topic(NamedTuple):
    error: int
    name: str
    topic_id: str | None
    partitions: list[tuple[int, ...]]  # error, partition, leader, and its epoch if the version has it


def _broker(version: int, fields: Fields) -> Broker:
    (number,) = fields.take(_INT32)
    host = fields.text()
    (port,) = fields.take(_INT32)
    if version >= 1:
        fields.text()  # rack
    fields.tags()
    return Broker(number, host, port)


def _topic(version: int, fields: Fields) -> _Topic:
    (error,) = fields.take(_INT16)
    name = fields.text()
    topic_id = None
    if has_topic_ids(version):
        (uuid,) = fields.take(_UUID)
        topic_id = None if uuid == _NO_TOPIC_ID else urlsafe_b64encode(uuid).decode().rstrip("=")
    if version >= 1:
        fields.take(_BOOLEAN)  # whether it is an internal topic
    node_lists = 3 if version >= 5 else 2  # replicas, in-sync replicas, offline replicas
    layout = _PARTITION_WITH_EPOCH if version >= _FIRST_WITH_EPOCHS else _PARTITION
    partitions = []
    for _ in range(fields.count()):
        partitions.append(fields.take(layout))
        for _ in range(node_lists):
            fields.skip(_INT32)
        fields.tags()
    if has_topic_ids(version):
        fields.take(_INT32)  # authorized operations on the topic
    fields.tags()
    return _Topic(error, name, topic_id, partitions)
