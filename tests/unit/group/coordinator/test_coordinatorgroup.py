"""What a member makes of its command, on a ZooKeeper in memory; the test writes as the leader does."""

import json

import pytest
from kazoo.protocol.serialization import Create, Delete, SetData

from tests.fixtures.assignors import ByRack
from tests.fixtures.groupprotocol import IdleThread
from tests.fixtures.kazooinmemory import KazooInMemory, Loss
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    AssignorFailed,
    ConfigError,
    CoordinatorUnknown,
    MemberRefused,
    RegistrationLost,
    SessionExpired,
    ShareChanged,
    ZkConsumerError,
)
from zkconsumer.group.coordinator.coordinator import Coordinator
from zkconsumer.group.coordinator.coordinatorgroup import CoordinatorGroup
from zkconsumer.group.coordinator.rules.coordinatorznodes import Command, CommandNode, Status, StatusNode
from zkconsumer.group.groupprotocol import NoNeed
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.sessionlease import SessionLease
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import SessionNode
from zkconsumer.zookeeper.session import ZkSession

PATHS = CoordinatorPaths("g")
P = [TopicPartition("t", number) for number in range(3)]


class LeaseInTurns(SessionLease):
    """A lease whose turns the test makes."""

    def start(self, asked_for_session):
        self.grant(asked_for_session)


class CoordinatorAtRest(Coordinator):
    """A coordinator that never looks, and counts how often it was asked to."""

    looks = 0

    def start(self):
        pass

    def look(self):
        self.looks += 1


class Commanded:
    """A member whose coordinator is the test."""

    def __init__(self, assignor=None, before=lambda _: None) -> None:
        self.server = ZooKeeperInMemory()
        self.session = self.server.open_session(1e9, None)
        for path in ("/consumers", "/brokers", "/brokers/topics"):
            self.server.perform(self.session, Create(path, b"", [], 0))
        topic = b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}'
        self.server.perform(self.session, Create("/brokers/topics/t", topic, [], 0))
        config = ConsumerConfig(zookeeper_connect="memory:1", group_id="g")
        zk = ZkSession.from_config(config, client=lambda **arguments: KazooInMemory(self.server, **arguments))
        self.signal = RebalanceSignal()
        self.now = 0.0
        self.group = CoordinatorGroup(
            config,
            "g_a",
            self.signal,
            zk=zk,
            make_lease=self._make_lease,
            make_coordinator=CoordinatorAtRest,
            clock=lambda: self.now,
            assignor=assignor,
        )
        self.group.open(IdleThread(), self.signal.raise_flag)
        before(self)
        self.group.join(Subscription.static({"t": 1}))
        self.generation = 0

    def _make_lease(self, *arguments):
        self.lease = LeaseInTurns(*arguments)
        return self.lease

    @property
    def path(self):
        [name] = self.server.nodes[PATHS.commands].children
        return f"{PATHS.commands}/{name}"

    def write(self, data, path=None):
        self.server.perform(self.session, SetData(path or self.path, data, -1))
        self.group.zk._client.deliver()

    def command(self, *partitions):
        self.generation += 1
        self.write(CommandNode.encode(Command(share(*partitions), 1, self.generation)))

    def register_others(self, *names):
        """They look when they have registered, and take the places of the candidates."""
        for name in names:
            self.server.perform(self.session, Create(f"{PATHS.commands}/{name}@1.0", b"", [], 0))

    def register_again(self):
        self.delete(self.path)
        self.group.deregister()
        self.group.join(Subscription.static({"t": 1}))

    def delete(self, path):
        self.server.perform(self.session, Delete(path, -1))
        self.group.zk._client.deliver()

    def obey(self):
        """One attempt, as a rebalance makes it."""
        need = self.group.next_assignment(fetching=True)
        if need is NoNeed.UNCHANGED:
            return need
        self.group.release(need.revoked)
        self.group.claim(self.group.reassign(with_topics=False).share)
        self.group.fetched()
        return need

    def owned(self):
        return sorted(
            path.rpartition("/")[2] for path in self.server.nodes if path.startswith("/consumers/g/owners/t/")
        )


def share(*partitions):
    return {P[number]: ConsumerThreadId("g_a", 0) for number in partitions}


@pytest.fixture
def member():
    return Commanded()


def test_a_member_looks_for_a_leader_when_it_is_one_of_the_first(member):
    before = member.group.coordinator.looks
    member.register_again()
    assert member.group.coordinator.looks == before + 1


def test_a_member_that_joins_many_looks_when_its_command_is_late(member):
    before, path = member.group.coordinator.looks, member.path
    member.register_others("g_b", "g_c", "g_d")
    member.delete(path)
    member.group.deregister()
    member.group.join(Subscription.static({"t": 1}))
    assert member.group.coordinator.looks == before
    for expected in (before, before + 1):
        with pytest.raises(CoordinatorUnknown):
            member.group.next_assignment(fetching=False)
        assert member.group.coordinator.looks == expected


