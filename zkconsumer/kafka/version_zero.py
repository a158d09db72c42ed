"""Requests in their first version, where it did something that no later one does (SPEC 13).

ListOffsets: the begins of log segments before a time. OffsetCommit and OffsetFetch: a group's offsets in ZooKeeper,
with the broker as the go-between. Brokers from 0.8.1 on know them, up to 3.9, the last with a ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from zkconsumer.core.offsets import unmarked
from zkconsumer.errors import ProtocolError
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.errorcodes import ErrorCode
from zkconsumer.kafka.group_offsets import CommitOutcome, commit_offsets, fetch_offsets
from zkconsumer.kafka.listoffsets_protocol import decode_segment_offsets, encode_list_offsets
from zkconsumer.kafka.versions import LIST_OFFSETS
from zkconsumer.model import TopicPartition

_VERSIONS: Final = (0, 0)


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
        ProtocolError: malformed answer, or the broker does not know the version any more.
    """
    version = connection.version(LIST_OFFSETS, "ListOffsets", *_VERSIONS)
    body = encode_list_offsets(version, {partition: timestamp}, max_offsets=max_offsets)
    answer = connection.exchange(LIST_OFFSETS, version, body, decode_segment_offsets)
    if partition not in answer:
        raise ProtocolError(f"{connection} left {partition} out of its ListOffsets response")
    return answer[partition]


def commit_through_broker(
    connection: BrokerConnection, group: str, offsets: Mapping[TopicPartition, int]
) -> CommitOutcome:
    """Let a broker write offsets into the group's znodes.

    Raises: as :func:`segment_offsets`.
    """
    return commit_offsets(connection, group, unmarked(offsets), _VERSIONS)


def fetch_through_broker(
    connection: BrokerConnection, group: str, partitions: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, int]]:
    """Let a broker read offsets from the group's znodes: those stored (None: there is none), and error codes.

    Raises: as :func:`segment_offsets`.
    """
    stored = fetch_offsets(connection, group, partitions, _VERSIONS)
    # A partition without a znode is "unknown" to old brokers.
    errors = {key: code for key, code in stored.errors.items() if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return {key: one.offset for key, one in stored.found.items() if key not in errors}, errors
