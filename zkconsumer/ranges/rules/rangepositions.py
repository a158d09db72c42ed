"""Positions in logs: those that are wanted, turned into offsets that the brokers can serve."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from zkconsumer.errors import OffsetOutOfRange, UsageError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import clamp_to_log

EARLIEST: Final = -2
LATEST: Final = -1
"""The two named positions, by the numbers that requests for offsets have for them (Kafka's protocol, ListOffsets)."""

NAMED: Final[Mapping[object, int]] = {"earliest": EARLIEST, "latest": LATEST}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


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


Where = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""Where a read of a topic starts, or ends: by name, at a time, or at an offset of each partition that is named.

A time is the first record that is not older, or the end of the log; without a time zone it is a local one.
"""


def positions_of_topic(
    topic: str, existing: Collection[int], start: Where, end: Where, only: int | None = None
) -> tuple[dict[TopicPartition, Wanted], dict[TopicPartition, Wanted]]:
    """Where a read of a topic starts and ends, by partition: those that are named, or all.

    Args:
        topic: its name.
        existing: numbers of its partitions.
        start: the first offset of each partition.
        end: the offset after the last one.
        only: the only partition to read; None for all, or those that are named.

    Raises:
        UsageError: a position is none of :data:`Where`, a partition does not exist, or the start and the end name
            different partitions, or a start after its end.
    """
    for role, where in (("start", start), ("end", end)):
        _check(role, where)
    named = {frozenset(where) for where in (start, end) if isinstance(where, Mapping)}
    if only is not None:
        named.add(frozenset({only}))
    if len(named) > 1:
        raise UsageError("start and end name different partitions; name the same ones, or none in one of the two")
    numbers = sorted(next(iter(named)) if named else existing)
    if unknown := [number for number in numbers if number not in existing]:
        raise UsageError(f"topic {topic} has {len(existing)} partitions, and not number {name_some(unknown)}")
    if isinstance(start, Mapping) and isinstance(end, Mapping) and (late := [n for n in numbers if start[n] > end[n]]):
        raise UsageError(f"the start is after the end in {name_some([TopicPartition(topic, n) for n in late])}")
    starts, ends = ({TopicPartition(topic, n): _place(where, n) for n in numbers} for where in (start, end))
    return starts, ends


def _check(role: str, where: Where) -> None:
    """Refuse what the types of a caller may not have shown."""
    if isinstance(where, Mapping):
        if not where or any(
            isinstance(value, bool) or not isinstance(value, int) or value < 0 for value in where.values()
        ):
            raise UsageError(
                f"{role} must have an offset, from 0 on, of each partition that is read, not {dict(where)!r}"
            )
    elif not isinstance(where, datetime) and not (isinstance(where, str) and where in NAMED):
        raise UsageError(
            f"{role} must be earliest, latest, a datetime, or a mapping of partitions to offsets, not {where!r}"
        )


def _place(where: Where, number: int) -> Wanted:
    """The position in one partition, from what :func:`_check` has accepted."""
    if isinstance(where, Mapping):
        return where[number]
    if isinstance(where, str):
        return NAMED[where]
    # Rounded up: a record of the millisecond before is older. A time before the epoch would be taken for a name.
    since = where.astimezone(UTC) - _EPOCH
    return AtTime(max(0, -(-since // _MS)), or_latest=True)


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
        offsets[partition] = clamp_to_log(at, first, end)
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


def ending_offsets(
    given: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    readable: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The end of each partition: the given offset, or the one up to which its log can be read.

    Raises:
        OffsetOutOfRange: the log of a partition cannot be read up to a given offset.
    """
    given = {p: offset for p, offset in given.items() if offset != LATEST}
    beyond = [
        f"{p}: {offset}, "
        + (
            f"the log ends at {latest[p]}"
            if offset > latest[p]
            else f"the last stable offset is {readable[p]} (a transaction is open)"
        )
        for p, offset in sorted(given.items())
        if p in readable and offset > readable[p]
    ]
    if beyond:
        raise OffsetOutOfRange(f"ends lie beyond what can be read: {', '.join(beyond)}")
    return {**readable, **given}
