"""Groups with a coordinator, in memory, under random events: one owner for each partition, and in the end balance.

The rules are those of groups without a coordinator (``test_group_model.py``). The last tests plant bugs, and play the
courses that lead to them.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from kazoo.protocol.serialization import Delete

from tests.fixtures.coordinatedgroupmodel import (
    CoordinatedGroupModel,
    EvictingGroupModel,
    MixedGroupModel,
    PolledCoordinatedGroupModel,
)
from tests.fixtures.examples import examples
from tests.fixtures.groupmodel import PATHS, SUBSCRIPTION, GroupModel, play
from tests.fixtures.kazooinmemory import Loss
from tests.fixtures.membersinturns import SESSION_S
from zkconsumer.group.coordinator.commands import CommandNodes
from zkconsumer.group.coordinator.coordinator import Coordinator
from zkconsumer.group.coordinator.coordinatorgroup import CoordinatorGroup
from zkconsumer.group.coordinator.leaderview import LeaderView
from zkconsumer.group.coordinator.rules import coordinatorplan
from zkconsumer.group.coordinator.unclaimedcommands import Unclaimed, UnclaimedCommands
from zkconsumer.group.zookeeper.ownership import PartitionOwnership

SETTINGS = settings(
    max_examples=examples(60),
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


def leaves_partitions_that_a_member_does_not_claim(monkeypatch):
    monkeypatch.setattr(UnclaimedCommands, "unclaimed", lambda self, commanded, nodes: Unclaimed({}, None))


def keeps_a_former_time_while_it_has_no_connection(monkeypatch):
    look = Coordinator._look_and_lead

    def looks(self):
        self.kept = look(self) if self._session.connected else self.kept
        return self.kept

    monkeypatch.setattr(Coordinator, "_look_and_lead", looks)


def one_joins(model):
    model.join(SUBSCRIPTION)
    for _ in range(40):
        model.run_in_turns(1)
        model.no_partition_is_commanded_while_another_of_these_members_owns_it()


def a_claim_without_an_answer_is_not_wanted_any_more(model):
    """The claim is stored; before the member learns that, its command is again what it held before.

    1. one of three leaves, and the last one gains the lower of two partitions; 2. two join, and it has to give it up.
    """
    model.change_topic("t", 4)
    model.join(SUBSCRIPTION)
    model.settle()
    model.lose_a_request_or_its_answer(2, Loss(0, False, PATHS.owners))
    model.leave(0)
    model.run_in_turns(60)
    model.join(SUBSCRIPTION)
    model.join(SUBSCRIPTION)
    model.run_in_turns(35)


def a_registration_is_deleted(model):
    model.delete_a_node(number=0, index=0)
    model.change_topic("t", 6)


def a_leader_that_may_have_announced_nothing_is_followed(model):
    """The second member computes its share by itself, and hears of topics from the leader only."""
    model.delete_a_node(number=0, index=3)
    model.delete_topic("t")


def all_lose_their_connections_before_they_obey(model):
    """The leader would look a second after its commands whether members have claimed."""
    model.join(SUBSCRIPTION)
    while all(model._command_of(member).keys() <= member.group.held.partitions.keys() for member in model.members):
        model.run_in_turns(1)
    for member in model.members:
        member.stuck = True
    model.run_in_turns(20)
    for number in range(3):
        model.break_connection(number)
    model.pass_time(2.0)
    model.run_in_turns(2)
    model.no_member_coordinates_without_a_pause()


def one_hangs_in_a_rebalance(model):
    model.join(SUBSCRIPTION)
    model.hang_for_long(0)


def one_hangs_before_its_first_claim(model):
    model.the_others_own_everything_while_a_member_hangs(number=1, steps=7, joins=True)


def its_session_node_is_deleted_while_its_lease_has_lapsed(model):
    """1. A member is not scheduled until its lease has lapsed; 2. its session node is deleted; 3. it continues."""
    model.settle()
    member = model.members[-1]
    model.freeze(len(model.members) - 1)
    model.pass_time(0.9 * SESSION_S)
    model.server.perform(model.outsider, Delete(member.group._membership.fence, -1))
    model.thaw(len(model.members) - 1)


BUGS = [
    (CoordinatedGroupModel, one_joins, grants_what_another_member_owns, "'g_m2', 'g_m0'"),
    (CoordinatedGroupModel, one_joins, releases_nothing, "not settled"),
    (
        CoordinatedGroupModel,
        a_claim_without_an_answer_is_not_wanted_any_more,
        forgets_claims_that_were_not_answered,
        "Counter",
    ),
    (CoordinatedGroupModel, a_registration_is_deleted, never_looks_for_damaged_registrations, "Counter"),
    (PolledCoordinatedGroupModel, a_leader_that_may_have_announced_nothing_is_followed, announces_no_topics, None),
    (
        CoordinatedGroupModel,
        all_lose_their_connections_before_they_obey,
        keeps_a_former_time_while_it_has_no_connection,
        "g_m",
    ),
    (EvictingGroupModel, one_hangs_in_a_rebalance, frees_before_the_lease_has_lapsed, "no owner znode"),
    (
        EvictingGroupModel,
        one_hangs_before_its_first_claim,
        leaves_partitions_that_a_member_does_not_claim,
        "has no owner",
    ),
]


@pytest.mark.parametrize("model", [GroupModel, CoordinatedGroupModel])
def test_a_member_registers_again_whose_session_node_was_deleted_while_its_lease_had_lapsed(model):
    play(model(), its_session_node_is_deleted_while_its_lease_has_lapsed)


@pytest.mark.parametrize(("model", "course", "plant", "found"), BUGS)
def test_planted_bugs_are_found(model, course, plant, found, monkeypatch):
    play(model(), course)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        play(model(), course)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("model", "plant"), [(model, plant) for model, _, plant, _ in BUGS])
def test_random_events_find_planted_bugs(model, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(model, settings=FOR_PLANTED_BUGS)
