"""BrokerLease: how long a member of a broker-coordinated group may deliver records without hearing from the broker.

A coordinator gives the partitions of a member to another one in two cases. It has received no heartbeat for the
session timeout; or a rebalance has begun and the member has not joined again within the rebalance timeout. So the
lease is extended by answered requests, counted from when they were *sent*, and during a rebalance it also ends before
the rebalance timeout, counted from the last moment at which no rebalance can have been in progress.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

from zkconsumer.group.rules.leasetimes import lease_deadline


@dataclass(frozen=True, slots=True)
class BrokerLease:
    """When the lease lapses, in seconds of one clock; replaced, never changed.

    Attributes:
        session_s: ``session.timeout.ms`` in seconds.
        rebalance_s: rebalance timeout in seconds: ``max.poll.interval.ms``, or the session timeout where brokers know
            no other.
        heartbeat_s: longest time from one heartbeat to the next, in seconds; 0 before it is known.
        deadline: when it lapses.
        stable: when the newest request was sent whose answer proves that no rebalance was in progress.
    """

    session_s: float
    rebalance_s: float
    heartbeat_s: float = 0.0
    deadline: float = -inf
    stable: float = -inf

    def confirmed(self, sent: float) -> BrokerLease:
        """After a heartbeat, or a SyncGroup, that was answered without error.

        A rebalance may begin right after that, and end a rebalance timeout later without this member; so the answer
        counts for the shorter one of both timeouts.

        Args:
            sent: clock reading when it was sent.
        """
        if sent < self.stable:
            return self
        return replace(self, deadline=lease_deadline(sent, min(self.session_s, self.rebalance_s)), stable=sent)

    def in_rebalance(self, sent: float) -> BrokerLease:
        """After a heartbeat that was answered with REBALANCE_IN_PROGRESS: the member is known, and has to join.

        To be used only until the member's own JoinGroup is answered: while members synchronise, brokers up to 2.x give
        this answer without renewing the session.
        """
        session_ends = lease_deadline(sent, self.session_s)
        rebalance_ends = lease_deadline(self.stable, self.rebalance_s)
        return replace(self, deadline=max(self.deadline, min(session_ends, rebalance_ends)))

    @property
    def release_s(self) -> float:
        """How long a release may wait for work in progress: until the lease ends in a rebalance, in seconds.

        The rebalance may have begun right after a heartbeat, and the next one reports it.
        """
        return max(0.0, lease_deadline(0.0, self.rebalance_s) - self.heartbeat_s)

    @property
    def is_confirmed(self) -> bool:
        """False before the first answer of a membership."""
        return self.deadline > -inf

    def ended(self) -> BrokerLease:
        """The member has been removed from the group, or has left it."""
        return replace(self, deadline=-inf, stable=-inf)


class LeaseTerm(NamedTuple):
    """How long a member may hand out records if the coordinator remains silent.

    Attributes:
        until: reading of the clock at which the lease lapses, or has lapsed; infinite if there is nothing to lose.
    """

    until: float

    def holds(self, now: float) -> bool:
        """True while no other member can own what this one holds."""
        return now < self.until

    def remaining(self, now: float) -> float:
        """Seconds until the lease lapses; 0 if it has lapsed, or cannot lapse."""
        return max(0.0, self.until - now) if self.until < inf else 0.0


NOTHING_TO_LOSE: Final = LeaseTerm(inf)
"""The term of a member that holds nothing, and is assigned nothing."""
ENDED: Final = LeaseTerm(-inf)
"""The term of a member that the group has removed, or that has left it."""
