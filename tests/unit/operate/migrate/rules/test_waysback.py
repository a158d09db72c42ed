"""Ways back from a migration, decided with values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.judgedoffsets import judged, offsets, see
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import Guard, Observation, Place, make_plan
from zkconsumer.operate.migrate.rules.migrationrecheck import recheck, verify
from zkconsumer.operate.migrate.rules.waysback import decide_rollback, reverse_plan, reversed_ends
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.rules.writestate import WriteState

P0, P1, P2 = PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SOURCE, TARGET = End("zookeeper", "g"), End("kafka", "g")
PLACE = Place("/kafka", "cluster", "cluster")
LOG = LogRange(0, 100)
RUN = WriteState.COMPLETE
HOLDS = Guard("kafka", True, "group g has no members")
BEFORE, AFTER = {P1: 55, P2: 70}, {P0: 50, P1: 60, P2: 70}
SEEN = Observation(PLACE, judged(AFTER), judged(BEFORE), dict.fromkeys(PARTITIONS, LOG))

OFFSETS = st.integers(0, 12)
OBSERVED = st.builds(
    lambda source, target: Observation(
        PLACE, judged(source), judged(target), dict.fromkeys(PARTITIONS, LogRange(0, 24))
    ),
    st.fixed_dictionaries(dict.fromkeys(PARTITIONS, OFFSETS)),
    st.dictionaries(st.sampled_from(PARTITIONS), OFFSETS),
)


def plan(seen=SEEN, source=SOURCE, target=TARGET):
    return make_plan(source, target, "h:1/kafka", seen, missing="fail", retention_ms=None, now_ms=1)


def rollback(now, *, made=None, place=PLACE, guards=(HOLDS,), run=WriteState.WRITING, source=None):
    made = made or plan()
    there = {row.partition: row.source for row in made.partitions} if source is None else source
    return decide_rollback(made, place, now, there, guards, run, {})


# -- rollback ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [AFTER, {P1: 60, P2: 70}, BEFORE])
def test_what_was_written_is_undone(now):
    assert rollback(now) == ()


@pytest.mark.parametrize("now", [{**AFTER, P0: 51}, {**AFTER, P2: 71}, {P0: 50, P1: 60}])
def test_one_partition_that_moved_refuses_the_rollback(now):
    (reason,) = rollback(now)
    assert "have moved since the migration" in reason
    assert "migrate reverse" in reason


@pytest.mark.parametrize(("now", "is_refused"), [({P0: 50}, False), (BEFORE, True), ({**AFTER, P1: 55}, True)])
def test_a_complete_run_has_left_nothing_of_what_was_before(now, is_refused):
    """1. A run takes the target back; 2. its consumers read up to where they were before. Lost offsets have expired."""
    assert bool(rollback(now, run=RUN)) is is_refused


@pytest.mark.parametrize("now", [BEFORE, AFTER])
def test_a_plan_that_was_not_run_is_not_rolled_back(now):
    (reason,) = rollback(now, run=None)
    assert "was not run" in reason


@pytest.mark.parametrize("source", [{P1: 60, P2: 70}, {P0: 49, P1: 60, P2: 70}])
def test_the_only_offsets_are_not_rolled_back(source):
    """The old group was deleted after the migration, or was itself rolled back."""
    assert "no longer has what was migrated from there: t-0" in rollback(AFTER, source=source)[0]
    assert rollback(AFTER, source={P0: 51, P1: 60, P2: 70}) == ()


def test_an_offset_of_0_is_an_offset():
    """Which the source has lost."""
    seen = see(SEEN, source={**SEEN.source, P0: 0})
    made = plan(seen)
    assert "no longer has" in rollback(offsets(seen.source), made=made, source={P1: 60, P2: 70})[0]
    assert rollback(offsets(seen.source), made=made, source=offsets(seen.source)) == ()


def test_what_the_plan_does_not_have_stays_as_it_was_when_the_run_began():
    added = TopicPartition("t", 3)
    made = plan()
    for found, before, refused in ((7, 7, False), (8, 7, True), (7, None, True)):
        beyond = {} if before is None else {added: before}
        refusals = decide_rollback(made, PLACE, {**AFTER, added: found}, AFTER, [HOLDS], RUN, beyond)
        assert bool(refusals) is refused


def test_guards_and_servers_are_checked_before_a_rollback():
    live = Guard("kafka", False, "group g lives in Kafka")
    elsewhere, reason = rollback(AFTER, guards=(live,), place=PLACE._replace(kafka_cluster="other"))
    assert reason == "group g lives in Kafka"
    assert "not other" in elsewhere


@given(OBSERVED, st.sets(st.sampled_from(PARTITIONS)), st.sets(st.sampled_from(PARTITIONS)))
def test_any_part_of_a_run_is_undone_by_any_parts_of_rollbacks(seen, written, undone):
    made = plan(seen)
    now = {**offsets(seen.target), **{p: seen.source[p].offset for p in written - undone}}
    assert rollback(now, made=made) == ()


@given(OBSERVED, st.sampled_from(PARTITIONS), OFFSETS)
def test_another_clients_offset_is_never_overwritten(seen, partition, offset):
    made = plan(seen)
    row = next(row for row in made.partitions if row.partition == partition)
    refusals = rollback({**offsets(seen.source), partition: offset}, made=made)
    assert bool(refusals) == (offset not in (row.before, row.new))


# -- the way back -----------------------------------------------------------------------------------------------------


def after(seen, progress):
    """Both ends, reversed, when consumers of the target have continued."""
    target = {p: offsets(seen.source)[p] + progress.get(p, 0) for p in PARTITIONS}
    return see(seen, source=target, target=dict(seen.source))


def back(seen, *, made=None, run=RUN, missing="fail", mirrored=None, rewind=False, copied=None):
    known = {p: frozenset({offset}) for p, offset in (mirrored or {}).items()}
    return reverse_plan(
        made or plan(),
        seen,
        known,
        run,
        missing=missing,
        retention_ms=None,
        now_ms=2,
        rewind=rewind,
        copied=mirrored or {} if copied is None else copied,
    )


def test_the_way_back_begins_where_the_target_is():
    found = back(after(SEEN, {P0: 5, P2: 1}))
    assert (found.refusals, found.warnings) == ((), ())
    assert (found.source, found.target) == (TARGET, SOURCE)
    assert [(row.before, row.new, row.skipped, row.replayed) for row in found.partitions] == [
        (50, 55, 0, 0),
        (60, 60, 0, 0),
        (70, 71, 0, 0),
    ]


def test_an_offset_that_expired_is_refused():
    seen = after(SEEN, {})
    expired = see(seen, source={P0: 50, P1: 60})
    assert "kafka:g has no offset of t-2" in back(expired).refusals[0]
    assert back(expired, missing="earliest").partitions[2].replayed == 70


def test_an_offset_that_expired_after_a_mirror_copied_it_is_where_consumers_continue():
    expired = see(after(SEEN, {}), source={P0: 50, P1: 60}, target={**SEEN.source, P2: 75})
    found = back(expired, mirrored={P2: 75})
    assert (found.refusals, found.partitions[2].new) == ((), 75)
    late = back(expired, mirrored={P2: 75}, copied={P2: 80})
    assert "kafka:g has no offset of t-2" in late.refusals[0], "the copy was killed: Kafka had a later one"


def test_consumers_that_continued_at_the_old_place_are_noticed():
    seen = after(SEEN, {P0: 5})
    reason, _behind = back(see(seen, target={**seen.target, P1: 61})).refusals
    assert "zookeeper:g have moved since the migration: t-1" in reason
    assert "migrate plan --from kafka:g --to zookeeper:g" in reason


def test_consumers_that_continued_on_a_new_topic_at_the_old_place_are_noticed():
    new = TopicPartition("new", 0)
    seen = after(SEEN, {})
    logs = {**seen.logs, new: LOG}
    found = back(see(seen, logs=logs, source={**seen.source, new: 7}))
    assert (found.refusals, found.partitions[0].new) == ((), 7)
    both = see(seen, logs=logs, source={**seen.source, new: 7}, target={**seen.target, new: 5})
    assert "have moved since the migration: new-0" in back(both).refusals[0]


def test_what_a_mirror_copied_is_accepted():
    seen = see(after(SEEN, {P0: 5, P1: 9}), target={**SEEN.source, P0: 53})
    found = back(seen, mirrored={P0: 53})
    assert (found.refusals, [row.new for row in found.partitions]) == ((), [55, 69, 70])
    assert "have moved since the mirror: t-0" in back(seen, mirrored={P0: 52}).refusals[0]


def test_the_refusals_of_a_way_back_last():
    seen = see(after(SEEN, {}), target={**SEEN.source, P1: 61})
    assert recheck(back(seen), seen, None).refusals == back(seen).refusals


def test_a_reset_at_the_target_has_to_be_accepted():
    (reason,) = back(after(SEEN, {P0: -20})).refusals
    assert "zookeeper:g is ahead of kafka:g: t-0" in reason
    seen = after(SEEN, {P0: -20})
    assert reverse_plan(plan(), seen, {}, RUN, missing="fail", retention_ms=None, now_ms=2).refusals == (reason,)
    found = back(after(SEEN, {P0: -20}), rewind=True)
    assert (found.refusals, found.partitions[0].replayed) == ((), 20)


def test_a_plan_that_was_not_run_has_no_way_back():
    assert "was not run" in back(after(SEEN, {}), run=None).refusals[0]


def test_a_run_that_has_not_ended_has_no_way_back():
    """It may have written nothing, and the target may have offsets of long ago."""
    assert "no run of the plan has ended" in back(after(SEEN, {}), run=WriteState.WRITING).refusals[0]


@pytest.mark.parametrize("state", [WriteState.UNDONE, WriteState.UNDOING])
def test_a_plan_that_was_rolled_back_has_no_way_back(state):
    assert "was rolled back" in back(after(SEEN, {}), run=state).refusals[0]


def test_the_way_back_is_on_the_same_servers():
    seen = see(after(SEEN, {}), place=PLACE._replace(chroot=""))
    assert "chroot /kafka, not /" in back(seen).refusals[0]


@pytest.mark.parametrize("source", [End("storm", "/s/id"), End("spark", "/c"), End("dibbhatt", "/p/id")])
def test_there_is_no_way_back_to_what_can_only_be_read(source):
    with pytest.raises(ValueError, match="can only be read"):
        reversed_ends(plan(source=source))


@given(OBSERVED, st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 12)))
def test_a_migration_and_its_way_back_lose_and_repeat_nothing(seen, progress):
    """Consumers of the source stop, those of the target read some records, and those of the source continue."""
    there = plan(seen)
    now = after(seen, progress)
    returned = back(now, made=there)
    assert returned.refusals == ()
    assert all(row.skipped == row.replayed == 0 for row in returned.partitions)
    final = see(now, target={row.partition: row.new for row in returned.partitions})
    assert all(row.is_equal for row in verify(returned, final))
    assert final.target == now.source
