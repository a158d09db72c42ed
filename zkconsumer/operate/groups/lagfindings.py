"""Findings that one look at a group cannot make: offsets that do not move, or too slowly, as its status has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from zkconsumer.errors import name_some
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.finding import Finding, utc_time
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus

LOOK_AT_PROCESS: Final = (
    "look at the member's process: its log, its CPU time, and where its threads wait (py-spy dump --pid PID, or jstack "
    "PID of a JVM)"
)

NO_MEMBER: Final = "no-member"
"""The kind of a finding: the group has no members."""

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


def with_lag_findings(
    findings: Iterable[Finding], lag: GroupLag, left: Iterable[tuple[int, Collection[str]]] = ()
) -> list[Finding]:
    """What one look has found, and :func:`explain_lag`, which knows for how long nothing has been committed.

    Args:
        findings: of one look.
        lag: what the samples show.
        left: members that left, and when, in ms since the epoch, oldest first; the last of them are named where there
            is no member.
    """
    lasting = list(explain_lag(lag))
    is_known = any(finding.kind == NO_COMMIT for finding in lasting)
    last = next((one for one in reversed([*left]) if one[1]), None)
    named = (
        one
        if last is None or one.kind != NO_MEMBER
        else one._replace(evidence=f"{one.evidence}; {_last_members(*last)}")
        for one in findings
    )
    return [*(finding for finding in named if not (is_known and finding.kind == NO_COMMIT)), *lasting]


def _last_members(at_ms: int, members: Collection[str]) -> str:
    are_several = len(members) > 1
    return f"the last member{'s' if are_several else ''} {name_some(members)} left before {utc_time(at_ms)}"
