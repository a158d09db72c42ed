"""How far a group of a fleet has come."""

import itertools
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.fixtures.judgedoffsets import judged
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.fleetfacts import FleetFacts, FleetState
from zkconsumer.operate.migrate.rules.fleetfile import FleetGroup, Window
from zkconsumer.operate.migrate.rules.fleetstate import in_file, judge, why_not_begun
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import (
    Guard,
    MigrationPlan,
    Observation,
    Place,
    PlannedPartition,
    make_plan,
    plan_of_existing,
)
from zkconsumer.operate.migrate.rules.migrationrecheck import lacks_mark_alone, recheck
from zkconsumer.operate.migrate.rules.planfile import plan_digest
from zkconsumer.operate.migrate.rules.waysback import decide_rollback, known_at_source, reverse_plan
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.wire.rules.describedgroup import KafkaGroup
from zkconsumer.zookeeper.rules.znodes import MigrationMark

T0, T1, BEYOND = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("new", 0)
VERBS = ("plan", "run", "verify", "rollback", "reverse", "mirror")
STABLE = KafkaGroup("Stable", "consumer", 1)
MARK = MigrationMark("migrated", "kafka:g", 1)
UNDOING = MigrationMark("undoing", "kafka:g", 1)
MARK_OF_OTHER, UNDOING_OF_OTHER = MARK._replace(plan="other"), UNDOING._replace(plan="other")
MARK_ELSEWHERE = MARK._replace(target="kafka:h")
OFFSETS = {T0: 4, T1: 7}
LATER = {T0: 4, T1: 8}
ZK = {"in_zookeeper": LATER}
GONE = {"in_zookeeper": {}}


def plan(*guards):
    rows = tuple(PlannedPartition(p, offset, None, offset, LogRange(0, 10)) for p, offset in OFFSETS.items())
    ends = (End("zookeeper", "g"), End("kafka", "g"))
    return MigrationPlan(*ends, Place("", None, None), "h", 1, "fail", None, rows, {}, guards)


PLAN_OF_EARLIER = replace(
    plan(), partitions=(PlannedPartition(T0, 5000, None, 10, LogRange(0, 10), is_outdated=True), plan().partitions[1])
)
"""The first offset of its source is of an earlier topic, and its target begins at the log end, as was asked for."""
PLAN_OF_DUAL_COMMIT = replace(plan(), partitions=tuple(replace(row, before=3) for row in plan().partitions))
BACK = reverse_plan(
    plan(),
    Observation(Place("", None, None), judged(LATER), judged(OFFSETS), dict.fromkeys(OFFSETS, LogRange(0, 10))),
    {},
    WriteState.COMPLETE,
    missing="fail",
    retention_ms=None,
    now_ms=1,
)
MIGRATING, UNDOING_OF_BACK = MARK._replace(state="migrating"), UNDOING._replace(plan=plan_digest(BACK))
BOTH = {"in_kafka": LATER, "in_zookeeper": LATER}


T5 = TopicPartition("t", 5)


def facts(run=WriteState.COMPLETE, **others):
    kafka = KafkaGroup("Empty", "", 0)
    known = {"mark": MARK, "in_kafka": OFFSETS, "kafka": kafka} if run else {}
    known |= {"back_plan": BACK, **BOTH} if "back" in others else {}
    return FleetFacts(**{"plan": plan(), "run": run, "in_zookeeper": OFFSETS, **known, **others})


