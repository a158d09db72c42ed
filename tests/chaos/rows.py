"""The rows of docs/reliability.md: which faults each injects, and when a trial of it has passed. Pure."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.measures import seconds_until_delivered, seconds_until_reassigned, session_of, stale_deliveries
from tests.chaos.schedule import LEADER, Fault, Schedule, chance_of
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION
from zkconsumer.testing.checker import SLACK_S, Findings
from zkconsumer.testing.ledger import Delivered, Faulted, Ledger, Produced, SessionEnded, Stalled

SESSION_S: Final = 2.0
"""The session timeout of all members, T."""

_LEASE: Final = 0.8
"""Part of the session timeout after which a member that hears nothing hands out nothing more."""

_RESTART_SLACK_S: Final = 6.0
"""Of a server that was started again: a broker loads its logs and elects leaders, clients connect after a pause."""

_DISTURBING: Final = 0.5
"""Part of the session timeout: a process that is not run for longer may lose its session, or be late."""

OURS: Final = "zkconsumer"
COORDINATED: Final = "coordinator"
"""Ours with ``group.protocol=coordinator``."""
IN_BROKERS: Final = "kafka"
"""Ours with ``group.protocol=kafka``."""
ASSIGNED_BY_BROKERS: Final = "consumer"
"""Ours with ``group.protocol=consumer``."""
JVM: Final = "jvm"

OF_BROKERS: Final = frozenset({IN_BROKERS, ASSIGNED_BY_BROKERS})
"""Members of groups that brokers coordinate."""

HEARTBEAT_S: Final = SESSION_S / 6
"""Their interval of heartbeats."""

ZOOKEEPER: Final = "ZooKeeper"
"""In place of the owner in what is recorded of its server."""

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


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table.

    Attributes:
        name: of the row.
        fault: what is done, for the table.
        criterion: when a trial has passed, for the table.
        plan: makes the faults for some kinds of members.
        judge: adds to the verdict what the row alone requires.
        judges_overlap: True if no delivery may overlap another member's ownership.
        manual: True if members commit explicitly.
        ours: kind of the members, unless a schedule is made for another one.
        kafka_version: of the broker.
    """

    name: str
    fault: str
    criterion: str
    plan: Callable[[random.Random, tuple[str, ...], float], tuple[Fault, ...]]
    judge: Callable[[Evidence, Verdict], None]
    judges_overlap: bool = True
    manual: bool = False
    ours: str = OURS
    kafka_version: str = DEFAULT_KAFKA_VERSION

    def schedule(
        self, seed: int, *, jvm: bool = False, ours: str = "", storage: str = "zookeeper", timeout: float = SESSION_S
    ) -> Schedule:
        """The schedule of a seed; with ``jvm`` one of the members is a JVM, the others are of the kind ``ours``.

        A JVM consumer of ZooKeeper's is never in a group that brokers coordinate, whose offsets are always in Kafka.
        """
        ours = ours or self.ours
        jvm, storage = (False, "kafka") if ours in OF_BROKERS else (jvm, storage)
        members = (ours, ours, JVM if jvm else ours)
        faults = self.plan(chance_of(f"{self.name}{'+jvm' if jvm else ''}", seed), members, timeout)
        return Schedule(members, faults, self.manual, storage)

    def verdict(self, evidence: Evidence) -> Verdict:
        """Judge a trial."""
        verdict = Verdict(disturbance=_disturbance(evidence))
        _judge_always(evidence, verdict, overlaps=self.judges_overlap)
        self.judge(evidence, verdict)
        return verdict


def _disturbance(evidence: Evidence) -> str:
    """The longest time for which a process was not run that no fault had stopped, if that matters."""
    paused = {fault.owner for fault in evidence.faults if fault.kind == "pause"}
    paused |= {ZOOKEEPER for fault in evidence.faults if fault.kind == "servers"}
    stalls = [one for one in evidence.ledger.of(Stalled) if one.owner not in paused]
    longest = max((one.ended - one.began for one in stalls), default=0.0)
    matters = longest >= _DISTURBING * evidence.timeout
    return f"a process of the trial was not run for {longest:.2f} s" if matters else ""


