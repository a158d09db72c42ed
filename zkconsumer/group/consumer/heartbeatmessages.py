"""ConsumerGroupHeartbeat messages (KIP-848), encoded by hand: the message library does not have them.

Layouts are those of Kafka's ``ConsumerGroupHeartbeatRequest`` and ``ConsumerGroupHeartbeatResponse`` message
definitions. Version 1 is that of Kafka 4.0, the first release with the final protocol; members generate their ids.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

from zkconsumer.group.consumer.rules.epochmember import EpochBeat, IdPartition
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fields import Fields, encode_compact_array, encode_compact_string, reporting_malformed

CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_HEARTBEAT_VERSIONS: Final = (1, 1)

_UNCHANGED: Final = -1  # rebalance timeout
_NULL: Final = b"\0"
_NO_TAGS: Final = b"\0"
_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UUID: Final = struct.Struct(">16s")
_EPOCH_AND_INTERVAL: Final = struct.Struct(">ii")


class HeartbeatSettings(NamedTuple):
    """What every heartbeat of a member has in common.

    Attributes:
        group: consumer group.
        rebalance_ms: ``max.poll.interval.ms``: how long the coordinator waits for the member to release partitions.
        assignor: ``group.remote.assignor``; None for the coordinator's choice.
        rack: ``client.rack``; None if it is not set.
    """

    group: str
    rebalance_ms: int
    assignor: str | None
    rack: str | None = None


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat.

    Attributes:
        code: error code; if it is not 0, only ``message`` has a meaning besides.
        message: the coordinator's text about the error; empty if there is none.
        epoch: member epoch.
        interval_ms: time to the next heartbeat.
        assignment: the partitions that the member may use; None if they have not changed.
    """

    code: int
    message: str
    epoch: int
    interval_ms: int
    assignment: frozenset[IdPartition] | None


def consumer_heartbeat(connection: BrokerConnection, settings: HeartbeatSettings, beat: EpochBeat) -> HeartbeatAnswer:
    """Send a heartbeat, which also joins (member epoch 0) and leaves (-1; a static member -2).

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: the broker is older than Kafka 4.0, or the answer is malformed.
    """
    version = connection.version(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", *CONSUMER_HEARTBEAT_VERSIONS)
    body = encode_heartbeat(settings, beat)
    return connection.exchange(
        CONSUMER_GROUP_HEARTBEAT, version, body, partial(decode_heartbeat, version), flexible=True
    )


def leave_beat(member: CommitIdentity) -> EpochBeat:
    """The last heartbeat of a member, whose epoch says how it leaves."""
    return EpochBeat(member, full=False, topics=None, owned=None)


def encode_heartbeat(settings: HeartbeatSettings, beat: EpochBeat) -> bytes:
    """Body of a request."""
    member = beat.member
    topics = None if beat.topics is None else [encode_compact_string(name) for name in beat.topics]
    return b"".join(
        (
            encode_compact_string(settings.group),
            encode_compact_string(member.member_id),
            _INT32.pack(member.generation),
            _nullable(member.instance_id),
            _nullable(settings.rack if beat.full else None),
            _INT32.pack(settings.rebalance_ms if beat.full else _UNCHANGED),
            encode_compact_array(topics),
            _nullable(beat.regex),
            _nullable(settings.assignor if beat.full else None),
            encode_compact_array(None if beat.owned is None else _by_id(beat.owned)),
            _NO_TAGS,
        )
    )


def _nullable(text: str | None) -> bytes:
    return _NULL if text is None else encode_compact_string(text)


def _by_id(owned: Collection[IdPartition]) -> list[bytes]:
    grouped: dict[str, list[bytes]] = defaultdict(list)
    for partition in sorted(owned):
        grouped[partition.topic_id].append(_INT32.pack(partition.partition))
    return [
        urlsafe_b64decode(topic_id + "==") + encode_compact_array(partitions) + _NO_TAGS
        for topic_id, partitions in grouped.items()
    ]


def decode_heartbeat(version: int, body: memoryview) -> HeartbeatAnswer:
    """Parse a response.

    Raises:
        ProtocolError: the response is malformed.
    """
    with reporting_malformed("ConsumerGroupHeartbeat", version):
        fields = Fields(body, flexible=True)
        fields.take(_INT32)  # throttle time, which the connection heeds
        (code,) = fields.take(_INT16)
        message = fields.text()
        fields.text()  # the member's id, which it has generated
        epoch, interval_ms = fields.take(_EPOCH_AND_INTERVAL)
        (present,) = fields.take(_INT8)
        assignment = _assignment(fields) if present >= 0 else None
        fields.tags()
        fields.end()
    return HeartbeatAnswer(code, message, epoch, interval_ms, assignment)


def _assignment(fields: Fields) -> frozenset[IdPartition]:
    assigned: set[IdPartition] = set()
    for _ in range(fields.count()):
        (uuid,) = fields.take(_UUID)
        topic_id = urlsafe_b64encode(uuid).decode().rstrip("=")
        assigned.update(IdPartition(topic_id, number) for (number,) in fields.rows(_INT32))
        fields.tags()
    fields.tags()
    return frozenset(assigned)
