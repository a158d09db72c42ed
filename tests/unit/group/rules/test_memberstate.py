"""The states of a member and their order."""

from itertools import pairwise

from zkconsumer.group.rules.memberstate import (
    STEPS,
    TRANSITIONS,
    Entered,
    MemberState,
    StateHistory,
    step_name,
)
from zkconsumer.group.rules.memberstate import illegal_transitions as illegal


def history(*states):
    made = StateHistory(0.0)
    for number, state in enumerate(states, 1):
        made.enter(state, float(number))
    return made


def test_every_state_has_its_transitions_and_can_be_reached():
    assert set(TRANSITIONS) == set(MemberState)
    assert set().union(*TRANSITIONS.values()) == set(MemberState) - {MemberState.LATENT}


def test_every_state_but_the_last_can_end():
    assert [state for state in MemberState if MemberState.CLOSED not in TRANSITIONS[state]] == [MemberState.CLOSED]


def test_the_five_steps_are_states_in_their_order():
    steps = list(STEPS)
    path = [MemberState.READING_GROUP, *steps, MemberState.FETCHING]
    assert all(after in TRANSITIONS[before] for before, after in pairwise(path))


def test_the_first_step_comes_after_the_group_was_read():
    assert step_name(None).startswith("0 ")
    assert [step_name(step)[0] for step in STEPS] == ["1", "2", "3", "4", "5"]


def test_entering_the_present_state_changes_nothing():
    once = history(MemberState.REGISTERING)
    once.enter(MemberState.REGISTERING, 9.0)
    assert once.entered == (Entered(MemberState.LATENT, 0.0), Entered(MemberState.REGISTERING, 1.0))


def test_closed_is_final():
    assert history(MemberState.CLOSED, MemberState.REGISTERING).current is MemberState.CLOSED


def test_the_oldest_states_are_forgotten():
    many = history(*[MemberState.SETTLING, MemberState.READING_GROUP] * 100)
    assert len(many.entered) == 64
    assert many.entered[-1].at == 200.0


def test_an_illegal_transition_is_found():
    entered = history(MemberState.REGISTERING, MemberState.SETTLING, MemberState.CLAIMING).entered
    assert illegal(entered) == [(MemberState.SETTLING, MemberState.CLAIMING)]
