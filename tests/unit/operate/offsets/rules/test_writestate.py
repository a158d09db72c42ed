"""The states of a write."""

from zkconsumer.operate.offsets.rules.writestate import WriteState


def test_a_write_is_rolled_back_from_the_moment_that_a_rollback_may_have_written():
    assert [state for state in WriteState if state.is_rolled_back] == [WriteState.UNDOING, WriteState.UNDONE]
