"""How much to request at a time of a log in whose index a broker finds few of the offsets.

An index has one entry for each append at most, and an offset is found by reading all message headers from the entry
before it on. A batch of format 2 has one header. Messages of formats 0 and 1 that are not compressed have one each: a
producer that appends 1 MB at a time makes the broker read thousands of headers for each request, however much it asks
for. So a reader that is far behind asks for more at a time.
"""

from __future__ import annotations

from typing import Final

MOST_BYTES: Final = 8 << 20
"""Larger requests gain little: reading the headers takes less time then than sending the records."""
_MOST_MESSAGES: Final = 1 << 16
"""A chunk is cut after so many, and what comes after them is requested again."""
_INTERVAL: Final = 4096
"""``index.interval.bytes``: longer messages may all have an entry."""


def next_request_bytes(now: int, least: int, received: int, messages: int, *, behind: int) -> int:
    """How many bytes to request next of a partition.

    Args:
        now: how many were requested.
        least: how many are requested of other partitions.
        received: bytes of the answer.
        messages: how many messages of formats 0 and 1 it has; 0 if it has batches.
        behind: offsets from its end to the end of the log.

    >>> next_request_bytes(1 << 20, 1 << 20, 1 << 20, 5000, behind=1_000_000)
    2097152
    >>> next_request_bytes(2 << 20, 1 << 20, 1 << 20, 5000, behind=1_000_000)
    2097152
    >>> next_request_bytes(2 << 20, 1 << 20, 1 << 20, 5000, behind=0)
    1048576
    """
    if not messages or received >= messages * _INTERVAL or behind <= messages:
        return least
    if received < now:  # the limit of the response has cut it
        return now
    return max(least, min(2 * now, MOST_BYTES, received * _MOST_MESSAGES // messages))
