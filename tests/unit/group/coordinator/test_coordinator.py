"""Sequences of events in a group with a coordinator, on a ZooKeeper in memory: what must fail, fails."""

import logging
import threading

import pytest
from kazoo.protocol.serialization import Create, Delete, GetData, SetData, Transaction

from tests.fixtures.kazooinmemory import KazooInMemory, Loss
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.cluster.rules.clustercatalog import ClusterSnapshot
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    AssignorFailed,
    BrokerUnavailable,
    OwnershipConflict,
    SessionExpired,
    ShareChanged,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from zkconsumer.group.coordinator import commands
from zkconsumer.group.coordinator.commands import CommandNodes, EpochEnded
from zkconsumer.group.coordinator.coordinator import Coordinator
from zkconsumer.group.coordinator.election import Election
from zkconsumer.group.coordinator.leaderview import LeaderView
from zkconsumer.group.coordinator.rules.candidacy import free_slot
from zkconsumer.group.coordinator.rules.coordinatorznodes import Command, CommandNode, LeaderNode, Status, StatusNode
from zkconsumer.group.rules.assignors import roundrobin_assignor
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.group.zookeeper.topicrecords import TopicRecords
from zkconsumer.model import Broker, ConsumerThreadId, Topic, TopicIdentity, TopicPartition
from zkconsumer.zookeeper.fencedtransaction import Operation
from zkconsumer.zookeeper.multiread import MultiRead
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths, candidate_name
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import SessionNode
from zkconsumer.zookeeper.session import ZkSession

PATHS, GROUP = CoordinatorPaths("g"), GroupPaths("g")
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class Member:
    """One member's registration, ownership and election, each step when the test asks for it."""

    def __init__(self, server, name, group="g"):
        config = ConsumerConfig(zookeeper_connect="memory:1", group_id=group, zookeeper_session_timeout_ms=6000)
        self.name, self.now, self.woken = name, 0.0, 0
        self.zk = ZkSession.from_config(config, client=lambda **arguments: KazooInMemory(server, **arguments))
        self.client = self.zk._client
        self.zk.open()
        self.membership = MemberRegistration(self.zk, group, name, "range", lambda: 0, lambda: self.now, "coordinator")
        self.register()
        self.ownership = PartitionOwnership(
            self.zk, group, self.fence, lambda: self.membership.registered_session, lambda: None
        )
        self.election = Election(
            self.zk, group, name, self.fence, lambda: self.membership.registered_session, self._wake, lambda: self.now
        )

    def _wake(self):
        self.woken += 1

    def register(self):
        self.membership.register(Subscription.static({"t": 1}), lambda: None, lambda seconds: False)

    def fence(self):
        return self.membership.fence

    def command(self):
        node = self.zk.get(self.membership.command)
        check = Operation("check", self.membership.command, version=node.version)
        return CommandNode.decode(self.membership.command, node.data), check

    def share(self, *partitions):
        return dict.fromkeys(partitions, ConsumerThreadId(self.name, 0))

    def commands(self, epoch):
        """What this member knows of all commands, as a leader of an epoch."""
        nodes = CommandNodes(self.zk, "g", self.fence, epoch)
        nodes.refresh(self.zk.children(PATHS.commands))
        return nodes

    def expire(self):
        """The session ends on the server, and the client connects again."""
        self.client._server.end_session(self.client._session_id)
        self.client.connect()
        self.client.connect()
        self.membership.session_lost()
        self.ownership.lose_all()


@pytest.fixture
def server():
    made = ZooKeeperInMemory()
    made.perform(made.open_session(1e9, None), _create("/consumers"))
    return made


def _create(path):
    return Create(path, b"", [], 0)


@pytest.fixture
def members(server):
    return [Member(server, name) for name in ("g_a", "g_b", "g_c", "g_d")]


def paths_below(server, root):
    return sorted(path.removeprefix(f"{root}/") for path in server.nodes if path.startswith(f"{root}/"))


def test_a_registration_creates_an_empty_command(server, members):
    assert members[0].command()[0] is None
    assert len(paths_below(server, PATHS.commands)) == 4
    node = server.nodes[members[0].membership.command]
    assert node.owner == members[0].membership.registered_session


@pytest.mark.parametrize("existing", [[], [""], ["", "/ids"], ["", "/zkconsumer", "/zkconsumer/members", "/offsets"]])
def test_a_registration_creates_what_is_missing_of_the_group(server, existing):
    """The group may have offsets only, or another member may be creating its nodes."""
    session = server.open_session(1e9, None)
    for path in existing:
        server.perform(session, _create(f"/consumers/h{path}"))
    one = Member(server, "h_a", "h")
    assert {GroupPaths("h").consumer_id("h_a"), one.fence(), one.membership.command} <= server.nodes.keys()


def test_a_registration_is_one_request_where_the_group_exists(server, members, monkeypatch):
    asked, perform = [], server.perform
    members[1].zk.close()
    one = Member(server, "g_b2")
    one.membership.deregister()
    monkeypatch.setattr(server, "perform", lambda session, request: asked.append(request) or perform(session, request))
    one.register()
    assert len(asked) == 1


def test_the_first_registration_of_a_group_is_two_requests(server, monkeypatch):
    asked, perform = [], server.perform
    monkeypatch.setattr(
        server, "perform", lambda session, request: asked.append(type(request)) or perform(session, request)
    )
    one = Member(server, "h_a", "h")
    assert asked.count(Transaction) == 2
    assert {GroupPaths("h").consumer_id("h_a"), one.fence(), one.membership.command} <= server.nodes.keys()


def test_a_registration_counts_the_members_with_a_command(server, members):
    assert [one.membership.obeying for one in members] == [1, 2, 3, 4]
    members[1].zk.close()
    members[0].membership.deregister()
    members[0].register()
    assert members[0].membership.obeying == 3


def test_a_member_that_may_not_write_the_parent_of_commands_registers(server, members):
    server.guarded.add(PATHS.commands)
    one = Member(server, "g_e")
    assert one.membership.obeying is None
    assert one.membership.command in server.nodes


def test_a_command_survives_a_registration_whose_answer_was_lost(server, members):
    """1. The answer is lost; 2. the leader commands the member; 3. it registers again."""
    leads, one = members[0].commands(members[0].election.look()), members[1]
    one.membership.deregister()
    one.client.loses = Loss(0, request=False, writes_below=PATHS.commands, reconnects=True)
    with pytest.raises(ZooKeeperUnavailable):
        one.register()
    leads.refresh(members[0].zk.children(PATHS.commands))
    leads.write(["g_b"], {"g_b": one.share(P0)}, [])
    one.register()
    assert one.command()[0].share == one.share(P0)


@pytest.mark.parametrize("deleted", [["ids"], ["session"], ["ids", "session"], ["ids", "session", "command"]])
def test_a_member_registers_again_whatever_was_deleted(server, members, deleted):
    """In the same session: what is left of its former registration is its own."""
    one = members[1]
    former = one.membership.command
    paths = {"ids": GROUP.consumer_id("g_b"), "session": one.fence(), "command": former}
    for name in deleted:
        server.perform(one.client._session_id, _delete(paths[name]))
    if "session" in deleted:
        one.membership.session_lost()  # its next write has found that
    else:
        one.membership.deregister()
    one.register()
    assert one.command()[0] is None
    assert one.membership.command != former
    assert {paths["ids"], one.fence()} <= server.nodes.keys()


# -- elections ------------------------------------------------------------------------------------------------------


def test_the_first_that_looks_leads_and_three_watch(server, members):
    assert [one.election.look() for one in members] == [1, None, None, None]
    assert [one.election.look() for one in members] == [1, None, None, None]
    assert LeaderNode.decode(PATHS.leader, server.nodes[PATHS.leader].data) == ("g_a", 1)
    assert server.nodes[PATHS.epoch].version == 1
    assert {name for name in paths_below(server, PATHS.root) if name.startswith("candidate")} == {
        "candidate-0",
        "candidate-1",
        "candidate-2",
    }


