"""Findings that one look at a group cannot make: offsets that do not move, or too slowly, as its status has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.finding import Finding
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus

LOOK_AT_PROCESS: Final = (
    "look at the member's process: its log, its CPU time, and where its threads wait (py-spy dump --pid PID, or jstack "
    "PID of a JVM)"
)

NO_COMMIT: Final = "no-commit"
"""The kind of a finding: members commit nothing, although there are records."""

CHECK_COMMITS: Final = (
    "check that the members commit: enable.auto.commit, or the application's own calls, and their permission to (their "
    "log has refused commits); if it works without commits, it begins by auto.offset.reset after each restart"
)

_NEXT: Final = {
    LagStatus.WARN: f"{LOOK_AT_PROCESS}; if it works at its limit, start more members, or add partitions",
    LagStatus.STALL: f"{LOOK_AT_PROCESS}; it hangs, ends time and again, or commits more rarely than the samples cover",
    LagStatus.STOP: "see the other findings; restart the members that should own the partitions",
}


def explain_lag(lag: GroupLag) -> Iterator[Finding]:
    """A finding for each owner whose partitions are WARN, STALL or STOP, with the reason of the first of them."""
    concerned: dict[tuple[LagStatus, bool, str], list[TopicPartition]] = {}
    for partition, evaluated in sorted(lag.partitions.items()):
        if evaluated.status in _NEXT:
            key = (evaluated.status, evaluated.lag is None, evaluated.newest.owner or "")
            concerned.setdefault(key, []).append(partition)
    for (status, without_commit, owner), partitions in sorted(concerned.items(), key=lambda item: -item[0][0].severity):
        owned = f"; its owner is {owner}" if owner else ""
        evidence = f"status {status.value}; {partitions[0]}: {lag.partitions[partitions[0]].reason}{owned}"
        kind = NO_COMMIT if without_commit else status.value.lower()
        yield Finding(kind, format_partitions(partitions), evidence, CHECK_COMMITS if without_commit else _NEXT[status])


def with_lag_findings(findings: Iterable[Finding], lag: GroupLag) -> list[Finding]:
    """What one look has found, and :func:`explain_lag`, which knows for how long nothing has been committed."""
    lasting = list(explain_lag(lag))
    is_known = any(finding.kind == NO_COMMIT for finding in lasting)
    return [*(finding for finding in findings if not (is_known and finding.kind == NO_COMMIT)), *lasting]
