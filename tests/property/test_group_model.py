"""Groups in memory under random events: one owner for each partition, always; and after the events, the right one.

The last tests plant bugs in the members' code, and play the courses that lead to them: a model that does not notice
them proves nothing.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures.clusterinturns import ClusterInTurns
from tests.fixtures.examples import examples
from tests.fixtures.groupmodel import PATHS, SUBSCRIPTION, GroupModel, play
from tests.fixtures.polledgroupmodel import PolledGroupModel
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.group.zookeeper.rules.clusterchanges import ClusterChanges
from zkconsumer.group.zookeeper.sessionlease import SessionLease
from zkconsumer.zookeeper.session import ZkSession

SETTINGS = settings(
    max_examples=examples(100),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
FOR_PLANTED_BUGS = settings(
    SETTINGS, max_examples=1000, phases=(Phase.generate,), derandomize=True, database=None, print_blob=False
)

TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = SETTINGS
TestGroupModel.pytestmark = pytest.mark.timeout(600)  # shrinking takes time


TestPolledGroupModel = PolledGroupModel.TestCase
TestPolledGroupModel.settings = SETTINGS
TestPolledGroupModel.pytestmark = pytest.mark.timeout(600)


def claims_although_another_member_owns(monkeypatch):
    monkeypatch.setattr(PartitionOwnership, "_expect_done", lambda self, holders, outcomes, undo: None)


def takes_partitions_from_their_owner(monkeypatch):
    """As JVM members do: delete the owner znode in the way, whoever holds it."""
    claim = PartitionOwnership.claim

    def claim_by_force(self, share):
        for partition in share:
            path = self._paths.owner(partition)
            if (node := self._session.get(path)) is not None and node.owner_session != self._session_id():
                self._session._client.delete_async(path).get()
        claim(self, share)

    monkeypatch.setattr(PartitionOwnership, "claim", claim_by_force)


def releases_nothing(monkeypatch):
    monkeypatch.setattr(PartitionOwnership, "_data_of_ours", lambda self, partitions: {})


def believes_claims_that_were_not_answered(monkeypatch):
    claim = PartitionOwnership.claim

    def claim_and_believe(self, share):
        try:
            claim(self, share)
        except ZooKeeperUnavailable:
            self._held = self._tried

    monkeypatch.setattr(PartitionOwnership, "claim", claim_and_believe)


def writes_without_a_fence(monkeypatch):
    transact = ZkSession.try_transact

    def unfenced(self, fence, operations, **options):
        return transact(self, "/", operations, **options)

    monkeypatch.setattr(ZkSession, "try_transact", unfenced)


def trusts_a_lease_that_has_lapsed(monkeypatch):
    monkeypatch.setattr(SessionLease, "holds", lambda self: True)


def announces_nothing(monkeypatch):
    monkeypatch.setattr(ClusterChanges, "unannounced", False)


def asks_no_broker_when_the_group_is_read(monkeypatch):
    read = ClusterInTurns.read
    monkeypatch.setattr(
        ClusterInTurns,
        "read",
        lambda self, topics: self._snapshot if self._snapshot.covers(topics) else read(self, topics),
    )


def one_joins_while_the_others_hang(model):
    model.join(SUBSCRIPTION)
    for _ in range(10):
        model.run(2, steps=12, informed=True)
        model.pass_time(0.5)


def a_claim_is_lost(model):
    model.fail_at_a_write(2, PATHS.owners, "request", reconnects=True, on_request=False)
    model.run_in_turns(20)


def the_session_ends_at_a_commit(model):
    model.fail_at_a_write(0, PATHS.offsets, "session", reconnects=True, on_request=True)


def one_is_cut_off(model):
    model.cut_off_until_its_session_has_expired(0)


def a_topic_grows(model):
    model.change_topic("t", 4)


BUGS = [
    (GroupModel, one_joins_while_the_others_hang, claims_although_another_member_owns, "'g_m1', 'g_m2'"),
    (GroupModel, one_joins_while_the_others_hang, takes_partitions_from_their_owner, "no owner znode"),
    (GroupModel, one_joins_while_the_others_hang, releases_nothing, "not settled"),
    (GroupModel, a_claim_is_lost, believes_claims_that_were_not_answered, "'g_m2', Node"),
    (GroupModel, the_session_ends_at_a_commit, writes_without_a_fence, "is written by session"),
    (GroupModel, one_is_cut_off, trusts_a_lease_that_has_lapsed, "no owner znode"),
    (PolledGroupModel, a_topic_grows, announces_nothing, None),
    (PolledGroupModel, a_topic_grows, asks_no_broker_when_the_group_is_read, None),
]


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
