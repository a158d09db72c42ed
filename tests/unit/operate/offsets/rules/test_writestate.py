"""How far a write has come: which states follow each other."""

from zkconsumer.operate.offsets.rules.writestate import FOLLOWING, WriteState


def test_every_state_is_reached_and_is_left():
    assert set(FOLLOWING) == {None, *WriteState}
    assert set().union(*FOLLOWING.values()) == set(WriteState)
    assert all(FOLLOWING.values())