IN_KAFKA = FleetFacts(in_kafka=OFFSETS, in_zookeeper={T0: None}, kafka=KafkaGroup("Empty", "", 0))
STATES = [
    (FleetFacts(), FleetState.NOT_STARTED, ""),
    (FleetFacts(exists=False), FleetState.WRONG, "there is no such group in ZooKeeper"),
    (FleetFacts(mark=MARK), FleetState.WRONG, "mark of a migration to kafka:g, and there is no plan"),
    (FleetFacts(in_kafka=OFFSETS, in_zookeeper=OFFSETS), FleetState.NOT_STARTED, ""),
    (FleetFacts(kafka=STABLE, in_zookeeper=OFFSETS), FleetState.NOT_STARTED, ""),
    (IN_KAFKA, FleetState.NEEDS_NO_PLAN, "all of its offsets are in Kafka: start the new consumers"),
    (replace(IN_KAFKA, members=("a",)), FleetState.NEEDS_NO_PLAN, "stop the old consumers, and start the new"),
    (replace(IN_KAFKA, kafka=STABLE), FleetState.CONSUMED, "has no mark, so old consumers"),
    (replace(IN_KAFKA, kafka=STABLE, in_kafka={}), FleetState.CONSUMED, "has no mark, so old consumers"),
    (replace(IN_KAFKA, kafka=STABLE, members=("a",)), FleetState.WRONG, "a in ZooKeeper: old consumers; stop them"),
    (replace(IN_KAFKA, kafka=STABLE, exists=False), FleetState.DONE, ""),
    (replace(IN_KAFKA, exists=False), FleetState.DONE, "its offsets expire unless a new consumer commits"),
    (FleetFacts(problems=("silent", "deaf")), FleetState.UNKNOWN, "silent; deaf"),
    (facts(None), FleetState.PLANNED, ""),
    (facts(None, members=("a",)), FleetState.PLANNED, "members are to be stopped: a"),
    (facts(None, in_zookeeper=LATER), FleetState.PLANNED, "moved since the plan was made: t-1 in zookeeper:g"),
    (facts(None, in_kafka=LATER), FleetState.PLANNED, "t-0 in kafka:g, t-1 in kafka:g; plan it again"),
    (facts(None, kafka=STABLE), FleetState.PLANNED, "members are to be stopped: those of kafka:g"),
    (facts(None, exists=False), FleetState.WRONG, "there is no such group in ZooKeeper"),
    (facts(None, plan=plan(Guard("log", False, "outside"))), FleetState.REFUSED, "outside"),
    (facts(None, target=End("kafka", "h")), FleetState.WRONG, "the target kafka:h, and its plan kafka:g"),
    (facts(target=End("kafka", "h")), FleetState.WRONG, "the target kafka:h, and its plan kafka:g"),
    (facts(None, plan=plan(Guard("zookeeper", False, "had members then"))), FleetState.PLANNED, ""),
    (facts(None, mark=MARK._replace(at_ms=2)), FleetState.WRONG, "and no run of the plan"),
    (facts(None, mark=MARK._replace(at_ms=2, plan=plan_digest(plan()))), FleetState.WRONG, "has begun: run it again"),
    (facts(None, mark=MARK_ELSEWHERE), FleetState.WRONG, "to kafka:h, and the fleet migrates it to kafka:g: correct"),
    (facts(mark=MARK_ELSEWHERE), FleetState.WRONG, "to kafka:h, and the fleet migrates it to kafka:g: correct"),
    (
        FleetFacts(mark=MARK, target=End("kafka", "h")),
        FleetState.WRONG,
        "kafka:g, and the fleet migrates it to kafka:h",
    ),
    (
        facts(added=[T5]),
        FleetState.WRONG,
        "partitions were added since it was planned: t-5, at which new consumers begin",
    ),
    (facts(added=[T5], in_kafka={**OFFSETS, T5: 1}), FleetState.CONSUMED, ""),
    (facts(None, mark=MARK), FleetState.PLANNED, "remove the mark with `zkconsumer migrate unmark --group g`"),
    (facts(WriteState.WRITING), FleetState.WRONG, "run it again; if that is refused, roll it back, and plan it then"),
    (facts(WriteState.WRITING), FleetState.WRONG, "wait some seconds first: it holds the group until its session has"),
    (
        facts(WriteState.WRITING, in_kafka={}),
        FleetState.WRONG,
        "run it again; if that is refused, roll it back, and plan it then",
    ),
    (facts(WriteState.WRITING, kafka=STABLE), FleetState.WRONG, "members are to be stopped: those of kafka:g"),
    (facts(WriteState.WRITING, members=("a",)), FleetState.WRONG, "members are to be stopped: a in ZooKeeper"),
    (facts(WriteState.WRITING, in_kafka=LATER, kafka=STABLE), FleetState.WRONG, "have continued: run it again"),
    (facts(WriteState.WRITING, in_kafka={T0: 4, T1: 3}), FleetState.WRONG, "t-1 in kafka:g; plan it again"),
    (facts(WriteState.WRITING, in_kafka={**OFFSETS, BEYOND: 1}), FleetState.WRONG, "have continued: run it again"),
    (facts(WriteState.WRITING, in_zookeeper=LATER), FleetState.WRONG, "t-1 in zookeeper:g; roll it back"),
    (facts(WriteState.WRITING, in_zookeeper={T0: 4}), FleetState.WRONG, "t-1 in zookeeper:g; plan it again"),
    (facts(WriteState.WRITING, in_zookeeper=LATER, in_kafka=LATER), FleetState.WRONG, "plan it again"),
    (facts(WriteState.WRITING, exists=False, in_zookeeper={}), FleetState.WRONG, "--from kafka:g --to zookeeper:g"),
    (facts(WriteState.WRITING, in_kafka={T0: 4}, in_zookeeper={T0: 4}, gone={T1}), FleetState.WRONG, "expired): roll"),
    (facts(WriteState.UNDOING), FleetState.WRONG, "roll it back again"),
    (facts(WriteState.UNDOING, in_kafka=LATER), FleetState.WRONG, "run it again to complete"),
    (facts(WriteState.UNDOING, in_kafka={}, in_zookeeper={T0: 4}), FleetState.WRONG, "t-1 in zookeeper:g; plan it"),
    (facts(WriteState.UNDOING, exists=False, in_zookeeper={}), FleetState.WRONG, "--from kafka:g --to zookeeper:g"),
    (facts(WriteState.UNDONE, mark=None), FleetState.ROLLED_BACK, "rolled back"),
    (facts(WriteState.UNDONE, mark=None, kafka=STABLE), FleetState.WRONG, "kafka:g has members"),
    (facts(WriteState.UNDONE, mark=UNDOING), FleetState.WRONG, "its mark is undoing, so the command was killed"),
    (facts(WriteState.UNDONE, mark=UNDOING, in_kafka=LATER), FleetState.WRONG, "t-1 in kafka:g; plan it again"),
    (facts(back=WriteState.COMPLETE, mark=UNDOING_OF_BACK), FleetState.WRONG, "killed: reverse it again"),
    (facts(back=WriteState.COMPLETE, mark=UNDOING, in_kafka={T0: 9, T1: 9}), FleetState.WRONG, "t-1 in kafka:g; roll"),
    (facts(back=WriteState.WRITING, in_kafka={T0: 4}), FleetState.WRONG, "t-1 in kafka:g; plan it again"),
    (facts(), FleetState.WRITTEN, ""),
    (facts(members=("a",)), FleetState.WRONG, "though it was migrated: a"),
    (facts(in_zookeeper={**OFFSETS, T1: 8}), FleetState.WRONG, "offsets of zookeeper:g have moved since: t-1"),
    (
        facts(in_zookeeper={**OFFSETS, T1: 8}),
        FleetState.WRONG,
        "and plan it again, or roll it back to stay in ZooKeeper",
    ),
    (facts(in_zookeeper={**OFFSETS, BEYOND: 1}), FleetState.WRITTEN, ""),
    (
        facts(in_kafka={**OFFSETS, BEYOND: 9}, in_zookeeper={**OFFSETS, BEYOND: 1}),
        FleetState.WRONG,
        "offsets of zookeeper:g have moved since: new-0; consumers have run there, too",
    ),
    (facts(in_kafka={T0: 4}), FleetState.WRONG, "kafka:g has lost its offsets of t-1"),
    (facts(in_kafka={T0: 4}, in_zookeeper={T0: 4}, gone={T1}), FleetState.WRITTEN, ""),
    (facts(in_kafka={T0: 9}, in_zookeeper={T0: 4}, gone={T1}), FleetState.CONSUMED, ""),
    (facts(in_kafka={T0: 9}, gone={T1}, exists=False, in_zookeeper={}, mark=None), FleetState.DONE, ""),
    (facts(in_kafka=LATER, in_zookeeper={T0: 4}), FleetState.CONSUMED, ""),
    (facts(in_kafka={**OFFSETS, T1: 9}), FleetState.CONSUMED, ""),
    (facts(in_kafka={**OFFSETS, BEYOND: 1}), FleetState.CONSUMED, ""),
    (facts(in_kafka={**OFFSETS, BEYOND: 1}, beyond={BEYOND: 1}), FleetState.WRITTEN, ""),
    (facts(kafka=STABLE), FleetState.CONSUMED, ""),
    (facts(mark=None), FleetState.WRITTEN, "it has no mark"),
    (facts(mark=MARK._replace(state="migrating")), FleetState.WRONG, "run it again, or go back"),
    (facts(mark=MARK_OF_OTHER), FleetState.WRITTEN, ""),
    (facts(mark=UNDOING_OF_OTHER), FleetState.WRONG, "its mark is undoing, of a plan that the fleet does not have"),
    (facts(back=WriteState.COMPLETE, mark=MARK_OF_OTHER), FleetState.WRONG, "its mark is migrated, of a plan that the"),
    (facts(WriteState.UNDONE, mark=MARK_OF_OTHER), FleetState.WRONG, "its mark is migrated, of a plan that the fleet"),
    (
        facts(back=WriteState.COMPLETE, mark=UNDOING._replace(plan=plan_digest(BACK))),
        FleetState.WRONG,
        "so the command was killed: reverse it again",
    ),
    (facts(in_kafka={}), FleetState.WRONG, "before a consumer begins elsewhere. What was read since"),
    (facts(in_kafka={}, mirrored={T1: frozenset({8})}), FleetState.WRONG, "plan it again"),
    (facts(in_kafka={}, plan=PLAN_OF_DUAL_COMMIT), FleetState.WRONG, "or were deleted; run it again (plan it"),
    (facts(in_kafka={T0: 4}, in_zookeeper=LATER), FleetState.WRONG, "or were deleted; plan it again, before"),
    (facts(in_kafka={T0: 9}), FleetState.WRONG, "lost its offsets of t-1: they have expired, or were deleted; reset"),
    (
        facts(in_kafka={T1: 9}, in_zookeeper={T0: 4, T1: 8}, mirrored={T1: frozenset({8})}),
        FleetState.WRONG,
        "lost its offsets of t-0: they have expired, or were deleted; reset",
    ),
    (facts(in_kafka={}, exists=False, in_zookeeper={}, mark=None), FleetState.WRONG, "or were deleted; reset"),
    (facts(exists=False, in_zookeeper={}, mark=None), FleetState.WRITTEN, "no new consumer has committed"),
    (
        facts(in_kafka={**OFFSETS, T1: 9}, in_zookeeper={**OFFSETS, T1: 8}, mirrored={T1: frozenset({8, 9})}),
        FleetState.MIRRORED,
        "",
    ),
    (facts(exists=False, in_zookeeper={}, in_kafka={**OFFSETS, T1: 9}, mark=None), FleetState.DONE, ""),
    (facts(back=WriteState.COMPLETE, mark=None), FleetState.CAME_BACK, "reversed"),
    (facts(back=WriteState.COMPLETE, mark=None, exists=False, **GONE), FleetState.WRONG, "since: reverse it again to"),
    (facts(WriteState.UNDONE, mark=None, exists=False, **GONE), FleetState.WRONG, "and there is no such group in"),
    (
        facts(back=WriteState.WRITING, mark=None, exists=False, **GONE),
        FleetState.WRONG,
        "--from kafka:g --to zookeeper",
    ),
    (facts(back=WriteState.COMPLETE, mark=None, kafka=STABLE), FleetState.WRONG, "the same records: stop them"),
    (facts(back=WriteState.COMPLETE, mark=None, back_plan=BACK, **BOTH), FleetState.CAME_BACK, "reversed"),
    (
        facts(back=WriteState.COMPLETE, mark=None, back_plan=BACK, in_kafka={T0: 9, T1: 9}, in_zookeeper=LATER),
        FleetState.WRONG,
        "have continued since: t-0, t-1; at most 6 records are read by both, unless you reverse it again",
    ),
    (
        facts(
            back=WriteState.COMPLETE,
            mark=None,
            back_plan=BACK,
            in_kafka={T0: 9, T1: 9, BEYOND: 1},
            in_zookeeper={**LATER, BEYOND: 1},
        ),
        FleetState.WRONG,
        "t-0, t-1; at most 6 records are read by both, until",
    ),
    (
        facts(back=WriteState.COMPLETE, mark=None, back_plan=BACK, in_kafka={T1: 11}, in_zookeeper={T1: 9}),
        FleetState.WRONG,
        "at most 2 records are read by both, until the old consumers have come as far",
    ),
    (
        facts(back=WriteState.COMPLETE, mark=None, back_plan=BACK, in_kafka={T1: 11}, in_zookeeper={T1: 11}),
        FleetState.CAME_BACK,
        "reversed",
    ),
    (
        facts(WriteState.UNDONE, mark=None, in_kafka=LATER),
        FleetState.WRONG,
        "at most 1 records are read by both, until",
    ),
    (facts(WriteState.UNDONE, mark=None, in_zookeeper={T0: 1, T1: 2}), FleetState.ROLLED_BACK, "rolled back"),
    (
        facts(
            WriteState.UNDONE, mark=None, plan=PLAN_OF_EARLIER, in_kafka={T0: 3, T1: 8}, in_zookeeper={T0: 5000, T1: 7}
        ),
        FleetState.WRONG,
        "have continued since: t-0, t-1; at most 4 records are read by both",
    ),
    (
        facts(WriteState.UNDONE, mark=None, plan=PLAN_OF_EARLIER, in_kafka={T0: 3}, in_zookeeper={T0: 2, T1: 7}),
        FleetState.WRONG,
        "have continued since: t-0; at most 1 records are read by both",
    ),
    (
        facts(WriteState.UNDONE, mark=None, in_kafka={BEYOND: 8}),
        FleetState.WRONG,
        "have continued since: new-0; records are read by both, until",
    ),
    (facts(WriteState.UNDONE, mark=None, in_kafka={BEYOND: 8}, beyond={BEYOND: 8}), FleetState.ROLLED_BACK, "back"),
    (
        facts(WriteState.UNDONE, mark=None, in_kafka={BEYOND: 8}, in_zookeeper={**OFFSETS, BEYOND: 6}),
        FleetState.WRONG,
        "new-0; at most 2 records are read by both, until",
    ),
    (
        facts(back=WriteState.COMPLETE, mark=None, back_plan=BACK, in_kafka={T0: 4, T1: 9, BEYOND: 8}, **ZK),
        FleetState.WRONG,
        "have continued since: new-0, t-1; records are read by both, unless you reverse it again",
    ),
    (facts(back_plan=BACK, mark=None, in_kafka=LATER, in_zookeeper=OFFSETS), FleetState.CONSUMED, "has no mark"),
    (facts(back=WriteState.WRITING), FleetState.WRONG, "reverse it again"),
    (facts(back=WriteState.WRITING, members=("a",)), FleetState.WRONG, "members are to be stopped: a in ZooKeeper"),
    (facts(back=WriteState.UNDOING), FleetState.WRONG, "roll it back again"),
]


