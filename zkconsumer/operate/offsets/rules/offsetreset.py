"""Where a reset moves the offset of a partition (KIP-122), as ConsumerGroupCommand 1.1.1 decides it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Final, Literal

from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import AFTER_LOG, BEFORE_LOG
from zkconsumer.offsets.rules.storedoffsets import usable_offset
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange, OffsetRow

ResetKind = Literal["earliest", "latest", "current", "offset", "shift", "time", "file"]

_DATETIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})(?:(Z)|([+-])(\d\d)(?::(\d\d))?)?", re.ASCII
)
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ResetSpec:
    """What a reset was asked to do.

    Attributes:
        kind: the scenario.
        value: the offset, the number of records to shift by, or the time in ms since the epoch; 0 for other kinds.
        offsets: by partition, for kind ``file``.
    """

    kind: ResetKind
    value: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def begins_at_stored(self) -> bool:
        """True if the result depends on the stored offset, so that this must be known."""
        return self.kind in ("current", "shift")


def reset_offset(
    spec: ResetSpec, partition: TopicPartition, old: int | None, log: LogRange, at_time: int | None
) -> OffsetRow:
    """The row of one partition.

    Args:
        spec: what was asked for.
        partition: which one.
        old: the stored offset; None, or a negative one, is none.
        log: the offsets of its log.
        at_time: for kind ``time``, the offset of the first record with that timestamp or a later one; None if no record
            has, which means the log end.

    Raises:
        ValueError: the partition has no offset to shift, or is not in the file.
    """
    position = usable_offset(old)
    if spec.kind == "shift" and position is None:
        raise ValueError(f"{partition} has no committed offset to shift; reset it to an offset instead")
    if spec.kind == "file" and partition not in spec.offsets:
        raise ValueError(f"{partition} is not in the file")
    note = ""
    match spec.kind:
        case "earliest":
            new = log.start
        case "latest":
            new = log.end
        case "current":
            new, note = (log.end, "no committed offset, so the log end") if position is None else (position, "")
        case "time":
            new, note = (log.end, "no record so late, so the log end") if at_time is None else (at_time, "")
        case _:
            return _clamped(partition, old, log, _requested(spec, partition, position))
    return OffsetRow(partition, old, new, log, note)


def _requested(spec: ResetSpec, partition: TopicPartition, position: int | None) -> int:
    if spec.kind == "file":
        return spec.offsets[partition]
    return spec.value if spec.kind == "offset" else (position or 0) + spec.value


def _clamped(partition: TopicPartition, old: int | None, log: LogRange, wanted: int) -> OffsetRow:
    new = log.clamp(wanted)
    note = "" if new == wanted else f"{wanted} is {AFTER_LOG if wanted > new else BEFORE_LOG}"
    return OffsetRow(partition, old, new, log, note)


def parse_datetime(text: str) -> int:
    """Milliseconds since the epoch of a text as ``--to-datetime`` takes it; without a zone it is UTC.

    A time before the epoch is the epoch: brokers take the timestamps -1 and -2 as the log end and the log start.

    The forms are those that 1.1.1 reads to the same instant: milliseconds are required, a zone is ``Z``, ``+hh`` or
    ``+hh:mm``. What 1.1.1 reads as something else than it looks like (``+0130`` as ``+01:00``, the 31st of June, ``.5``
    as 5 ms) is refused.

    Raises:
        ValueError: the text has another form.

    >>> parse_datetime("2017-06-01T12:00:00.000"), parse_datetime("2017-06-01T12:00:00.000+01:30")
    (1496318400000, 1496313000000)
    """
    match = _DATETIME.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a time; write it as 2017-06-01T12:00:00.000, which is UTC, or with a zone: Z, +01 or "
            "+01:00"
        )
    *numbers, milliseconds, _, sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        at = datetime(*map(int, numbers), int(milliseconds) * 1000, tzinfo=zone)  # type: ignore[arg-type, misc]
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: {error}") from None
    return max(0, (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def parse_duration(text: str) -> int:
    """Milliseconds of a duration ``PnDTnHnMnS``, a day being 24 hours.

    Raises:
        ValueError: the text has another form. Years and months are refused, since they have no fixed length.

    >>> parse_duration("P1DT2H"), parse_duration("PT0.5S")
    (93600000, 500)
    """
    match = _DURATION.fullmatch(text)
    if match is None or text[-1] in "PT":
        raise ValueError(f"{text!r} is not a duration; write it as PnDTnHnMnS, such as P7D or PT1H30M")
    days, hours, minutes, seconds = (Decimal(number or 0) for number in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def time_before(now_ms: int, duration: str) -> int:
    """The time a duration before now, in ms since the epoch; before the epoch as for :func:`parse_datetime`.

    Raises:
        ValueError: as for :func:`parse_duration`.
    """
    return max(0, now_ms - parse_duration(duration))
