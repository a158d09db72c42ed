"""Claims and releases of owner znodes, over a ZooKeeper in memory whose answers are lost."""

from contextlib import closing

import pytest

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.model import ConsumerThreadId, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
THREAD = ConsumerThreadId("g_c", 0)
FENCE = "/members/c@1"


@pytest.mark.parametrize("more", [False, True], ids=["claim", "claim_more"])
def test_a_release_after_a_lost_answer_does_not_believe_a_server_that_lags(monkeypatch, more):
    """The claim was done; the next server answers plain reads before it has it. Its znode must not stay."""
    server = ZooKeeperInMemory()
    with closing(session_in_memory(server)) as zk:
        zk.create_ephemerals([(FENCE, b"")], ["/members"])
        session_id = zk.session_id
        ownership = PartitionOwnership(zk, "g", lambda: FENCE, lambda: session_id, lambda: None)
        ownership.claim({P0: THREAD})
        if not more:
            ownership.release()

        def lose_answer(*arguments, **named):
            perform(*arguments, **named)
            raise ZooKeeperUnavailable("the answer was lost")

        perform = zk.try_transact
        monkeypatch.setattr(zk, "try_transact", lose_answer)
        with pytest.raises(ZooKeeperUnavailable):
            ownership.claim_more({P0: THREAD, P1: THREAD}, None) if more else ownership.claim({P1: THREAD})
        assert "/consumers/g/owners/t/1" in server.nodes
        monkeypatch.setattr(zk, "try_transact", perform)
        read, sync, is_synced = zk.get_many, zk._client.sync_async, []
        monkeypatch.setattr(zk, "get_many", lambda paths: read(paths) if is_synced else dict.fromkeys(paths))
        monkeypatch.setattr(zk._client, "sync_async", lambda path: is_synced.append(path) or sync(path))
        ownership.release_some([P1]) if more else ownership.release()
        assert "/consumers/g/owners/t/1" not in server.nodes
        assert ownership.is_certain
