"""What members of groups in ZooKeeper do while there is no connection, and between their attempts."""

import json

import pytest
from kazoo.protocol.serialization import Create, Delete, SetData

from tests.fixtures.groupprotocol import IdleThread
from tests.fixtures.kazooinmemory import KazooInMemory
from tests.fixtures.membersinturns import LeaseInTurns
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    BrokerUnavailable,
    OwnershipConflict,
    RegistrationLost,
    SessionExpired,
    ZooKeeperUnavailable,
)
from zkconsumer.group.groupprotocol import NextAssignment, NoNeed
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.memberstate import MemberState
from zkconsumer.group.rules.subscription import Blacklist, Subscription
from zkconsumer.group.zookeeper.zookeepergroup import ZooKeeperGroup
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.fencedtransaction import Operation
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import ConsumerIdNode
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
    if while_away:
        assert group.verify() == [], "a commit asks whether what is owned was taken, and nothing is"
    zk._client.connect()
    assert group.can_commit


class Recorded(IdleThread):
    """Records how long the member would wait, and in which state."""

    def __init__(self):
        self.state, self.waits = None, []

    def enter_state(self, state):
        self.state = state

    def wait(self, seconds, *, until=lambda: False):
        self.waits.append((self.state, seconds))


@pytest.fixture
def paused():
    """A member that is not registered, on a thread that records its waits."""
    server = ZooKeeperInMemory()
    config = ConsumerConfig(zookeeper_connect="memory:1", group_id="g", rebalance_backoff_ms=2000)
    zk = ZkSession.from_config(config, client=lambda **arguments: KazooInMemory(server, **arguments))
    group = ZooKeeperGroup(config, "g_a", RebalanceSignal(), zk=zk, make_lease=LeaseInTurns)
    group.open(Recorded(), lambda: None)
    return group


@pytest.mark.parametrize(("node", "error"), [("session", SessionExpired), ("ids", RegistrationLost)])
def test_a_deleted_session_node_ends_the_membership_wherever_it_is_noticed(paused, node, error):
    """Without the ``ids`` node the member can still write, so it releases what it has."""
    paused.join(Subscription.static({"t": 1}))
    fence, server = paused.fence(), paused.zk._client._server
    broker = json.dumps({"host": "h", "port": 1, "version": 1}).encode()
    paused.zk.ensure_path("/brokers/ids/1", broker)
    path = fence if node == "session" else GroupPaths("g").consumer_id("g_a")
    server.perform(server.open_session(1e9, None), Delete(path, -1))
    paused.zk._client.deliver()
    with pytest.raises(error) as reads:
        paused.next_assignment(fetching=True)
    if node == "session":
        with pytest.raises(SessionExpired, match=fence) as writes:
            paused.zk.transact(fence, [Operation("delete", "/x")])
        assert str(reads.value) == str(writes.value)
    assert waited(paused, reads.value) == []


def test_a_topic_that_is_created_again_concerns_its_owner(paused):
    """Also a member that has fetched it before, and gains it later; until then it has nothing to rebalance."""

    def follow():
        following = paused.next_assignment(fetching=False)
        paused.release(following.revoked)
        share = paused.reassign(with_topics=False).share
        paused.claim(share)
        paused.consume({p.topic for p in share.keys() - following.kept}, {p.topic for p in following.recreated})
        paused.fetched()
        paused.zk._client.deliver()
        return {partition.topic for partition in share}

    def perform(request):
        server.perform(another, request)
        paused.zk._client.deliver()

    def create_topic(name):
        perform(Create(f"/brokers/topics/{name}", b'{"version":1,"partitions":{"0":[1]}}', [], 0))

    server = paused.zk._client._server
    another = server.open_session(1e9, None)
    paused.join(Subscription.static({"t": 1, "u": 1}))
    paused.zk.ensure_path("/brokers/ids/1", b'{"host":"h","port":1,"version":1}')
    paused.zk.ensure_path("/brokers/topics", b"")
    create_topic("t")
    create_topic("u")
    assert follow() == {"t", "u"}
    first = ConsumerIdNode.encode(Subscription.static({"t": 1}).to_registration(1))
    perform(Create(GroupPaths("g").consumer_id("g_A"), first, [], 1))
    assert follow() == {"u"}
    perform(Delete("/brokers/topics/t", -1))
    create_topic("t")
    assert paused.next_assignment(fetching=True) is NoNeed.UNCHANGED
    perform(Delete(GroupPaths("g").consumer_id("g_A"), -1))
    assert {p.topic for p in paused.next_assignment(fetching=True).recreated} == {"t"}
    assert follow() == {"t", "u"}