def test_a_new_command_names_the_brokers_of_its_first_moments(member):
    for path, data in (("/brokers/ids", b""), ("/brokers/ids/2", b'{"version":1,"host":"z","port":1}')):
        member.server.perform(member.session, Create(path, data, [], 0))
    registered, named = (Broker(2, "z", 1),), (Broker(1, "c", 9092),)

    def command(generation, security_protocol="PLAINTEXT"):
        member.now += 100.0
        written = Command(share(0), 1, generation, brokers=named, security_protocol=security_protocol)
        member.write(CommandNode.encode(written))
        member.obey()
        return member.group.live_brokers()

    assert member.group.live_brokers() == registered
    assert command(1) == named
    member.now += 10.0
    assert member.group.live_brokers() == registered
    member.group.next_assignment(fetching=False, renew=True)
    assert member.group.live_brokers() == registered, "the same command may be read again much later"
    assert command(1) == registered
    assert command(2, "SSL") == registered
    assert command(3) == named


def test_without_a_command_nothing_is_changed(member):
    with pytest.raises(CoordinatorUnknown, match=r"no coordinator of group g has written .* yet\Z"):
        member.group.next_assignment(fetching=False)
    with pytest.raises(CoordinatorUnknown, match=r"no coordinator of group g has written .*; if this remains"):
        member.group.next_assignment(fetching=False)


def test_the_coordinators_reason_is_reported(member):
    status = StatusNode.encode(Status(1, 0, 5, refused="members disagree"))
    member.server.perform(member.session, Create(PATHS.status, status, [], 0))
    with pytest.raises(CoordinatorUnknown):
        member.group.next_assignment(fetching=False)
    with pytest.raises(CoordinatorUnknown, match=r": members disagree\Z"):
        member.group.next_assignment(fetching=False)


def test_what_keeps_this_member_from_leading_is_reported(member):
    """It may be the only one that could command anything."""
    member.server.guarded.add(PATHS.epoch)
    member.group.coordinator.act()
    with pytest.raises(CoordinatorUnknown):
        member.group.next_assignment(fetching=False)
    with pytest.raises(CoordinatorUnknown, match=f"{PATHS.epoch}: no permission"):
        member.group.next_assignment(fetching=False)


def test_a_command_is_carried_out_and_then_nothing_is_needed(member):
    with pytest.raises(CoordinatorUnknown):
        member.group.next_assignment(fetching=False)
    member.command(0, 1)
    assert member.signal.raised
    assert member.obey().change is RebalanceCause.MEMBERS
    assert member.group.held.partitions == share(0, 1)
    assert member.owned() == ["0", "1"]
    assert member.obey() is NoNeed.UNCHANGED


def test_only_what_changes_is_released_and_claimed(member):
    member.command(0, 1)
    member.obey()
    kept = member.server.nodes[GroupPaths("g").owner(P[1])].czxid
    member.command(1, 2)
    assert member.obey().change is RebalanceCause.MEMBERS
    assert member.owned() == ["1", "2"]
    assert member.server.nodes[GroupPaths("g").owner(P[1])].czxid == kept
    assert member.group.held.releases == 0


def test_a_command_that_shrinks_between_the_steps_is_not_claimed(member):
    """What is kept was not committed, so it cannot be given up by this attempt."""
    member.command(0)
    member.obey()
    member.command(0, 1)
    need = member.group.next_assignment(fetching=True)
    member.command(1)
    assert member.group.reassign(with_topics=False).share == need.share == share(0, 1)
    with pytest.raises(ShareChanged):
        member.group.claim(member.group.reassign(with_topics=False).share)
    assert member.group.held.partitions == share(0)
    member.obey()
    assert member.group.held.partitions == share(1)


def test_a_refused_member_releases_everything_and_reports_why(member):
    member.command(0, 1)
    member.obey()
    member.signal.take()
    member.write(CommandNode.encode(Command({}, 1, 9, "its session is too short")))
    member.signal.take()
    member.obey()
    assert member.owned() == []
    assert member.signal.raised, "another attempt has to report it"
    with pytest.raises(MemberRefused, match=r"refuses it: its session is too short\Z"):
        member.group.next_assignment(fetching=True)
    member.command(1)
    member.obey()
    assert member.owned() == ["1"]


def test_the_target_names_all_topics_of_the_subscription(member):
    member.command()
    member.group.next_assignment(fetching=False)
    assert member.group.reassign(with_topics=True).topics["t"].partitions == (0, 1, 2)


def test_topics_are_read_only_where_they_are_needed(member):
    member.command(0)
    member.group.next_assignment(fetching=False)
    asked, perform = [], member.server.perform
    member.server.perform = lambda session, request: asked.append(request) or perform(session, request)
    assert member.group.reassign(with_topics=False).share == share(0)
    assert asked == []


