"""Rows whose trials are no group of three processes: each runs its trials itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.kinds import OF_BROKERS, OURS
from tests.chaos.rows import Row
from tests.chaos.schedule import Schedule
from tests.chaos.servers import Servers
from tests.chaos.verdicts import Evidence, Verdict
from zkconsumer.errors import UsageError


def judge_no_ledger(evidence: Evidence, verdict: Verdict) -> None:
    """Such a row has no ledger: its run has the verdict."""
    raise AssertionError(f"nothing to judge of {evidence}, {verdict}")


def _run_nothing(servers: Servers, schedule: Schedule) -> Verdict:
    raise AssertionError(f"no trial for {schedule} on {servers}")


@dataclass(frozen=True, slots=True)
class OwnRow(Row):
    """A row that runs its trials itself.

    Attributes:
        run: runs a schedule, and judges it.
        kinds: of members that its trials can have.
    """

    run: Callable[[Servers, Schedule], Verdict] = _run_nothing
    kinds: frozenset[str] = frozenset({OURS})

    def trial(self, servers: Servers, schedule: Schedule) -> Verdict:
        """Run a schedule and judge it.

        Raises:
            UsageError: the row has no trials with such members.
        """
        kinds = set(schedule.members)
        if not kinds <= self.kinds or schedule.storage != ("kafka" if kinds <= OF_BROKERS else "zookeeper"):
            members = f"members {', '.join(schedule.members)} that commit to {schedule.storage}"
            raise UsageError(f"row {self.name} has no trials with {members}; use another --protocol")
        return self.run(servers, schedule)
