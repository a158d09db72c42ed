"""Where each partition of a new share starts: the rules of DESIGN 4.7 as values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from zkconsumer.model import TopicPartition
from zkconsumer.spark.offsets_json import EARLIEST, LATEST
from zkconsumer.spark.options import Position, Timestamps
from zkconsumer.spark.planning import Span, resume

_NAMED = {"earliest": EARLIEST, "latest": LATEST, "smallest": EARLIEST, "largest": LATEST}


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older than ``ms``, in ms since the epoch; only its broker knows the offset.

    Attributes:
        or_latest: without such a record the end of the log; otherwise that is an error.
    """

    ms: int
    or_latest: bool


Wanted = int | AtTime
"""An offset, EARLIEST, LATEST, or a time."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where partitions are to start.

    Attributes:
        offsets: an offset, or what only the broker can turn into one.
        foreign: partitions whose stored offset somebody else moved since our last batch, with that batch.
    """

    offsets: Mapping[TopicPartition, Wanted]
    foreign: Mapping[TopicPartition, Span]


def start_positions(
    stored: Mapping[TopicPartition, int | None],
    finished: Mapping[TopicPartition, Span],
    *,
    starting: Position,
    seen_before: Set[TopicPartition],
    reset: str,
) -> Start:
    """Decide where to start newly claimed partitions.

    Args:
        stored: the group's offset of each claimed partition, read after claiming; None if there is none.
        finished: the last batch that Spark finished; empty in a new query.
        starting: ``startingOffsets`` for the first batch of a query, ``group`` for partitions that come later.
        seen_before: partitions that existed when the query joined. Others appeared by growth: their first record was
            written while the query ran, so they are read from the beginning.
        reset: ``auto.offset.reset``.
    """
    offsets: dict[TopicPartition, Wanted] = {}
    foreign: dict[TopicPartition, Span] = {}
    for partition, offset in stored.items():
        chosen = position_of(partition, starting)
        if chosen is not None:
            offsets[partition] = chosen
            continue
        resumption = resume(finished.get(partition), offset)
        if resumption.foreign:
            foreign[partition] = finished[partition]
        if resumption.offset is not None:
            offsets[partition] = resumption.offset
        else:
            offsets[partition] = _NAMED[reset] if partition in seen_before else EARLIEST
    return Start(offsets, foreign)


def position_of(partition: TopicPartition, position: Position) -> Wanted | None:
    """What an option says of one partition; None if it leaves the partition to the default."""
    if isinstance(position, Timestamps):
        moment = position.given.get(partition, position.everywhere)
        return None if moment is None else AtTime(moment, position.or_latest)
    return position.get(partition) if isinstance(position, Mapping) else _NAMED.get(position)


@dataclass(frozen=True, slots=True)
class Located:
    """Positions that the brokers can serve.

    Attributes:
        offsets: next offset to read of each partition.
        lost: what had to be moved because the log does not hold it: partition to (wanted, earliest, latest).
    """

    offsets: Mapping[TopicPartition, int]
    lost: Mapping[TopicPartition, tuple[int, int, int]]


def locate(
    wanted: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    reset: str,
) -> Located:
    """Turn EARLIEST and LATEST into offsets, and move what lies outside of the log to where ``reset`` says.

    Partitions whose ends are unknown, because they have no leader just now, are left out.
    """
    ends = {EARLIEST: earliest, LATEST: latest}
    offsets: dict[TopicPartition, int] = {}
    lost: dict[TopicPartition, tuple[int, int, int]] = {}
    for partition, offset in wanted.items():
        if partition not in earliest or partition not in latest:
            continue
        offsets[partition] = ends[offset][partition] if offset in ends else offset
        if not earliest[partition] <= offsets[partition] <= latest[partition]:
            lost[partition] = (offset, earliest[partition], latest[partition])
            offsets[partition] = ends[_NAMED[reset]][partition]
    return Located(offsets, lost)


def tell_losses(lost: Mapping[TopicPartition, tuple[int, int, int]]) -> str:
    """In words, for each partition: what was wanted, what is there, and how many offsets are gone.

    How many is known only where the log begins later than wanted. A log that ends before what was wanted was cut by an
    unclean leader election, or belongs to another topic of that name.
    """
    return ", ".join(
        f"{partition}: wanted {wanted}, the log has [{earliest}, {latest})"
        + (f", {earliest - wanted} offsets are lost" if 0 <= wanted < earliest else "")
        for partition, (wanted, earliest, latest) in sorted(lost.items())
    )
