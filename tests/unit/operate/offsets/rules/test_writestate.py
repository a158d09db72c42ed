"""How far a write has come: which states follow each other, and what a rollback leaves."""

import pytest

from zkconsumer.operate.offsets.rules.writestate import FOLLOWING, WriteState, after_rollback


def test_every_state_is_reached_and_is_left():
    assert set(FOLLOWING) == {None, *WriteState}
    assert set().union(*FOLLOWING.values()) == set(WriteState)
    assert all(FOLLOWING.values())


@pytest.mark.parametrize("before", WriteState)
def test_a_rollback_that_wrote_leaves_the_write_undone(before):
    assert after_rollback(before, is_undone=True) is WriteState.UNDONE


def test_a_rollback_that_wrote_nothing_leaves_the_state():
    assert {state: after_rollback(state, is_undone=False) for state in WriteState} == {
        WriteState.WRITING: WriteState.WRITING,
        WriteState.COMPLETE: WriteState.COMPLETE,
        WriteState.UNDOING: WriteState.UNDONE,  # of a rollback that was killed, and may have written
        WriteState.UNDONE: WriteState.UNDONE,
    }


@pytest.mark.parametrize("before", WriteState)
@pytest.mark.parametrize("wrote", [True, False])
def test_the_outcome_of_a_rollback_follows_undoing(before, wrote):
    assert after_rollback(before, is_undone=wrote) in FOLLOWING[WriteState.UNDOING]
