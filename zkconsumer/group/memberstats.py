"""The counters of a member. The values are replaced, never changed, so any thread may read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from zkconsumer.group.rules.memberstate import MemberState, step_name
from zkconsumer.group.rules.rebalancetimes import RebalanceCause


@dataclass(frozen=True, slots=True)
class RebalanceCounts:
    """Rebalances of one member; attempts that found nothing to do are not counted.

    Attributes:
        by_cause: number of finished rebalances by cause.
        seconds: total duration of finished rebalances, failed attempts and the waits between them included.
        failures: failed attempts by step, see :func:`~zkconsumer.group.rules.memberstate.step_name`.
        last_cause: cause of the last finished rebalance, None before the first.
        last_seconds: its duration in seconds.
        last_finished: when it ended, in seconds since the epoch.
    """

    by_cause: Mapping[RebalanceCause, int] = field(default_factory=dict)
    seconds: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)
    last_cause: RebalanceCause | None = None
    last_seconds: float = 0.0
    last_finished: float = 0.0

    def finished(self, cause: RebalanceCause, seconds: float, at: float) -> RebalanceCounts:
        """The counts after one more finished rebalance."""
        by_cause = {**self.by_cause, cause: self.by_cause.get(cause, 0) + 1}
        return replace(
            self,
            by_cause=by_cause,
            seconds=self.seconds + seconds,
            last_cause=cause,
            last_seconds=seconds,
            last_finished=at,
        )

    def failed(self, step: MemberState | None) -> RebalanceCounts:
        """The counts after one more attempt that failed in this step."""
        name = step_name(step)
        return replace(self, failures={**self.failures, name: self.failures.get(name, 0) + 1})


_COARSE = {
    MemberState.LATENT: "latent",
    MemberState.FETCHING: "joined",
    MemberState.WAITING_FOR_BROKERS: "joined",
    MemberState.CLOSED: "closed",
}


def coarse_state(state: MemberState) -> str:
    """``latent``, ``joined``, ``rebalancing`` or ``closed``, for the metric."""
    return _COARSE.get(state, "rebalancing")


@dataclass(frozen=True, slots=True)
class MemberStats:
    """The counters of one member at one moment.

    Attributes:
        state: ``latent``, ``joined``, ``rebalancing`` or ``closed``.
        rebalances: rebalances of the member.
        owned: number of partitions owned, by topic.
        commits: offsets written, by storage.
        lease_lapses: how often the delivery lease has lapsed (architecture.md#lease).
        session_expiries: ZooKeeper sessions lost while registered.
        lost_partitions: partitions dropped because another member owned them.
        connected: True while the group can be reached.
        delivering: True while the delivery lease holds.
    """

    state: str
    rebalances: RebalanceCounts
    owned: Mapping[str, int]
    commits: Mapping[str, int]
    lease_lapses: int
    session_expiries: int
    lost_partitions: int
    connected: bool
    delivering: bool
