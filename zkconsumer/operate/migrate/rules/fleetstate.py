"""How far the migration of one group of a fleet has come, from its files and from both stores; what may follow."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import unmarked
from zkconsumer.offsets.rules.topicorigins import judge_offsets
from zkconsumer.operate.migrate.rules.fleetfacts import FleetFacts, FleetState, Judged, Verb, wrong
from zkconsumer.operate.migrate.rules.fleetfile import FleetGroup
from zkconsumer.operate.migrate.rules.fleetwritten import judge_written, moved_since_run
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan, Observation, plan_of_existing, planning
from zkconsumer.operate.migrate.rules.migrationrecheck import lacks_mark_alone, moved, recheck
from zkconsumer.operate.migrate.rules.planfile import is_mark_of
from zkconsumer.operate.migrate.rules.waysback import decide_rollback, moved_at_target
from zkconsumer.operate.offsets.rules.offsetmoves import how_far
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.zookeeper.rules.znodes import MigrationMark


def judge(facts: FleetFacts) -> Judged:
    """How far a group has come."""
    if facts.problems:
        return Judged(FleetState.UNKNOWN, "; ".join(facts.problems))
    if facts.plan is not None and facts.target not in (None, facts.plan.target):
        return _aimed_elsewhere(facts, facts.plan)
    target = facts.target if facts.plan is None else facts.plan.target
    if facts.mark is not None and target is not None and not facts.mark.may_be_of(str(target)):
        return Judged(FleetState.WRONG, _marked_elsewhere(facts.mark, target), frozenset())
    if facts.plan is None:
        return _without_plan(facts)
    if facts.mark is not None and _is_of_another_plan(facts, facts.mark):
        reason = f"its mark is {facts.mark.state}, of a plan that the fleet does not have: complete that one"
        return wrong(f"{reason}, or plan it again", "plan")
    if is_reversed(facts.back, facts.mark):
        return _back_again(facts, facts.plan, FleetState.CAME_BACK, "it was reversed")
    if facts.back is not None and facts.back_plan is not None:
        return _begun(facts, facts.back_plan, facts.back, "reverse")
    return _run(facts, facts.plan)


def is_reversed(back: WriteState | None, mark: MigrationMark | None) -> bool:
    """True if a way back is complete; a mark shows that it was killed before it removed that, or a run since."""
    return back is WriteState.COMPLETE and mark is None


def _run(facts: FleetFacts, plan: MigrationPlan) -> Judged:
    if facts.run is None:
        return _planned(facts, plan)
    if facts.run is WriteState.COMPLETE:
        return judge_written(facts, _existing(plan, facts))
    if facts.run is WriteState.UNDONE and facts.mark is None:
        return _back_again(facts, plan, FleetState.ROLLED_BACK, "it was rolled back")
    return _begun(facts, plan, facts.run, "run")


def _existing(plan: MigrationPlan, facts: FleetFacts) -> MigrationPlan:
    return plan_of_existing(plan, {row.partition for row in plan.partitions}.difference(facts.gone))


def _marked_elsewhere(mark: MigrationMark, target: End) -> str:
    return (
        f"it has the mark of a migration to {mark.where}, and the fleet migrates it to {target}: correct `target` in "
        "the file, reverse that migration with its own plan, or remove a mark that is wrong with `migrate unmark`"
    )


def _is_of_another_plan(facts: FleetFacts, mark: MigrationMark) -> bool:
    """True if no command of the fleet has left the mark, so none can complete what it shows."""
    is_back = facts.back is WriteState.COMPLETE or (facts.back is None and facts.run is WriteState.UNDONE)
    is_over = is_back or (facts.back is None and facts.run is WriteState.COMPLETE and mark.state == "undoing")
    return is_over and mark.plan != "" and not is_mark_of(mark, facts.plan, facts.back_plan)


def _aimed_elsewhere(facts: FleetFacts, plan: MigrationPlan) -> Judged:
    """After a run, consumers may be at the former target, and ZooKeeper's offsets may be old."""
    differ = f"its file has the target {facts.target}, and its plan {plan.target}"
    if facts.run is None:
        return wrong(f"{differ}: plan it again", "plan")
    return Judged(FleetState.WRONG, f"{differ}, which was run: set the file back", frozenset())


