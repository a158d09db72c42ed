"""Requests in version 0 that do something that no later version does (jvm-consumer.md#simpleconsumer).

ListOffsets: first offsets of log segments before a time. OffsetCommit and OffsetFetch: a group's offsets in ZooKeeper,
accessed through a broker. Brokers from 0.8.1 to 3.9, the last release with ZooKeeper, support them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetmessages import CommitOutcome, commit_offsets, fetch_offsets
from zkconsumer.offsets.rules.storedoffsets import unmarked
from zkconsumer.wire.apiversions import LIST_OFFSETS
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.listoffsetsmessages import decode_segment_offsets, encode_list_offsets

_VERSIONS: Final = (0, 0)


def segment_offsets(
    connection: BrokerConnection, partition: TopicPartition, timestamp: int, max_offsets: int
) -> tuple[int, list[int]]:
    """Error code, and first offsets of the log segments last modified at or before a time, newest first.

    Args:
        connection: connection to the leader.
        partition: which one.
        timestamp: ms since the epoch; LATEST puts the log end offset first, EARLIEST returns the log start offset only.
        max_offsets: maximum number of offsets.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: malformed answer, or the broker does not support version 0 any more.
    """
    version = connection.version(LIST_OFFSETS, "ListOffsets", *_VERSIONS)
    body = encode_list_offsets(version, {partition: timestamp}, max_offsets=max_offsets)
    answer = connection.exchange(LIST_OFFSETS, version, body, decode_segment_offsets)
    if partition not in answer:
        raise ProtocolError(f"{connection} sent a ListOffsets response without {partition}")
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
    """Let a broker read offsets from the group's znodes: stored offsets (None: there is none), and error codes.

    Raises: as :func:`segment_offsets`.
    """
    stored = fetch_offsets(connection, group, partitions, _VERSIONS)
    # Old brokers report a partition without a znode as unknown.
    errors = {key: code for key, code in stored.errors.items() if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return {key: stored_offset.offset for key, stored_offset in stored.found.items() if key not in errors}, errors
