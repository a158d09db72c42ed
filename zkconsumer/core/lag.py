"""Lag: the number of records between an offset and the end of its log, as every command, metric and API counts it.

Which offset it is, depends on who asks: the committed one (``groups``, ``serve``, ``migrate verify``), the next one to
fetch (metrics of a member, as the JVM's ConsumerLag), the next one to hand out (``positions``), the end of a batch
(Spark). None is unknown.
"""

from __future__ import annotations


def signed_lag(offset: int | None, log_end: int | None) -> int | None:
    """The lag as the JVM's tools print it: negative where the offset lies after the log end.

    A negative offset is no position, as in the JVM's tools: its lag is unknown.

    >>> signed_lag(7, 9), signed_lag(12, 9), signed_lag(-1, 9), signed_lag(None, 9), signed_lag(7, None)
    (2, -3, None, None, None)
    """
    if offset is None or offset < 0 or log_end is None:
        return None
    return log_end - offset


def lag(offset: int | None, log_end: int | None) -> int | None:
    """The same for whoever adds lags or compares them: 0 where the offset lies after the log end.

    >>> lag(7, 9), lag(12, 9), lag(-1, 9)
    (2, 0, None)
    """
    records = signed_lag(offset, log_end)
    return None if records is None else max(0, records)
