"""The delivery lease: how long a member may hand out records without an answer (architecture.md#lease).

kazoo reports a lost session only once a server answers again, and a coordinator that cannot be reached reports nothing;
by then another member may have got the partitions long ago. So a member keeps its own clock: each answer proves that it
was a member when the request was *sent*, and servers remove it no sooner than its timeout after that. In groups of
brokers :class:`.BrokerLease` says which timeout an answer extends.
"""

from __future__ import annotations

_SHARE_OF_TIMEOUT = 0.8
"""Part of a timeout for which an answer is valid; the rest covers clock drift and the last hand-over."""

_PROBES_PER_TIMEOUT = 6


def lease_deadline(sent: float, timeout: float) -> float:
    """When the lease that an answer extends will lapse, on the same clock.

    Args:
        sent: clock reading, in seconds, when the newest request that was answered was sent.
        timeout: after which the server removes a silent member, in seconds; ZooKeeper's is the *negotiated* one.
    """
    return sent + _SHARE_OF_TIMEOUT * timeout


def probe_interval(session_timeout: float) -> float:
    """Seconds between probes of ZooKeeper: several must fail before the lease lapses."""
    return session_timeout / _PROBES_PER_TIMEOUT