@pytest.mark.parametrize("changed", [{"t": 2}, {"t": 1, "u": 1}, {"u": 1}])
def test_a_member_whose_registration_was_changed_registers_again(paused, changed):
    """Otherwise the members agree on a share that has partitions of streams which this member does not have."""
    paused.join(Subscription.static({"t": 1}))
    path, server = GroupPaths("g").consumer_id("g_a"), paused.zk._client._server
    paused.zk.ensure_path("/brokers/ids/1", b'{"host":"h","port":1,"version":1}')
    written = server.nodes[path].data
    other = ConsumerIdNode.encode(Subscription.static(changed).to_registration(1))
    server.perform(server.open_session(1e9, None), SetData(path, other, -1))
    with pytest.raises(RegistrationLost, match=path) as lost:
        paused.next_assignment(fetching=False)
    paused.pause(lost.value)
    paused.join(Subscription.static({"t": 1}))
    paused.zk._client.deliver()
    assert json.loads(server.nodes[path].data)["subscription"] == json.loads(written)["subscription"]
    assert isinstance(paused.next_assignment(fetching=False), NextAssignment)


@pytest.mark.parametrize("regex", [r"a\d+,b.*", "t", r'x"\\-y', " spaced , é"])
def test_a_registration_that_no_client_changed_is_the_member_s_own(paused, regex):
    paused.zk.ensure_path("/brokers/ids/1", b'{"host":"h","port":1,"version":1}')
    paused.join(Subscription.by_filter(Blacklist(regex), 3))
    assert isinstance(paused.next_assignment(fetching=False), NextAssignment)


def test_a_member_without_a_broker_notices_that_a_registration_is_written_again(paused):
    """As by a broker that gets another listener while it runs: no broker comes or goes."""
    path, server = "/brokers/ids/1", paused.zk._client._server
    paused.join(Subscription.static({"t": 1}))
    paused.zk.ensure_path(path, b"not a broker")
    assert paused.next_assignment(fetching=False) is NoNeed.NO_BROKERS
    paused.zk._client.deliver()
    paused._signal.discard()
    server.perform(server.open_session(1e9, None), SetData(path, b'{"host":"h","port":1,"version":1}', -1))
    paused.zk._client.deliver()
    assert paused._signal.raised
    assert isinstance(paused.next_assignment(fetching=False), NextAssignment)


def test_a_member_without_a_broker_notices_that_its_registration_was_deleted(paused):
    path, server = GroupPaths("g").consumer_id("g_a"), paused.zk._client._server
    paused.join(Subscription.static({"t": 1}))
    assert paused.next_assignment(fetching=False) is NoNeed.NO_BROKERS
    server.perform(server.open_session(1e9, None), Delete(path, -1))
    paused.zk._client.deliver()
    with pytest.raises(RegistrationLost, match=path):
        paused.next_assignment(fetching=False)


def waited(group, *failures, starting=False):
    group._thread.waits.clear()
    for failure in failures:
        group.pause(failure, starting=starting)
    return group._thread.waits


def test_pauses_grow_only_while_zookeeper_is_unreachable(paused):
    outage, other = ZooKeeperUnavailable(), BrokerUnavailable()
    waits = waited(paused, outage, outage, outage, other, outage, ValueError("a listener's"))
    assert waits == [(MemberState.WAITING_TO_RETRY, seconds) for seconds in (2, 4, 8, 2, 2, 2)]
    assert waited(paused, None, outage) == [(MemberState.WAITING_TO_RETRY, 2)]


def test_pauses_of_a_start_do_not_grow(paused):
    assert [seconds for _, seconds in waited(paused, *[ZooKeeperUnavailable()] * 4, starting=True)] == [2] * 4


def test_after_a_damaged_registration_the_next_attempt_follows_at_once(paused):
    assert waited(paused, RegistrationLost("gone")) == []


def test_the_wait_for_former_owners_ends_when_they_have_released(paused):
    ends = []
    paused._thread.wait = lambda seconds, *, until: ends.append(until())
    owner = GroupPaths("g").owner(TopicPartition("t", 0))
    paused.zk.ensure_path(owner, b"")
    conflict = OwnershipConflict({TopicPartition("t", 0): "g_other-0"})
    paused.pause(conflict)
    paused.zk._client.delete(owner)
    paused.pause(conflict)
    assert ends == [False, True]
