"""What has changed since a plan of a migration was made, and what is written of it, with values."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.judgedoffsets import judged, see
from tests.fixtures.migrationplans import LOG, NOWHERE, P0, P1, P2, PLACE, SEEN, plan, written
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.topicorigins import JudgedOffset, WrittenFor
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import (
    Guard,
    Observation,
    make_plan,
)
from zkconsumer.operate.migrate.rules.migrationrecheck import (
    continued,
    is_verified,
    lacks_mark_alone,
    recheck,
    verify,
    warn_of_scope,
)
from zkconsumer.operate.migrate.rules.planfile import plan_digest
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.zookeeper.rules.znodes import MigrationMark


def refusals(now, **how):
    return recheck(plan(**how), now, None).refusals


def test_nothing_is_refused_where_nothing_has_changed():
    check = recheck(plan(), SEEN, None)
    assert (check.refusals, [row.partition for row in check.todo], check.done) == ((), [P0, P1], ())


def test_new_records_are_no_change():
    assert refusals(see(SEEN, logs={P0: LogRange(20, 200), P1: LogRange(10, 101)})) == ()


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ({"source": {P0: 51, P1: 60}}, "have moved since the plan"),
        ({"source": {P0: 50}}, "have moved since the plan"),
        ({"target": {P1: 56}}, "another client has written"),
        ({"target": {}}, "another client has written"),
        ({"target": {P0: 1, P1: 55}}, "another client has written"),
        ({"logs": {P0: LOG, P1: LOG, P2: LOG}}, "partitions were added"),
        ({"logs": {P0: LOG}}, "do not exist any more"),
        ({"logs": {P0: LOG, P1: LogRange(10, 99)}}, "deleted and created again"),
        ({"logs": {P0: LOG, P1: LogRange(0, 100)}}, "deleted and created again"),
        ({"logs": {P0: LOG, P1: LogRange(61, 100)}}, "were deleted meanwhile"),
        ({"identities": {"t": TopicIdentity("other", 9)}}, "deleted and created again"),
        ({"place": PLACE._replace(chroot="")}, "for chroot /kafka, not /"),
        ({"place": PLACE._replace(zookeeper_cluster="other")}, "not other"),
        ({"place": PLACE._replace(kafka_cluster="other")}, "not other"),
        ({"place": PLACE._replace(zookeeper_cluster=None)}, "not one without a cluster id"),
        ({"guards": (Guard("kafka", False, "group g lives"),)}, "group g lives"),
    ],
)
def test_what_has_changed_is_refused(now, text):
    found = refusals(see(SEEN, **now))
    assert len(found) == 1
    assert text in found[0]


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (PLACE._replace(zookeeper_cluster=None, kafka_cluster=None), PLACE),
        (PLACE._replace(kafka_cluster=None), PLACE),
        (PLACE, PLACE._replace(kafka_cluster=None)),
    ],
    ids=["upgraded", "being upgraded when it was planned", "being upgraded"],
)
def test_brokers_that_are_upgraded_across_0_10_1_are_the_same_cluster(then, now):
    """Those before it report no id; a migration that was run with them would have no way back."""
    assert recheck(plan(see(SEEN, place=then)), see(SEEN, place=now), None).refusals == ()


@pytest.mark.parametrize(("source", "target"), [("zookeeper", "kafka"), ("kafka", "zookeeper")])
def test_the_file_of_a_fleet_accepts_only_what_happens_on_the_way_to_kafka(source, target):
    ends = (End(source, "g"), End(target, "g"))
    for seen in (NOWHERE, see(SEEN, target={P0: 70, P1: 70})):
        (reason,) = make_plan(*ends, "h:1", seen, missing="fail", retention_ms=None, now_ms=1).refusals
        assert ("in the file of a fleet" in reason) is (target == "kafka")


def test_a_plan_with_an_undecided_partition_stays_refused():
    assert "--missing earliest" in recheck(plan(NOWHERE), NOWHERE, None).refusals[0]


def test_a_guard_that_holds_by_now_is_no_refusal():
    then = see(SEEN, guards=(Guard("zookeeper", False, "group g has a live member"),))
    assert recheck(plan(then), SEEN, None).refusals == ()


def test_only_an_earlier_run_may_have_written_the_target():
    now = written(SEEN, P0)
    assert "another client has written" in refusals(now)[0]
    check = recheck(plan(), now, WriteState.WRITING)
    assert (check.refusals, [row.partition for row in check.todo]) == ((), [P1])


@pytest.mark.parametrize(
    ("target", "later"),
    [
        ({P0: 50, P1: 61}, [P1]),
        ({P0: 50, P1: 60}, []),
        ({P0: 51, P1: 55}, []),
        ({P1: 61}, []),
        ({P0: 51, P1: 59}, []),
    ],
)
def test_consumers_have_continued_only_where_everything_was_written(target, later):
    assert continued(plan(), target) == later
    live = Guard("kafka", False, "group g lives in Kafka")
    check = recheck(plan(), see(SEEN, target=target, guards=(live,)), WriteState.WRITING)
    assert (check.refusals == (), list(check.later)) == (bool(later), later)
    assert (check.todo == ()) is bool(later) or target == {P0: 50, P1: 60}


def test_logs_may_change_where_consumers_have_continued_after_a_run_that_was_killed():
    """Nothing is left to write: 1. planned offsets leave their log; 2. partitions are added."""
    logs = {P0: LogRange(51, 200), P1: LogRange(61, 200), P2: LOG}
    for run in (WriteState.WRITING, WriteState.COMPLETE):
        check = recheck(plan(), see(SEEN, target={P0: 52, P1: 61}, logs=logs), run)
        assert (check.refusals == (), check.todo == ()) == (run is WriteState.WRITING,) * 2


def test_consumers_of_a_target_that_was_ahead_may_have_continued_from_there():
    """1. `--rewind` takes it back; 2. the run is killed before it writes; 3. they continue."""
    ahead = see(SEEN, target={P0: 70, P1: 55})
    assert continued(plan(ahead, rewind=True), {P0: 70, P1: 61}) == []
    assert continued(plan(ahead, rewind=True), {P0: 71, P1: 60}) == []


def test_consumers_of_a_target_that_is_behind_what_it_had_have_continued_from_the_plan():
    """1. What it has is of an earlier topic; 2. the run that replaces it is killed after its last write."""
    ahead = see(SEEN, target={P0: 70, P1: 55})
    assert continued(plan(ahead, rewind=True), {P0: 52, P1: 60}) == [P0]


def test_a_target_that_had_the_offset_before_is_done():
    same = see(SEEN, target={P0: 50, P1: 60})
    check = recheck(plan(same), same, None)
    assert (check.refusals, check.todo, len(check.done)) == ((), (), 2)


def test_an_equal_offset_of_an_earlier_topic_is_written():
    """Members would take it for one of the earlier topic; the run that has replaced it is complete."""
    same = see(SEEN, target={P0: 50, P1: 60})
    made = plan(same)
    made = replace(made, partitions=tuple(replace(row, is_before_outdated=True) for row in made.partitions))
    for run, left in ((None, [P0, P1]), (WriteState.WRITING, [P0, P1]), (WriteState.COMPLETE, [])):
        assert [row.partition for row in recheck(made, same, run).todo] == left


OFFSETS = st.integers(0, 12)
OBSERVED = st.builds(
    lambda source, target: Observation(
        PLACE, judged(source), judged(target), dict.fromkeys((P0, P1, P2), LogRange(0, 12))
    ),
    st.fixed_dictionaries({P0: OFFSETS, P1: OFFSETS, P2: OFFSETS}),
    st.dictionaries(st.sampled_from([P0, P1, P2]), OFFSETS),
)


@given(OBSERVED, st.sets(st.sampled_from([P0, P1, P2])))
def test_a_run_that_ended_anywhere_is_resumed(seen, done):
    """Whatever part was written, the rest is what is left, and then both ends are equal."""
    made = plan(seen, rewind=True)
    check = recheck(made, written(seen, *done), WriteState.WRITING)
    assert check.refusals == ()
    assert {row.partition for row in check.todo}.isdisjoint(done)
    after = written(seen, *done, *(row.partition for row in check.todo))
    assert all(row.is_equal for row in verify(made, after))
    assert recheck(made, after, WriteState.WRITING).todo == ()


@pytest.mark.parametrize(("now", "is_refused"), [(55, True), (60, False), (None, False)])
def test_a_target_of_a_complete_run_has_what_was_written_or_nothing(now, is_refused):
    """What it had before the run was put there by another client since; offsets expire."""
    target = {P0: 50} if now is None else {P0: 50, P1: now}
    assert bool(recheck(plan(), see(SEEN, target=target), WriteState.COMPLETE).refusals) is is_refused


@given(OBSERVED, st.sampled_from([P0, P1, P2]), OFFSETS, st.sampled_from([None, WriteState.UNDONE]))
def test_a_foreign_write_to_the_target_is_always_refused(seen, partition, offset, run):
    made = plan(seen, rewind=True)
    row = next(row for row in made.partitions if row.partition == partition)
    now = see(seen, target={**seen.target, partition: offset})
    check = recheck(made, now, run)
    is_known = offset == row.before or (run is not None and offset == row.new)
    assert bool(check.refusals) != is_known


# -- verification -----------------------------------------------------------------------------------------------------


def test_both_lags_are_those_of_one_log_end():
    now = see(written(SEEN, P0), logs={P0: LogRange(10, 120), P1: LogRange(10, 130)})
    rows = verify(plan(), now)
    assert [(row.source_lag, row.target_lag, row.is_equal) for row in rows] == [(70, 70, True), (70, 75, False)]


def test_a_partition_without_an_offset_in_the_source_is_equal():
    now = see(NOWHERE, target={P0: 50, P1: 10})
    assert [row.is_equal for row in verify(plan(NOWHERE, missing="earliest"), now)] == [True, True]


@pytest.mark.parametrize(
    ("source", "target", "equal"), [(None, 7, True), (5, None, False), (5, 7, False), (7, 7, True)]
)
def test_a_topic_that_began_after_the_plan_is_verified(source, target, equal):
    new, none = TopicPartition("new", 0), TopicPartition("new", 1)
    now = see(written(SEEN, P0, P1), logs={**SEEN.logs, new: LOG, none: LOG})
    now = see(now, source=with_offset(now.source, new, source), target=with_offset(now.target, new, target))
    rows = verify(plan(), now)
    assert [(row.partition, row.planned, row.is_equal) for row in rows[2:]] == [(new, None, equal)]


def with_offset(offsets, partition, offset):
    return offsets if offset is None else {**offsets, partition: offset}


def test_a_source_that_continued_is_not_equal():
    assert not verify(plan(), see(written(SEEN, P0, P1), source={P0: 51, P1: 60}))[0].is_equal


def test_a_topic_that_was_deleted_since_the_plan_is_not_verified():
    """Brokers have deleted its offsets; those in ZooKeeper stay."""
    made = plan()
    rows = verify(made, see(written(SEEN, P0), logs={P0: LOG}))
    assert ([row.partition for row in rows], is_verified(rows)) == ([P0], True)
    assert warn_of_scope(made, rows) == ["t-1 does not exist any more, and is not compared"]
    assert not is_verified(verify(made, see(SEEN, logs={}, source={}, target={}))), "nothing shows that it was migrated"


def test_partitions_that_the_plan_does_not_have_are_a_warning():
    new = TopicPartition("new", 0)
    now = see(written(SEEN, P0, P1), logs={**SEEN.logs, new: LOG})
    (warning,) = warn_of_scope(plan(), verify(plan(), see(now, target=with_offset(now.target, new, 7))))
    assert warning == "the plan does not have new-0; `migrate mirror` and `migrate reverse` take them along"


DONE = written(SEEN, P0, P1)
REFUSES_SOURCE = replace(DONE, guards=(Guard("zookeeper", False, "has members"),))
REFUSES_TARGET = replace(DONE, guards=(Guard("kafka", False, "has members"), Guard("zookeeper", True, "ok")))


@pytest.mark.parametrize(
    ("seen", "run", "state", "of_other", "expected"),
    [
        (DONE, WriteState.COMPLETE, "migrating", False, True),
        (see(DONE, target={P0: 70, P1: 80}), WriteState.COMPLETE, "migrating", False, True),  # consumers continue
        (REFUSES_TARGET, WriteState.COMPLETE, "migrating", False, True),
        (DONE, WriteState.COMPLETE, "undoing", False, True),
        (see(DONE, source={P1: 60}), WriteState.COMPLETE, "migrating", False, True),  # the znode was deleted
        (DONE, WriteState.COMPLETE, "migrated", False, False),
        (DONE, WriteState.COMPLETE, None, False, False),
        (DONE, WriteState.COMPLETE, "migrating", True, False),
        (DONE, WriteState.WRITING, "migrating", False, False),
        (DONE, None, "migrating", False, False),
        (REFUSES_SOURCE, WriteState.COMPLETE, "migrating", False, False),
        (see(DONE, target={P0: 50}), WriteState.COMPLETE, "migrating", False, False),  # it has expired
        (see(DONE, target={}), WriteState.COMPLETE, "migrating", False, False),
        (see(DONE, source={P0: 51, P1: 60}), WriteState.COMPLETE, "migrating", False, False),  # old consumers continue
    ],
)
def test_a_complete_run_has_nothing_to_do_but_to_show_it_in_its_own_mark(seen, run, state, of_other, expected):
    made = plan()
    digest = "other" if of_other else plan_digest(made)
    mark = None if state is None else MigrationMark(state, "kafka:g", 1, digest)
    assert lacks_mark_alone(made, seen, run, mark) is expected


def test_an_offset_of_an_earlier_topic_in_the_source_is_refused_unless_the_plan_knows_it():
    earlier = see(SEEN, source={P0: 50, P1: JudgedOffset(60, WrittenFor.EARLIER)})
    assert any("t-1 were stored for earlier topics" in reason for reason in refusals(earlier))
    known = plan(earlier, missing="earliest")
    assert not any("stored for earlier topics" in reason for reason in recheck(known, earlier, None).refusals)
