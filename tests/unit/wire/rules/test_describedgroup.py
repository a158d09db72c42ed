"""What the state of a group means, and which brokers have no groups."""

import pytest

from zkconsumer.wire.rules.describedgroup import KafkaGroup, why_no_groups


@pytest.mark.parametrize(
    ("state", "has_members"), [("Dead", False), ("Empty", False), ("Stable", True), ("PreparingRebalance", True)]
)
def test_groups_without_members(state, has_members):
    assert KafkaGroup(state).has_members is has_members
    assert KafkaGroup(state).members == 0


def test_only_brokers_before_0_9_have_no_groups():
    assert why_no_groups({}) is None
    assert why_no_groups({1: (0, 9), 2: (0, 10, 2), 3: (3, 9)}) is None
    reason = why_no_groups({**dict.fromkeys((30, 7, 12), (0, 8, 2)), 1: (0, 9)})
    assert reason.startswith("brokers 7, 12, 30 are older than 0.9")
