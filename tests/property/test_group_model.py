"""Groups in memory under random events: one owner for each partition, always; and after the events, the right one.

The last tests plant bugs in the members' code: a model that does not find them proves nothing.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures.clusterinturns import ClusterInTurns
from tests.fixtures.groupmodel import GroupModel
from tests.fixtures.polledgroupmodel import PolledGroupModel
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.group.zookeeper.rules.clusterchanges import ClusterChanges
from zkconsumer.group.zookeeper.sessionlease import SessionLease
from zkconsumer.zookeeper.session import ZkSession

SETTINGS = settings(
    max_examples=100,
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


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "plant",
    [
        claims_although_another_member_owns,
        takes_partitions_from_their_owner,
        releases_nothing,
        believes_claims_that_were_not_answered,
        writes_without_a_fence,
        trusts_a_lease_that_has_lapsed,
    ],
)
def test_the_model_finds_a_planted_bug(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(GroupModel, settings=FOR_PLANTED_BUGS)


def announces_nothing(monkeypatch):
    monkeypatch.setattr(ClusterChanges, "unannounced", False)


def asks_no_broker_when_the_group_is_read(monkeypatch):
    read = ClusterInTurns.read
    monkeypatch.setattr(
        ClusterInTurns,
        "read",
        lambda self, topics: self._snapshot if self._snapshot.covers(topics) else read(self, topics),
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", [announces_nothing, asks_no_broker_when_the_group_is_read])
def test_the_model_of_polled_groups_finds_a_planted_bug(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(PolledGroupModel, settings=FOR_PLANTED_BUGS)
