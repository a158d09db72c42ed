"""OffsetCommit and OffsetFetch: a group's offsets as a broker stores them, in ZooKeeper or in Kafka by the version.

Version 0 is for offsets in ZooKeeper (SPEC 13), all later ones are for those in Kafka (SPEC 8.4). What an error code
means depends on it, so callers judge them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from zkconsumer.core.offsets import StoredOffset
from zkconsumer.errors import ProtocolError
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.fields import by_topic
from zkconsumer.kafka.library import load_kafka_python
from zkconsumer.model import TopicPartition

_NO_GENERATION: Final = -1
"""Generation of a commit by somebody who is no member of a broker-coordinated group."""


class CommitOutcome(NamedTuple):
    """Which partitions the broker stored, and the error code of each that it refused, in its order."""

    accepted: set[TopicPartition]
    refused: dict[TopicPartition, int]


class StoredOffsets(NamedTuple):
    """What a broker says about a group's offsets.

    Attributes:
        found: offset of each partition in the answer, with the metadata of its commit.
        errors: error code of each partition that has one, in the broker's order.
        error: error code of the answer as a whole; 0 if there is none, as in versions that cannot have one.
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
) -> CommitOutcome:
    """Let a broker store offsets.

    Args:
        connection: to the broker.
        group: consumer group.
        offsets: next offset to consume, by partition; a mark becomes the metadata of the commit.
        versions: oldest and newest version of the request to use; the newest that the broker knows is taken.
        before_send: called when everything is ready to be sent; what it raises is raised.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: no common version, or the answer is malformed.
    """
    load_kafka_python()
    from kafka.protocol.consumer import OffsetCommitRequest

    make_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    make_partition = make_topic.OffsetCommitRequestPartition
    request = OffsetCommitRequest(
        version=connection.version(OffsetCommitRequest.API_KEY, OffsetCommitRequest.name, *versions),
        group_id=group,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[
            make_topic(
                name=topic,
                partitions=[
                    make_partition(
                        partition_index=p.partition,
                        committed_offset=offsets[p].offset,
                        committed_metadata=str(offsets[p].mark or ""),
                    )
                    for p in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ],
    )
    before_send()
    answer = connection.call(request)
    codes = {TopicPartition(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    _require_all(connection, offsets, codes, "OffsetCommit")
    return CommitOutcome(
        {partition for partition, code in codes.items() if not code},
        {partition: code for partition, code in codes.items() if code},
    )


def fetch_offsets(
    connection: BrokerConnection, group: str, partitions: Collection[TopicPartition], versions: tuple[int, int]
) -> StoredOffsets:
    """Ask a broker for stored offsets; for arguments and errors see :func:`commit_offsets`."""
    load_kafka_python()
    from kafka.protocol.consumer import OffsetFetchRequest

    make_topic = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(
        version=connection.version(OffsetFetchRequest.API_KEY, OffsetFetchRequest.name, *versions),
        group_id=group,
        topics=[
            make_topic(name=topic, partition_indexes=[p.partition for p in theirs])
            for topic, theirs in by_topic(partitions).items()
        ],
    )
    answer = connection.call(request)
    stored = StoredOffsets({}, {}, getattr(answer, "error_code", 0) or 0)
    for topic in answer.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            there = one.committed_offset >= 0
            stored.found[partition] = StoredOffset(one.committed_offset, one.metadata) if there else StoredOffset(None)
            if one.error_code:
                stored.errors[partition] = one.error_code
    if not stored.error:
        _require_all(connection, partitions, stored.found, "OffsetFetch")
    return stored


def _require_all(
    connection: BrokerConnection, wanted: Collection[TopicPartition], answered: Collection[TopicPartition], name: str
) -> None:
    """Brokers answer for each partition. One that is missing must not count as one without a stored offset."""
    if missing := set(wanted).difference(answered):
        raise ProtocolError(f"{connection} left {len(missing)} partitions out of its {name} response")
