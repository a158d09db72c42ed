"""Metadata requests and responses by hand: 5,000 partitions are ordinary, and objects for all they hold are slow.

Layouts are those of Kafka's ``MetadataRequest`` and ``MetadataResponse`` message definitions. Version 6 is the newest
that tells anything used here: it names a leader's missing listener as the cause (LISTENER_NOT_FOUND). Every broker that
speaks a later one speaks this one, too.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from zkconsumer.kafka.errorcodes import ErrorCode
from zkconsumer.kafka.fields import Fields, encode_array, encode_string, told_malformed
from zkconsumer.model import Broker, TopicPartition

METADATA_VERSIONS: Final = (0, 6)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_BOOLEAN: Final = struct.Struct(">?")
_PARTITION: Final = struct.Struct(">hii")  # error, partition, leader


@dataclass(frozen=True, slots=True)
class Metadata:
    """What one broker knows about some topics.

    Attributes:
        brokers: live brokers by id, with the address for the listener that was asked.
        controller: id of the controller, or None where the broker does not tell.
        leaders: the leader of each partition that has one.
        leaderless: partitions without a usable leader, with the protocol's error code.
        failed_topics: topics that the broker cannot describe (unknown, not allowed), with the error code.
    """

    brokers: Mapping[int, Broker]
    controller: int | None
    leaders: Mapping[TopicPartition, Broker]
    leaderless: Mapping[TopicPartition, int]
    failed_topics: Mapping[str, int]


def encode_metadata(version: int, topics: Collection[str]) -> bytes:
    """Body of a request about ``topics``; from version 4 on it forbids the broker to create those that do not exist."""
    no_creation = _BOOLEAN.pack(False) if version >= 4 else b""
    return encode_array([encode_string(topic) for topic in topics]) + no_creation


def decode_metadata(version: int, body: memoryview) -> Metadata:
    """Take a response apart.

    Raises:
        ProtocolError: it is malformed.
    """
    with told_malformed("Metadata", version):
        fields = Fields(body)
        if version >= 3:
            fields.take(_INT32)  # throttle time: the broker has waited already, or will not read before it is over
        brokers = {broker.id: broker for broker in (_broker(version, fields) for _ in range(fields.count()))}
        if version >= 2:
            fields.text()  # the cluster's id
        controller = fields.take(_INT32)[0] if version >= 1 else -1
        topics = [_topic(version, fields) for _ in range(fields.count())]
        fields.end()
    leaders: dict[TopicPartition, Broker] = {}
    leaderless: dict[TopicPartition, int] = {}
    for _, topic, partitions in topics:
        for error, partition, leader_id in partitions:
            leader = brokers.get(leader_id)
            # REPLICA_NOT_AVAILABLE tells about followers: the leader in the same answer is good (as clients agree).
            if leader is not None and error in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                leaders[TopicPartition(topic, partition)] = leader
            else:
                leaderless[TopicPartition(topic, partition)] = error or ErrorCode.LEADER_NOT_AVAILABLE
    failed = {topic: error for error, topic, _ in topics if error}
    return Metadata(brokers, controller if controller >= 0 else None, leaders, leaderless, failed)


def _broker(version: int, fields: Fields) -> Broker:
    (number,) = fields.take(_INT32)
    host = fields.text()
    (port,) = fields.take(_INT32)
    if version >= 1:
        fields.text()  # rack
    return Broker(number, host, port)


def _topic(version: int, fields: Fields) -> tuple[int, str, list[tuple[int, ...]]]:
    """Its error, its name, and (error, partition, leader) of each partition."""
    (error,) = fields.take(_INT16)
    name = fields.text()
    if version >= 1:
        fields.take(_BOOLEAN)  # whether it is one of Kafka's own
    node_lists = 3 if version >= 5 else 2  # replicas, those in sync, those offline
    partitions = []
    for _ in range(fields.count()):
        partitions.append(fields.take(_PARTITION))
        for _ in range(node_lists):
            fields.skip(_INT32)
    return error, name, partitions
