"""The bytes that members of a broker-coordinated group exchange: subscriptions and assignments.

Brokers pass them on unread. They are written in versions that every client reads: newer fields follow older ones, and
a reader ignores what follows the fields that it knows.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from zkconsumer.errors import ProtocolError
from zkconsumer.group.kafka.rules.generationmember import JoinIntent
from zkconsumer.group.kafka.rules.strategies import NO_GENERATION, MemberSubscription
from zkconsumer.model import TopicPartition
from zkconsumer.wire.fields import by_topic
from zkconsumer.wire.kafkapython import load_kafka_python

PROTOCOL_TYPE: Final = "consumer"
"""The type of groups whose members exchange these bytes."""

_SUBSCRIPTION_VERSION: Final = 2
"""Version 1 added owned partitions, 2 the generation; 3 adds the rack, which this consumer does not know."""
_STICKY: Final = "sticky"
_COOPERATIVE_STICKY: Final = "cooperative-sticky"
_ZKCONSUMER: Final = "zkconsumer"
_GENERATION: Final = struct.Struct(">i")
_STREAMS_VERSION: Final = struct.Struct(">h")


def encode_subscription(
    strategy: str, streams: Mapping[str, int], intent: JoinIntent, own_data: bytes | None = None
) -> bytes:
    """The metadata of one strategy in a JoinGroup request.

    Args:
        strategy: name of the strategy.
        streams: subscribed topic to number of consumer threads.
        intent: what the member declares.
        own_data: what an assignor of the application wrote; None with other strategies.
    """
    load_kafka_python()
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    subscription = ConsumerProtocolSubscription(
        version=_SUBSCRIPTION_VERSION,
        topics=sorted(streams),
        user_data=_user_data(strategy, streams, intent) if own_data is None else _counts(streams) + own_data,
        owned_partitions=_grouped(ConsumerProtocolSubscription.TopicPartition, intent.owned),
        generation_id=intent.generation,
    )
    encoded: bytes = subscription.encode()
    return encoded


def _user_data(strategy: str, streams: Mapping[str, int], intent: JoinIntent) -> bytes | None:
    if strategy == _ZKCONSUMER:
        return _counts(streams)
    if strategy == _COOPERATIVE_STICKY:  # clients before 3.5 read the generation from here
        return _GENERATION.pack(intent.generation)
    if strategy != _STICKY or intent.generation == NO_GENERATION:
        return None
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

    data = StickyAssignorUserData(
        version=1,
        previous_assignment=_grouped(StickyAssignorUserData.TopicPartition, intent.previous),
        generation=intent.generation,
    )
    encoded: bytes = data.encode(header=False)
    return encoded


def _counts(streams: Mapping[str, int]) -> bytes:
    return _STREAMS_VERSION.pack(0) + struct.pack(f">{len(streams)}i", *(streams[topic] for topic in sorted(streams)))


def decode_subscription(
    strategy: str, member_id: str, instance_id: str | None, metadata: bytes, *, is_own: bool = False
) -> MemberSubscription:
    """What a member declared, as its leader receives it.

    Args:
        strategy: name of the strategy.
        member_id: of the member.
        instance_id: its ``group.instance.id``.
        metadata: the bytes of its JoinGroup request.
        is_own: True if the strategy is an assignor of the application.

    Raises:
        ProtocolError: the bytes are no subscription.
    """
    load_kafka_python()
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    try:
        declared = ConsumerProtocolSubscription.decode(metadata)
        topics = tuple(declared.topics)
        owned = _flat(declared.owned_partitions or ())
    except Exception as error:  # kafka-python raises exceptions of any type for malformed bytes
        raise ProtocolError(f"member {member_id} joined with a subscription that cannot be read: {error!r}") from error
    generation, data = declared.generation_id, declared.user_data or b""
    if strategy == _STICKY:
        owned, generation = _previous(data)
    elif strategy == _COOPERATIVE_STICKY and generation == NO_GENERATION and len(data) >= _GENERATION.size:
        (generation,) = _GENERATION.unpack_from(data)
    streams = _streams(topics, data) if is_own or strategy == _ZKCONSUMER else {}
    own_data = data[_STREAMS_VERSION.size + struct.calcsize(f">{len(topics)}i") :] if is_own else b""
    return MemberSubscription(member_id, topics, owned, generation, instance_id, streams, own_data)


def _streams(topics: Sequence[str], data: bytes) -> dict[str, int]:
    """Topic to number of consumer threads in the user data of ``zkconsumer``: a version, and a number for each topic.

    Nothing if it cannot be read: the member counts as one with a single thread. Later versions may append fields.
    """
    counts = struct.Struct(f">{len(topics)}i")
    if len(data) < _STREAMS_VERSION.size + counts.size:
        return {}
    return dict(zip(topics, counts.unpack_from(data, _STREAMS_VERSION.size), strict=True))


def _previous(data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """The previous assignment in the user data of ``sticky``; nothing if it cannot be read, as in Kafka's clients."""
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

    for version in (1, 0):
        try:
            decoded = StickyAssignorUserData.decode(data, version=version, header=False)
            generation = decoded.generation if version else NO_GENERATION
            return _flat(decoded.previous_assignment), generation
        except Exception:  # noqa: BLE001, S112 - as above; an older version may fit
            continue
    return frozenset(), NO_GENERATION


def encode_assignment(partitions: Collection[TopicPartition]) -> bytes:
    """The partitions of one member in a SyncGroup request."""
    load_kafka_python()
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    assignment = ConsumerProtocolAssignment(
        version=0,
        assigned_partitions=_grouped(ConsumerProtocolAssignment.TopicPartition, partitions),
        user_data=None,
    )
    encoded: bytes = assignment.encode()
    return encoded


def decode_assignment(assignment: bytes) -> frozenset[TopicPartition]:
    """The partitions that the leader assigned to this member; none if it sent nothing.

    Raises:
        ProtocolError: the bytes are no assignment.
    """
    if not assignment:
        return frozenset()
    load_kafka_python()
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    try:
        return _flat(ConsumerProtocolAssignment.decode(assignment).assigned_partitions)
    except Exception as error:  # as in decode_subscription()
        raise ProtocolError(f"the group's leader sent an assignment that cannot be read: {error!r}") from error


def _grouped(make: Any, partitions: Collection[TopicPartition]) -> list[Any]:
    return [
        make(topic=topic, partitions=[partition.partition for partition in of_topic])
        for topic, of_topic in by_topic(sorted(partitions)).items()
    ]


def _flat(topics: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