def _begun(facts: FleetFacts, plan: MigrationPlan, state: WriteState, verb: Literal["run", "reverse"]) -> Judged:
    """A command was killed, or still writes. What may follow is what the guards of the commands accept.

    Args:
        facts: of the group.
        plan: of the run, or of the way back.
        state: how far that has come.
        verb: the command that runs it.
    """
    is_back = verb == "reverse"
    begun = _name_begun(facts, state, is_back=is_back)
    if not facts.exists:
        kafka, zookeeper = (plan.source, plan.target) if is_back else (plan.target, plan.source)
        reason = f"{begun}, and its znodes were deleted; `{planning(kafka, zookeeper)}` writes them again"
        return Judged(FleetState.WRONG, reason, frozenset())
    in_zookeeper = {p: offset for p, offset in facts.in_zookeeper.items() if offset is not None}
    source, target = (facts.in_kafka, in_zookeeper) if is_back else (in_zookeeper, facts.in_kafka)
    logs = {row.partition: row.log for row in plan.partitions if row.partition not in facts.gone}
    # what a command would see, as far as the facts go: servers and logs as they were planned, and no members
    seen = Observation(plan.place, judge_offsets({}, unmarked(source)), judge_offsets({}, unmarked(target)), logs)
    check = recheck(plan, seen, state)
    # What was rolled back is not run again by itself, unless consumers have continued where the run wrote.
    is_left = bool(check.later) or not state.is_rolled_back
    may_run = lacks_mark_alone(plan, seen, state, facts.mark) or (is_left and not check.refusals)
    plan = _existing(plan, facts)
    may_go_back = not decide_rollback(plan, plan.place, target, source, (), state, facts.beyond)
    at_source, _ = moved(plan, source, target, state)
    ends = _name_ends(plan, at_source, moved_at_target(plan, target, facts.beyond, state))
    stop = _to_be_stopped(facts, plan.source if is_back else plan.target, but=plan.target if check.later else None)
    if may_run and may_go_back:
        otherwise = f"; if that is refused, roll it back, and {verb if is_back else 'plan'} it then"
        return wrong(f"{begun}: {verb} it again{otherwise}{stop}", verb, "rollback")
    if may_run:
        to_do = f"{verb} it again to complete the {'way back' if is_back else 'migration'}"
        how = f"{begun}, and consumers of {plan.target} have continued: {to_do}"
        if check.later:
            return wrong(f"{how}{stop}", verb)
        return wrong(f"{how}; if that is refused, plan it again{stop}", verb, "plan")
    if may_go_back:
        why = f", and consumers have continued: {ends}; roll it back" if at_source else ": roll it back"
        why += " again" if state.is_rolled_back else ""
        return wrong(f"{begun}{why}{stop}", "rollback")
    return wrong(f"{begun}, and other clients have written offsets: {ends}; plan it again{stop}", "plan")


_HELD: Final = " (if it was killed, wait some seconds first: it holds the group until its session has expired)"


def _name_begun(facts: FleetFacts, state: WriteState, *, is_back: bool) -> str:
    match state:
        case WriteState.WRITING:
            return f"a {'way back' if is_back else 'run'} has begun and is not complete{_HELD}"
        case WriteState.UNDOING:
            return f"a rollback{' of the way back' if is_back else ''} has begun and is not complete{_HELD}"
    # 1. All is written back, and the file shows that; 2. the command is killed; 3. the mark still keeps members out.
    mark = "" if facts.mark is None else facts.mark.state
    return f"it was {'reversed' if is_back else 'rolled back'}, and its mark is {mark}, so the command was killed"


def _to_be_stopped(facts: FleetFacts, kafka: End, *, but: End | None = None) -> str:
    zookeeper = but is None or but.kind != "zookeeper"
    members = [f"{name_some(sorted(facts.members))} in ZooKeeper"] if facts.members and zookeeper else []
    members += [] if but == kafka else _members_in_kafka(facts, kafka)
    return f"; members are to be stopped: {'; '.join(members)}" if members else ""


def _without_plan(facts: FleetFacts) -> Judged:
    if facts.mark is not None:
        reason = f"it has the mark of a migration to {facts.mark.where}, and there is no plan"
        return wrong(f"{reason}; plan it again if it is to be migrated once more", "plan")
    if facts.needs_no_plan:
        return _in_kafka_alone(facts)
    if not facts.exists:
        return wrong(_NO_GROUP, "plan")
    return Judged(FleetState.NOT_STARTED, only=frozenset({"plan"}))


