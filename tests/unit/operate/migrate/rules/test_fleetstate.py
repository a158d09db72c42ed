"""How far a group of a fleet has come."""

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.fleetstate import FleetFacts, FleetState, judge
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import Guard, MigrationPlan, Place, PlannedPartition
from zkconsumer.operate.offsets.rules.offsetreset import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.wire.rules.describedgroup import KafkaGroup
from zkconsumer.zookeeper.rules.znodes import MigrationMark

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MARK = MigrationMark("migrated", "kafka:g", 1)
OFFSETS = {T0: 4, T1: 7}


def plan(*guards):
    rows = tuple(PlannedPartition(p, offset, None, offset, LogRange(0, 10)) for p, offset in OFFSETS.items())
    ends = (End("zookeeper", "g"), End("kafka", "g"))
    return MigrationPlan(*ends, Place("", None, None), "h", 1, "fail", None, rows, {}, guards)


def facts(run=WriteState.COMPLETE, **others):
    kafka = KafkaGroup("Empty", "", 0)
    known = {"mark": MARK, "in_zookeeper": OFFSETS, "in_kafka": OFFSETS, "kafka": kafka} if run else {}
    return FleetFacts(**{"plan": plan(), "run": run, **known, **others})


@pytest.mark.parametrize(
    ("known", "state", "reason"),
    [
        (FleetFacts(), FleetState.NOT_STARTED, ""),
        (FleetFacts(exists=False), FleetState.WRONG, "there is no such group in ZooKeeper"),
        (FleetFacts(mark=MARK), FleetState.WRONG, "mark of a migration to kafka:g, and there is no plan"),
        (FleetFacts(problems=("silent", "deaf")), FleetState.UNKNOWN, "silent; deaf"),
        (facts(None), FleetState.PLANNED, ""),
        (facts(None, members=("a",)), FleetState.PLANNED, "members are to be stopped: a"),
        (facts(None, plan=plan(Guard("log", False, "outside"))), FleetState.PLANNED, "outside"),
        (facts(None, plan=plan(Guard("zookeeper", False, "had members then"))), FleetState.PLANNED, ""),
        (facts(None, mark=MARK), FleetState.WRONG, "and no run of the plan"),
        (facts(WriteState.WRITING), FleetState.WRONG, "run it again, or roll it back"),
        (facts(WriteState.UNDOING), FleetState.WRONG, "roll it back again"),
        (facts(WriteState.UNDONE), FleetState.CAME_BACK, "rolled back"),
        (facts(), FleetState.WRITTEN, ""),
        (facts(members=("a",)), FleetState.WRONG, "though it was migrated: a"),
        (facts(in_zookeeper={**OFFSETS, T1: 8}), FleetState.WRONG, "offsets of zookeeper:g have moved since: t-1"),
        (facts(in_kafka={T0: 4}), FleetState.WRONG, "kafka:g has lost its offsets of t-1"),
        (facts(in_kafka={**OFFSETS, T1: 9}), FleetState.CONSUMED, ""),
        (facts(kafka=KafkaGroup("Stable", "consumer", 1)), FleetState.CONSUMED, ""),
        (
            facts(in_kafka={**OFFSETS, T1: 9}, in_zookeeper={**OFFSETS, T1: 8}, mirrored={T1: frozenset({8, 9})}),
            FleetState.MIRRORED,
            "",
        ),
        (facts(exists=False, in_zookeeper={}, in_kafka={**OFFSETS, T1: 9}, mark=None), FleetState.DONE, ""),
        (facts(back=WriteState.COMPLETE), FleetState.CAME_BACK, "reversed"),
        (facts(back=WriteState.WRITING), FleetState.WRONG, "reverse it again"),
    ],
)
def test_states(known, state, reason):
    judged = judge(known)
    assert judged.state is state
    assert reason in judged.reason
    assert bool(reason) == bool(judged.reason)
