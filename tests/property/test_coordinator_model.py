"""Groups with a coordinator, in memory, under random events: one owner for each partition, and in the end balance.

The rules are those of groups without a coordinator (``test_group_model.py``). The last tests plant bugs.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures.coordinatedgroupmodel import (
    CoordinatedGroupModel,
    EvictingGroupModel,
    MixedGroupModel,
    PolledCoordinatedGroupModel,
)
from zkconsumer.group.coordinator.commands import CommandNodes
from zkconsumer.group.coordinator.coordinatorgroup import CoordinatorGroup
from zkconsumer.group.coordinator.leaderview import LeaderView
from zkconsumer.group.coordinator.rules import coordinatorplan
from zkconsumer.group.coordinator.unclaimedcommands import UnclaimedCommands
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.ownership import PartitionOwnership

SETTINGS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
FOR_PLANTED_BUGS = settings(
    SETTINGS, max_examples=1000, phases=(Phase.generate,), derandomize=True, database=None, print_blob=False
)

TestCoordinatedGroupModel = CoordinatedGroupModel.TestCase
TestMixedGroupModel = MixedGroupModel.TestCase
TestPolledCoordinatedGroupModel = PolledCoordinatedGroupModel.TestCase
TestEvictingGroupModel = EvictingGroupModel.TestCase
for _case in (TestCoordinatedGroupModel, TestMixedGroupModel, TestPolledCoordinatedGroupModel, TestEvictingGroupModel):
    _case.settings = SETTINGS
    _case.pytestmark = [pytest.mark.timeout(600)]  # shrinking takes time
for _case in (TestMixedGroupModel, TestPolledCoordinatedGroupModel, TestEvictingGroupModel):
    _case.pytestmark.append(pytest.mark.slow)
del _case  # it would be collected once more


def test_a_new_leader_announces_what_the_former_one_may_not_have():
    """The second member computes its share by itself, and hears of topics from the leader only."""
    group = PolledCoordinatedGroupModel()
    one_stream = Subscription({"t": 1})
    group.begin(strategy="range", subscriptions=[one_stream, one_stream], partitions=3, settled=False)
    group.settle()
    group.delete_a_node(number=0, index=3)
    group.delete_topic(name="t")
    group.settle()
    group.teardown()


def grants_what_another_member_owns(monkeypatch):
    monkeypatch.setattr(coordinatorplan, "_is_free", lambda partition, consumer_id, owners: True)


def releases_nothing(monkeypatch):
    monkeypatch.setattr(PartitionOwnership, "_data_of_ours", lambda self, partitions: {})


def forgets_claims_that_were_not_answered(monkeypatch):
    """Either of the two makes the next attempt repeat or undo them."""
    answer = CoordinatorGroup.next_assignment

    def unchanged(self, *, fetching, renew=False):
        return answer(self, fetching=True, renew=renew)

    monkeypatch.setattr(CoordinatorGroup, "next_assignment", unchanged)
    monkeypatch.setattr(PartitionOwnership, "is_certain", property(lambda self: True))


def never_looks_for_damaged_registrations(monkeypatch):
    find = LeaderView._roles
    monkeypatch.setattr(LeaderView, "_roles", lambda self, view: (find(self, view)[0], set()))


def frees_before_the_lease_has_lapsed(monkeypatch):
    evict = CommandNodes.evict
    monkeypatch.setattr(
        CommandNodes, "evict", lambda self, name, reason, ms, *, itself: evict(self, name, reason, 1, itself=itself)
    )


def announces_no_topics(monkeypatch):
    monkeypatch.setattr(LeaderView, "_announce_changes", lambda self, members: None)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_model_finds_changes_that_are_not_announced(monkeypatch):
    announces_no_topics(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(PolledCoordinatedGroupModel, settings=FOR_PLANTED_BUGS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_model_finds_partitions_that_are_freed_too_early(monkeypatch):
    frees_before_the_lease_has_lapsed(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(EvictingGroupModel, settings=FOR_PLANTED_BUGS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_model_finds_partitions_that_a_member_does_not_claim(monkeypatch):
    monkeypatch.setattr(UnclaimedCommands, "unclaimed", lambda self, commanded, nodes: {})
    with pytest.raises(AssertionError, match="has no owner"):
        run_state_machine_as_test(EvictingGroupModel, settings=FOR_PLANTED_BUGS)


def test_a_member_that_hangs_before_its_first_claim_is_replaced():
    """The fast partner of the random trials."""
    group = EvictingGroupModel()
    one_stream = Subscription({"t": 1})
    group.begin(strategy="range", subscriptions=[one_stream, one_stream], partitions=3, settled=True)
    group.the_others_own_everything_while_a_member_hangs(number=1, steps=7, joins=True)
    group.teardown()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "plant",
    [
        grants_what_another_member_owns,
        releases_nothing,
        forgets_claims_that_were_not_answered,
        never_looks_for_damaged_registrations,
    ],
)
def test_the_model_finds_a_planted_bug(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(CoordinatedGroupModel, settings=FOR_PLANTED_BUGS)
