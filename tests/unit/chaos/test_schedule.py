"""Schedules of faults: the same from the same seed, through JSON, and shrunk to what fails."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.injector import KINDS
from tests.chaos.kinds import COORDINATED, IN_BROKERS
from tests.chaos.rows import ROWS
from tests.chaos.schedule import LEADER, Fault, Schedule, shrink
from zkconsumer.errors import UsageError

ROW = st.sampled_from(sorted(ROWS))


def schedule(row, seed, jvm):
    return ROWS[row].schedule(seed, jvm=jvm)


@given(ROW, st.integers(0, 1 << 31), st.booleans())
def test_a_seed_gives_the_same_schedule_every_time(row, seed, jvm):
    assert schedule(row, seed, jvm) == schedule(row, seed, jvm)


@given(ROW, st.integers(0, 1 << 31), st.booleans())
def test_a_schedule_comes_back_from_its_json(row, seed, jvm):
    made = schedule(row, seed, jvm)
    assert Schedule.from_json(made.to_json()) == made


@given(ROW, st.integers(0, 1 << 31), st.booleans())
def test_every_planned_fault_can_be_injected(row, seed, jvm):
    made = schedule(row, seed, jvm)
    assert made.faults
    assert {fault.kind for fault in made.faults} <= KINDS.keys()
    assert all(fault.at >= 0 and fault.seconds >= 0 for fault in made.faults)
    # The session of a JVM cannot be taken over.
    assert all(made.members[fault.member] != "jvm" for fault in made.faults if fault.kind == "expire")


@given(ROW, st.integers(0, 1 << 31), st.booleans())
def test_only_a_group_with_a_coordinator_has_faults_of_its_leader(row, seed, jvm):
    assert all(fault.member != LEADER for fault in schedule(row, seed, jvm).faults)


def test_a_leader_is_killed_and_stopped_where_there_is_one():
    made = [ROWS["R8"].schedule(seed, ours=COORDINATED) for seed in range(30)]
    assert {fault.kind for one in made for fault in one.faults if fault.member == LEADER} == {"kill", "leave", "pause"}
    assert {fault.mode for one in made for fault in one.faults if fault.kind == "join"} == {COORDINATED}


def test_an_unclean_election_is_only_where_all_members_notice_it():
    def unclean(**members):
        return [ROWS["R6"].schedule(seed, **members).erases for seed in range(60)]

    assert 0.2 < sum(unclean()) / 60 < 0.5
    assert any(unclean(ours=COORDINATED))
    assert not any(unclean(jvm=True))
    assert not any(unclean(ours=IN_BROKERS))


def test_nobody_listens_without_orders():
    assert any(ROWS["SEQ"].schedule(seed).listens for seed in range(10))
    assert not any(ROWS["MIX"].schedule(seed).listens for seed in range(10))


@pytest.mark.parametrize("text", ["", "[]", '{"members":["jvm"]}', '{"members":[],"faults":[{"kind":"kill"}]}'])
def test_another_text_is_refused(text):
    with pytest.raises(UsageError, match="not a schedule"):
        Schedule.from_json(text)


def test_a_schedule_is_described_in_one_line():
    made = Schedule(("zkconsumer", "jvm"), (Fault("kill", 1.0, 1), Fault("network", 2.5, 0, 3.0, "cut")))
    described = "members zkconsumer, jvm: at 1.00 s kill member 1; at 2.50 s network (cut) member 0 for 3.00 s"
    assert str(made) == described


@given(st.lists(st.integers(), min_size=1, max_size=30, unique=True), st.data())
def test_a_failing_list_is_shrunk_to_the_culprits(items, data):
    culprits = data.draw(st.sets(st.sampled_from(items), max_size=4))
    kept = shrink(items, lambda some: culprits <= set(some))
    assert kept == [item for item in items if item in culprits]


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 60))
def test_no_single_item_can_be_omitted_from_what_is_left(items, least):
    def fails(some):
        return sum(some) >= least

    if fails(items):
        kept = shrink(items, fails)
        assert fails(kept)
        assert not any(fails(kept[:index] + kept[index + 1 :]) for index in range(len(kept)))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_no_part_is_tried_twice(items):
    tried = []
    shrink(list(enumerate(items)), lambda some: tried.append(tuple(some)) or sum(n for _, n in some) >= sum(items) / 2)
    assert len(tried) == len(set(tried))
