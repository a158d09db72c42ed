"""WriteReport: what a command has written; and what the writers of both stores share while a group is held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.grouphold import GroupHold, NoHold, why_over
from zkconsumer.operate.offsets.writeplan import WritePlan


@dataclass(slots=True)
class WriteReport:
    """What a command wrote.

    Attributes:
        snapshot: the file that ``offsets restore`` takes; None if nothing was held.
        written: znodes, partitions whose offset in Kafka was committed, and files.
        not_written: what was planned and is known not to be written.
        unknown: what may be written or not, since the servers did not answer; it is read again by who resumes.
        faults: why something was not written, or is not as it was written; empty if all is well.
        warnings: what the operator should know.
        members: ids of members that registered under the hold.
    """

    snapshot: Path | None = None
    written: list[str] = field(default_factory=list)
    not_written: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)

    def leave_unknown(self, names: Sequence[str], done: str, reason: object) -> None:
        """Report that it is unknown whether these were ``done``: written, deleted."""
        self.faults.append(f"whether {name_some(names)} were {done} is unknown: {reason}")
        self.unknown += names

    @property
    def is_complete(self) -> bool:
        """True if everything that was planned is written, and was found so."""
        return not (self.faults or self.not_written or self.unknown)

    @property
    def is_void(self) -> bool:
        """True if nothing is written, for sure."""
        return not (self.written or self.unknown)


@dataclass(frozen=True, slots=True)
class UnderHold:
    """One group while it is held.

    Attributes:
        group: its name.
        plan: of the command.
        hold: of the group.
        report: takes what is written, and what is not.
        show_progress: called after each request.
    """

    group: str
    plan: WritePlan
    hold: GroupHold | NoHold
    report: WriteReport
    show_progress: Callable[[], None]

    def is_too_late(self, names: Sequence[str]) -> bool:
        """True if the hold has lasted too long for these writes, which are reported then."""
        if not self.hold.is_over:
            return False
        self.report.faults.append(f"{why_over(self.group)}; {self.plan.resume} with --long-hold")
        self.report.not_written += names
        return True


def name_in_kafka(group: str, partition: TopicPartition) -> str:
    """How a report names a group's offset of a partition in Kafka; that in ZooKeeper is named by its path."""
    return f"{partition} of group {group} in Kafka"