@pytest.mark.parametrize(("known", "state", "reason"), STATES)
def test_states(known, state, reason):
    judged = judge(known)
    assert judged.state is state
    assert reason in judged.reason
    assert bool(reason) == bool(judged.reason)


@pytest.mark.parametrize(
    ("known", "what"),
    [
        (facts(None), ""),
        (facts(None, in_zookeeper=LATER), "plan"),
        (facts(None, in_zookeeper=LATER, members=("a",)), "stop"),
        (facts(None, kafka=STABLE), "stop"),
        (facts(), ""),
    ],
)
def test_what_a_planned_group_waits_for(known, what):
    assert judge(known).waits_for == what


@pytest.mark.parametrize(
    ("hour", "reason"), [(9, "its window opens 2026-12-01T10:00:00+00:00"), (10, ""), (12, "its window ended 2026-12")]
)
def test_a_closed_window_is_what_a_planned_group_waits_for(hour, reason):
    window = Window(*(datetime(2026, 12, 1, hour, tzinfo=UTC) for hour in (10, 12)))
    now = datetime(2026, 12, 1, hour, tzinfo=UTC)
    group = FleetGroup("g", 1, "", End("kafka", "g"), window=window)
    judged = in_file(judge(facts(None)), group, now)
    assert (reason in judged.reason, bool(judged.reason), judged.waits_for == "window") == (True, *[bool(reason)] * 2)
    moved = judge(facts(None, in_zookeeper=LATER))
    assert in_file(moved, group, now).waits_for == "plan"
    assert in_file(moved, group, now).reason.startswith(moved.reason)
    assert in_file(judge(facts()), group, now) == judge(facts())
    assert in_file(judge(FleetFacts()), group, now).reason == ""
    assert "wave 0" in in_file(judge(FleetFacts()), replace(group, wave=0), now).reason


