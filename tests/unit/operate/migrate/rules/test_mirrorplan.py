"""What a mirror copies, and what ends it, decided with values."""

import pytest

from tests.fixtures.judgedoffsets import judged
from zkconsumer.errors import BrokerUnavailable, HoldReason, SessionExpired, WriteRefused, ZooKeeperRefused
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import Guard, Observation, Place, make_plan
from zkconsumer.operate.migrate.rules.mirrorplan import (
    CopiedOffset,
    check_mirror,
    decide_copy,
    ends_mirror,
    moved_since,
    moves_back,
    pause_before_copy,
)
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState

P0, P1, P2 = PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SOURCE, TARGET = End("zookeeper", "g"), End("kafka", "g")
PLACE = Place("/kafka", "cluster", "cluster")
STORED = {P0: 50, P1: 60, P2: 70}
SEEN = Observation(PLACE, judged(STORED), {}, dict.fromkeys(PARTITIONS, LogRange(0, 100)))
RUN = WriteState.COMPLETE
EMPTY = Guard("zookeeper", True, "group g has no members")


def plan(source=SOURCE, target=TARGET, seen=SEEN):
    return make_plan(source, target, "h:1/kafka", seen, missing="fail", retention_ms=None, now_ms=1)


PLAN = plan()


def decide(
    in_kafka, in_zookeeper, *, mirrored=(), place=PLACE, guard=EMPTY, existing=PARTITIONS, run=RUN, rewind=False
):
    rows = [CopiedOffset(p, in_kafka.get(p), in_zookeeper.get(p)) for p in sorted(existing)]
    return decide_copy(PLAN, dict(mirrored), place, rows, [guard], run=run, rewind=rewind)


def test_what_differs_is_copied():
    copy = decide({P0: 55, P1: 60, P2: 70}, STORED)
    assert (copy.refusals, copy.due) == ((), {P0: 55})
    assert copy.rows[0] == CopiedOffset(P0, 55, 50)


def test_an_offset_that_was_reset_in_kafka_is_copied_if_that_is_accepted():
    reset = {**STORED, P0: 10}
    assert "zookeeper:g is ahead of kafka:g: t-0" in decide(reset, STORED).refusals[0]
    accepted = decide(reset, STORED, rewind=True)
    assert (accepted.refusals, accepted.due) == ((), {P0: 10})


@pytest.mark.parametrize("in_zookeeper", [50, 40])
def test_an_offset_of_an_earlier_topic_is_no_progress(in_zookeeper):
    """It is replaced by that of Kafka also if both are the same number."""
    rows = [CopiedOffset(P0, 40, in_zookeeper, is_outdated=True), *(CopiedOffset(p, 60, 60) for p in (P1, P2))]
    mirrored = {row.partition: frozenset({row.in_zookeeper}) for row in rows}
    copy = decide_copy(PLAN, mirrored, PLACE, rows, [EMPTY], run=RUN)
    assert (copy.refusals, copy.due) == ((), {P0: 40})


def test_records_that_the_log_no_longer_has_are_not_read_again():
    """The log was truncated to 45; `migrate reverse` accepts the same."""
    rows = [CopiedOffset(p, 45 if p == P0 else STORED[p], STORED[p]) for p in PARTITIONS]
    assert moves_back(rows) == [P0]
    copy = decide_copy(PLAN, {}, PLACE, rows, [EMPTY], run=RUN, logs={P0: LogRange(0, 45)})
    assert (copy.refusals, copy.due) == ((), {P0: 45})


def test_an_offset_that_expired_in_kafka_leaves_the_znode():
    assert decide({P0: 55}, STORED).due == {P0: 55}


def test_a_partition_that_was_added_is_copied():
    added = TopicPartition("t", 3)
    assert decide({**STORED, added: 7}, STORED, existing=[*PARTITIONS, added]).due == {added: 7}


def test_a_partition_without_any_offset_is_a_warning():
    assert decide(STORED, STORED).warnings == ()
    added = TopicPartition("t", 3)
    (warning,) = decide(STORED, STORED, existing=[*PARTITIONS, added]).warnings
    assert warning.startswith("neither end has an offset of t-3,")
    assert decide({**STORED, added: 7}, STORED, existing=[*PARTITIONS, added]).warnings == ()
    assert decide({P0: 50}, STORED).warnings == ()