def _judge_always(evidence: Evidence, verdict: Verdict, *, overlaps: bool) -> None:
    """What members of ours may never do. What JVM members do is counted, and is no failure: they have no fences."""
    findings, ours = evidence.findings, evidence.ours
    foreign = {id(one.commit) for one in findings.foreign}
    committed = [d for d in findings.duplicates if d.was_committed and d.again.owner in ours]
    overlapping = [one for one in findings.overlaps if one.late.owner in ours]
    # A commit that was not the owner's, by a JVM, may be above ours: then ours is right to move it back.
    # A session that never registered is taken for one of ours: no JVM member commits before it has.
    committers = ours | {""}
    back = [one for one in findings.moved_back if one.commit.writer in committers and id(one.former) not in foreign]
    by_others = [one for one in findings.foreign if one.commit.writer in committers]
    verdict.figures |= {
        "produced": findings.produced,
        "lost": len(findings.lost),
        "duplicates": len(findings.duplicates),
        "duplicates of ours": sum(d.first.owner in ours for d in findings.duplicates),
        "committed duplicates": len(committed),
        "overlaps": len(overlapping),
        "stale commits": len(back) + len(by_others),
        "stale commits by JVMs": len(findings.moved_back) + len(findings.foreign) - len(back) - len(by_others),
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


# -- plans -------------------------------------------------------------------------------------------------------------


def _one_of_ours(chance: random.Random, members: tuple[str, ...]) -> int:
    return chance.choice([place for place, kind in enumerate(members) if kind != JVM])


def _plan_kill(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    return (Fault("kill", chance.uniform(0.3, 2.5), chance.randrange(len(members))),)


def _plan_expiry(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    return (Fault("expire", chance.uniform(0.3, 2.5), _one_of_ours(chance, members)),)


def _plan_outage(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    seconds = chance.uniform(0.2, 5.0) * timeout
    mode = chance.choice(["cut", "refuse"])
    way = "fetching" if members[0] in OF_BROKERS else "network"
    return (Fault(way, chance.uniform(0.3, 2.0), _one_of_ours(chance, members), seconds, mode),)


def _plan_pause(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    seconds = chance.uniform(1.5, 3.0) * timeout
    return (Fault("pause", chance.uniform(0.3, 2.0), _one_of_ours(chance, members), seconds),)


def _plan_rolling(mode: str) -> Callable[[random.Random, tuple[str, ...], float], tuple[Fault, ...]]:
    def plan(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
        order = chance.sample(range(len(members)), len(members))
        at, faults = chance.uniform(0.3, 1.5), []
        for place in order:
            faults.append(Fault("bounce", at, place, mode=mode))
            at += chance.uniform(0.2, 1.0)
        return tuple(faults)

    return plan


def _plan_churn(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """Members join, leave, are killed and are stopped, without a break; where there is a leader, often it."""
    leads = COORDINATED in members
    faults, at = [], 0.3
    for _ in range(chance.randint(6, 9)):
        anyone, ours = chance.randrange(len(members)), _one_of_ours(chance, members)
        if leads and chance.random() < 1 / 3:
            anyone = ours = LEADER
        fault = chance.choice(
            [
                Fault("kill", at, anyone, chance.uniform(0.5, 2.0) * timeout),
                Fault("leave", at, anyone, chance.uniform(0.1, 1.5) * timeout),
                Fault("join", at, seconds=chance.uniform(0.2, 2.0) * timeout, mode=members[0]),
                Fault("pause", at, ours, chance.uniform(0.2, 2.5) * timeout),
            ]
        )
        faults.append(fault)
        at = fault.until + chance.uniform(0.0, 1.5)
    return tuple(faults)


def _plan_restarts(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """The server that coordinates the group is killed or stopped, and started again, once or twice."""
    kind = "broker" if members[0] in OF_BROKERS else "zookeeper"
    faults, at = [], chance.uniform(0.3, 1.5)
    for _ in range(chance.randint(1, 2)):
        faults.append(Fault(kind, at, mode=chance.choice(["clean", "hard"])))
        at += chance.uniform(4.0, 7.0)
    return tuple(faults)


_SLOWED: Final = ("half-close", "delay", "throttle", "overtake")


def _plan_mixed(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """Several faults of all kinds, that may overlap."""
    faults, at = [], 0.3
    for _ in range(chance.randint(4, 7)):
        at += chance.uniform(0.2, 2.0)
        ours = _one_of_ours(chance, members)
        faults.append(
            chance.choice(
                [
                    Fault("kill", at, chance.randrange(len(members)), chance.uniform(0.5, 4)),
                    Fault("expire", at, ours),
                    Fault("network", at, ours, chance.uniform(0.2, 3) * timeout, chance.choice(["cut", "refuse"])),
                    Fault("network", at, ours, chance.uniform(0.5, 3), chance.choice(_SLOWED)),
                    Fault("fetching", at, ours, chance.uniform(0.5, 4), chance.choice(["cut", "refuse", *_SLOWED])),
                    Fault("clock", at, ours, mode=chance.choice(["forward", "back", "suspend"])),
                    Fault("pause", at, ours, chance.uniform(0.2, 2.5) * timeout),
                    Fault("grow", at),
                    Fault("trim", at),
                    Fault("broker", at, mode=chance.choice(["clean", "hard"])),
                    Fault("servers", at, seconds=chance.uniform(0.2, 2) * timeout),
                ]
            )
        )
    return _without_conflicts(faults)


def _plan_in_brokers(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """What happens to members of a group that brokers coordinate, in random order."""
    faults: list[Fault] = []
    at = 0.3
    for _ in range(chance.randint(5, 9)):
        at += chance.uniform(0.2, 2.5)
        place = chance.randrange(len(members))
        faults.append(
            chance.choice(
                [
                    Fault("join", at, -2 - len(faults), chance.uniform(1.0, 6.0), members[0]),
                    Fault("kill", at, place, chance.uniform(0.5, 4)),
                    Fault("pause", at, place, chance.uniform(0.2, 2.5) * timeout),
                    Fault("fetching", at, place, chance.uniform(0.2, 3) * timeout, chance.choice(["cut", "refuse"])),
                    Fault("fetching", at, place, chance.uniform(0.5, 3), chance.choice(_SLOWED)),
                    Fault("broker", at, mode=chance.choice(["clean", "hard"])),
                    Fault("grow", at),
                ]
            )
        )
    return _without_conflicts(faults)


_NEED_ZOOKEEPER: Final = frozenset({"broker", "expire", "grow", "trim", "servers"})


def _without_conflicts(faults: list[Fault]) -> tuple[Fault, ...]:
    """No second fault while the process of a member is stopped or gone, and no broker twice.

    Nor is anything that waits for ZooKeeper begun while it is paused: the injector would wait for it, and nobody else
    would let it continue.
    """
    kept: list[Fault] = []
    for fault in faults:
        paused = any(one.kind == "servers" and fault.at < one.until for one in kept)
        if paused and fault.kind in _NEED_ZOOKEEPER:
            continue
        busy = [one for one in kept if one.member == fault.member and fault.at < one.until + 2.0]
        if fault.kind in ("grow", "trim", "servers") or not busy:
            kept.append(fault)
    return tuple(kept)


# -- what the rows require ---------------------------------------------------------------------------------------------


def _judge_kill(evidence: Evidence, verdict: Verdict) -> None:
    for fault in evidence.faults:
        _measure_recovery(evidence, verdict, fault.owner, fault.began)
    reassigned = verdict.figures.get("reassigned")
    heartbeats = 2 * HEARTBEAT_S if evidence.kind in OF_BROKERS else 0.0
    verdict.require(
        reassigned is None or reassigned <= evidence.timeout + heartbeats + 3.0,
        f"partitions were reassigned after {reassigned} s",
    )


def _judge_expiry(evidence: Evidence, verdict: Verdict) -> None:
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


def _judge_restart(evidence: Evidence, verdict: Verdict) -> None:
    """Every partition delivers again soon after the server serves again: after it takes records, if it is a broker.

    A start takes so long on a busy machine that the next fault may come at once; then the last of them is judged.
    """
    limit = 2 * evidence.timeout + _RESTART_SLACK_S
    following = [fault.began for fault in evidence.faults[1:]] + [math.inf]
    for fault, next_began in zip(evidence.faults, following, strict=True):
        if next_began < fault.ended + limit:
            continue
        produced = [one.at for one in evidence.ledger.of(Produced) if one.at >= fault.ended]
        since = min(produced, default=fault.ended)
        firsts = [
            next((one.at for one in deliveries if one.at >= since), None)
            for deliveries in evidence.ledger.deliveries.values()
        ]
        known = [at for at in firsts if at is not None]
        if len(known) == len(firsts) and known:
            verdict.measure("delivering", max(known) - since)
    recovered = verdict.figures.get("delivering")
    verdict.require(recovered is None or recovered <= limit, f"all partitions delivered again after {recovered} s")


def _judge_outage(evidence: Evidence, verdict: Verdict) -> None:
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


def _judge_pause(evidence: Evidence, verdict: Verdict) -> None:
    for fault in evidence.faults:
        late = [one for one in evidence.findings.overlaps if one.late.owner == fault.owner]
        again = [one for one in evidence.findings.duplicates if one.again.owner == fault.owner]
        verdict.measure("delivered late", len(late))
        verdict.measure("delivered again by the paused member", len(again))
        _measure_recovery(evidence, verdict, fault.owner, fault.began)
        # What is handed out together is of one partition; the members have one stream each.
        partitions = sorted({one.late.partition for one in late})
        verdict.require(len(partitions) <= 1, f"{len(late)} records of partitions {partitions} were delivered late")


def _judge_churn(evidence: Evidence, verdict: Verdict) -> None:
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


def _judge_in_brokers(evidence: Evidence, verdict: Verdict) -> None:
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


def _judge_clean_bounce(evidence: Evidence, verdict: Verdict) -> None:
    again = [one for one in evidence.findings.duplicates if one.first.owner in evidence.ours]
    verdict.require(not again, f"{len(again)} duplicates: {[str(one) for one in again[:1]]}")


def _judge_nothing(evidence: Evidence, verdict: Verdict) -> None:
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


ROWS: Final[Mapping[str, Row]] = {
    row.name: row
    for row in (
        Row(
            "R1",
            "kill -9 of a random member",
            "lost 0; duplicates only of uncommitted records; reassigned within T + 3 s",
            _plan_kill,
            _judge_kill,
        ),
        Row(
            "R2",
            "real session expiry",
            "lost 0; no delivery after the lease until owned again; owned again within 2 s",
            _plan_expiry,
            _judge_expiry,
            judges_overlap=False,
        ),
        Row(
            "R3",
            "ZooKeeper unreachable for one member, 0.2-5 T",
            "delivery stops within 0.8 T after the last contact; overlaps 0; lost 0",
            _plan_outage,
            _judge_outage,
        ),
        Row(
            "R4",
            "SIGSTOP longer than T",
            "lost 0; stale commits 0; at most one batch in flight of a stream delivered late",
            _plan_pause,
            _judge_pause,
            judges_overlap=False,
        ),
        Row(
            "R5",
            "the server that coordinates the group is killed or stopped, and started again, once or twice",
            "lost 0; no offset moves back; every partition delivers within 2 T + 6 s after the server serves",
            _plan_restarts,
            _judge_restart,
            judges_overlap=False,
        ),
        Row(
            "R7-clean",
            "rolling bounce, clean, manual commit",
            "lost 0; duplicates 0",
            _plan_rolling("clean"),
            _judge_clean_bounce,
            manual=True,
        ),
        Row("R7-hard", "rolling bounce, hard", "lost 0", _plan_rolling("hard"), _judge_nothing),
        Row(
            "R8",
            "members join, leave, are killed and are stopped, one after the other",
            "lost 0; stale commits 0; overlaps only of one batch in flight at each stop",
            _plan_churn,
            _judge_churn,
            judges_overlap=False,
        ),
        Row(
            "MIX",
            "several faults of all kinds at once",
            "lost 0; stale commits 0",
            _plan_mixed,
            _judge_nothing,
            judges_overlap=False,
        ),
        Row(
            "KAFKA",
            "group.protocol=kafka: joins, kills, pauses, slow and cut connections, restarts of the broker",
            "lost 0; overlaps 0, but for at most one batch in flight of a process that was stopped; stale commits 0",
            _plan_in_brokers,
            _judge_in_brokers,
            judges_overlap=False,
            ours=IN_BROKERS,
        ),
        Row(
            "CONSUMER",
            "group.protocol=consumer: the same, with a broker of Kafka 4.2",
            "as KAFKA",
            _plan_in_brokers,
            _judge_in_brokers,
            judges_overlap=False,
            ours=ASSIGNED_BY_BROKERS,
            kafka_version="4.2.0",
        ),
    )
}