def test_members_that_a_run_accepts_are_not_to_be_stopped():
    """Consumers of its target have continued, so it writes nothing."""
    there = facts(WriteState.WRITING, in_kafka=LATER, kafka=STABLE, members=("a",))
    back = facts(back=WriteState.WRITING, in_zookeeper={T0: 4, T1: 9}, kafka=STABLE, members=("a",))
    for known, what, stopped in ((there, "migration", "a in ZooKeeper"), (back, "way back", "those of kafka:g")):
        assert judge(known).reason.endswith(f"again to complete the {what}; members are to be stopped: {stopped}")


NAMED = {
    "plan": "plan it (again|first)",
    "run": "run it (again|first)",
    "rollback": "roll it back|go back",
    "reverse": "reverse it (again|then)|go back",
}
"""By command, how a reason names it."""

OTHERWISE = (
    "set the file back|correct `target`|stop them|remove it from the file|"
    "`zkconsumer migrate plan|`zkconsumer offsets reset"
)

LOGS = {p: LogRange(0, 10) for p in OFFSETS}
MOVED_ON = {p: LogRange(5, 20) for p in OFFSETS}
ADDED = {**LOGS, TopicPartition("t", 2): LogRange(0, 10)}


def combined():
    """Facts of a planned group that can be, combined in all ways."""
    stored = ({}, OFFSETS, LATER, {T0: 4, T1: 3}, {**OFFSETS, BEYOND: 1})
    in_kafka = [*((offsets, ()) for offsets in stored), ({T0: 4}, (T1,)), ({T0: 8}, (T1,))]
    migrating, undoing = (mark._replace(plan=plan_digest(plan())) for mark in (MIGRATING, UNDOING))
    marks = (None, MARK, MARK._replace(at_ms=2), migrating, migrating._replace(at_ms=2), undoing, UNDOING_OF_BACK)
    marks += (MARK_OF_OTHER, UNDOING_OF_OTHER)
    backs = ((None, None), (None, BACK), *((back, BACK) for back in WriteState if back is not WriteState.UNDONE))
    members = (((), KafkaGroup("Empty", "", 0)), (("a",), STABLE))
    runs = (None, *WriteState)
    for run, (back, back_plan), (kafka, gone), zookeeper, mark, (ids, group), exists in itertools.product(
        runs, backs, in_kafka, stored, marks, members, (True, False)
    ):
        is_back = back is None or run is WriteState.COMPLETE
        if is_back and (exists or not (zookeeper or mark or ids)):
            there = {p: offset for p, offset in zookeeper.items() if p not in gone}
            ends = {"in_kafka": kafka, "in_zookeeper": there, "gone": gone}
            way = {"run": run, "back": back, "back_plan": back_plan}
            yield FleetFacts(plan=plan(), mark=mark, members=ids, kafka=group, exists=exists, **ends, **way)


