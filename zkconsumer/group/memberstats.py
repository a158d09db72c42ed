"""What a member counts about itself. The values are replaced, never changed, so any thread may read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from zkconsumer.core.memberstate import MemberState
from zkconsumer.core.rebalance import RebalanceCause, RebalanceStep


@dataclass(frozen=True, slots=True)
class RebalanceCounts:
    """Rebalances of one member; looks at the group that found nothing to do are not counted.

    Attributes:
        by_cause: finished ones.
        seconds: time that they took together, failed attempts and the waits between them included.
        failures: failed attempts by step, see :func:`step_name`.
        last_cause: of the newest finished one, None before the first.
        last_seconds: how long that took.
        last_finished: when, in seconds since the epoch.
    """

    by_cause: Mapping[RebalanceCause, int] = field(default_factory=dict)
    seconds: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)
    last_cause: RebalanceCause | None = None
    last_seconds: float = 0.0
    last_finished: float = 0.0

    def finished(self, cause: RebalanceCause, seconds: float, at: float) -> RebalanceCounts:
        """One more."""
        by_cause = {**self.by_cause, cause: self.by_cause.get(cause, 0) + 1}
        return replace(
            self,
            by_cause=by_cause,
            seconds=self.seconds + seconds,
            last_cause=cause,
            last_seconds=seconds,
            last_finished=at,
        )

    def failed(self, step: RebalanceStep | None) -> RebalanceCounts:
        """One more attempt that failed in this step."""
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


def step_name(step: RebalanceStep | None) -> str:
    """The step's number and name; None is what comes before the first: registering and reading the group."""
    return "0 read the group" if step is None else step.value


@dataclass(frozen=True, slots=True)
class MemberStats:
    """One member at one moment.

    Attributes:
        state: ``latent``, ``joined``, ``rebalancing`` or ``closed``.
        rebalances: see there.
        owned: number of partitions owned, by topic.
        commits: offsets written, by storage.
        lease_lapses: how often the delivery lease ran out (DESIGN 4.5).
        session_expiries: ZooKeeper sessions lost while registered.
        lost_partitions: partitions given up because their owner znode was not this member's any more.
        connected: True while there is a connection to ZooKeeper.
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