def command_of(partition, number):
    return CommandNode.encode(Command({partition: ConsumerThreadId("g_a", number)}, 1, 9))


@pytest.mark.parametrize("written", [b"garbage", command_of(TopicPartition("other", 0), 0), command_of(P[0], 1)])
def test_a_member_that_cannot_obey_its_command_registers_again(member, written):
    """The leader reads a command node once; a new node, which it has not read, gets the command again."""
    member.command(0)
    member.obey()
    former = member.path
    member.write(written)
    with pytest.raises(RegistrationLost, match=former):
        member.group.next_assignment(fetching=True)
    assert member.group.held.partitions == share(0)
    member.group.deregister()
    member.group.join(Subscription.static({"t": 1}))
    assert member.path != former
    member.command(0, 1)
    member.obey()
    assert member.owned() == ["0", "1"]


def test_a_change_of_streams_that_is_repeated_often_does_not_hide_what_was_registered(member):
    """1. Each request to change the registration fails; 2. the leader has commanded the streams of before."""
    member.command(0)
    other = Subscription.static({"u": 1})
    for _ in range(20):
        member.group.zk._client.loses = Loss(0, request=True)
        with pytest.raises(ZkConsumerError):
            member.group._change(other)
        member.group.zk._client.connect()
    member.obey()
    assert member.owned() == ["0"]


def test_a_deleted_command_is_noticed(member):
    member.command(0)
    member.obey()
    member.delete(member.path)
    assert member.signal.raised
    with pytest.raises(RegistrationLost):
        member.group.next_assignment(fetching=True)


def test_a_deleted_session_node_is_noticed_by_the_next_probe(member):
    member.command(0)
    member.obey()
    fence = member.group.fence()
    member.delete(fence)
    member.lease.watch.turn()
    member.lease.watch.turn()  # it sees the answer
    assert member.signal.raised
    with pytest.raises(SessionExpired, match=fence):
        member.group.next_assignment(fetching=True)


def test_an_answer_from_before_the_registration_is_checked(member):
    """1. The session node is missing; 2. the member registers again, under the same name, before the next probe."""
    member.command(0)
    fence = member.group.fence()
    member.delete(fence)
    member.lease.watch.turn()
    member.server.perform(member.group.zk._client._session_id, Create(fence, b"", [], 1))
    assert member.group.next_assignment(fetching=False).share == share(0)


def test_the_command_is_read_once(member):
    member.command(0)
    member.obey()
    before = member.server.zxid
    asked, perform = [], member.server.perform
    member.server.perform = lambda session, request: asked.append(request) or perform(session, request)
    assert member.obey() is NoNeed.UNCHANGED
    assert (asked, member.server.zxid) == ([], before)


# -- an assignor of the application ------------------------------------------------------------------------------------


def register_jvm_member(member):
    for path in ("/consumers/g", "/consumers/g/ids"):
        member.server.perform(member.session, Create(path, b"", [], 0))
    document = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
    member.server.perform(member.session, Create("/consumers/g/ids/g_jvm", document, [], 1))


def test_what_the_assignor_writes_is_in_the_session_node():
    member = Commanded(ByRack("r7"))
    [name] = member.server.nodes[GroupPaths("g").members].children
    data = member.server.nodes[f"{GroupPaths('g').members}/{name}"].data
    assert (SessionNode.user_data("/s", data), SessionNode.decode("/s", data)) == (b"r7", "by-rack")


class ByTopics(ByRack):
    """Its user data are the topics that it is given."""

    def user_data(self, topics):
        return json.dumps(topics).encode()


def test_another_subscription_comes_with_what_the_assignor_writes_for_it():
    """In one transaction: a leader that reads either has both."""
    member = Commanded(ByTopics("r7"))
    before = member.server.zxid
    member.group.join(Subscription.static({"u": 2}))
    [name] = member.server.nodes[GroupPaths("g").members].children
    data = member.server.nodes[f"{GroupPaths('g').members}/{name}"].data
    assert SessionNode.user_data("/s", data) == b'{"u": 2}'
    assert member.server.zxid == before + 1


def test_a_member_with_an_assignor_joins_no_group_with_jvm_members():
    with pytest.raises(ConfigError, match="while members are in it that assign by themselves: g_jvm; use range"):
        Commanded(ByRack(), register_jvm_member)
    assert Commanded(None, register_jvm_member).group.is_registered


def test_a_member_that_leads_reports_its_failing_assignor_when_it_has_nothing_else_to_do():
    member = Commanded(ByRack())
    member.command(0)
    member.group.coordinator._assignor_failure = AssignorFailed("no member for t-1")
    member.obey()  # what was commanded before
    assert member.owned() == ["0"]
    with pytest.raises(AssignorFailed, match="no member for t-1"):
        member.group.next_assignment(fetching=True)
