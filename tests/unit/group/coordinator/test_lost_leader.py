"""A server that has lost its leader answers reads with what it knows: no lease and no commit relies on that."""

from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest
from kazoo.protocol.serialization import Delete

from tests.fixtures.kazooinmemory import KazooInMemory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.group.zookeeper.sessionlease import SessionLease
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.session import ZkSession

TIMEOUT_S = 6.0
PARTITION = TopicPartition("t", 0)
FENCE = "/members/c@1"
OWNER = "/consumers/g/owners/t/0"


class Member:
    """What a member owns, and its lease, which the test asks at a time that it sets."""

    def __init__(self):
        self.server = ZooKeeperInMemory()
        self.zk = ZkSession(
            "memory:1",
            session_timeout_ms=int(TIMEOUT_S * 1000),
            connection_timeout_ms=1000,
            client=partial(KazooInMemory, self.server),
        )
        self.zk.open()
        self.client = self.zk._client
        self.session = self.zk.session_id
        self.zk.create_ephemerals([(FENCE, b"")], ["/members"])
        self.ownership = PartitionOwnership(self.zk, "g", lambda: FENCE, lambda: self.session, lambda: None)
        self.ownership.claim({PARTITION: ConsumerThreadId("g_c", 0)})
        self.now = 0.0
        self.lease = SessionLease(
            self.zk,
            SimpleNamespace(registered_session=self.session, session_timeout=TIMEOUT_S),
            lambda: FENCE,
            lambda: None,
            "group g",
            lambda: self.now,
        )
        self.lease.grant(self.now)

    def pass_time(self, seconds):
        """Turns of the lease's thread."""
        end = self.now + seconds
        while self.now < end:
            self.now += self.lease.watch.turn()


@pytest.fixture
def member():
    made = Member()
    with closing(made.zk):
        yield made


def expire(member):
    member.server.end_session(member.session)


def evict(member):
    """As the leader of a group with a coordinator does."""
    session = member.server.open_session(1e9, None)
    member.server.perform(session, Delete(FENCE, -1))


@pytest.mark.parametrize("loses", [expire, evict])
def test_the_lease_lapses_before_another_member_owns(member, loses):
    member.pass_time(3 * TIMEOUT_S)
    assert member.lease.holds()
    member.client.lose_leader()
    loses(member)
    assert member.zk.exists(FENCE) is not None, "what this server knows"
    member.pass_time(TIMEOUT_S)
    assert not member.lease.holds()


def test_the_lease_holds_again_where_there_is_a_leader(member):
    member.client.lose_leader()
    member.pass_time(TIMEOUT_S)
    assert not member.lease.holds()
    member.client.lose_connection()
    member.client.connect()
    member.pass_time(TIMEOUT_S)
    assert member.lease.holds()


def test_owner_znodes_are_verified_at_the_leader(member):
    assert member.ownership.lose_taken() == []
    member.client.lose_leader()
    expire(member)
    assert member.zk.exists(OWNER) is not None, "what this server knows"
    with pytest.raises(ZooKeeperUnavailable):
        member.ownership.lose_taken()
