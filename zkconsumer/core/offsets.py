"""Decisions about offsets: what to commit, and where to go on after a rebalance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from zkconsumer.model import TopicPartition

Mark = int | str
"""Identifies one write of a stored offset: the mzxid of its znode, or the metadata of its commit to Kafka."""

OUR_METADATA = "zkconsumer:"
"""How the metadata of a commit begins that this package sent to Kafka; what follows is unique."""

NO_NODE = -1
"""The version of an offset node that does not exist: the version of the first one created is one more."""


class StoredOffset(NamedTuple):
    """What a store holds of one partition.

    Attributes:
        offset: the next offset to consume; None if there is none.
        mark: of the write that stored it; None if there is none, or if it is unknown.
    """

    offset: int | None
    mark: Mark | None = None


def unmarked(
    offsets: Mapping[TopicPartition, int] | Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, StoredOffset]:
    """Offsets to store without a mark."""
    return {partition: StoredOffset(offset) for partition, offset in offsets.items()}


def is_unique(mark: Mark | None) -> bool:
    """True if no two writes have this mark; other clients send the same metadata with every commit."""
    return isinstance(mark, int) or (mark is not None and mark.startswith(OUR_METADATA))


@dataclass(frozen=True, slots=True)
class KnownOffset:
    """What this member last read or wrote of an offset node.

    Attributes:
        offset: None if there was no node.
        version: of the node, counted up by every write; :data:`NO_NODE`, or None if the answer to a write was lost.
        mzxid: of the node; None if there was no node, or if it is unknown.
    """

    offset: int | None
    version: int | None
    mzxid: int | None = None


def written_by_others(known: KnownOffset, version: int) -> bool:
    """True if somebody else wrote, created or deleted an offset node since this member last knew it (DESIGN 4.5).

    Args:
        known: before this member's own write.
        version: of the node after this member's own write, which is one more if nobody else wrote.
    """
    return known.version is not None and version != known.version + 1


def changed_offsets(
    positions: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """The positions that differ from what is known to be stored; only these are written (KAFKA-987).

    Unlike the JVM, a partition that was never committed is not taken as 0 (SPEC 15.13).
    """
    return {partition: offset for partition, offset in positions.items() if committed.get(partition) != offset}


def choose_stored(in_zookeeper: int | None, in_kafka: int | None, rule: str) -> int | None:
    """Which of two stored offsets counts under dual commit.

    Args:
        in_zookeeper: None if there is none.
        in_kafka: None if there is none.
        rule: ``max``, the JVM's rule, under which a rewind must lower both stores; or ``zookeeper`` or ``kafka``, whose
            offset then counts, with the other as a stand-in where it has none.
    """
    if in_zookeeper is None or in_kafka is None:
        return in_kafka if in_zookeeper is None else in_zookeeper
    return {"max": max(in_zookeeper, in_kafka), "zookeeper": in_zookeeper, "kafka": in_kafka}[rule]


def start_offset(stored: int | None, last_committed: int | None, position: int | None) -> int | None:
    """Where a member starts a partition that it has just claimed.

    The stored offset is law, with one exception: a partition that stays with the same member goes on at its own
    position, if nobody wrote the stored offset since this member read or wrote it. Otherwise every rebalance would
    hand out again what was not committed yet (SPEC 4.4: the JVM rewinds with auto commit off).

    Args:
        stored: offset in the store, read after claiming; None if there is none.
        last_committed: what this member last knew to be stored, None if it never did or there was none.
        position: how far this member had handed out before the rebalance, None if it did not own the partition.
    """
    if position is not None and stored == last_committed:
        return position
    return stored if stored is None or stored >= 0 else None