def refusals_of_run(plan, state, mark, seen):
    if mark is not None and mark.plan == "other" and state is WriteState.COMPLETE:
        return ("its mark would be replaced, and the plan that has left it could not be completed",)
    return () if lacks_mark_alone(plan, seen, state, mark) else recheck(plan, seen, state).refusals


def refusals(known, verb, logs):
    """Why a command itself refuses a group whose members were stopped, without what a setting accepts."""
    plan, place, mark = known.plan, known.plan.place, known.mark
    zookeeper, kafka, back, back_plan = known.in_zookeeper, known.in_kafka, known.back, known.back_plan
    there = {p: log for p, log in logs.items() if p not in known.gone}
    to_kafka, to_zookeeper = (
        Observation(
            place,
            judged(source),
            judged({p: offset for p, offset in target.items() if p in there or p in source}),
            {**there, **({BEYOND: LogRange(0, 10)} if BEYOND in source else {})},
        )
        for source, target in ((zookeeper, kafka), (kafka, zookeeper))
    )
    settings = {"missing": "fail", "retention_ms": None, "now_ms": 2}

    def unsettled(made):
        return [one for one in made.refusals if not re.search("--rewind|--missing|reset them first", one)]

    match verb:
        case "plan" | "run" if not known.exists:
            return (f"group {plan.source.group} does not exist in ZooKeeper",)
        case "plan":
            return unsettled(make_plan(plan.source, plan.target, "h", to_kafka, **settings))
        case "run":
            return refusals_of_run(plan, known.run, mark, to_kafka)
        case "rollback" if back is not None:
            return decide_rollback(plan_of_existing(back_plan, there), place, zookeeper, kafka, (), back, {})
        case "rollback":
            return decide_rollback(plan_of_existing(plan, there), place, kafka, zookeeper, (), known.run, known.beyond)
    if back is None or (back is WriteState.COMPLETE and mark is None):
        copied = known_at_source(known.mirrored, back_plan, back)
        return unsettled(reverse_plan(plan, to_zookeeper, copied, known.run, **settings))
    return refusals_of_run(back_plan, back, mark, to_zookeeper)


