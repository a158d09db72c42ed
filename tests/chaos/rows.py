"""The rows of docs/reliability.md: which faults each injects, and when a trial of it has passed. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.chaos.judgements import (
    judge_churn,
    judge_clean_bounce,
    judge_done,
    judge_expiry,
    judge_in_brokers,
    judge_kill,
    judge_nothing,
    judge_outage,
    judge_pause,
    judge_progress,
    judge_restart,
)
from tests.chaos.kinds import ASSIGNED_BY_BROKERS, IN_BROKERS, JVM, OF_BROKERS, OURS, SESSION_S
from tests.chaos.plans import (
    plan_churn,
    plan_done,
    plan_expiry,
    plan_in_brokers,
    plan_kill,
    plan_leaders,
    plan_mixed,
    plan_outage,
    plan_pause,
    plan_quorum,
    plan_restarts,
    plan_rolling,
    plan_sequences,
)
from tests.chaos.schedule import Fault, Schedule, chance_of
from tests.chaos.verdicts import Evidence, Verdict, disturbance_of, judge_always
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION

_FEW: Final = 50


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
        done: True if commits cover what the members have declared done, out of order; there is no JVM member then.
        ours: kind of the members, unless a schedule is made for another one.
        kafka_version: of the brokers.
        brokers: their number.
        zookeepers: number of ZooKeeper's servers.
        per_second: records that are produced: where it is judged how long partitions wait, few enough for one member
            that is alone on a busy machine. What is there at the beginning is ten times that.
    """

    name: str
    fault: str
    criterion: str
    plan: Callable[[random.Random, tuple[str, ...], float], tuple[Fault, ...]]
    judge: Callable[[Evidence, Verdict], None]
    judges_overlap: bool = True
    manual: bool = False
    done: bool = False
    ours: str = OURS
    kafka_version: str = DEFAULT_KAFKA_VERSION
    brokers: int = 1
    zookeepers: int = 1
    per_second: int = 150

    def schedule(
        self, seed: int, *, jvm: bool = False, ours: str = "", storage: str = "zookeeper", timeout: float = SESSION_S
    ) -> Schedule:
        """The schedule of a seed; with ``jvm`` one of the members is a JVM, the others are of the kind ``ours``.

        A JVM consumer of ZooKeeper's is never in a group that brokers coordinate, whose offsets are always in Kafka.
        Nor is it where records are declared done, which it cannot do.
        """
        ours = ours or self.ours
        jvm, storage = (False, "kafka") if ours in OF_BROKERS else (jvm and not self.done, storage)
        members = (ours, ours, JVM if jvm else ours)
        faults = self.plan(chance_of(f"{self.name}{'+jvm' if jvm else ''}", seed), members, timeout)
        return Schedule(members, faults, self.manual, storage, self.done)

    def verdict(self, evidence: Evidence) -> Verdict:
        """Judge a trial."""
        verdict = Verdict(disturbance=disturbance_of(evidence))
        judge_always(evidence, verdict, overlaps=self.judges_overlap)
        self.judge(evidence, verdict)
        return verdict


ROWS: Final[Mapping[str, Row]] = {
    row.name: row
    for row in (
        Row(
            "R1",
            "kill -9 of a random member",
            "lost 0; duplicates only of uncommitted records; reassigned within T + 3 s",
            plan_kill,
            judge_kill,
        ),
        Row(
            "R2",
            "real session expiry",
            "lost 0; no delivery after the lease until owned again; owned again within 2 s",
            plan_expiry,
            judge_expiry,
            judges_overlap=False,
        ),
        Row(
            "R3",
            "ZooKeeper unreachable for one member, 0.2-5 T",
            "delivery stops within 0.8 T after the last contact; overlaps 0; lost 0",
            plan_outage,
            judge_outage,
        ),
        Row(
            "R4",
            "SIGSTOP longer than T",
            "lost 0; stale commits 0; at most one batch in flight of a stream delivered late",
            plan_pause,
            judge_pause,
            judges_overlap=False,
        ),
        Row(
            "R5",
            "the server that coordinates the group is killed or stopped, and started again, once or twice",
            "lost 0; no offset moves back; every partition delivers within 2 T + 6 s after the server serves",
            plan_restarts,
            judge_restart,
            judges_overlap=False,
        ),
        Row(
            "R5-ensemble",
            "of three ZooKeeper servers the leader is killed, or all are restarted, once or twice",
            "lost 0; no offset moves back; every partition delivers within 2 T + 6 s after most servers serve",
            plan_quorum,
            judge_restart,
            judges_overlap=False,
            zookeepers=3,
            per_second=_FEW,
        ),
        Row(
            "R6",
            "leaders of three brokers stopped, killed and moved, records removed, unclean elections",
            "lost 0 of what a broker still has; no partition stuck for 30 s",
            plan_leaders,
            judge_progress,
            judges_overlap=False,
            brokers=3,
            per_second=_FEW,
        ),
        Row(
            "R7-clean",
            "rolling bounce, clean, manual commit",
            "lost 0; duplicates 0",
            plan_rolling("clean"),
            judge_clean_bounce,
            manual=True,
        ),
        Row("R7-hard", "rolling bounce, hard", "lost 0", plan_rolling("hard"), judge_nothing),
        Row(
            "R8",
            "members join, leave, are killed and are stopped, one after the other",
            "lost 0; stale commits 0; overlaps only of one batch in flight at each stop",
            plan_churn,
            judge_churn,
            judges_overlap=False,
        ),
        Row(
            "MIX",
            "several faults of all kinds at once",
            "lost 0; stale commits 0",
            plan_mixed,
            judge_nothing,
            judges_overlap=False,
        ),
        Row(
            "SEQ",
            "listeners that hang, commit or shut down; topics created again larger; silent brokers; leaders lost twice",
            "lost 0 of what a broker still has; stale commits 0; no partition stuck for 30 s",
            plan_sequences,
            judge_progress,
            judges_overlap=False,
            per_second=_FEW,
        ),
        Row(
            "DONE",
            "commit.on=done, 8 threads finish records out of order: kills, joins, pauses, expiries, outages, restarts",
            "lost 0; nothing is committed that its owner had not done; every record is done in the end",
            plan_done,
            judge_done,
            judges_overlap=False,
            done=True,
        ),
        Row(
            "KAFKA",
            "group.protocol=kafka: joins, kills, pauses, slow and cut connections, restarts of the broker",
            "lost 0; overlaps 0, but for at most one batch in flight of a process that was stopped; stale commits 0",
            plan_in_brokers,
            judge_in_brokers,
            judges_overlap=False,
            ours=IN_BROKERS,
        ),
        Row(
            "CONSUMER",
            "group.protocol=consumer: the same, with a broker of Kafka 4.2",
            "as KAFKA",
            plan_in_brokers,
            judge_in_brokers,
            judges_overlap=False,
            ours=ASSIGNED_BY_BROKERS,
            kafka_version="4.2.0",
        ),
    )
}