def test_offsets_are_not_taken_back_by_default():
    rows = [CopiedOffset(P0, 10, 50), CopiedOffset(P1, 60, 60), CopiedOffset(P2, 70, 70)]
    assert "is ahead of" in decide_copy(PLAN, {}, PLACE, rows, [EMPTY], run=RUN).refusals[0]


def test_znodes_that_have_moved_are_named_in_order():
    several = [TopicPartition("u", number) for number in range(5, -1, -1)]
    assert moved_since(PLAN, {}, dict.fromkeys(several, 1)) == sorted(several)


def test_members_in_zookeeper_end_the_mirror():
    registered = Guard("zookeeper", False, "group g has 1 live member: g_h")
    assert decide(STORED, STORED, guard=registered).refusals == (registered.text,)


def test_a_znode_that_was_deleted_is_written_again_unless_all_were():
    copy = decide({**STORED, P0: 55}, {P0: 50, P2: 70})
    assert (copy.refusals, copy.due) == ((), {P0: 55, P1: 60})
    (reason,) = decide(STORED, {}).refusals
    assert "does not create a group again" in reason
    (reason,) = decide(STORED, {}, mirrored={P0: frozenset({55})}).refusals
    assert "does not create a group again" in reason


def test_a_znode_that_another_client_wrote_ends_the_mirror():
    reason = decide({**STORED, P0: 55}, {**STORED, P1: 61}).refusals[0]
    assert "zookeeper:g have moved since the migration: t-1" in reason
    assert "migrate plan --from zookeeper:g --to kafka:g" in reason


def test_a_znode_beside_an_added_partition_ends_the_mirror():
    added = TopicPartition("t", 3)
    assert "t-3" in decide(STORED, {**STORED, added: 7}, existing=[*PARTITIONS, added]).refusals[0]


def test_the_next_copy_accepts_what_the_last_one_wrote():
    mirrored = {P0: frozenset({55})}
    assert decide({**STORED, P0: 57}, {**STORED, P0: 55}, mirrored=mirrored).due == {P0: 57}
    (reason,) = decide({**STORED, P0: 57}, STORED, mirrored=mirrored).refusals
    assert "since the last copy: t-0" in reason


@pytest.mark.parametrize("found", [50, 55])
def test_a_copy_without_an_outcome_may_have_written(found):
    mirrored = {P0: frozenset({50, 55})}
    assert decide({**STORED, P0: 57}, {**STORED, P0: found}, mirrored=mirrored).due == {P0: 57}
    assert decide({**STORED, P0: 57}, {**STORED, P0: 56}, mirrored=mirrored).refusals


def test_a_plan_that_was_not_run_is_not_mirrored():
    assert "was not run" in decide(STORED, STORED, run=None).refusals[0]


def test_other_servers_are_refused():
    assert "chroot /kafka, not /" in decide(STORED, STORED, place=PLACE._replace(chroot="")).refusals[0]


@pytest.mark.parametrize(("source", "target"), [(TARGET, SOURCE), (End("storm", "/s/id"), TARGET)])
def test_only_a_migration_from_znodes_to_kafka_is_mirrored(source, target):
    with pytest.raises(ValueError, match="a mirror copies from Kafka to the znodes"):
        check_mirror(plan(source, target))
    check_mirror(PLAN)


# -- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elapsed", "expected"), [(0, 60), (59, 1), (60, 60), (130, 50), (290, 10), (300, None), (1000, None)]
)
def test_copies_begin_at_multiples_of_the_interval_and_at_the_end(elapsed, expected):
    assert pause_before_copy(elapsed, 60, 300) == expected


def test_servers_that_do_not_answer_are_asked_for_ever():
    assert not ends_mirror(BrokerUnavailable("no answer"), 10_000)
    assert not ends_mirror(SessionExpired("over"), 10_000)


def test_a_group_that_a_tool_holds_is_waited_for():
    assert not ends_mirror(WriteRefused(HoldReason("held")), 10_000)


def test_a_guard_ends_the_mirror_and_a_permission_after_a_few_copies():
    assert ends_mirror(WriteRefused("members"), 1)
    assert ends_mirror(WriteRefused(["members", HoldReason("held")]), 1)
    assert [ends_mirror(ZooKeeperRefused("no permission"), count) for count in (1, 2, 3)] == [False, False, True]
