"""Findings that one look at a group cannot make: offsets that do not move, or too slowly, as its status has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.finding import Finding
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus

LOOK_AT_PROCESS: Final = (
    "look at the member's process: its log, its CPU time, and where its threads wait (py-spy dump --pid PID, or jstack "
    "PID of a JVM)"
)

_NEXT: Final = {
    LagStatus.WARN: f"{LOOK_AT_PROCESS}; if it works at its limit, start more members, or add partitions",
    LagStatus.STALL: f"{LOOK_AT_PROCESS}; it hangs, or commits more rarely than the samples cover",
    LagStatus.STOP: "see the other findings; restart the members that should own the partitions",
}


def explain_lag(lag: GroupLag) -> Iterator[Finding]:
    """A finding for each owner whose partitions are WARN, STALL or STOP, with the reason of the first of them."""
    concerned: dict[tuple[LagStatus, str], list[TopicPartition]] = {}
    for partition, evaluated in sorted(lag.partitions.items()):
        if evaluated.status in _NEXT:
            concerned.setdefault((evaluated.status, evaluated.newest.owner or ""), []).append(partition)
    for (status, owner), partitions in sorted(concerned.items(), key=lambda item: -item[0][0].severity):
        owned = f"; its owner is {owner}" if owner else ""
        evidence = f"status {status.value}; {partitions[0]}: {lag.partitions[partitions[0]].reason}{owned}"
        yield Finding(status.value.lower(), format_partitions(partitions), evidence, _NEXT[status])
