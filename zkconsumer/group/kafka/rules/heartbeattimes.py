"""When a member of a broker-coordinated group sends heartbeats, by which it notices that a rebalance has begun."""

from __future__ import annotations

from math import floor, isinf
from typing import Final

_FIRST_S: Final = 0.1
_LEAST_S: Final = 0.001
"""Shortest pause: the time of a heartbeat that was sent just before it, by rounding, is not the next one."""


def heartbeat_pause(interval_s: float, since_assignment_s: float) -> float:
    """Seconds until the next heartbeat.

    Heartbeats have fixed times after an assignment: 0.1 s, twice that, and so on up to the interval, and then its
    multiples.

    - One rebalance often follows another, hence the first ones: members that start together join one after the other,
      and in a cooperative group a partition that moves is revoked in one rebalance and assigned in the next.
    - All members are assigned their partitions at the same time, so they send heartbeats at the same time, and notice
      the next rebalance at the same time. If each had times of its own, the last of many members would notice it almost
      an interval later, and all others would wait for that one. So one that was late does not put off those after it.

    Args:
        interval_s: ``heartbeat.interval.ms`` in seconds.
        since_assignment_s: seconds since the newest assignment arrived; infinite if there was none.
    """
    if isinf(since_assignment_s):
        return interval_s
    soon = since_assignment_s + _LEAST_S
    following = _FIRST_S
    while following < min(soon, interval_s):
        following *= 2
    if following >= interval_s:
        following = (floor(soon / interval_s) + 1) * interval_s
    return min(interval_s, following - since_assignment_s)