def _in_kafka_alone(facts: FleetFacts) -> Judged:
    """One whose old consumers have stored their offsets in Kafka: it has no plan, and so no mark.

    Offsets do not show which consumers have committed them: members do, and that the znodes were deleted.
    """
    none: frozenset[Verb] = frozenset()
    has_new = facts.kafka is not None and facts.kafka.has_members
    if facts.members and has_new:
        old = f"{name_some(sorted(facts.members))} in ZooKeeper: old consumers; stop them"
        return Judged(FleetState.WRONG, f"it has members at brokers, and, which read the same records, {old}", none)
    if not facts.exists:
        expire = "" if has_new else "it has no members: its offsets expire unless a new consumer commits"
        return Judged(FleetState.DONE, expire, none)
    if has_new:
        no_mark = "it had no plan, and has no mark, so old consumers that are started would join in ZooKeeper"
        return Judged(FleetState.CONSUMED, no_mark, none)
    stop = "stop the old consumers, and " if facts.members else ""
    reason = f"all of its offsets are in Kafka: {stop}start the new consumers, which begin there"
    return Judged(FleetState.NEEDS_NO_PLAN, reason, none)


def _planned(facts: FleetFacts, plan: MigrationPlan) -> Judged:
    mark = facts.mark
    if mark is not None and mark.at_ms > plan.created_ms:
        reason = f"it has the mark of a migration to {mark.where}, and no run of the plan has begun"
        if is_mark_of(mark, plan):  # 1. the run has marked the group; 2. it is killed before its file is written
            return wrong(f"{reason}: run it again; if that is refused, plan it again", "run", "plan")
        return wrong(f"{reason}; plan it again", "plan")
    if not facts.exists:
        return wrong(_NO_GROUP)
    if plan.lasting_refusals:
        return Judged(FleetState.REFUSED, "; ".join(plan.lasting_refusals), _BEFORE_RUN)
    at_source, at_target = moved(plan, facts.in_zookeeper, facts.in_kafka, None)
    ends = _name_ends(plan, at_source, at_target)
    reason = f"; offsets have moved since the plan was made: {ends}; plan it again" if ends else ""
    stop = _to_be_stopped(facts, plan.target)
    reason += stop
    if mark is not None:
        group = shlex.quote(plan.source.group)
        reason += (
            f"; its mark, which an earlier plan has left, is {mark.state}, so consumers of ours do not start in "
            f"ZooKeeper: run the plan, or remove the mark with `zkconsumer migrate unmark --group {group}` if it is to "
            "stay there"
        )
    waits_for: Literal["", "stop", "plan"] = "stop" if stop else "plan" if ends else ""
    return Judged(FleetState.PLANNED, reason.removeprefix("; "), _BEFORE_RUN, waits_for)


def in_file(judged: Judged, group: FleetGroup, now: datetime) -> Judged:
    """The same with what its file keeps a group back by: wave 0, or its window at a time, which has a zone."""
    window = group.window
    if judged.state is FleetState.NOT_STARTED and not group.wave:
        return judged._replace(reason="it is in wave 0: the comment in its file has why")
    if judged.state is not FleetState.PLANNED or window is None or window.has(now):
        return judged
    closed = f"its window opens {window.begin.isoformat()}"
    if now >= window.end:
        closed = f"its window ended {window.end.isoformat()}: set another one, or run it with --any-time"
    reason = f"{judged.reason}; {closed}" if judged.reason else closed
    return judged._replace(reason=reason, waits_for=judged.waits_for or "window")


def _name_ends(plan: MigrationPlan, at_source: Sequence[TopicPartition], at_target: Sequence[TopicPartition]) -> str:
    return name_some([f"{p} in {plan.source}" for p in at_source] + [f"{p} in {plan.target}" for p in at_target])


def _members_in_kafka(facts: FleetFacts, end: End) -> list[str]:
    return [f"those of {end}"] if facts.kafka is not None and facts.kafka.has_members else []


def _back_again(facts: FleetFacts, plan: MigrationPlan, state: FleetState, how: str) -> Judged:
    """Its consumers are to run in ZooKeeper, and nowhere else."""
    if _members_in_kafka(facts, plan.target):
        return wrong(f"{how}, and {plan.target} has members, which read the same records: stop them", "plan")
    if not facts.exists:
        if facts.back is None:
            return wrong(f"{how}, and {_NO_GROUP}", "plan")
        reason = f"{how}, and its znodes were deleted since: reverse it again to write those of {plan.target}"
        return wrong(f"{reason}; if they were deleted on purpose, remove it from the file", "reverse")
    if moved_on := _moved_on(facts, plan):
        known = [records for records in moved_on.values() if records is not None]
        reason = (
            f"{how}, and consumers of {plan.target} have continued since: {name_some(sorted(moved_on))}; "
            f"{f'at most {sum(known)} ' if len(known) == len(moved_on) else ''}records are read by both"
        )
        if facts.back is None or moved_since_run(facts, plan):
            return wrong(f"{reason}, until the old consumers have come as far; to migrate it, plan it again", "plan")
        return wrong(f"{reason}, unless you reverse it again before the old consumers start", "reverse", "plan")
    return Judged(state, f"{how}; to migrate it, plan it again", frozenset({"plan"}))


