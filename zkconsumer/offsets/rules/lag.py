"""Where an offset lies in its log: its lag, as every command, metric and API counts it, and whether it is outside.

Lag is the number of records from an offset to the log end; None is unknown. Which offset it is depends on who asks: the
committed one (``groups``, ``serve``, ``migrate verify``), the next one to fetch (metrics of a member, as the JVM's
ConsumerLag), the next one to hand out (``positions``), the end of a batch (Spark).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeVar

from zkconsumer.offsets.rules.storedoffsets import usable_offset

Number = TypeVar("Number", int, float)

BEFORE_LOG: Final = "before the log start"
AFTER_LOG: Final = "after the log end"


def signed_lag(offset: int | None, log_end: int | None) -> int | None:
    """The lag as the JVM's tools print it: negative where the offset lies after the log end.

    A negative offset is no position, as in the JVM's tools: its lag is unknown.

    >>> signed_lag(7, 9), signed_lag(12, 9), signed_lag(-1, 9), signed_lag(None, 9), signed_lag(7, None)
    (2, -3, None, None, None)
    """
    position = usable_offset(offset)
    return None if position is None or log_end is None else log_end - position


def lag(offset: int | None, log_end: int | None) -> int | None:
    """The same for whoever adds lags or compares them: 0 where the offset lies after the log end.

    >>> lag(7, 9), lag(12, 9), lag(-1, 9)
    (2, 0, None)
    """
    return in_sums(signed_lag(offset, log_end))


def in_sums(records: int | None) -> int | None:
    """What a lag with its sign counts in a sum: 0 where the offset lies after the log end."""
    return None if records is None else max(0, records)


def sum_known(values: Iterable[Number | None]) -> Number | None:
    """The sum of the lags, or rates, that are known; None if there are some and none is known.

    >>> sum_known([2, None, 3]), sum_known([None]), sum_known([])
    (5, None, 0)
    """
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if known or not every else None


def outside_log(
    offset: int | None, log_start: int | None, log_end: int | None
) -> Literal["before the log start", "after the log end"] | None:
    """Where an offset lies that its log does not have; None if it is in the log, or there is none, or it is unknown.

    >>> outside_log(4, 5, 9), outside_log(10, 5, 9), outside_log(-1, 0, 9), outside_log(9, 9, 9)
    ('before the log start', 'after the log end', None, None)
    """
    position = usable_offset(offset)
    if position is None:
        return None
    if position < (log_start or 0):
        return BEFORE_LOG
    return AFTER_LOG if log_end is not None and position > log_end else None


def clamp_to_log(offset: int, log_start: int, log_end: int) -> int:
    """The nearest offset at which the log can be read: the offset itself unless it is outside the log.

    >>> clamp_to_log(4, 5, 9), clamp_to_log(10, 5, 9), clamp_to_log(7, 5, 9), clamp_to_log(9, 5, 9)
    (5, 9, 7, 9)
    """
    return min(max(offset, log_start), log_end)
