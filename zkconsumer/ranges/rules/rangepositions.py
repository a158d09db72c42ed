"""Positions in logs: those that are wanted, turned into offsets that the brokers can serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkconsumer.model import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
"""The two named positions, by the numbers that requests for offsets have for them (Kafka's protocol, ListOffsets)."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older than ``ms``, in ms since the epoch; a broker must look up its offset.

    Attributes:
        or_latest: True: the end of the log if there is no such record; False: that is an error.
    """

    ms: int
    or_latest: bool


Wanted = int | AtTime
"""An offset, EARLIEST, LATEST, or a time."""


class Loss(NamedTuple):
    """A position that is not in the log: the wanted offset, and the bounds of the log."""

    wanted: int
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Located:
    """Positions that the brokers can serve.

    Attributes:
        offsets: next offset to read of each partition.
        lost: the partitions whose position had to be moved.
    """

    offsets: Mapping[TopicPartition, int]
    lost: Mapping[TopicPartition, Loss]


def locate(
    wanted: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    readable: Mapping[TopicPartition, int],
) -> Located:
    """Turn EARLIEST and LATEST into offsets, and move positions outside of the log to its nearest end.

    So no existing record is skipped. Partitions whose ends are unknown, because they have no leader, are missing in the
    result. LATEST is the offset up to which the log can be read (:meth:`.LogEnds.readable`).
    """
    ends = {EARLIEST: earliest, LATEST: readable}
    offsets: dict[TopicPartition, int] = {}
    lost: dict[TopicPartition, Loss] = {}
    for partition, offset in wanted.items():
        if not (partition in earliest and partition in latest and partition in readable):
            continue
        first, end = earliest[partition], latest[partition]
        at = ends[offset][partition] if offset in ends else offset
        offsets[partition] = min(max(at, first), end)
        if offsets[partition] != at:
            lost[partition] = Loss(offset, first, end)
    return Located(offsets, lost)


def describe_losses(lost: Mapping[TopicPartition, Loss]) -> str:
    """Text for messages: for each partition the wanted offset, the log's bounds, and the number of lost offsets.

    The number is known only if the log begins after the wanted offset. A log that ends before it was truncated by an
    unclean leader election.
    """
    return ", ".join(
        f"{partition}: wanted {loss.wanted}, the log has [{loss.earliest}, {loss.latest})"
        + (f", {loss.earliest - loss.wanted} offsets are lost" if 0 <= loss.wanted < loss.earliest else "")
        for partition, loss in sorted(lost.items())
    )
