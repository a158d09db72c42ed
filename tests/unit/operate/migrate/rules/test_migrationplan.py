"""Plans of migrations, and what has changed since they were made, with values."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.judgedoffsets import judged, see
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.operate.migrate.rules import migrationend
from zkconsumer.operate.migrate.rules.migrationend import End, check_ends, check_servers, parse_end
from zkconsumer.operate.migrate.rules.migrationplan import (
    Guard,
    Observation,
    Place,
    PlannedPartition,
    beyond_plan,
    continued,
    make_plan,
    recheck,
    verify,
    why_not_migrated,
)
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
SOURCE, TARGET = End("zookeeper", "g"), End("kafka", "g")
LOG = LogRange(10, 100)
PLACE = Place("/kafka", "cluster", "cluster")
SEEN = Observation(
    PLACE,
    judged({P0: 50, P1: 60}),
    judged({P1: 55}),
    {P0: LOG, P1: LOG},
    {"t": TopicIdentity("id", 5)},
    (Guard("zookeeper", True, "ok"),),
)


NOWHERE = see(SEEN, source={P0: 50}, target={})
"""Neither end has an offset of the second partition."""


def plan(seen=SEEN, source=SOURCE, target=TARGET, *, missing="fail", retention_ms=None, **how):
    return make_plan(source, target, "h:1/kafka", seen, missing=missing, retention_ms=retention_ms, now_ms=1, **how)


def refusals(now, *, began=False, **how):
    return recheck(plan(**how), now, began=began).refusals


def written(seen, *partitions):
    """What is seen after the new offsets of some partitions were written."""
    return see(seen, target={**seen.target, **{p: seen.source[p] for p in partitions}})


def test_examples():
    assert doctest.testmod(migrationend).failed == 0


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["zookeeper:g", "kafka:g", "zookeeper:g@h:1", "zookeeper:a@b@h:1,i:2/x/y", "zookeeper:g@home", "kafka:a@h:1"],
)
def test_an_end_is_written_as_it_was_read(text):
    assert str(parse_end(text)) == text


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("zookeeper:g@home", End("zookeeper", "g@home")),
        ("zookeeper:a@b@h:1/x", End("zookeeper", "a@b", "h:1/x")),
        ("kafka:a@h:1", End("kafka", "a@h:1")),
    ],
)
def test_servers_are_recognised_by_their_port(text, end):
    assert parse_end(text) == end


@pytest.mark.parametrize(
    "text",
    ["", "g", "kafka", "kafka:", "zookeeper:", "zookeeper:a/b", "zookeeper:..", "redis:g", "storm:id", "storm:/a/../b"],
)
def test_another_end_is_refused(text):
    with pytest.raises(ValueError, match="no end of a migration"):
        parse_end(text)


@pytest.mark.parametrize("end", [SOURCE, TARGET])
def test_both_ends_in_one_store_are_refused(end):
    with pytest.raises(ValueError, match="one kind of store"):
        check_ends(end, end)


def test_a_receiver_is_not_overwritten_by_its_own_offsets():
    check_ends(parse_end("dibbhatt:/consumers/h"), SOURCE)
    with pytest.raises(ValueError, match="would be overwritten"):
        check_ends(parse_end("dibbhatt:/consumers/g"), SOURCE)


@pytest.mark.parametrize("text", ["storm:/r/id", "dibbhatt:/p/id", "spark:/c"])
def test_an_end_that_is_only_read_is_no_target(text):
    check_ends(parse_end(text), TARGET)
    with pytest.raises(ValueError, match="can only be read"):
        check_ends(SOURCE, parse_end(text))


@pytest.mark.parametrize(
    ("source", "target", "group"),
    [(SOURCE, TARGET, "g"), (TARGET, End("zookeeper", "h"), "h"), (parse_end("storm:/r/id"), TARGET, None)],
)
def test_a_group_in_zookeeper_is_held(source, target, group):
    assert plan(source=source, target=target).held_group == group


@pytest.mark.parametrize(
    ("source", "target", "has_servers", "servers"),
    [
        ("zookeeper:g@a:1/x", "kafka:g", True, "a:1/x"),
        ("kafka:g", "zookeeper:g@a:1", False, "a:1"),
        ("kafka:g", "zookeeper:g", False, None),
        ("storm:/s/id@a:1", "zookeeper:g@b:1/kafka", False, "b:1/kafka"),
        ("storm:/s/id@a:1", "zookeeper:g", True, None),
        ("storm:/s/id@a:1", "kafka:g", True, None),
        ("storm:/s/id@a:1", "kafka:g", False, "a:1"),
    ],
)
def test_servers_of_an_end_apply_to_that_end(source, target, has_servers, servers):
    assert check_servers(parse_end(source), parse_end(target), has_servers=has_servers) == servers


def test_a_group_is_not_written_into_the_zookeeper_of_a_spout():
    with pytest.raises(ValueError, match=r"write zookeeper:g@HOST:PORT"):
        check_servers(parse_end("storm:/s/id@a:1"), parse_end("zookeeper:g"), has_servers=False)


# -- rows -------------------------------------------------------------------------------------------------------------


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
    assert recheck(plan(AHEAD), AHEAD, began=False).refusals == (reason,), "nor by a run of that plan"
    accepted = plan(AHEAD, rewind=True)
    assert (accepted.refusals, recheck(accepted, AHEAD, began=False).refusals) == ((), ())


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


# -- before the first write -------------------------------------------------------------------------------------------


def test_nothing_is_refused_where_nothing_has_changed():
    check = recheck(plan(), SEEN, began=False)
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
        ({"guards": (Guard("kafka", False, "group g lives"),)}, "group g lives"),
    ],
)
def test_what_has_changed_is_refused(now, text):
    found = refusals(see(SEEN, **now))
    assert len(found) == 1
    assert text in found[0]


@pytest.mark.parametrize(("source", "target"), [("zookeeper", "kafka"), ("kafka", "zookeeper")])
def test_the_file_of_a_fleet_accepts_only_what_happens_on_the_way_to_kafka(source, target):
    ends = (End(source, "g"), End(target, "g"))
    for seen in (NOWHERE, see(SEEN, target={P0: 70, P1: 70})):
        (reason,) = make_plan(*ends, "h:1", seen, missing="fail", retention_ms=None, now_ms=1).refusals
        assert ("in the file of a fleet" in reason) is (target == "kafka")


def test_a_plan_with_an_undecided_partition_stays_refused():
    assert "--missing earliest" in recheck(plan(NOWHERE), NOWHERE, began=False).refusals[0]


def test_a_guard_that_holds_by_now_is_no_refusal():
    then = see(SEEN, guards=(Guard("zookeeper", False, "group g has a live member"),))
    assert recheck(plan(then), SEEN, began=False).refusals == ()


def test_only_an_earlier_run_may_have_written_the_target():
    now = written(SEEN, P0)
    assert "another client has written" in refusals(now)[0]
    check = recheck(plan(), now, began=True)
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
    check = recheck(plan(), see(SEEN, target=target, guards=(live,)), began=True, is_begun_only=True)
    assert (check.refusals == (), list(check.later)) == (bool(later), later)
    assert (check.todo == ()) is bool(later) or target == {P0: 50, P1: 60}


def test_consumers_of_a_target_that_was_ahead_may_have_continued_from_there():
    """1. `--rewind` takes it back; 2. the run is killed before it writes; 3. they continue."""
    ahead = see(SEEN, target={P0: 70, P1: 55})
    assert continued(plan(ahead, rewind=True), {P0: 71, P1: 60}) == []


def test_a_target_that_had_the_offset_before_is_done():
    same = see(SEEN, target={P0: 50, P1: 60})
    check = recheck(plan(same), same, began=False)
    assert (check.refusals, check.todo, len(check.done)) == ((), (), 2)


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
    check = recheck(made, written(seen, *done), began=True)
    assert check.refusals == ()
    assert {row.partition for row in check.todo}.isdisjoint(done)
    after = written(seen, *done, *(row.partition for row in check.todo))
    assert all(row.is_equal for row in verify(made, after))
    assert recheck(made, after, began=True).todo == ()


@given(OBSERVED, st.sampled_from([P0, P1, P2]), OFFSETS, st.booleans())
def test_a_foreign_write_to_the_target_is_always_refused(seen, partition, offset, began):
    made = plan(seen, rewind=True)
    row = next(row for row in made.partitions if row.partition == partition)
    now = see(seen, target={**seen.target, partition: offset})
    check = recheck(made, now, began=began)
    is_known = offset == row.before or (began and offset == row.new)
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
    assert f"do not exist any more: {named}" in recheck(made, see(seen, logs={}), began=False).refusals[0]
    expired = see(seen, logs=dict.fromkeys(several, LogRange(60, 100)))
    assert any(f"were deleted meanwhile: {named}" in one for one in recheck(made, expired, began=False).refusals)
