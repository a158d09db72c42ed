"""What members of groups in ZooKeeper do while there is no connection."""

import pytest

from tests.fixtures.kazooinmemory import KazooInMemory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.zookeeper.zookeepergroup import ZooKeeperGroup
from zkconsumer.zookeeper.session import ZkSession


@pytest.mark.parametrize(
    ("storage", "stays_out", "while_away"),
    [
        ({"offsets_storage": "zookeeper"}, False, False),
        ({"offsets_storage": "kafka", "dual_commit_enabled": "false"}, False, False),
        ({"offsets_storage": "zookeeper"}, True, False),
        ({"offsets_storage": "kafka", "dual_commit_enabled": "true"}, True, False),
        ({"offsets_storage": "kafka", "dual_commit_enabled": "false"}, True, True),
    ],
)
def test_commits_need_a_connection_where_owners_or_offsets_are_in_zookeeper(storage, stays_out, while_away):
    server = ZooKeeperInMemory()
    config = ConsumerConfig.from_properties({"zookeeper.connect": "memory:1", "group.id": "g"}, **storage)
    zk = ZkSession.from_config(config, client=lambda **arguments: KazooInMemory(server, **arguments))
    group = ZooKeeperGroup(config, "g_a", RebalanceSignal(), zk=zk)
    if stays_out:
        group.stand_alone()
    zk.open()
    assert group.can_commit
    zk._client.lose_connection()
    assert group.can_commit is while_away
    zk._client.connect()
    assert group.can_commit
