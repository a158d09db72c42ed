"""Judgements: what each row requires of its trials besides what holds always. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.chaos.kinds import HEARTBEAT_S, OF_BROKERS
from tests.chaos.measures import (
    longest_wait,
    seconds_until_delivered,
    seconds_until_reassigned,
    session_of,
    stale_deliveries,
)
from tests.chaos.verdicts import Evidence, Verdict
from zkconsumer.model import TopicPartition
from zkconsumer.testing.checker import SLACK_S
from zkconsumer.testing.ledger import Delivered, Done, Gone, Produced, SessionEnded

_LEASE: Final = 0.8
"""Part of the session timeout after which a member that hears nothing hands out nothing more."""

_STUCK_S: Final = 30.0

_RESTART_SLACK_S: Final = 6.0
"""Of a server that was started again: a broker loads its logs and elects leaders, clients connect after a pause."""


def judge_kill(evidence: Evidence, verdict: Verdict) -> None:
    for fault in evidence.faults:
        _measure_recovery(evidence, verdict, fault.owner, fault.began)
    reassigned = verdict.figures.get("reassigned")
    heartbeats = 2 * HEARTBEAT_S if evidence.kind in OF_BROKERS else 0.0
    verdict.require(
        reassigned is None or reassigned <= evidence.timeout + heartbeats + 3.0,
        f"partitions were reassigned after {reassigned} s",
    )


def judge_expiry(evidence: Evidence, verdict: Verdict) -> None:
    for fault in evidence.faults:
        # A coordinator appends the group to its log when the others have joined again; the member was removed before.
        in_brokers = evidence.kind in OF_BROKERS
        until = math.inf if in_brokers else fault.ended + SLACK_S
        ended = [
            fault.ended if in_brokers else one.at
            for one in evidence.ledger.of(SessionEnded)
            if one.owner == fault.owner and fault.began - SLACK_S <= one.at <= until
        ]
        verdict.require(bool(ended), "the session did not end")
        for at in ended[:1]:
            _measure_recovery(evidence, verdict, fault.owner, at)
            deadline = at + _LEASE * evidence.timeout
            _require_silence(evidence, verdict, fault.owner, since=at, deadline=deadline)
    reassigned = verdict.figures.get("reassigned")
    verdict.require(reassigned is None or reassigned <= 2.0, f"partitions were owned again after {reassigned} s")


def judge_restart(evidence: Evidence, verdict: Verdict) -> None:
    """Every partition delivers again soon after the server serves again: after it takes records, if it is a broker.

    A start takes so long on a busy machine that the next fault may come at once; then the last of them is judged.
    """
    limit = 2 * evidence.timeout + _RESTART_SLACK_S
    following = [fault.began for fault in evidence.faults[1:]] + [math.inf]
    for fault, next_began in zip(evidence.faults, following, strict=True):
        serves = fault.ended if fault.established is None else fault.established
        if next_began < serves + limit:
            continue
        produced = [one.at for one in evidence.ledger.of(Produced) if one.at >= serves]
        since = min(produced, default=serves)
        firsts = [
            next((one.at for one in deliveries if one.at >= since), None)
            for deliveries in evidence.ledger.deliveries.values()
        ]
        known = [at for at in firsts if at is not None]
        if len(known) == len(firsts) and known:
            verdict.measure("delivering", max(known) - since)
    recovered = verdict.figures.get("delivering")
    verdict.require(recovered is None or recovered <= limit, f"all partitions delivered again after {recovered} s")


def judge_outage(evidence: Evidence, verdict: Verdict) -> None:
    for fault in evidence.faults:
        # Before that ZooKeeper can answer once more, and as soon as the fault is being lifted it can answer again.
        established = fault.began if fault.established is None else fault.established
        until = fault.ended if fault.lifting is None else fault.lifting
        deadline = established + _LEASE * evidence.timeout + SLACK_S
        _require_silence(evidence, verdict, fault.owner, since=established, deadline=deadline, until=until)
        if until > deadline:
            last = max(
                (
                    one.at
                    for one in evidence.ledger.of(Delivered)
                    if one.owner == fault.owner and one.at <= until and one.asked <= deadline
                ),
                default=fault.began,
            )
            verdict.measure("stopped after (T)", (last - fault.began) / evidence.timeout)
        if fault.ended - fault.began > 1.25 * evidence.timeout:
            _measure_recovery(evidence, verdict, fault.owner, fault.began)


def judge_pause(evidence: Evidence, verdict: Verdict) -> None:
    for fault in evidence.faults:
        late = [one for one in evidence.findings.overlaps if one.late.owner == fault.owner]
        again = [one for one in evidence.findings.duplicates if one.again.owner == fault.owner]
        verdict.measure("delivered late", len(late))
        verdict.measure("delivered again by the paused member", len(again))
        _measure_recovery(evidence, verdict, fault.owner, fault.began)
        # What is handed out together is of one partition; the members have one stream each.
        partitions = sorted({one.late.partition for one in late})
        verdict.require(len(partitions) <= 1, f"{len(late)} records of partitions {partitions} were delivered late")


def judge_churn(evidence: Evidence, verdict: Verdict) -> None:
    """Overlaps are what was in flight of one stream at each pause."""
    pauses = Counter(fault.owner for fault in evidence.faults if fault.kind == "pause")
    late: dict[str, set[TopicPartition]] = {}
    for one in evidence.findings.overlaps:
        late.setdefault(one.late.owner, set()).add(TopicPartition(one.late.topic, one.late.partition))
    for owner in sorted(late.keys() & evidence.ours):
        partitions = ", ".join(map(str, sorted(late[owner])))
        verdict.require(
            len(late[owner]) <= pauses[owner], f"{owner}, stopped {pauses[owner]} times, delivered {partitions} late"
        )


def judge_in_brokers(evidence: Evidence, verdict: Verdict) -> None:
    """A process that is stopped may hand out what it had in hand when it continues; no other delivery may overlap."""
    stopped = {one.owner for one in evidence.faults if one.kind == "pause"}
    certain = [one for one in evidence.findings.overlaps if one.late.owner not in stopped]
    verdict.require(not certain, f"{len(certain)} overlapping deliveries: {[str(one) for one in certain[:1]]}")
    for fault in evidence.faults:
        if fault.kind == "kill":
            _measure_recovery(evidence, verdict, fault.owner, fault.began)
        if fault.kind == "pause":
            late = [one.late for one in evidence.findings.overlaps if one.late.owner == fault.owner]
            partitions = sorted({one.partition for one in late})
            verdict.measure("delivered late", len(late))
            verdict.require(len(partitions) <= 1, f"{len(late)} records of partitions {partitions} were delivered late")


def judge_clean_bounce(evidence: Evidence, verdict: Verdict) -> None:
    """No duplicates between members of ours: a JVM reads offsets before it claims (jvm-consumer.md#defects)."""
    again = [one for one in evidence.findings.duplicates if {one.first.owner, one.again.owner} <= evidence.ours]
    verdict.require(not again, f"{len(again)} duplicates: {[str(one) for one in again[:1]]}")


def judge_done(evidence: Evidence, verdict: Verdict) -> None:
    """No commit covers what was not done, and in the end everything is: what a killed member held comes again."""
    done = {one.number for one in evidence.ledger.of(Done)}
    finished = {(one.owner, one.number) for one in evidence.ledger.of(Done)}
    delivered = {(one.owner, one.number) for one in evidence.ledger.of(Delivered)}
    never = {number for _, number in delivered} - done
    late = sum(before.offset > after.offset for before, after in _follow_each_other(evidence.ledger.of(Done)))
    verdict.figures |= {
        "committed early": len(evidence.findings.early),
        "never done": len(never),
        "done out of order": late,
        "unfinished by one that was killed": len(delivered - finished),
    }
    early = evidence.findings.early
    verdict.require(not early, f"{len(early)} commits of what was not done: {[str(one) for one in early[:1]]}")
    verdict.require(not never, f"{len(never)} records were handed out and never done: {sorted(never)[:3]}")
    verdict.require(late > 0, "no record was done out of order")


def _follow_each_other(done: tuple[Done, ...]) -> Iterator[tuple[Done, Done]]:
    """What each member has done of each partition, each with the next."""
    last: dict[tuple[str, str, int], Done] = {}
    for one in sorted(done, key=lambda one: one.at):
        place = (one.owner, one.topic, one.partition)
        if place in last:
            yield last[place], one
        last[place] = one


def judge_progress(evidence: Evidence, verdict: Verdict) -> None:
    """No partition is stuck. What retention and unclean elections have removed is counted, and is no failure."""
    delivered = {one.number for one in evidence.ledger.of(Delivered)}
    gone = {one.number for one in evidence.ledger.of(Gone)}
    undelivered = (
        {one.number for one in evidence.ledger.of(Produced)}
        - delivered
        - {one.number for one in evidence.findings.lost}
    )
    verdict.figures |= {
        "gone": len(gone),
        "gone undelivered": len(undelivered & gone),
        "removed undelivered": len(undelivered - gone),
    }
    waited = longest_wait(evidence.ledger, min((fault.began for fault in evidence.faults), default=0.0))
    verdict.measure("waited", waited)
    verdict.require(waited <= _STUCK_S, f"a partition that had records delivered none for {waited:.1f} s")


def judge_nothing(evidence: Evidence, verdict: Verdict) -> None:
    """What holds always is all that is required."""


def _measure_recovery(evidence: Evidence, verdict: Verdict, owner: str, since: float) -> None:
    session = session_of(evidence.ledger, owner, since)
    verdict.measure("reassigned", seconds_until_reassigned(evidence.ledger, session, since))
    delivering = seconds_until_delivered(evidence.ledger, session, since)
    # Infinite if a partition had no record left to deliver: a record that is lost is found in any case.
    verdict.measure("delivering", delivering if delivering is not None and math.isfinite(delivering) else None)


def _require_silence(
    evidence: Evidence, verdict: Verdict, owner: str, *, since: float, deadline: float, until: float = math.inf
) -> None:
    stale = stale_deliveries(evidence.ledger, owner, since=since, deadline=deadline, until=until)
    verdict.figures["delivered without a lease"] = len(stale)
    late = [round(one.asked - deadline, 3) for one in stale[:1]]
    verdict.require(not stale, f"{len(stale)} records were delivered up to {late} s after the lease had ended")
