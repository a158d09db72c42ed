"""The delivery lease: how long a member may hand out records without hearing from ZooKeeper (architecture.md#lease).

kazoo reports a lost session only once a server answers again, which may be long after another member got the
partitions. So a member keeps its own clock: each answered probe proves that the session was alive when the probe was
*sent*, and the servers expire it no sooner than the negotiated timeout after that.
"""

from __future__ import annotations

SHARE_OF_TIMEOUT = 0.8
"""Part of a timeout for which an answer is valid; the rest covers clock drift and the last hand-over."""

_PROBES_PER_TIMEOUT = 6


def lease_deadline(probe_sent: float, session_timeout: float) -> float:
    """When the lease that an answered probe extends will lapse, on the same clock.

    Args:
        probe_sent: clock reading, in seconds, when the newest answered probe was sent.
        session_timeout: the *negotiated* session timeout in seconds.
    """
    return probe_sent + SHARE_OF_TIMEOUT * session_timeout


def probe_interval(session_timeout: float) -> float:
    """Seconds between probes: several must fail before the lease lapses."""
    return session_timeout / _PROBES_PER_TIMEOUT