def test_a_command_that_is_named_as_a_way_out_is_not_refused():
    """Neither by the state, nor by the command itself: if there are other logs, one of those that are named is not."""
    for known in combined():
        verdict = judge(known)
        named = [verb for verb, text in NAMED.items() if re.search(text, verdict.reason)]
        if verdict.state is not FleetState.WRONG:
            continue
        for logs in (LOGS, MOVED_ON, ADDED):
            why = {verb: refusals(known, verb, logs) for verb in named}
            is_one_enough = logs is not LOGS or BEYOND in known.in_zookeeper
            is_one_enough |= bool(re.search("if that is refused|go back", verdict.reason))
            assert not named or not (all if is_one_enough else any)(why.values()), (verdict, known, why)


def test_a_group_that_has_not_gone_wrong_can_come_back():
    """As a mirror, a way back refuses a group whose offsets in ZooKeeper consumers have moved."""
    for known in combined():
        if judge(known).state in (FleetState.WRITTEN, FleetState.CONSUMED):
            assert not refusals(known, "reverse", LOGS), known


def test_a_command_that_a_reason_names_is_not_skipped():
    verdicts = {judge(facts) for facts in combined()} | {judge(row[0]) for row in STATES}
    for verdict in verdicts:
        why = {verb: why_not_begun(verb, verdict) for verb in VERBS}
        for reason in {verdict.reason, *(one.reason for one in why.values() if one is not None)}:
            named = [verb for verb, text in NAMED.items() if re.search(text, reason)]
            assert [verb for verb in named if why[verb] is not None] == [], verdict
        if verdict.state is FleetState.WRONG:
            assert any(re.search(text, verdict.reason) for text in (*NAMED.values(), OTHERWISE)), verdict


