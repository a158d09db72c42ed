"""OffsetCommit, OffsetFetch, OffsetDelete: offsets as stored by brokers, in ZooKeeper or in Kafka by the version.

Version 0 is for offsets in ZooKeeper (jvm-consumer.md#simpleconsumer), all later ones are for those in Kafka
(jvm-consumer.md#offsets-in-kafka). The meaning of an error code depends on the storage, so callers handle the codes.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.commitfence import NO_MEMBER, CommitIdentity
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset, usable_offset
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fields import by_topic
from zkconsumer.wire.kafkapython import load_kafka_python

_FETCHES_OF_GROUPS: Final = 8

BROKER_RETENTION: Final = -1
"""The broker's own setting decides how long offsets are kept (``offsets.retention.minutes``)."""


class CommitOutcome(NamedTuple):
    """The partitions whose offsets the broker stored, and the error code of each refused one, in its order."""

    accepted: set[TopicPartition]
    refused: dict[TopicPartition, int]


class StoredOffsets(NamedTuple):
    """A broker's answer about a group's offsets.

    Attributes:
        found: offset of each partition in the answer, with the metadata of its commit.
        errors: error code of each partition that has one, in the broker's order.
        error: top-level error code of the answer; 0 if there is none, or the version has no such field.
    """

    found: dict[TopicPartition, StoredOffset]
    errors: dict[TopicPartition, int]
    error: int