def test_only_candidates_hear_of_the_leaders_end(server, members):
    for one in members:
        one.election.look()
    members[0].zk.close()
    for one in members[1:]:
        one.client.deliver()
    assert [one.woken for one in members[1:]] == [1, 1, 0]
    assert [one.election.look() for one in members[1:]] == [2, None, None]


def test_any_member_leads_when_the_candidates_are_gone(server, members):
    for one in members:
        one.election.look()
    for one in members[:3]:
        one.zk.close()
    assert members[3].election.look() == 2


def test_any_member_leads_when_the_candidates_hang(server, members):
    for one in members:
        one.election.look()
    server.perform(members[0].client._session_id, _delete(PATHS.leader))
    assert members[3].election.look() is None
    members[3].now += 9.0
    assert members[3].election.look() == 2
    assert members[3].election.look() == 2


def _delete(path):
    return Delete(path, -1)


def test_a_candidature_whose_answer_was_lost_is_one(server, members):
    one = members[0]
    one.client.loses = Loss(0, request=False, writes_below=PATHS.root, reconnects=True)
    with pytest.raises(ZooKeeperUnavailable):
        one.election.look()
    assert one.election.look() == 1
    assert [name for name in paths_below(server, PATHS.root) if name.startswith("candidate")] == [
        candidate_name(free_slot([], "g_a"))
    ]


def test_an_election_whose_answer_was_lost_is_won(server, members):
    one = members[0]
    one.client.loses = Loss(1, request=False, writes_below=PATHS.root, reconnects=True)
    with pytest.raises(ZooKeeperUnavailable):
        one.election.look()
    assert one.election.look() == 1
    assert server.nodes[PATHS.epoch].version == 1


def test_a_leader_that_does_not_plan_is_replaced(server, members):
    """Its session lives, so that its office never ends by itself."""
    members[0].election.look()
    assert members[1].election.look() is None
    members[1].now += 12.0
    assert members[1].election.look() == 2
    assert members[0].election.look() is None
    assert server.nodes[PATHS.leader].owner == members[1].membership.registered_session


def test_a_leader_that_does_not_plan_is_replaced_although_the_epoch_was_deleted(server, members):
    """By another client; the next candidate creates it."""
    members[0].election.look()
    members[0].election.resign()
    members[0].election.look()
    assert members[1].election.look() is None
    server.perform(members[0].client._session_id, _delete(PATHS.epoch))
    members[1].now += 12.0
    assert [members[1].election.look() for _ in range(2)] == [None, 1]
    assert server.nodes[PATHS.leader].owner == members[1].membership.registered_session


def test_only_one_candidate_replaces_a_leader(server, members):
    members[0].election.look()
    for one in members[1:3]:
        one.election.look()
        one.now += 12.0
    assert [one.election.look() for one in members[1:3]] == [2, None]
    members[2].now += 11.0
    assert members[2].election.look() is None


def test_a_leader_whose_session_expired_stands_again(server, members):
    assert members[0].election.look() == 1
    assert members[1].election.look() is None
    members[0].expire()
    with pytest.raises(SessionExpired):
        members[0].election.look()
    assert members[1].election.look() == 2
    members[0].register()
    assert members[0].election.look() is None


def test_a_leader_that_resigns_is_replaced(server, members):
    members[0].election.look()
    members[1].election.resign()
    assert PATHS.leader in server.nodes, "only its own office"
    members[0].election.resign()
    assert members[1].election.look() == 2


def test_each_group_has_its_own_leader(server):
    groups = [f"g{number}" for number in range(20)]
    first = [Member(server, f"{group}_a", group) for group in groups]
    second = [Member(server, f"{group}_b", group) for group in groups]
    assert [one.election.look() for one in first] == [1] * 20
    assert [one.election.look() for one in second] == [None] * 20
    for one in first[:10]:
        one.zk.close()
    assert [one.election.look() for one in second] == [2] * 10 + [None] * 10


