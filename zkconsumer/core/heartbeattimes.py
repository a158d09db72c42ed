"""When a member of a broker-coordinated group sends heartbeats, by which it notices that a rebalance has begun."""

from __future__ import annotations

from typing import Final

_SHORTEST_S: Final = 0.1


def heartbeat_pause(interval_s: float, since_assignment_s: float) -> float:
    """Seconds until the next heartbeat.

    One rebalance often follows another: members that start together join one after the other, and in a cooperative
    group a partition that moves is revoked in one rebalance and assigned in the next. So after an assignment the
    pauses are short, and double until they are the configured interval.

    Args:
        interval_s: ``heartbeat.interval.ms`` in seconds.
        since_assignment_s: seconds since the newest assignment arrived; infinite if there was none.
    """
    return min(interval_s, max(_SHORTEST_S, since_assignment_s))
