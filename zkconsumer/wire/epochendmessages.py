"""OffsetForLeaderEpoch messages: where the log of a leader epoch ends (KIP-101, KIP-320).

Layouts are those of Kafka's ``OffsetForLeaderEpochRequest`` and ``OffsetForLeaderEpochResponse`` message definitions.
Version 2, of Kafka 2.1, is the first that names the leader's epoch; the permission that it needs is one to fetch, or on
the cluster. Every broker that supports a version later than 3 supports 3, too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import error_name, is_refusal
from zkconsumer.wire.fields import Fields, by_topic, encode_topics, reporting_malformed

OFFSET_FOR_LEADER_EPOCH: Final = 23
EPOCH_END_VERSIONS: Final = (2, 3)

_CONSUMER: Final = struct.pack(">i", -1)  # replica id of every client that is not a follower
_INT32: Final = struct.Struct(">i")
_QUESTION: Final = struct.Struct(">iii")  # partition, epoch of the leader, epoch whose end is wanted
_ANSWER: Final = struct.Struct(">hiiq")  # error, partition, epoch, end


class EpochQuestion(NamedTuple):
    """What to ask the leader of ``leader_epoch``: where the log of ``epoch`` ends."""

    leader_epoch: int
    epoch: int


class EpochEnd(NamedTuple):
    """The end of the log of an epoch: ``epoch`` is the requested one, or the newest before it that the log has."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class EpochEnds:
    """Answer to :func:`epoch_ends`.

    Attributes:
        found: the end of the log of each requested epoch.
        errors: error code of each partition that another leader must be asked for, or this one later.
        unknown: why the leader of a partition does not report the end.
    """

    found: dict[TopicPartition, EpochEnd] = field(default_factory=dict)
    errors: dict[TopicPartition, int] = field(default_factory=dict)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)

    def add(self, answer: EpochEnds) -> None:
        """Add the answer for other partitions."""
        self.found.update(answer.found)
        self.errors.update(answer.errors)
        self.unknown.update(answer.unknown)


def epoch_ends(connection: BrokerConnection, wanted: Mapping[TopicPartition, EpochQuestion]) -> EpochEnds:
    """Ask the leader of all ``wanted`` partitions for the ends of epochs, in one request.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: malformed answer.
    """
    if not connection.knows(OFFSET_FOR_LEADER_EPOCH, EPOCH_END_VERSIONS[0]):
        return EpochEnds(unknown=dict.fromkeys(wanted, "it does not support OffsetForLeaderEpoch"))
    version = connection.version(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", *EPOCH_END_VERSIONS)
    body = encode_epoch_ends(version, wanted)
    answer = connection.exchange(OFFSET_FOR_LEADER_EPOCH, version, body, partial(decode_epoch_ends, version))
    if missing := wanted.keys() - answer.found.keys() - answer.errors.keys() - answer.unknown.keys():
        raise ProtocolError(f"{connection} sent an OffsetForLeaderEpoch response without {len(missing)} partitions")
    return answer


def encode_epoch_ends(version: int, wanted: Mapping[TopicPartition, EpochQuestion]) -> bytes:
    """Body of a request."""
    topics = {
        topic: [_QUESTION.pack(partition.partition, *wanted[partition]) for partition in of_topic]
        for topic, of_topic in by_topic(wanted).items()
    }
    return (_CONSUMER if version >= 3 else b"") + encode_topics(topics)


def decode_epoch_ends(version: int, body: memoryview) -> EpochEnds:
    """Parse a response.

    Raises:
        ProtocolError: the response is malformed.
    """
    answer = EpochEnds()
    with reporting_malformed("OffsetForLeaderEpoch", version):
        fields = Fields(body)
        fields.take(_INT32)  # throttle time, for which the broker holds the answer back
        for _ in range(fields.count()):
            topic = fields.text()
            for error, partition, epoch, offset in fields.rows(_ANSWER):
                key = TopicPartition(topic, partition)
                if error and not is_refusal(error):
                    answer.errors[key] = error
                elif error or epoch < 0 or offset < 0:
                    answer.unknown[key] = error_name(error) if error else "its log has no leader epochs"
                else:
                    answer.found[key] = EpochEnd(epoch, offset)
        fields.end()
    return answer