@pytest.mark.parametrize("name", [candidate_name(free_slot([], "g_a")), "epoch", "leader"])
def test_a_permission_that_an_election_lacks_is_logged_once(server, members, caplog, name):
    """The next member that may do it leads."""
    one = members[0]
    one.zk.ensure_path(PATHS.epoch, b"")
    path = f"{PATHS.root}/{name}"
    server.guarded.add(path)
    coordinator = coordinator_of(one, Joining(server, one, ()))
    for _ in range(3):
        coordinator.act()
        assert coordinator.epoch is None
        assert path in coordinator.refusal
    [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "g_a cannot do its part in coordinating the group" in line.message
    server.guarded.clear()
    coordinator.act()
    assert (coordinator.epoch, coordinator.refusal) == (1, "")


def test_a_status_that_may_not_be_written_is_reported(server, members):
    """Otherwise candidates, which see no status of this epoch, would depose one leader after the other in silence."""
    leads = members[0].commands(members[0].election.look())
    server.guarded.add(PATHS.status)
    with pytest.raises(ZooKeeperRefused, match=PATHS.status):
        leads.publish(Status(1, 0, 4))
    server.guarded.clear()
    leads.publish(Status(1, 0, 4))
    server.guarded.add(PATHS.status)
    with pytest.raises(ZooKeeperRefused, match=PATHS.status):
        leads.publish(Status(1, 0, 5))


GARBAGE = [b"garbage", b"", b"[" * 100_000, b'{"consumer":"g_a","epoch":Infinity}']


@pytest.mark.parametrize("data", GARBAGE)
def test_a_leader_whose_node_is_garbage_resigns(server, members, data):
    """It does not know in which epoch it leads."""
    for one in members:
        one.election.look()
    server.perform(members[3].client._session_id, SetData(PATHS.leader, data, -1))
    for one in members:
        one.client.deliver()
    assert members[0].election.look() is None
    assert PATHS.leader not in server.nodes
    assert [one.election.look() for one in members[1:]] == [2, None, None]
    assert LeaderNode.decode(PATHS.leader, server.nodes[PATHS.leader].data) == ("g_b", 2)


def test_a_leader_that_resigns_late_does_not_delete_its_successors_node(server, members, monkeypatch):
    """1. It finds that the node is its own; 2. another member replaces the node; 3. it would delete it."""
    for one in members:
        one.election.look()
    server.perform(members[3].client._session_id, SetData(PATHS.leader, b"garbage", -1))
    for one in members:
        one.client.deliver()
    late, commit = members[0], members[0].zk.commit_changes

    def commit_late(fence, changes):
        monkeypatch.undo()
        assert members[1].election.look() == 2
        return commit(fence, changes)

    monkeypatch.setattr(late.zk, "commit_changes", commit_late)
    assert late.election.look() is None
    assert LeaderNode.decode(PATHS.leader, server.nodes[PATHS.leader].data) == ("g_b", 2)


@pytest.mark.parametrize("data", GARBAGE)
def test_one_candidate_replaces_garbage_in_the_leaders_node(server, members, data, caplog):
    """Also if the leader hangs, or if the node is no member's."""
    for one in members:
        one.election.look()
    server.perform(members[3].client._session_id, SetData(PATHS.leader, data, -1))
    for one in members:
        one.client.deliver()
    assert [one.election.look() for one in members[1:]] == [2, None, None]
    for one in members:
        one.client.deliver()
    assert [one.election.look() for one in members] == [None, 2, None, None]
    assert PATHS.leader in caplog.text


def test_garbage_that_another_candidate_has_replaced_is_left(server, members, monkeypatch):
    """1. Two candidates read garbage; 2. one wins; 3. the other one, which has not read that, tries."""
    for one in members[:3]:
        one.election.look()
    server.perform(members[3].client._session_id, SetData(PATHS.leader, b"garbage", -1))
    for one in members[:3]:
        one.client.deliver()
    read, late = members[2].zk.get_many, members[2]

    def wins_meanwhile(paths):
        found = read(paths)
        assert members[1].election.look() == 2
        return found

    monkeypatch.setattr(late.zk, "get_many", wins_meanwhile)
    assert late.election.look() is None
    assert server.nodes[PATHS.leader].owner == members[1].membership.registered_session


# -- commands -------------------------------------------------------------------------------------------------------


def test_a_leader_of_a_former_epoch_commands_nothing(server, members):
    """1. A leads; 2. its office is deleted, B wins, and commands; 3. A writes what it had planned."""
    former = members[0].commands(members[0].election.look())
    members[1].election.look()
    server.perform(members[0].client._session_id, _delete(PATHS.leader))
    newer = members[1].commands(members[1].election.look())
    newer.write(["g_c", "g_d"], {"g_c": members[2].share(P0), "g_d": {}}, [])
    with pytest.raises(EpochEnded):
        former.write(["g_d"], {"g_d": members[3].share(P0)}, [])
    assert members[3].command()[0] == Command({}, 2, 1)
    assert former.commanded([]) == {}


def test_a_leader_whose_session_ended_commands_nothing(server, members):
    former = members[0].commands(members[0].election.look())
    fence = members[0].fence()
    members[0].expire()
    former._fence = lambda: fence
    with pytest.raises(SessionExpired):
        former.write(["g_b"], {"g_b": members[1].share(P0)}, [])
    assert members[1].command()[0] is None


def test_a_new_leader_takes_the_commands_as_they_are(server, members):
    members[0].commands(members[0].election.look()).write(["g_b"], {"g_b": members[1].share(P0, P1)}, [])
    members[1].election.look()
    members[0].zk.close()
    successor = members[1].commands(members[1].election.look())
    assert successor.commanded(["g_b", "g_c"]) == {"g_b": members[1].share(P0, P1), "g_c": {}}
    assert not successor.write(["g_b"], {}, []), "the member that keeps its share gets no command"
    assert members[1].command()[0].epoch == 1


def test_a_command_that_no_leader_wrote_is_written_again(server, members):
    leads = members[0].commands(members[0].election.look())
    leads.write(["g_b"], {"g_b": members[1].share(P0)}, [])
    server.nodes[members[1].membership.command].data = b"garbage"
    server.nodes[members[1].membership.command].version += 1
    assert leads.write(["g_b"], {"g_b": members[1].share(P0, P1)}, []), "it has to be read again"
    leads.refresh(members[0].zk.children(PATHS.commands))
    assert leads.commanded(["g_b"]) == {"g_b": {}}
    leads.write(["g_b"], {"g_b": members[1].share(P1)}, [])
    assert members[1].command()[0].share == members[1].share(P1)


def test_the_node_of_a_former_registration_is_deleted(server, members):
    """A session that lives may have registered twice: another client deleted a node of the first registration."""
    leads = members[0].commands(members[0].election.look())
    former = members[1].membership.command
    server.perform(members[1].client._session_id, _delete(members[1].fence()))
    members[1].membership.deregister()
    members[1].register()
    leads.refresh(members[0].zk.children(PATHS.commands))
    leads.write(["g_b"], {"g_b": members[1].share(P0)}, [])
    assert former not in server.nodes
    assert members[1].command()[0].share == members[1].share(P0)


# -- claims ---------------------------------------------------------------------------------------------------------


def test_a_claim_under_a_former_command_fails(server, members):
    """1. C is commanded to own partition 0; 2. it is withdrawn and granted to D; 3. C claims it."""
    leads = members[0].commands(members[0].election.look())
    late, next_owner = members[2], members[3]
    leads.write(["g_c"], {"g_c": late.share(P0)}, [])
    _, read = late.command()
    leads.write(["g_c"], {"g_c": {}}, [])
    leads.write(["g_d"], {"g_d": next_owner.share(P0)}, [])
    with pytest.raises(ShareChanged):
        late.ownership.claim_more(late.share(P0), read)
    assert late.ownership.held == {}
    _, read = next_owner.command()
    next_owner.ownership.claim_more(next_owner.share(P0), read)
    assert next_owner.ownership.held == next_owner.share(P0)


def test_a_claim_whose_command_was_deleted_fails(server, members):
    members[0].commands(members[0].election.look()).write(["g_c"], {"g_c": members[2].share(P0)}, [])
    _, read = members[2].command()
    server.perform(members[0].client._session_id, _delete(read.path))
    with pytest.raises(ShareChanged):
        members[2].ownership.claim_more(members[2].share(P0), read)


def test_a_conflict_leaves_what_is_held(server, members):
    one, two = members[:2]
    anything = Operation("check", "/", version=-1)
    one.ownership.claim_more(one.share(P0), anything)
    two.ownership.claim_more(two.share(P2), anything)
    with pytest.raises(OwnershipConflict):
        one.ownership.claim_more(one.share(P0, P1, P2), anything)
    assert one.ownership.held == one.share(P0)
    assert paths_below(server, GROUP.owners) == ["t", "t/0", "t/2"]


def test_a_release_of_some_keeps_the_others(server, members):
    one = members[0]
    one.ownership.claim_more(one.share(P0, P1, P2), Operation("check", "/", version=-1))
    one.ownership.release_some([P1])
    assert one.ownership.held == one.share(P0, P2)
    assert one.ownership.releases == 0
    assert paths_below(server, GROUP.owners) == ["t", "t/0", "t/2"]


def test_what_a_lost_answer_may_have_created_is_released(server, members):
    one, anything = members[0], Operation("check", "/", version=-1)
    one.ownership.claim_more(one.share(P0), anything)
    one.client.loses = Loss(0, request=False, writes_below=GROUP.owners, reconnects=True)
    with pytest.raises(ZooKeeperUnavailable):
        one.ownership.claim_more(one.share(P0, P1), anything)
    assert one.ownership.held == one.share(P0)
    assert paths_below(server, GROUP.owners) == ["t", "t/0", "t/1"]
    assert not one.ownership.is_certain
    one.ownership.release_some([])
    assert one.ownership.is_certain
    assert paths_below(server, GROUP.owners) == ["t", "t/0"]


def test_a_session_that_expires_during_a_release_changes_nothing_later(server, members):
    """1. A partition is withdrawn; 2. the session expires, and its owner znodes are gone; 3. the release is sent."""
    leads = members[0].commands(members[0].election.look())
    late, next_owner = members[2], members[3]
    leads.write(["g_c"], {"g_c": late.share(P0, P1)}, [])
    _, read = late.command()
    late.ownership.claim_more(late.share(P0, P1), read)
    fence = late.fence()
    server.end_session(late.client._session_id)
    late.client.connect()
    late.client.connect()
    leads.write(["g_d"], {"g_d": next_owner.share(P0)}, [])
    _, read = next_owner.command()
    next_owner.ownership.claim_more(next_owner.share(P0), read)
    late.ownership._fence = lambda: fence
    with pytest.raises(SessionExpired):
        late.ownership._session.transact(fence, [Operation("delete", GROUP.owner(P0))])
    assert paths_below(server, GROUP.owners) == ["t", "t/0"]


# -- planning -------------------------------------------------------------------------------------------------------


class Led:
    """The group as the first member leads it, with one broker and one topic."""

    def __init__(self, server, members, cluster=None, **properties):
        session = server.open_session(1e9, None)
        for path in ("/brokers", "/brokers/ids", "/brokers/topics"):
            server.perform(session, _create(path))
        self.server, self.session, self.leader = server, session, members[0]
        self.add_topic(4)
        self.woken = 0
        self.config = ConsumerConfig(
            zookeeper_connect="memory:1", group_id="g", partition_assignment_strategy="roundrobin", **properties
        )
        self.cluster = cluster
        self.lead()

    def lead(self):
        """Begin as a member that knows nothing of what was planned before."""
        self.group = LeaderView(
            self.config,
            self.leader.zk,
            self.leader.membership,
            self.leader.election.look(),
            self._wake,
            self._wake,
            lambda: self.leader.now,
            self.cluster,
        )

    def _wake(self):
        self.woken += 1

    def add_topic(self, count):
        partitions = ",".join(f'"{number}":[1]' for number in range(count))
        document = f'{{"version":1,"partitions":{{{partitions}}}}}'.encode()
        self.server.perform(self.session, Create("/brokers/topics/t", document, [], 0))

    def register_jvm_member(self, name):
        document = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
        self.server.perform(self.session, Create(GROUP.consumer_id(name), document, [], 1))

    def status(self):
        return StatusNode.decode(PATHS.status, self.server.nodes[PATHS.status].data)

    def plan(self):
        """Plan until nothing more can be commanded; returns how often something was."""
        self.leader.client.deliver()
        for number in range(10):
            self.next_turn = self.group.advance()
            if not self.next_turn.at_once:
                return number
        raise AssertionError("it can be commanded for ever")


@pytest.fixture
def led(server, members):
    for one in members[2:]:
        one.zk.close()
    return Led(server, members)


class Joining(threading.Event):
    """Stands for the wait of a coordinator: each time members join, and time passes."""

    def __init__(self, server, leader, numbers):
        super().__init__()
        self.server, self.leader, self.numbers = server, leader, iter(numbers)
        self.joined = []

    def wait(self, timeout=None):
        self.leader.now += timeout
        if (number := next(self.numbers, None)) is not None:
            self.joined.append(Member(self.server, f"g_{number:03}"))
        self.leader.client.deliver()
        return False


def coordinator_of(one, joining):
    config = ConsumerConfig(zookeeper_connect="memory:1", group_id="g", rebalance_backoff_ms=2000)
    return Coordinator(config, one.name, one.zk, one.membership, closing=joining, clock=lambda: one.now)


def test_members_that_join_together_are_commanded_by_one_plan(led, members):
    joining = Joining(led.server, led.leader, range(8))
    coordinator_of(led.leader, joining).act()
    commands = [one.command()[0] for one in joining.joined]
    assert {command.generation for command in commands} == {1}
    assert sum(len(command.share) for command in commands) <= 4
    assert len(joining.joined) == 8


def test_members_that_never_stop_joining_are_commanded_in_time(led, members):
    joining = Joining(led.server, led.leader, range(1000))
    coordinator = coordinator_of(led.leader, joining)
    coordinator.act()
    assert led.leader.now == pytest.approx(1.0, abs=0.06), "half a backoff: there may be JVM consumers"
    Member(led.server, "g_later")
    led.leader.client.deliver()
    coordinator.act()
    assert led.leader.now == pytest.approx(1.0 + led.leader.zk.negotiated_timeout / 2, abs=0.11)
    assert {one.command()[0].generation for one in joining.joined} == {1, 2}


def test_a_thousand_events_cost_one_plan(led, members, monkeypatch):
    """A flag is raised, however often."""
    coordinator = coordinator_of(led.leader, Joining(led.server, led.leader, ()))
    coordinator.act()
    planned, advance = [], LeaderView.advance
    monkeypatch.setattr(LeaderView, "advance", lambda group: planned.append(group) or advance(group))
    for _ in range(1000):
        coordinator.cluster_changed()
    coordinator.act()
    assert len(planned) == 1


def test_a_change_while_the_leader_plans_settles_first(led, members, monkeypatch):
    """Otherwise each member of a stream would cost a plan."""
    joining = Joining(led.server, led.leader, range(1))
    coordinator = coordinator_of(led.leader, joining)
    planned, advance = [], LeaderView.advance

    def joins_meanwhile(group):
        done = advance(group)
        planned.append(Member(led.server, f"g_meanwhile-{len(planned)}"))
        led.leader.client.deliver()
        return done

    monkeypatch.setattr(LeaderView, "advance", joins_meanwhile)
    coordinator.act()
    assert len(planned) == 1


def obey(one):
    command, read = one.command()
    one.ownership.release_some(one.ownership.held.keys() - command.share.keys())
    one.ownership.claim_more(command.share, read)


def test_all_members_are_commanded_in_one_plan(led, members):
    assert led.plan() == 1
    shares = [one.command()[0].share for one in members[:2]]
    assert [len(share) for share in shares] == [2, 2]
    assert led.plan() == 0


def test_a_command_names_brokers_that_live(led, members):
    endpoint = b'{"version":1,"host":"h","port":9092}'
    led.server.perform(led.session, Create("/brokers/ids/7", endpoint, [], 0))
    led.plan()
    command, _ = members[1].command()
    assert (command.brokers, command.security_protocol) == ((Broker(7, "h", 9092),), "PLAINTEXT")


def test_a_leader_that_plans_is_not_replaced(led, members):
    for _ in range(3):
        led.plan()
        assert members[1].election.look() is None
        members[1].now += 60.0
    assert led.status().members_version == led.server.nodes[GROUP.ids].stat().cversion


def test_the_status_names_what_is_awaited(led, members):
    led.plan()
    for one in members[:2]:
        obey(one)
    assert led.status() == Status(1, 1, led.server.nodes[GROUP.ids].stat().cversion)
    joined = Member(led.server, "g_c")
    led.plan()
    assert len(led.status().awaited) == 1
    for one in members[:2]:
        obey(one)
    led.plan()
    assert len(joined.command()[0].share) == 1
    assert led.status().awaited == frozenset()


def test_a_member_that_does_not_release_is_named_once(led, members, caplog):
    led.plan()
    for one in members[:2]:
        obey(one)
    joined = Member(led.server, "g_c")
    for seconds in (0.0, 4.0, 1.0):
        led.leader.now += seconds
        led.plan()
    [line] = [record.message for record in caplog.records if "not released in time" in record.message]
    assert "owner g_" in line
    for one in members[:2]:
        obey(one)
    led.plan()
    assert len(joined.command()[0].share) == 1


def test_a_group_at_rest_costs_no_write(led, members):
    led.plan()
    for one in members[:2]:
        obey(one)
    before = led.server.zxid
    assert led.plan() == 0
    assert led.server.zxid == before


def test_a_command_that_may_not_be_written_costs_its_member(led, members):
    """The others are commanded, in the same plan, and a candidate sees that the leader plans."""
    led.server.guarded.add(members[1].membership.command)
    assert led.plan() == 1
    assert len(members[0].command()[0].share) == 2
    assert members[1].command()[0] is None
    assert led.status() == Status(1, 1, led.server.nodes[GROUP.ids].stat().cversion)
    with pytest.raises(ZooKeeperRefused, match=members[1].membership.command):
        led.group.raise_refusal()
    before = led.server.zxid
    assert led.plan() == 0
    assert led.server.zxid == before + 1, "one attempt, and no other status"
    led.server.guarded.clear()
    assert led.plan() == 1
    led.group.raise_refusal()
    assert len(members[1].command()[0].share) == 2


def test_a_leader_that_may_not_write_a_command_waits_before_it_tries_again(led, members):
    led.server.guarded.add(members[1].membership.command)
    coordinator = coordinator_of(led.leader, Joining(led.server, led.leader, ()))
    for _ in range(2):
        before = led.server.zxid
        assert coordinator.act() == 2.0
        assert coordinator.has_failed
    assert led.server.zxid == before + 1


@pytest.fixture
def commanding(led):
    """The thread of a leader whose commands are not obeyed yet, so that it will look whether they are."""
    coordinator = coordinator_of(led.leader, Joining(led.server, led.leader, ()))
    assert 0 < coordinator.act() <= 1.0
    return coordinator


def seconds_of_turns(led, coordinator):
    """What each of some turns returned as the time to wait, long after all that was due."""
    seconds = []
    for _ in range(4):
        led.leader.now += 100.0
        led.leader.client.deliver()
        seconds.append(coordinator.act())
    return seconds


@pytest.mark.parametrize("without", ["connection", "registration"])
def test_a_leader_that_cannot_act_waits_for_the_next_look(led, commanding, without):
    if without == "connection":
        led.leader.zk._connected.clear()
    else:
        led.leader.membership.session_lost()
    assert min(seconds_of_turns(led, commanding)) >= 4.5


def test_a_leader_that_may_not_plan_waits_for_the_next_look(led, members, commanding, caplog):
    """A member with another assignor registers while commands are not obeyed."""
    led.register_jvm_member("g_z")
    node = GROUP.session("g_z", led.session)
    led.server.perform(led.session, Create(node, b'{"version":1,"assignor":"roundrobin"}', [], 1))
    assert min(seconds_of_turns(led, commanding)) >= 4.5
    assert "no member is commanded" in caplog.text


def test_a_leader_that_may_not_evict_any_more_does_not_wake_for_it(led, members, commanding):
    """A foreign member joins while members are awaited that would be evicted."""
    for one in members[:2]:
        obey(one)
    led.leader.now += 1.1
    led.leader.client.deliver()
    commanding.act()
    third = Member(led.server, "g_c")
    led.leader.client.deliver()
    assert commanding.act() > 1.0
    assert commanding._led._awaited
    led.register_jvm_member("g_jvm")
    for _ in range(4):
        led.leader.client.deliver()
        commanding.act()
        for one in (*members[:2], third):
            obey(one)
        led.leader.now += 1.0
    assert min(seconds_of_turns(led, commanding)) > 0
    assert not commanding._led._awaited


def test_a_topic_that_was_created_again_stays_withdrawn_until_it_is(led, members):
    """The withdrawal may be refused: nothing is granted at the positions of the former topic."""
    led.plan()
    for one in members[:2]:
        obey(one)
    led.server.guarded.add(members[1].membership.command)
    former = members[1].command()
    members[1].ownership.release_some(former[0].share)
    led.server.perform(led.session, _delete("/brokers/topics/t"))
    led.add_topic(4)
    led.plan()
    obey(members[0])
    led.plan()
    assert members[1].command() == former
    assert led.status().awaited >= former[0].share.keys()
    led.server.guarded.clear()
    led.plan()
    assert members[1].command()[1].version == former[1].version + 2


def test_claims_do_not_wake_the_leader(led, members):
    led.plan()
    led.woken = 0
    for one in members[:2]:
        obey(one)
    led.leader.client.deliver()
    assert led.woken == 0


def test_a_jvm_member_gets_its_share_and_gives_it_back(led, members):
    led.plan()
    for one in members[:2]:
        obey(one)
    led.register_jvm_member("g_b-jvm")
    for _ in range(2):  # withdrawn, then granted
        led.plan()
        for one in members[:2]:
            obey(one)
    threads = [ConsumerThreadId(name, 0) for name in ("g_a", "g_b", "g_b-jvm")]
    shared = roundrobin_assignor({"t": threads}, {"t": (0, 1, 2, 3)})
    for one in members[:2]:
        assert one.command()[0].share == {p: thread for p, thread in shared.items() if thread.consumer_id == one.name}
    led.server.perform(led.session, _delete(GROUP.consumer_id("g_b-jvm")))
    led.plan()
    assert sorted(len(one.command()[0].share) for one in members[:2]) == [2, 2]


@pytest.mark.parametrize("policy", ["sticky", "range"])
def test_a_deleted_command_disturbs_no_other_member(led, members, policy):
    led.server.perform(led.session, Create(PATHS.policy, f'{{"assignor":"{policy}"}}'.encode(), [], 0))
    one = Member(led.server, "g_c")
    led.plan()
    everyone = [*members[:2], one]
    for each in everyone:
        obey(each)
    before, held = [each.command() for each in members[:2]], one.ownership.held
    led.server.perform(led.session, _delete(one.membership.command))
    led.plan()
    assert [each.command() for each in members[:2]] == before
    one.membership.deregister()
    one.register()
    led.plan()
    assert [each.command() for each in members[:2]] == before
    assert one.command()[0].share == held


def test_a_partition_is_granted_when_its_owner_has_released_it(led, members):
    holder = PartitionOwnership(
        led.leader.zk, "g", lambda: "/", lambda: led.leader.membership.registered_session, lambda: None
    )
    holder.claim({P0: ConsumerThreadId("g_stranger", 0)})
    led.plan()
    assert all(P0 not in one.command()[0].share for one in members[:2])
    led.woken = 0
    holder.release()
    led.leader.client.deliver()
    assert led.woken == 1
    led.plan()
    assert sum(P0 in one.command()[0].share for one in members[:2]) == 1


def test_a_release_does_not_let_the_leader_read_the_group(led, members, monkeypatch):
    led.plan()
    for one in members[:2]:
        obey(one)
    led.leader.client.deliver()
    asked, perform = [], led.server.perform

    def record(session, request):
        asked.append(request)
        return perform(session, request)

    monkeypatch.setattr(led.server, "perform", record)
    members[1].ownership.release_some([P1])
    asked.clear()
    assert led.plan() == 0
    assert asked == []


def test_partitions_of_a_topic_that_was_created_again_are_started_again(led, members):
    """Also if it is deleted and created between two looks of the leader."""
    led.plan()
    for one in members[:2]:
        obey(one)
    versions = [one.command()[1].version for one in members[:2]]
    led.server.perform(led.session, _delete("/brokers/topics/t"))
    led.add_topic(4)
    led.plan()
    assert [one.command()[0].share for one in members[:2]] == [{}, {}]
    led.woken = 0
    for one in members[:2]:
        obey(one)
    led.leader.client.deliver()
    assert led.woken == 4
    led.plan()
    assert [len(one.command()[0].share) for one in members[:2]] == [2, 2]
    assert [one.command()[1].version for one in members[:2]] == [version + 2 for version in versions]


def test_a_new_leader_starts_partitions_of_a_topic_again_that_was_created_meanwhile(led, members):
    """The leader died before it noticed; the members have recorded which topic they consume."""
    led.plan()
    for one in members[:2]:
        obey(one)
    records = TopicRecords(members[0].zk, "g", members[0].fence)
    [node] = members[0].zk.get_many(["/brokers/topics/t"]).values()
    records.consume({"t": TopicIdentity(None, node.czxid)})
    led.server.perform(led.session, _delete("/brokers/topics/t"))
    led.add_topic(4)
    led.lead()
    led.plan()
    assert [one.command()[0].share for one in members[:2]] == [{}, {}]


def test_partitions_of_foreign_members_are_not_awaited_when_their_topic_was_created_again(led, members):
    """These retain their owner znodes; also what a follower is about to give up to them."""
    led.plan()
    for one in members[:2]:
        obey(one)
    led.register_jvm_member("g_z")
    for _ in range(2):
        led.plan()
        for one in members[:2]:
            obey(one)
    owned = {p.partition for one in members[:2] for p in one.ownership.held}
    [left] = {0, 1, 2, 3} - owned
    led.server.perform(led.session, Create(GROUP.owner(TopicPartition("t", left)), b"g_z-0", [], 1))
    led.server.perform(led.session, _delete("/brokers/topics/t"))
    led.add_topic(4)
    for _ in range(2):
        led.plan()
        assert TopicPartition("t", left) not in led.status().awaited
        for one in members[:2]:
            obey(one)
    led.plan()
    assert led.status().awaited == frozenset()
    assert {p.partition for one in members[:2] for p in one.ownership.held} == owned


def test_a_partition_that_goes_to_a_foreign_member_is_not_restarted(led, members):
    """1. The topic is created again, and its partitions are withdrawn; 2. a JVM consumer joins, and claims some."""
    led.plan()
    for one in members[:2]:
        obey(one)
    led.server.perform(led.session, _delete("/brokers/topics/t"))
    led.add_topic(4)
    led.plan()
    led.register_jvm_member("g_z")
    for one in members[:2]:
        one.ownership.release_some(one.ownership.held)
    threads = [ConsumerThreadId(name, 0) for name in ("g_a", "g_b", "g_z")]
    for partition, thread in roundrobin_assignor({"t": threads}, {"t": (0, 1, 2, 3)}).items():
        if thread.consumer_id == "g_z":
            led.server.perform(led.session, Create(GROUP.owner(partition), b"g_z-0", [], 1))
    led.plan()
    assert led.status().awaited == frozenset()


def test_a_jvm_member_that_gave_up_is_nudged_once(led, members):
    led.plan()
    led.register_jvm_member("g_b-jvm")
    led.plan()
    for one in members[:2]:
        obey(one)
    assert led.group.has_jvm_members
    before = led.server.nodes[GROUP.ids].creations
    led.group.tend()
    led.group.tend()
    assert led.server.nodes[GROUP.ids].creations == before + 1


@pytest.mark.parametrize(("name", "nudging"), [("g_0", "g_0"), ("g_c", "g_a")])
def test_one_zkconsumer_member_nudges_in_a_mixed_group(led, name, nudging):
    """A member without commands does, if it has the smallest id; otherwise the leader."""
    led.register_jvm_member("g_b-jvm")
    led.register_jvm_member(name)
    node = SessionNode.encode("roundrobin")
    led.server.perform(led.session, Create(GROUP.session(name, led.session), node, [], 1))
    led.plan()
    view = led.group._members.view
    foreign = led.group._members.roles.foreign
    found = [one for one in foreign if view.nudger == one]
    assert [*found, *(["g_a"] if led.group.nudges() else [])] == [nudging]


class BrokersThatAnswerWhenTold:
    """A polled cluster: it has the snapshot that the test sets."""

    def __init__(self):
        self.snapshot = ClusterSnapshot()

    def describe(self, count):
        topic = Topic(tuple(range(count)), TopicIdentity("id", None))
        self.snapshot = ClusterSnapshot((Broker(1, "h", 1),), {"t": topic}, frozenset({"t"}))

    def read(self, topics, *, for_others=True):
        return self.snapshot


@pytest.fixture
def polled(server, members):
    for one in members[2:]:
        one.zk.close()
    brokers = BrokersThatAnswerWhenTold()
    brokers.describe(4)
    led = Led(server, members, brokers)
    led.plan()
    for one in members[:2]:
        obey(one)
    return led, brokers


@pytest.mark.parametrize("snapshot", [ClusterSnapshot(), ClusterSnapshot((Broker(1, "h", 1),))])
def test_a_leader_that_does_not_know_the_topics_withdraws_nothing(polled, members, snapshot):
    """It was elected while no broker answers, or has only asked for other topics so far."""
    led, brokers = polled
    before = [one.command() for one in members[:2]]
    brokers.snapshot = snapshot
    led.group.note_change()
    with pytest.raises(BrokerUnavailable):
        led.plan()
    assert [one.command() for one in members[:2]] == before
    assert "no broker" in led.status().refused
    brokers.describe(5)
    led.plan()
    assert sorted(len(one.command()[0].share) for one in members[:2]) == [2, 3]
    assert led.status().refused == ""


def test_a_leader_without_brokers_is_not_replaced(polled, members):
    """Another member would not know the topics, either."""
    led, brokers = polled
    brokers.snapshot = ClusterSnapshot()
    assert members[1].election.look() is None
    led.register_jvm_member("g_b-jvm")
    with pytest.raises(BrokerUnavailable):
        led.plan()
    for _ in range(3):
        assert members[1].election.look() is None
        members[1].now += 60.0


def test_members_without_commands_are_nudged_for_new_partitions(polled):
    led, brokers = polled
    brokers.describe(5)
    led.group.note_change()
    before = led.server.nodes[GROUP.ids].creations
    led.plan()
    assert led.server.nodes[GROUP.ids].creations == before, "all members obey commands"
    led.register_jvm_member("g_b-jvm")
    led.plan()
    brokers.describe(6)
    led.group.note_change()
    before = led.server.nodes[GROUP.ids].creations
    led.plan()
    assert led.server.nodes[GROUP.ids].creations == before + 1


def test_a_member_with_a_short_session_is_refused(server, members, caplog):
    """The other members own everything; in a longer session it is accepted."""
    for one in members[2:]:
        one.zk.close()
    led = Led(server, members, coordinator_min_session_ms=6000)
    short = SessionNode.encode("range", "coordinator", 5999)
    server.perform(members[1].client._session_id, SetData(members[1].fence(), short, -1))
    for _ in range(2):
        led.plan()
        led.group.note_change()
    assert len(members[0].command()[0].share) == 4
    refused = members[1].command()[0]
    assert refused.share == {}
    assert "session timeout of 5999 ms is below coordinator.min.session.ms=6000" in refused.refused
    assert len([record for record in caplog.records if "is refused" in record.message]) == 1
    obey(members[0])
    members[1].expire()
    members[1].register()
    led.plan()
    obey(members[0])
    led.plan()
    accepted = members[1].command()[0]
    assert (len(accepted.share), accepted.refused) == (2, "")


def test_a_member_whose_registration_cannot_be_read_is_refused(led, members):
    led.server.perform(led.session, SetData(GROUP.consumer_id("g_b"), b"garbage", -1))
    led.plan()
    assert len(members[0].command()[0].share) == 4
    assert "its registration cannot be used" in members[1].command()[0].refused


class Reads:
    """Paths that are read while it records."""

    def __init__(self, server, monkeypatch):
        self.data = []
        perform = server.perform

        def record(session, request):
            if isinstance(request, MultiRead):
                self.data += request.paths
            elif isinstance(request, GetData):
                self.data.append(request.path)
            return perform(session, request)

        monkeypatch.setattr(server, "perform", record)

    def registrations(self):
        found = [path for path in self.data if path.startswith((f"{GROUP.ids}/", f"{GROUP.members}/"))]
        self.data.clear()
        return sorted(path.rpartition("/")[2].partition("@")[0] for path in found)


def test_a_registration_is_read_once(led, members, monkeypatch):
    """A leader reads what is new, however many members there are."""
    reads = Reads(led.server, monkeypatch)
    led.plan()
    assert reads.registrations() == ["g_a", "g_a", "g_b", "g_b"]
    joined = Member(led.server, "g_c")
    led.plan()
    assert reads.registrations() == ["g_c", "g_c"]
    joined.zk.close()
    led.plan()
    assert reads.registrations() == []
    members[1].expire()
    members[1].register()
    led.plan()
    assert reads.registrations() == ["g_b", "g_b"]


def test_all_registrations_are_read_while_there_are_jvm_members(led, members, monkeypatch):
    """These read all of them each time, and the leader has to compute what they compute."""
    led.plan()
    led.server.perform(led.session, SetData(GROUP.consumer_id("g_b"), b"garbage", -1))
    led.group.note_change()
    led.plan()
    assert members[1].command()[0].refused == ""
    led.register_jvm_member("g_b-jvm")
    led.plan()
    assert "its registration cannot be used" in members[1].command()[0].refused
    reads = Reads(led.server, monkeypatch)
    led.group.note_change()
    led.plan()
    assert reads.registrations() == ["g_a", "g_a", "g_b", "g_b", "g_b-jvm"]


def test_owner_znodes_are_read_again_only_when_they_are_released(led, members, monkeypatch):
    led.plan()
    for one in members[:2]:
        obey(one)
    joined = [Member(led.server, name) for name in ("g_c", "g_d")]
    led.plan()
    reads = Reads(led.server, monkeypatch)
    obey(members[0])
    reads.data.clear()
    led.plan()
    released = [path for path in reads.data if path.startswith(GROUP.owners)]
    assert len(released) == 1
    obey(members[1])
    led.plan()
    assert [len(one.command()[0].share) for one in joined] == [1, 1]


def test_topics_and_the_policy_are_read_once(led, members, monkeypatch):
    """However often the group changes; and each has one watch in kazoo."""
    led.plan()
    reads = Reads(led.server, monkeypatch)
    for number in range(3):
        led.register_jvm_member(f"g_{number}")
        led.plan()
    assert not {"/brokers/topics/t", PATHS.policy} & set(reads.data)
    watchers = led.leader.client._data_watchers
    assert [len(watchers[path]) for path in ("/brokers/topics/t", PATHS.policy)] == [1, 1]


def test_the_parents_of_owner_znodes_are_created_by_the_leader(led, members):
    led.plan()
    assert GROUP.owner_topic("t") in led.server.nodes


def test_a_policy_changes_the_assignment_of_a_running_group(led, members, caplog):
    led.plan()
    for one in members[:2]:
        obey(one)
    assert [sorted(p.partition for p in one.ownership.held) for one in members[:2]] != [[0, 1], [2, 3]]
    led.server.perform(led.session, Create(PATHS.policy, b'{"assignor":"range"}', [], 0))
    for _ in range(2):
        led.plan()
        for one in members[:2]:
            obey(one)
    assert [sorted(p.partition for p in one.ownership.held) for one in members[:2]] == [[0, 1], [2, 3]]
    led.server.perform(led.session, SetData(PATHS.policy, b"garbage", -1))
    before = [one.command() for one in members[:2]]
    led.plan()
    assert [one.command() for one in members[:2]] == before
    assert "the former policy range stays" in caplog.text


def test_members_that_assign_in_another_way_stop_all_plans(led, members, caplog):
    led.plan()
    obey(members[0])
    led.register_jvm_member("g_z")
    node = GROUP.session("g_z", led.session)
    led.server.perform(led.session, Create(node, b'{"version":1,"assignor":"range"}', [], 1))
    before = [one.command() for one in members[:2]]
    assert led.plan() == 0
    assert led.plan() == 0
    assert [one.command() for one in members[:2]] == before
    assert len([record for record in caplog.records if "no member is commanded" in record.message]) == 1
    assert "g_z (range)" in led.status().refused


def test_a_member_whose_registration_was_deleted_registers_again(led, members):
    led.plan()
    led.server.perform(led.session, _delete(GROUP.consumer_id("g_b")))
    led.plan()
    assert members[1].membership.command not in led.server.nodes


# -- eviction -------------------------------------------------------------------------------------------------------


@pytest.fixture
def evicting(server, members):
    """Two members own all; a third one waits for what the second one does not release."""
    for one in members[2:]:
        one.zk.close()
    led = Led(server, members, coordinator_evict_slow_ms=5000)
    led.plan()
    for one in members[:2]:
        obey(one)
    led.joined = Member(server, "g_c")
    led.joined.now = 0.0
    led.plan()
    obey(members[0])
    led.plan()
    obey(led.joined)
    return led


def owners_of(server):
    return {
        path.removeprefix(f"{GROUP.owners}/t/"): node.data.decode()
        for path, node in server.nodes.items()
        if path.startswith(f"{GROUP.owners}/t/")
    }


@pytest.fixture
def slow(evicting, members):
    """The member that does not release: of the first two it is the one whose share shrinks; never the leader here."""
    if len(members[0].command()[0].share) < 2 and len(members[1].command()[0].share) == 2:
        Member(evicting.server, "g_d")
        evicting.plan()
        obey(members[0])
    assert members[1].ownership.held.keys() > members[1].command()[0].share.keys()
    return members[1]


def test_a_slow_member_loses_its_partitions_a_session_timeout_later(evicting, slow, members, caplog):
    """Its lease lapses in between, since its session node is gone."""
    others = members[0]
    held = dict(slow.ownership.held)
    evicting.leader.now += 4.9
    evicting.plan()
    assert slow.fence() in evicting.server.nodes
    assert evicting.next_turn.due_at == pytest.approx(5.0)
    evicting.leader.now += 0.1
    evicting.plan()
    assert slow.fence() not in evicting.server.nodes
    assert slow.command()[0].share == {}
    assert "did not release or claim 1 partitions within 5 s" in slow.command()[0].refused
    assert evicting.next_turn.due_at == pytest.approx(11.0)
    evicting.leader.now += 5.9
    evicting.plan()
    assert set(owners_of(evicting.server).values()) >= {f"{slow.name}-0"}
    evicting.leader.now += 0.1
    evicting.plan()
    assert f"{slow.name}-0" not in owners_of(evicting.server).values()
    obey(others)
    evicting.plan()
    granted = [p for one in members[:1] for p in one.command()[0].share]
    assert {p for p in granted if p in held}
    assert "is evicted, since it did not release" in caplog.text


def test_a_slow_member_is_evicted_also_if_another_client_deleted_its_session_node(evicting, slow):
    evicting.plan()
    evicting.server.perform(evicting.server.open_session(1e9, None), Delete(slow.fence(), -1))
    evicting.plan()
    evicting.leader.now += 5.0
    evicting.plan()
    assert "did not release or claim" in slow.command()[0].refused
    evicting.leader.now += 6.0
    evicting.plan()
    assert f"{slow.name}-0" not in owners_of(evicting.server).values()


def test_an_evicted_member_can_write_nothing_and_registers_again(evicting, slow, members):
    evicting.leader.now += 5.0
    evicting.plan()
    with pytest.raises(SessionExpired):
        slow.ownership.release_some(list(slow.ownership.held))
    former = slow.membership.command
    slow.ownership.lose_all()
    slow.membership.session_lost()
    slow.register()
    evicting.plan()
    assert former not in evicting.server.nodes
    assert slow.command()[0].refused == ""
    status = StatusNode.decode(PATHS.status, evicting.server.nodes[PATHS.status].data)
    ends = status.waits_for[slow.name] / 1000 - evicting.group._epoch_of_clock
    assert ends == pytest.approx(evicting.leader.now + 5.0, abs=0.01), "operators read the time that counts"
    evicting.leader.now += 4.9
    evicting.plan()
    assert slow.fence() in evicting.server.nodes, "it has as long as any other member"
    slow.ownership.release_some([])
    for _ in range(2):
        evicting.plan()
        for one in (members[0], slow, evicting.joined):
            obey(one)
    evicting.leader.now += 60.0
    evicting.plan()
    assert slow.fence() in evicting.server.nodes


def test_an_eviction_that_the_member_survives_frees_nothing(evicting, slow):
    """1. It is evicted; 2. its thread continues, and its session node exists again; 3. its time is over."""
    evicting.leader.now += 5.0
    evicting.plan()
    evicting.server.perform(slow.client._session_id, Create(slow.fence(), b"", [], 1))
    before = owners_of(evicting.server)
    evicting.leader.now += 6.0
    evicting.plan()
    assert owners_of(evicting.server) == before


def test_a_successor_waits_a_whole_session_timeout_again(evicting, slow, members):
    evicting.leader.now += 5.0
    evicting.plan()
    successor = evicting.joined
    successor.election.look()
    evicting.leader.zk.close()
    members[:] = [successor, slow]
    epoch = successor.election.look()
    group = LeaderView(
        ConsumerConfig(zookeeper_connect="memory:1", group_id="g", coordinator_evict_slow_ms=5000),
        successor.zk,
        successor.membership,
        epoch,
        lambda: None,
        lambda: None,
        lambda: successor.now,
    )
    for seconds, freed in ((0.0, False), (5.9, False), (0.1, True)):
        successor.now += seconds
        successor.client.deliver()
        while group.advance().at_once:
            pass
        assert (f"{slow.name}-0" not in owners_of(evicting.server).values()) == freed


def test_a_leader_that_hangs_evicts_itself_and_leaves_its_office(server, members):
    for one in members[2:]:
        one.zk.close()
    led = Led(server, members, coordinator_evict_slow_ms=5000)
    led.plan()
    for one in members[:2]:
        obey(one)
    Member(server, "g_c"), Member(server, "g_d")
    led.plan()
    obey(members[1])
    led.plan()
    led.leader.now += 5.0
    with pytest.raises(EpochEnded, match="is evicted"):
        led.plan()
    assert PATHS.leader not in server.nodes
    with pytest.raises(SessionExpired):
        members[0].election.look()
    assert members[1].election.look() == 2


def test_a_command_that_is_too_long_is_reported_and_not_sent(led, members, monkeypatch):
    """The others are written: the leader would lose its connection, and so would each of its successors."""
    monkeypatch.setattr(commands, "MOST_BYTES", 140)
    encode = CommandNode.encode

    def encode_longer_for_b(command):
        to_b = any(thread.consumer_id == "g_b" for thread in command.share.values())
        return encode(command) + b" " * 200 * to_b

    monkeypatch.setattr(CommandNode, "encode", encode_longer_for_b)
    led.plan()
    assert led.leader.command()[0].share
    assert members[1].command()[0] is None
    with pytest.raises(ZooKeeperRefused, match=f"{members[1].membership.command} of .* bytes"):
        led.group.raise_refusal()


def test_a_member_that_does_not_claim_is_awaited_and_evicted(led, members, caplog):
    """It hangs in its listener in the first attempt: its partitions have no owner, and nothing else shows that."""
    led.plan()
    obey(members[0])
    led.leader.now += 0.5
    led.plan()
    led.leader.now += 1.0
    assert led.next_turn.due_at <= led.leader.now
    led.plan()
    hung = members[1].command()[0].share.keys()
    assert led.status().awaited == frozenset(hung)
    assert led.status().waits_for.keys() == {"g_b"}
    assert "not claimed in time" not in caplog.text
    led.leader.now += 4.0
    led.plan()
    assert f"not claimed in time: {min(hung)} (member g_b)" in caplog.text
    led.leader.now += 26.0
    led.plan()
    assert members[1].fence() not in led.server.nodes
    led.plan()
    assert members[0].command()[0].share.keys() >= hung, "they have no owner, so no member is waited for"
    obey(members[0])
    led.leader.now += 9.0
    led.plan()
    assert led.status().awaited == frozenset()
    assert led.status().waits_for == {}


def test_a_claim_that_comes_right_before_an_eviction_counts(led, members):
    led.plan()
    obey(members[0])
    for seconds in (0.0, 1.0, 29.9):
        led.leader.now += seconds
        led.plan()
    assert led.status().awaited
    obey(members[1])
    led.leader.now += 0.2
    led.plan()
    assert members[1].fence() in led.server.nodes
    assert led.status().awaited == frozenset()


def test_a_partition_that_is_claimed_during_an_eviction_keeps_its_owner(led, members):
    """1. The owners are read; 2. the member claims; 3. it is evicted: its partitions wait for the end of its lease."""
    led.plan()
    obey(members[0])
    hung = members[1].command()[0].share.keys()
    for seconds in (0.0, 1.0, 29.9):
        led.leader.now += seconds
        led.plan()
    led.leader.now += 0.2
    evict = led.group._evict

    def claims_first(view, owners):
        led.group._evict = evict
        obey(members[1])
        return evict(view, owners)

    led.group._evict = claims_first
    led.plan()
    assert members[1].fence() not in led.server.nodes
    assert hung.isdisjoint(members[0].command()[0].share)
    led.leader.now += 6.0
    led.plan()
    led.plan()
    assert members[0].command()[0].share.keys() >= hung


def test_what_was_claimed_is_not_read_again(led, members, monkeypatch):
    led.plan()
    for one in members[:2]:
        obey(one)
    led.leader.now += 1.5
    led.plan()
    led.leader.now += 1.5
    led.plan()
    asked, perform = [], led.server.perform
    monkeypatch.setattr(led.server, "perform", lambda *arguments: asked.append(arguments) or perform(*arguments))
    led.leader.now += 60.0
    led.plan()
    assert asked == []
    assert led.next_turn.due_at is None


def test_no_member_is_evicted_where_that_is_off(server, members):
    for one in members[2:]:
        one.zk.close()
    led = Led(server, members, coordinator_evict_slow_ms=0)
    led.plan()
    for one in members[:2]:
        obey(one)
    Member(led.server, "g_c"), Member(led.server, "g_d")
    led.plan()
    led.leader.now += 3600.0
    led.plan()
    assert {one.fence() for one in members[:2]} <= led.server.nodes.keys()
    assert led.next_turn.due_at is None


# -- an assignor of the application ------------------------------------------------------------------------------------


class Half:
    """Gives everything to the first member, or forgets partition 0 while ``is_wrong``."""

    name = "half"
    is_wrong = False

    def assign(self, members, partitions, owned, user_data):
        self.got = members, owned, user_data
        return {min(members): [("t", number) for number in partitions["t"][self.is_wrong :]]}


@pytest.fixture
def own(server, members):
    """A group of two members with an assignor of the application, and that assignor."""
    assignor = Half()
    for one in members:
        one.membership.own, one.membership.assignor = assignor, assignor.name
        one.membership.user_data = one.name.encode()
        one.membership.deregister()
        one.register()
    for one in members[2:]:
        one.zk.close()
    led = Led(server, members)
    led.own = assignor
    return led


def test_an_own_assignor_assigns_and_gets_what_members_wrote(own, members):
    own.plan()
    assert [len(one.command()[0].share) for one in members[:2]] == [4, 0]
    assert own.own.got[0] == {"g_a": {"t": 1}, "g_b": {"t": 1}}
    assert own.own.got[2] == {"g_a": b"g_a", "g_b": b"g_b"}
    members[0].membership.deregister()
    members[0].register()
    own.plan()
    assert set(own.own.got[1]) == {"g_a", "g_b"}


def test_nothing_changes_while_an_own_assignor_fails(own, members):
    own.plan()
    own.own.is_wrong = True
    members[1].membership.deregister()
    members[1].register()
    before = members[0].command()[1].version
    for _ in range(2):
        with pytest.raises(AssignorFailed, match="partition t-0 is given to no member; subscribed are g_a, g_b"):
            own.plan()
    assert len(members[0].command()[0].share) == 4
    assert members[0].command()[1].version == before
    assert "t-0" in own.status().refused
    own.own.is_wrong = False
    own.plan()
    assert own.status().refused == ""
    assert members[1].command()[0].share == {}


def test_an_own_assignor_is_not_used_beside_members_that_assign_by_themselves(own, members, caplog):
    own.plan()
    own.register_jvm_member("g_b-jvm")
    own.plan()
    assert "JVM members cannot assign by half: g_b-jvm" in own.status().refused
    assert len(members[0].command()[0].share) == 4


def test_members_with_another_assignor_are_named(own, members, caplog):
    members[1].membership.assignor = "range"
    members[1].membership.deregister()
    members[1].register()
    own.plan()
    assert next(r.getMessage() for r in caplog.records if "g_b (range)" in r.getMessage()).startswith(
        "group g: partitions are assigned by half of the member that leads"
    )
    assert len(members[0].command()[0].share) == 4


def test_a_coordinator_whose_own_assignor_fails_logs_it_once_and_tries_again(own, members, caplog):
    own.own.is_wrong = True
    members[0].election.resign()
    woken = []
    coordinator = coordinator_of(members[0], Joining(own.server, members[0], ()))
    coordinator.assignor_changed = lambda: woken.append(coordinator.assignor_failure)
    pauses = [coordinator.act() for _ in range(3)]
    assert [str(failure)[:27] for failure in woken] == ["assignor half returned an a"] * 3
    assert pauses == [2.0] * 3
    assert len([r for r in caplog.records if "no member is commanded: assignor half" in r.getMessage()]) == 1
    own.own.is_wrong = False
    coordinator.act()
    assert woken[3:] == [None]
    assert len(members[0].command()[0].share) == 4
