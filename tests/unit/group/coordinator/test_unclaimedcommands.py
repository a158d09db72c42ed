"""UnclaimedCommands: which partitions of commands have no owner."""

import pytest

from tests.fixtures.znodes import ZnodesInMemory
from zkconsumer.group.coordinator.unclaimedcommands import UnclaimedCommands
from zkconsumer.model import ConsumerThreadId, TopicPartition

P0 = TopicPartition("t", 0)
SHARE = {P0: ConsumerThreadId("g_c", 0)}
OWNER = "/consumers/g/owners/t/0"


class Leader:
    def __init__(self):
        self.znodes = ZnodesInMemory()
        self.now = 0.0
        self.grants = UnclaimedCommands(self.znodes, "g", lambda: self.now)

    def unclaimed(self, node="g_c@1.0"):
        """What is unclaimed when it is time to look."""
        self.now = self.look(node).due_at or self.now
        return self.look(node).partitions

    def look(self, node="g_c@1.0"):
        return self.grants.unclaimed({"g_c": SHARE}, {"g_c": node})


@pytest.fixture
def leader():
    return Leader()


@pytest.mark.parametrize("owner", [None, b"g_other-0", b""], ids=["no owner", "of another member", "unreadable"])
def test_a_partition_that_its_member_does_not_own_is_unclaimed(leader, owner):
    if owner is not None:
        leader.znodes.write(OWNER, owner)
    assert leader.unclaimed() == {P0: "g_c"}


def test_an_owner_that_cannot_be_decoded_is_logged_once(leader, caplog):
    leader.znodes.write(OWNER, b"\xff")
    for _ in range(3):
        assert leader.unclaimed() == {P0: "g_c"}
    assert [record.levelname for record in caplog.records if OWNER in record.message] == ["ERROR"]


def test_a_partition_that_its_member_owns_is_looked_at_once(leader):
    leader.znodes.write(OWNER, b"g_c-0")
    assert leader.unclaimed() == {}
    assert leader.look().due_at is None


def test_a_claim_of_a_former_registration_does_not_count(leader):
    leader.znodes.write(OWNER, b"g_c-0")
    assert leader.unclaimed() == {}
    leader.znodes.delete(OWNER)
    assert leader.unclaimed("g_c@1.1") == {P0: "g_c"}