@pytest.mark.parametrize(
    ("known", "begun", "skipped"),
    [
        (FleetFacts(), "plan", "rollback reverse mirror"),
        (IN_KAFKA, "", " ".join(VERBS)),
        (replace(IN_KAFKA, kafka=STABLE), "", " ".join(VERBS)),
        (replace(IN_KAFKA, kafka=STABLE, members=("a",)), "", ""),
        (facts(None), "plan run", "rollback reverse mirror"),
        (facts(None, plan=plan(Guard("log", False, "outside"))), "plan run", "rollback reverse mirror"),
        (facts(None, target=End("kafka", "h")), "plan", ""),
        (facts(target=End("kafka", "h")), "", ""),
        (facts(WriteState.WRITING), "run rollback", ""),
        (facts(WriteState.WRITING, in_kafka=LATER), "run", ""),
        (facts(WriteState.WRITING, in_zookeeper=LATER), "rollback", ""),
        (facts(WriteState.WRITING, in_kafka={T0: 4, T1: 3}), "plan", ""),
        (facts(WriteState.UNDOING), "rollback", ""),
        (facts(WriteState.UNDONE, mark=None), "plan", "verify rollback reverse mirror"),
        (facts(back=WriteState.COMPLETE, mark=None), "plan", "verify rollback reverse mirror"),
        (facts(back=WriteState.COMPLETE, mark=None, back_plan=BACK, in_kafka={T1: 9}, **ZK), "plan reverse", ""),
        (facts(back=WriteState.WRITING), "rollback reverse", ""),
        (facts(back=WriteState.UNDOING), "rollback", ""),
        (facts(mark=MARK._replace(state="migrating")), "run rollback reverse", ""),
        (facts(), "verify rollback reverse mirror", "plan run"),
        (facts(mark=None), "run verify rollback reverse mirror", "plan"),
        (facts(kafka=STABLE), "rollback reverse mirror", "plan run verify"),
        (facts(exists=False, kafka=STABLE), "rollback reverse", "plan run verify mirror"),
        (facts(members=("a",)), "plan run verify rollback reverse mirror", ""),
    ],
)
def test_which_commands_of_a_wave_leave_a_group_as_it_is(known, begun, skipped):
    why = {verb: why_not_begun(verb, judge(known)) for verb in VERBS}
    assert [verb for verb in VERBS if why[verb] is None] == begun.split()
    assert [verb for verb in VERBS if why[verb] is not None and why[verb].is_settled] == skipped.split()
    assert all(one.reason for one in why.values() if one is not None)


def test_each_state_has_a_sentence():
    assert [state.of_group for state in FleetState] == [
        "it is not started",
        "it needs no plan",
        "it is planned",
        "it is refused",
        "it is written",
        "it is consumed",
        "it is mirrored",
        "it is done",
        "it is rolled back",
        "it came back",
        "it has gone wrong",
        "it is unknown",
    ]
    returned = judge(facts(back=WriteState.COMPLETE, mark=None))
    assert why_not_begun("rollback", returned).reason == "it came back"