def _moved_on(facts: FleetFacts, plan: MigrationPlan) -> dict[TopicPartition, int | None]:
    """How many records consumers in Kafka have read beyond ZooKeeper's offsets at most, since the group came back.

    Those are fewer where the log has removed records: the facts of a fleet are without the logs. None of a partition of
    which ZooKeeper has no offset, since its topic began later: old consumers may begin anywhere.
    """
    if facts.back_plan is None or facts.back is None:
        known = {row.partition for row in plan.partitions}
        moved = moved_at_target(plan, facts.in_kafka, facts.beyond, facts.run)
    else:
        left = {row.partition: row.source for row in facts.back_plan.partitions}
        known = set(left)
        moved = [p for p, now in facts.in_kafka.items() if now != left.get(p, facts.beyond.get(p))]
    without = {row.partition: row for row in plan.partitions if row.position is None}
    found: dict[TopicPartition, int | None] = {}
    for partition in facts.in_kafka.keys() & set(moved):
        now, here, row = facts.in_kafka[partition], facts.in_zookeeper.get(partition), without.get(partition)
        if row is not None and here in row.unread:  # none counts: old consumers read a new topic from its log start
            here = row.log.start if row.is_outdated and here is not None else row.new
        forward = how_far([now], here, None)
        if forward is not None and forward < 0:
            found[partition] = -forward
        elif forward is None and partition not in known:
            found[partition] = None
    return found


# -- before a step ----------------------------------------------------------------------------------------------------


class NotBegun(NamedTuple):
    """Why a step is not begun: in a sentence, and True if that is because there is nothing to do."""

    reason: str
    is_settled: bool


_MIGRATED: Final = frozenset({FleetState.CONSUMED, FleetState.MIRRORED, FleetState.DONE})
_WITHOUT_PLAN: Final = _MIGRATED | {FleetState.NEEDS_NO_PLAN}
"""States of a group whose offsets are all in Kafka: no command has anything to do."""
_NOT_WRITTEN: Final = frozenset({FleetState.NOT_STARTED, FleetState.PLANNED, FleetState.REFUSED})
_IS_BACK: Final = frozenset({FleetState.ROLLED_BACK, FleetState.CAME_BACK})
_SETTLED: Final[Mapping[Verb, frozenset[FleetState]]] = MappingProxyType(
    {
        "plan": _MIGRATED | {FleetState.WRITTEN},
        "run": _MIGRATED,
        "verify": _IS_BACK | _MIGRATED,
        "rollback": _NOT_WRITTEN | _IS_BACK,
        "reverse": _NOT_WRITTEN | _IS_BACK,
        "mirror": _NOT_WRITTEN | _IS_BACK | {FleetState.DONE},
    }
)
"""By command, the states in which it has nothing to do."""

_BEFORE_RUN: Final[frozenset[Verb]] = frozenset({"plan", "run"})
_NO_GROUP: Final = (
    "there is no such group in ZooKeeper; check its name and the chroot; if it was deleted, remove it from the file"
)


def why_not_begun(verb: Verb, judged: Judged) -> NotBegun | None:
    """Why a command leaves a group as it is; None if it begins, and its own guards decide.

    A group that was rolled back on purpose is not migrated by repeating the command for its wave: that takes a new
    plan. A run is repeated for a group that is written and has no mark, since it sets that.
    """
    is_in_order = verb == "run" and judged.state is FleetState.WRITTEN and not judged.reason
    if is_in_order or judged.state in _SETTLED[verb]:
        return NotBegun(judged.state.of_group, True)
    if judged.only is not None and verb not in judged.only:
        if judged.state is FleetState.PLANNED:
            return NotBegun("no run of its plan has begun; run it first", False)
        if judged.state in _WITHOUT_PLAN:
            return NotBegun(judged.reason or judged.state.of_group, True)
        return NotBegun(judged.reason or "it has no plan; plan it first", False)
    return None
