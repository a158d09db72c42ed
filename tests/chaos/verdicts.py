"""Verdicts: what a trial left to be judged, and what members of ours may never do, whatever the row. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.kinds import OURS, ZOOKEEPER
from tests.chaos.schedule import ERASING
from zkconsumer.model import TopicPartition
from zkconsumer.testing.checker import Duplicate, Findings, MovedBack
from zkconsumer.testing.ledger import Faulted, Gone, Ledger, Produced, Stalled

_LONGEST_START_S: Final = 12.0
"""Of a broker that is killed and started; with nothing else on the machine it takes 4 to 6 s."""
_DISTURBING: Final = 0.5
"""Part of the session timeout: a process that is not run for longer may lose its session, or be late."""

_NOTICED_S: Final = 3.0
"""Members read the topics each second, and twice if brokers may disagree."""

_STOPPING_ZOOKEEPER: Final = frozenset({"servers", "zookeeper", "ensemble"})

Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a trial left to be judged.

    Attributes:
        ledger: of the trial.
        findings: of the checker.
        ours: consumer ids of the members that are ours; others are JVMs, which do as they please.
        timeout: session timeout in seconds.
        manual: True if members committed explicitly.
        kind: of the members that are ours.
    """

    ledger: Ledger
    findings: Findings
    ours: frozenset[str]
    timeout: float
    manual: bool
    kind: str = OURS

    @property
    def faults(self) -> tuple[Faulted, ...]:
        """What was done, in order."""
        return self.ledger.of(Faulted)


@dataclass(slots=True)
class Verdict:
    """The result of a trial.

    Attributes:
        failures: why it failed, empty if it passed.
        figures: what was measured.
        disturbance: what the machine did to it besides the schedule, empty if nothing was noticed. Of a trial that was
            disturbed, failures show nothing: sessions may have ended that no fault has ended.
    """

    failures: list[str] = field(default_factory=list)
    figures: Figures = field(default_factory=dict)
    disturbance: str = ""

    def require(self, holds: bool, failure: str) -> None:
        """Fail unless a condition holds."""
        if not holds:
            self.failures.append(failure)

    def measure(self, name: str, seconds: float | None) -> None:
        """Keep the largest of the figures of one name."""
        former = self.figures.get(name)
        if seconds is not None and (former is None or seconds > former):
            self.figures[name] = round(seconds, 3) if math.isfinite(seconds) else seconds


def disturbance_of(evidence: Evidence) -> str:
    """Signs that the machine was busy with something else: what was late that no fault had stopped, if that matters."""
    starts = [
        fault.established - fault.began for fault in evidence.faults if fault.kind == "broker" and fault.established
    ]
    if max(starts, default=0.0) > _LONGEST_START_S:
        return f"a broker that was killed served again after {max(starts):.1f} s"
    paused = {fault.owner for fault in evidence.faults if fault.kind == "pause"}
    paused |= {ZOOKEEPER for fault in evidence.faults if fault.kind in _STOPPING_ZOOKEEPER}
    stalls = [one for one in evidence.ledger.of(Stalled) if one.owner not in paused]
    longest = max((one.ended - one.began for one in stalls), default=0.0)
    matters = longest >= _DISTURBING * evidence.timeout
    return f"a process of the trial was not run for {longest:.2f} s" if matters else ""


def _has_to_move_back(evidence: Evidence, moved: MovedBack) -> bool:
    """True if the broker has lost what had been consumed: the group continues with what is in its place.

    Each fault that loses records moves the offset of a partition back once; a topic that is created again may do so
    twice: 1. the position is beyond its log, so fetching continues at 0; 2. that is committed; 3. the member notices
    the new topic, and begins at 0 once more, since the offset of step 2 may be of another one in between.
    """
    faults = [one.kind for one in evidence.faults if one.kind in ERASING and one.began <= moved.commit.at]
    partition = TopicPartition(moved.commit.topic, moved.commit.partition)
    gone = {one.number for one in evidence.ledger.of(Gone)}
    lossy = any(one.number in gone and (one.topic, one.partition) == partition for one in evidence.ledger.of(Produced))
    former = [
        one
        for one in evidence.findings.moved_back
        if (one.commit.topic, one.commit.partition) == partition and one.commit.at < moved.commit.at
    ]
    return lossy and len(former) < len(faults) + faults.count("recreate")


def _may_be_of_an_earlier_topic(evidence: Evidence, twice: Duplicate) -> bool:
    """True if the next owner had to begin before a committed record, since its topic had just been created again.

    1. The position is beyond the new log, so fetching continues at 0; 2. that is committed before the member has
    noticed the new topic, and it is killed; 3. the next owner cannot know which topic the offset is of: it begins at 0.
    """
    created = [one for one in evidence.faults if one.kind == "recreate"]
    return any(one.began <= twice.first.at <= (one.established or one.ended) + _NOTICED_S for one in created)


def judge_always(evidence: Evidence, verdict: Verdict, *, overlaps: bool) -> None:
    """What members of ours may never do. What JVM members do is counted, and is no failure: they have no fences."""
    findings, ours = evidence.findings, evidence.ours
    foreign = {id(one.commit) for one in findings.foreign}
    known = [d for d in findings.duplicates if d.was_committed and d.again.owner in ours]
    committed = [d for d in known if not _may_be_of_an_earlier_topic(evidence, d)]
    overlapping = [one for one in findings.overlaps if one.late.owner in ours]
    # A commit that was not the owner's, by a JVM, may be above ours: then ours is right to move it back.
    # A session that never registered is taken for one of ours: no JVM member commits before it has.
    committers = ours | {""}
    permitted = [one for one in findings.moved_back if _has_to_move_back(evidence, one)]
    moved_back = [one for one in findings.moved_back if one not in permitted]
    back = [one for one in moved_back if one.commit.writer in committers and id(one.former) not in foreign]
    by_others = [one for one in findings.foreign if one.commit.writer in committers]
    verdict.figures |= {
        "produced": findings.produced,
        "lost": len(findings.lost),
        "duplicates": len(findings.duplicates),
        "duplicates of ours": sum(d.first.owner in ours for d in findings.duplicates),
        "committed duplicates": len(committed),
        "overlaps": len(overlapping),
        "stale commits": len(back) + len(by_others),
        "stale commits by JVMs": len(moved_back) + len(findings.foreign) - len(back) - len(by_others),
    }
    verdict.require(findings.produced > 0, "nothing was produced")
    for kind, found in {
        "records lost": findings.lost,
        "committed records delivered again": committed,
        "overlapping deliveries": overlapping if overlaps else (),
        "offsets moved back": back,
        "commits by others than the owner": by_others,
    }.items():
        if found:
            verdict.failures.append(f"{len(found)} {kind}: {found[0]}")