def commit_offsets(
    connection: BrokerConnection,
    group: str,
    offsets: Mapping[TopicPartition, StoredOffset],
    versions: tuple[int, int],
    *,
    before_send: Callable[[], None] = lambda: None,
    retention_ms: int = BROKER_RETENTION,
    member: CommitIdentity = NO_MEMBER,
    topic_ids: Mapping[str, str] | None = None,
) -> CommitOutcome:
    """Send an OffsetCommit request.

    Args:
        connection: connection to the broker.
        group: name of the consumer group.
        offsets: next offset to consume, by partition; a mark becomes the metadata of the commit.
        versions: oldest and newest version of the request to use; the newest one that the broker knows is used.
        before_send: called right before the request is sent; its exception is passed on.
        retention_ms: how long the broker keeps the offsets, in ms; only versions 2 to 4 carry it.
        member: the member of a broker-coordinated group that commits.
        topic_ids: of all topics, by name; versions 10 and later name topics by it.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: no common version, or the answer is malformed.
    """
    load_kafka_python()
    from kafka.protocol.consumer import OffsetCommitRequest

    make_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    make_partition = make_topic.OffsetCommitRequestPartition
    ids = {topic: uuid_of(topic_id) for topic, topic_id in (topic_ids or {}).items()}
    request = OffsetCommitRequest(
        version=connection.version(OffsetCommitRequest.API_KEY, OffsetCommitRequest.name, *versions),
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        retention_time_ms=retention_ms,
        topics=[
            make_topic(
                name=topic,
                topic_id=ids.get(topic),
                partitions=[
                    make_partition(
                        partition_index=partition.partition,
                        committed_offset=offsets[partition].offset,
                        committed_metadata=str(offsets[partition].mark or ""),
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ],
    )
    answer = connection.call(request, before_send=before_send)
    names = {topic_id: topic for topic, topic_id in ids.items()}
    codes = {
        TopicPartition(
            names.get(topic.topic_id, topic.name) if ids else topic.name, partition.partition_index
        ): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
    _require_all(connection, offsets, codes, "OffsetCommit")
    return CommitOutcome(
        {partition for partition, code in codes.items() if not code},
        {partition: code for partition, code in codes.items() if code},
    )


def fetch_offsets(
    connection: BrokerConnection,
    group: str,
    partitions: Collection[TopicPartition] | None,
    versions: tuple[int, int],
    member: CommitIdentity = NO_MEMBER,
) -> StoredOffsets:
    """Send an OffsetFetch request; for arguments and errors see :func:`commit_offsets`.

    From version 2 on ``partitions`` may be None: all partitions that the group has an offset of. Versions 9 and later
    name the ``member``, whose epoch the coordinator compares; versions 6 to 8 are not used.
    """
    load_kafka_python()
    from kafka.protocol.consumer import OffsetFetchRequest

    version = connection.version(OffsetFetchRequest.API_KEY, OffsetFetchRequest.name, *versions)
    many = version >= _FETCHES_OF_GROUPS  # for several groups
    make_group = OffsetFetchRequest.OffsetFetchRequestGroup
    make = make_group.OffsetFetchRequestTopics if many else OffsetFetchRequest.OffsetFetchRequestTopic
    topics = (
        None
        if partitions is None
        else [
            make(name=topic, partition_indexes=[p.partition for p in of_topic])
            for topic, of_topic in by_topic(partitions).items()
        ]
    )
    if many:
        named = {"member_id": member.member_id or None, "member_epoch": member.generation}
        request = OffsetFetchRequest(version=version, groups=[make_group(group_id=group, topics=topics, **named)])
    else:
        request = OffsetFetchRequest(version=version, group_id=group, topics=topics)
    answer = connection.call(request)
    if many:
        answer = next((group_answer for group_answer in answer.groups if group_answer.group_id == group), None)
        if answer is None:
            raise ProtocolError(f"{connection} sent an OffsetFetch response without group {group}")
    stored = StoredOffsets({}, {}, getattr(answer, "error_code", 0) or 0)
    for topic in answer.topics:
        for partition_answer in topic.partitions:
            partition = TopicPartition(topic.name, partition_answer.partition_index)
            offset = usable_offset(partition_answer.committed_offset)
            stored.found[partition] = NO_OFFSET if offset is None else StoredOffset(offset, partition_answer.metadata)
            if partition_answer.error_code:
                stored.errors[partition] = partition_answer.error_code
    if not stored.error:
        _require_all(connection, partitions or (), stored.found, "OffsetFetch")
    return stored


def delete_offsets(
    connection: BrokerConnection,
    group: str,
    partitions: Collection[TopicPartition],
    versions: tuple[int, int],
    *,
    before_send: Callable[[], None] = lambda: None,
) -> tuple[CommitOutcome, int]:
    """Send an OffsetDelete request (KIP-496); for arguments and errors see :func:`commit_offsets`.

    Returns:
        The partitions that have no offset any more, with the error codes of the others, and the error code of the
        whole request; unless that is 0 nothing was deleted.
    """
    load_kafka_python()
    from kafka.protocol.consumer import OffsetDeleteRequest

    make_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    make_partition = make_topic.OffsetDeleteRequestPartition
    request = OffsetDeleteRequest(
        version=connection.version(OffsetDeleteRequest.API_KEY, OffsetDeleteRequest.name, *versions),
        group_id=group,
        topics=[
            make_topic(name=topic, partitions=[make_partition(partition_index=p.partition) for p in of_topic])
            for topic, of_topic in by_topic(partitions).items()
        ],
    )
    answer = connection.call(request, before_send=before_send)
    codes = {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
    if not answer.error_code:
        _require_all(connection, partitions, codes, "OffsetDelete")
    outcome = CommitOutcome(
        {partition for partition, code in codes.items() if not code},
        {partition: code for partition, code in codes.items() if code},
    )
    return outcome, answer.error_code


def uuid_of(topic_id: str) -> UUID:
    """A topic id as the message library represents it.

    >>> str(uuid_of("AQIDBAUGBwgJCgsMDQ4PEA"))
    '01020304-0506-0708-090a-0b0c0d0e0f10'
    """
    return UUID(bytes=urlsafe_b64decode(topic_id + "=="))


def _require_all(
    connection: BrokerConnection, wanted: Collection[TopicPartition], answered: Collection[TopicPartition], name: str
) -> None:
    """Brokers answer for each partition. A missing one must not be mistaken for one without a stored offset."""
    if missing := set(wanted).difference(answered):
        raise ProtocolError(f"{connection} sent an {name} response without {len(missing)} requested partitions")
