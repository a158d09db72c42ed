"""The records of ``__consumer_offsets``, in which brokers store the offsets of groups.

Source: Kafka's message definitions OffsetCommitKey and OffsetCommitValue, versions 0 to 4.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from zkconsumer.java.javastring import java_abs_mod, java_hash
from zkconsumer.model import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"

_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">h")
_LAST_KEY: Final = 1
"""Keys of later versions are of groups, not of offsets."""
_LAST_VALUE: Final = 4


class StoredCommit(NamedTuple):
    """One commit of one partition.

    Attributes:
        group: whose.
        partition: which one.
        offset: the next offset to consume; None if the record deletes it.
    """

    group: str
    partition: TopicPartition
    offset: int | None


def partition_of_group(group: str, partitions: int) -> int:
    """The partition of the topic that has the commits of a group.

    >>> partition_of_group("orders", 50)
    31
    """
    return java_abs_mod(java_hash(group), partitions)


def decode_commit(key: bytes | None, value: bytes | None) -> StoredCommit | None:
    """The commit in a record; None if the record is of another kind.

    Raises:
        ValueError: the record is malformed, or its value has a later version.

    >>> decode_commit(bytes.fromhex("0001 0001 67 0001 74 00000002"), None)
    StoredCommit(group='g', partition=TopicPartition(topic='t', partition=2), offset=None)
    """
    try:
        if key is None or _VERSION.unpack_from(key)[0] not in range(_LAST_KEY + 1):
            return None
        group, at = _text(key, _VERSION.size)
        topic, at = _text(key, at)
        partition = TopicPartition(topic, _PARTITION.unpack_from(key, at)[0])
        offset = None if value is None else _decode_offset(value)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a record of {OFFSETS_TOPIC} is malformed: {error}") from None
    return StoredCommit(group, partition, offset)


def _decode_offset(value: bytes) -> int:
    """The offset, which is the first field in each version."""
    (version,) = _VERSION.unpack_from(value)
    if not 0 <= version <= _LAST_VALUE:
        raise ValueError(f"a record of {OFFSETS_TOPIC} has version {version}, which is not known")
    offset: int = _OFFSET.unpack_from(value, _VERSION.size)[0]
    return offset


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    begin, end = at + _LENGTH.size, at + _LENGTH.size + length
    if length < 0 or end > len(data):
        raise IndexError(f"a text of {length} bytes at byte {at} of {len(data)}")
    return data[begin:end].decode(), end
