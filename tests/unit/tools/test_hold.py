"""How a hold ends for members that registered meanwhile, by a clock that the test turns."""

import pytest
from kazoo.protocol.states import EventType

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.model import TopicPartition
from zkconsumer.tools.hold import GroupHold, Released

PARTITIONS = {TopicPartition("t", number) for number in range(2)}


class Group:
    """A group in a ZooKeeper in memory; ``now`` is the time in seconds, ``nudges`` counts those of holds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.nudges = 0
        self.server = ZooKeeperInMemory(lambda: self.now)
        self.session = session_in_memory(self.server)
        self.server.observe = self._observe
        self._members = session_in_memory(self.server)

    def _observe(self, write) -> None:
        self.nudges += write.path.endswith("-nudge") and write.kind == EventType.CREATED

    def hold(self, **options) -> GroupHold:
        return GroupHold(self.session, "g", PARTITIONS, clock=lambda: self.now, **options)

    def register(self, name) -> None:
        self._members.ensure_path("/consumers/g/ids", None)
        assert self._members.create_ephemerals([(f"/consumers/g/ids/{name}", b"{}")])


@pytest.fixture
def group():
    return Group()


@pytest.mark.parametrize("long", [False, True])
def test_members_that_gave_up_are_not_said_to_continue(group, long):
    """An answer that was late makes a short hold last as long as a long one."""
    hold = group.hold(long=long)
    hold.take()
    group.register("g_a")
    group.now += 12
    group.register("g_b")
    group.now += 3
    assert hold.release() == Released(nudged=("g_b",), gave_up=("g_a",))
    assert group.nudges == 0


@pytest.mark.parametrize("long", [False, True])
def test_members_that_still_try_are_nudged(group, long):
    hold = group.hold(long=long)
    hold.take()
    group.now += 12
    group.register("g_a")
    group.now += 3
    assert hold.release() == Released(nudged=("g_a",))
    assert group.nudges == 1


def test_no_member_gave_up_where_nothing_was_claimed(group):
    group.register("g_a")
    group.now += 60
    hold = group.hold(live=True)
    hold.take()
    assert hold.release() == Released(nudged=("g_a",))
