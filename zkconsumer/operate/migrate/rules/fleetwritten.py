"""How far the migration of one group of a fleet has come whose run is complete."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.fleetfacts import FleetFacts, FleetState, Judged, wrong
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
from zkconsumer.operate.migrate.rules.migrationrecheck import moved
from zkconsumer.operate.migrate.rules.mirrorplan import moved_since
from zkconsumer.operate.migrate.rules.waysback import decide_rollback, known_at_source, moved_at_target
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.zookeeper.rules.znodes import mark_verdict


def judge_written(facts: FleetFacts, plan: MigrationPlan) -> Judged:
    """How far a group has come whose run is complete; ``plan`` has the partitions that exist."""
    if facts.members:
        return wrong(
            f"members are registered in ZooKeeper, though it was migrated: {name_some(facts.members)}; stop them"
        )
    if lost := [r.partition for r in plan.partitions if r.new is not None and r.partition not in facts.in_kafka]:
        return wrong(_how_to_replace(facts, plan, lost))
    is_consumed = _is_consumed(facts, plan)
    if not facts.exists:
        if is_consumed:
            return Judged(FleetState.DONE)
        return Judged(
            FleetState.WRITTEN,
            f"its znodes were deleted, and no new consumer has committed to {plan.target}, whose offsets expire",
        )
    if others := moved_since_run(facts, plan):
        stored = {p: offset for p, offset in facts.in_zookeeper.items() if offset is not None}
        may_go_back = not decide_rollback(
            plan, plan.place, facts.in_kafka, stored, (), WriteState.COMPLETE, facts.beyond
        )
        back = ", or roll it back to stay in ZooKeeper" if may_go_back else ""
        return wrong(
            f"offsets of {plan.source} have moved since: {name_some(others)}; consumers have run there, too. If these "
            f"offsets are the right ones, stop the new consumers and plan it again{back}; if those in Kafka are, stop "
            "the old consumers and delete the znodes with `zkconsumer groups delete --group "
            f"{shlex.quote(plan.source.group)} --store zookeeper`"
        )
    if facts.mark is not None and mark_verdict(facts.mark, has_members=False) == "under way":
        reason = f"its mark is {facts.mark.state}, so a command was killed: run it again, or go back"
        return wrong(reason, "run", "rollback", "reverse")
    return _in_order(facts, is_consumed=is_consumed)


def _in_order(facts: FleetFacts, *, is_consumed: bool) -> Judged:
    unmarked = "" if facts.mark is not None else "it has no mark, so old consumers that are started would join"
    if is_consumed:
        return Judged(FleetState.MIRRORED if facts.mirrored else FleetState.CONSUMED, unmarked)
    if added := sorted({*facts.added} - facts.in_kafka.keys()):
        return wrong(_not_planned(added), "plan", "rollback", "reverse")
    return Judged(FleetState.WRITTEN, unmarked)


def _not_planned(added: Sequence[TopicPartition]) -> str:
    return (
        f"partitions were added since it was planned: {name_some(added)}, at which new consumers begin by "
        "auto.offset.reset; plan it again before they start"
    )


def moved_since_run(facts: FleetFacts, plan: MigrationPlan) -> list[TopicPartition]:
    """As mirror and reverse of a fleet ask: also of topics that began since, if consumers have read them in Kafka."""
    topics = {p.topic for p in (*(row.partition for row in plan.partitions), *facts.in_kafka)}
    known = known_at_source(facts.mirrored, facts.back_plan, facts.back)
    return moved_since(plan, known, {p: offset for p, offset in facts.in_zookeeper.items() if p.topic in topics})


def _how_to_replace(facts: FleetFacts, plan: MigrationPlan, lost: Sequence[TopicPartition]) -> str:
    """What writes the lost offsets: the run, a new plan, or a reset, by what the guards of the first two accept."""
    gone = f"{plan.target} has lost its offsets of {name_some(lost)}: they have expired, or were deleted"
    at_source, at_target = moved(plan, facts.in_zookeeper, facts.in_kafka, WriteState.COMPLETE)
    others = (p for p in at_target if facts.in_kafka.get(p) != facts.in_zookeeper.get(p))
    if not facts.exists or any(others):  # consumers have read on, or ZooKeeper has nothing
        how = "reset them to where consumers are to begin (`zkconsumer offsets reset --store kafka`)"
        return f"{gone}; {how}, before one begins elsewhere"
    if facts.mirrored:
        return f"{gone}; plan it again, before a consumer begins elsewhere: ZooKeeper has what the mirror copied last"
    how = "plan it again" if at_source or at_target else "run it again (plan it again if that is refused)"
    return f"{gone}; {how}, before a consumer begins elsewhere. What was read since it was migrated is read once more"


def _is_consumed(facts: FleetFacts, plan: MigrationPlan) -> bool:
    if facts.kafka is not None and facts.kafka.has_members:
        return True
    return bool(moved_at_target(plan, facts.in_kafka, facts.beyond, WriteState.COMPLETE))
