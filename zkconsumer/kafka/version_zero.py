"""Requests in their first version, where it did something that no later one does (SPEC 13).

ListOffsets: the begins of log segments before a time. OffsetCommit and OffsetFetch: a group's offsets in ZooKeeper,
with the broker as the go-between. Brokers from 0.8.1 on know them, up to 3.9, the last with a ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkconsumer.kafka.client import by_topic
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.coordinator import CommitOutcome
from zkconsumer.kafka.errorcodes import ErrorCode
from zkconsumer.kafka.library import load_kafka_python
from zkconsumer.model import TopicPartition


def segment_offsets(
    connection: BrokerConnection, partition: TopicPartition, timestamp: int, max_offsets: int
) -> tuple[int, list[int]]:
    """Error code, and where the log segments begin that were last changed at or before a time, newest first.

    Args:
        connection: to the leader.
        partition: which one.
        timestamp: in ms since the epoch; LATEST puts the log end in front, EARLIEST gives the log start alone.
        max_offsets: how many at most.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: the broker does not know the version any more.
    """
    load_kafka_python()
    from kafka.protocol.consumer import ListOffsetsRequest

    version = connection.version(ListOffsetsRequest.API_KEY, ListOffsetsRequest.name, 0, 0)
    make_topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = make_topic.ListOffsetsPartition(
        partition_index=partition.partition, timestamp=timestamp, max_num_offsets=max_offsets
    )
    topics = [make_topic(name=partition.topic, partitions=[wanted])]
    answer = connection.call(ListOffsetsRequest(version=version, topics=topics)).topics[0].partitions[0]
    return answer.error_code, list(answer.old_style_offsets)


def commit_through_broker(
    connection: BrokerConnection, group: str, offsets: Mapping[TopicPartition, int]
) -> CommitOutcome:
    """Let a broker write offsets into the group's znodes.

    Raises: as :func:`segment_offsets`.
    """
    load_kafka_python()
    from kafka.protocol.consumer import OffsetCommitRequest

    version = connection.version(OffsetCommitRequest.API_KEY, OffsetCommitRequest.name, 0, 0)
    make_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    make_partition = make_topic.OffsetCommitRequestPartition
    topics = [
        make_topic(
            name=topic,
            partitions=[
                make_partition(partition_index=p.partition, committed_offset=offsets[p], committed_metadata="")
                for p in partitions
            ],
        )
        for topic, partitions in by_topic(offsets).items()
    ]
    answer = connection.call(OffsetCommitRequest(version=version, group_id=group, topics=topics))
    codes = {TopicPartition(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    return CommitOutcome(
        {partition for partition, code in codes.items() if not code},
        {partition: code for partition, code in codes.items() if code},
    )


def fetch_through_broker(
    connection: BrokerConnection, group: str, partitions: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, int]]:
    """Let a broker read offsets from the group's znodes: those stored (None: there is none), and error codes.

    Raises: as :func:`segment_offsets`.
    """
    load_kafka_python()
    from kafka.protocol.consumer import OffsetFetchRequest

    version = connection.version(OffsetFetchRequest.API_KEY, OffsetFetchRequest.name, 0, 0)
    make_topic = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = [
        make_topic(name=topic, partition_indexes=[p.partition for p in theirs])
        for topic, theirs in by_topic(partitions).items()
    ]
    answer = connection.call(OffsetFetchRequest(version=version, group_id=group, topics=topics))
    found: dict[TopicPartition, int | None] = {}
    errors: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            key = TopicPartition(topic.name, one.partition_index)
            # A partition without a znode is "unknown" to old brokers.
            if one.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                errors[key] = one.error_code
            else:
                found[key] = one.committed_offset if one.committed_offset >= 0 else None
    return found, errors
