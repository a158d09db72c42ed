"""What a member has to change to own its share, in every protocol."""

import pytest

from zkconsumer.group.groupprotocol import NextAssignment
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.model import ConsumerThreadId, TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
THREAD = ConsumerThreadId("g_c", 0)


@pytest.mark.parametrize(
    ("incremental", "recreated", "kept"), [(True, [], {P1}), (True, [P1], set()), (False, [], set())]
)
def test_a_protocol_that_keeps_partitions_gives_up_the_others(incremental, recreated, kept):
    held, share = dict.fromkeys([P0, P1], THREAD), dict.fromkeys([P1, P2], THREAD)
    following = NextAssignment.of(held, share, RebalanceCause.MEMBERS, "why", recreated, incremental=incremental)
    assert (following.share, following.kept, following.revoked) == (share, kept, held.keys() - kept)
    assert following.recreated == set(recreated)
    assert following.changes == ("why; deleted and created again: t" if recreated else "why")
