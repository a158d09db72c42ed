"""Plans of migrations, with values."""

import pytest

from tests.fixtures.judgedoffsets import see
from tests.fixtures.migrationplans import LOG, NOWHERE, P0, P1, SEEN, SOURCE, TARGET, plan
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.migrationplan import (
    PlannedPartition,
    beyond_plan,
    why_not_migrated,
)
from zkconsumer.operate.migrate.rules.migrationrecheck import recheck, verify
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState


def test_every_partition_of_the_topics_has_a_row():
    rows = plan().partitions
    assert [(row.partition, row.source, row.before, row.new) for row in rows] == [(P0, 50, None, 50), (P1, 60, 55, 60)]
    assert plan().refusals == ()


@pytest.mark.parametrize(("missing", "new", "skipped"), [("earliest", 10, 0), ("latest", 100, 90)])
def test_a_partition_without_an_offset_begins_as_decided(missing, new, skipped):
    row = plan(NOWHERE, missing=missing).partitions[1]
    assert (row.new, row.skipped) == (new, skipped)
    assert plan(NOWHERE, missing=missing).refusals == ()


def test_a_negative_offset_is_none():
    """A consumer that finds it resets; a migration that copied it would write what no consumer can use."""
    seen = see(SEEN, source={P0: 50, P1: -1}, target={})
    assert "has no offset of t-1" in plan(seen).refusals[0]
    made = plan(seen, missing="earliest")
    assert (made.refusals, made.partitions[1].new, made.partitions[1].skipped) == ((), 10, 0)
    moved = see(seen, target={P0: 50, P1: 10})
    assert [row.is_equal for row in verify(made, moved)] == [True, True]
    assert plan(see(seen, target={P1: 55})).partitions[1].new == 55
    assert plan(see(seen, target={P1: -1})).partitions[1].new is None


@pytest.mark.parametrize("missing", ["fail", "earliest", "latest"])
def test_an_offset_that_only_the_target_has_stays(missing):
    made = plan(see(SEEN, source={P0: 50}), missing=missing)
    row = made.partitions[1]
    assert (made.refusals, row.new, row.skipped, row.replayed) == ((), 55, 0, 0)


AHEAD = see(SEEN, target={P1: 90})


def test_a_target_that_is_ahead_is_not_taken_back():
    """New consumers have run there since."""
    (reason,) = plan(AHEAD).refusals
    assert "kafka:g is ahead of zookeeper:g: t-1" in reason
    assert recheck(plan(AHEAD), AHEAD, None).refusals == (reason,), "nor by a run of that plan"
    accepted = plan(AHEAD, rewind=True)
    assert (accepted.refusals, recheck(accepted, AHEAD, None).refusals) == ((), ())


def test_an_offset_after_the_log_end_may_be_replaced_by_the_log_end():
    """Of a topic that was created again; no record is read twice."""
    assert plan(see(SEEN, source={P0: 50, P1: 100}, target={P1: 500})).refusals == ()


def test_a_partition_without_an_offset_is_refused_by_default():
    assert "no offset of t-1" in plan(NOWHERE).refusals[0]


@pytest.mark.parametrize("offset", [9, 101])
def test_an_offset_outside_the_log_is_refused(offset):
    assert "outside their logs" in plan(see(SEEN, source={P0: 50, P1: offset})).refusals[0]


def test_a_group_without_offsets_is_refused():
    assert "has no offsets" in plan(see(SEEN, source={}, logs={})).refusals[0]


def test_znodes_have_no_retention():
    assert "has no retention" in plan(source=TARGET, target=SOURCE, retention_ms=5).refusals[0]
    assert plan(retention_ms=5).refusals == ()


@pytest.mark.parametrize(
    ("source", "before", "new", "skipped", "replayed"),
    [
        (50, None, 50, 0, 0),
        (50, 70, 50, 0, 20),
        (50, 200, 50, 0, 50),
        (None, None, 10, 0, 0),
        (None, 30, 10, 0, 20),
        (None, None, 100, 90, 0),
        (None, None, None, 0, 0),
    ],
)
def test_what_is_skipped_and_replayed_is_counted(source, before, new, skipped, replayed):
    row = PlannedPartition(P0, source, before, new, LOG)
    assert (row.skipped, row.replayed) == (skipped, replayed)


# -- whether consumers can have continued -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (None, "was not run"),
        (WriteState.WRITING, "no run of the plan has ended"),
        (WriteState.COMPLETE, None),
        (WriteState.UNDOING, "was rolled back"),
        (WriteState.UNDONE, "was rolled back"),
    ],
)
def test_only_a_complete_run_lets_consumers_continue(run, reason):
    found = why_not_migrated(plan(), run)
    assert found is None if reason is None else reason in found


@pytest.mark.parametrize("run", [None, WriteState.WRITING])
def test_a_plan_that_has_nothing_to_write_is_run_all_the_same(run):
    """The run marks the group, and records that it came to its end."""
    assert why_not_migrated(plan(see(SEEN, target=SEEN.source)), run) is not None


def test_partitions_are_in_order():
    several = [TopicPartition("t", number) for number in range(5, -1, -1)]
    seen = see(SEEN, source=dict.fromkeys(several, 50), target={}, logs=dict.fromkeys(several, LOG))
    made = plan(seen)
    assert [row.partition for row in made.partitions] == sorted(several)
    assert beyond_plan(plan(), several) == sorted(several)[2:]
    named = "t-0, t-1, t-2"
    assert f"do not exist any more: {named}" in recheck(made, see(seen, logs={}), None).refusals[0]
    expired = see(seen, logs=dict.fromkeys(several, LogRange(60, 100)))
    assert any(f"were deleted meanwhile: {named}" in one for one in recheck(made, expired, None).refusals)
