"""Groups with a coordinator on a real ZooKeeper: who leads, who owns what, and what is not disturbed."""

import json
import threading
from contextlib import contextmanager

import pytest
from kazoo.exceptions import NoNodeError

from tests.fixtures.groupprotocol import FetchInMemory
from tests.fixtures.members import Cluster
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import break_connection, expire
from zkconsumer.assembly.clusterchoice import open_group_reader
from zkconsumer.cli.grouptables import coordinator_lines
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import MemberRefused, ZkConsumerError
from zkconsumer.group.coordinator.rules.coordinatorznodes import Command, CommandNode, StatusNode
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules.memberstate import illegal_transitions
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.coordinatorfindings import explain_coordinator
from zkconsumer.operate.groups.groupdescription import describe_group
from zkconsumer.operate.groups.groupdocuments import description_document
from zkconsumer.operate.groups.groupremoval import deletions
from zkconsumer.operate.groups.groupverification import rebalance_findings
from zkconsumer.operate.groups.groupznodes import read_group
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.session import ZkSession

pytestmark = pytest.mark.integration

PATHS = CoordinatorPaths("g")
TO_T = Subscription.static({"t": 1})


class Fetch(FetchInMemory):
    """A data plane that notes which partitions it begins to fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = set()

    def start(self, assignment):
        self.begun |= assignment.threads.keys() - self.fetched.keys()  # before the test can see that it fetches them
        super().start(assignment)


class Group:
    """Members of one group on a cluster that is nothing but znodes, with a topic of eight partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.members = {}
        self.fetches = {}
        cluster.create_topics("t", partitions=8)

    def join(self, name, *, protocol="coordinator", listener=None, **values):
        """Join with a member; returns when it has got a share."""
        fetch = self.fetches[name] = Fetch()
        member = self.members[name] = self.cluster.member(
            name, fetch, group_protocol=protocol, rebalance_backoff_ms=700, **values
        )
        if listener is not None:
            member.set_listener(listener)
        member.join(TO_T)
        return member

    def delete_coordinator(self):
        """Delete all that belongs to the coordinator at once; False if nodes have come or gone meanwhile."""
        zookeeper, root = self.cluster.zookeeper, self.cluster.root + PATHS.root
        commands = [f"{root}/commands/{name}" for name in zookeeper.get_children(f"{root}/commands")]
        transaction = zookeeper.transaction()
        for path in [*commands, *(f"{root}/{name}" for name in zookeeper.get_children(root)), root]:
            transaction.delete(path)
        return all(result is True for result in transaction.commit())

    def leave(self, name):
        self.members.pop(name).leave()
        del self.fetches[name]

    def read(self, path):
        return self.cluster.zookeeper.get(self.cluster.root + path)

    def command(self, name):
        """Path of the command of a member, without the chroot; None while there is none."""
        return self._node_of(PATHS.commands, name)

    def session_node(self, name):
        """Path of the session node of a member, without the chroot; None while there is none."""
        return self._node_of(GroupPaths("g").members, name)

    def _node_of(self, parent, name):
        try:
            names = self.cluster.zookeeper.get_children(self.cluster.root + parent)
        except NoNodeError:
            return None
        return next((f"{parent}/{one}" for one in names if one.startswith(f"g_{name}@")), None)

    def leader(self):
        """Name of the member that leads, None without one."""
        try:
            data, _ = self.read(PATHS.leader)
        except NoNodeError:
            return None
        return json.loads(data)["consumer"].removeprefix("g_")

    def follower(self):
        """Name of a member that does not lead."""
        return next(name for name in self.members if name != self.leader())

    def epoch(self):
        return self.read(PATHS.epoch)[1].version

    def loads(self):
        return sorted(len(member.ownership()) for member in self.members.values())

    def is_settled(self, *loads, partitions=8):
        """True if each partition is fetched by the one member that owns it, and the members have so many each."""
        owned = [p for member in self.members.values() for p in member.ownership()]
        fetched = all(set(self.fetches[n].fetched) == set(m.ownership()) for n, m in self.members.items())
        return (
            fetched
            and sorted(owned) == [TopicPartition("t", n) for n in range(partitions)]
            and (self.loads() == list(loads))
        )

    def settle(self, *loads, partitions=8):
        eventually(lambda: self.is_settled(*loads, partitions=partitions))

    def begin(self, *loads):
        """Settle, and note from here on which partitions are begun; returns the shares."""
        self.settle(*loads)
        for fetch in self.fetches.values():
            fetch.begun.clear()
        return self.shares()

    def expect_only_moves(self, before):
        """What stayed with a member was not started again."""
        for name, share in self.shares().items():
            assert self.fetches[name].begun == share - before.get(name, set()), name

    def shares(self):
        return {name: set(member.ownership()) for name, member in self.members.items()}


@contextmanager
def tool_session(cluster):
    """A session as the tools have it, and its properties."""
    config = ConsumerConfig(zookeeper_connect=cluster.connect, group_id="g", zookeeper_session_timeout_ms=30_000)
    session = ZkSession.from_config(config)
    session.open()
    try:
        yield session, config
    finally:
        session.close()


@pytest.fixture
def group(sandbox, zookeeper, unique_name):
    made = Group(Cluster(sandbox, zookeeper, unique_name))
    yield made
    for member in made.cluster.members:
        member.leave()
        assert illegal_transitions(member.describe().states) == []


def test_the_first_member_leads_and_owns_everything(group):
    member = group.join("a")
    assert group.leader() == "a"
    assert len(member.ownership()) == 8
    assert member.describe().protocol == "coordinator"
    assert group.read("/consumers/g/owners/t/0")[0] == b"g_a-0"


def test_a_member_that_joins_stops_only_what_it_gets(group):
    group.join("a")
    before = group.begin(8)
    group.join("b")
    group.settle(4, 4)
    group.expect_only_moves(before)
    assert group.shares()["a"] < before["a"]


def test_only_partitions_of_a_member_that_leaves_move(group):
    for name in "abcd":
        group.join(name)
    before = group.begin(2, 2, 2, 2)
    group.leave(group.follower())
    group.settle(2, 3, 3)
    group.expect_only_moves(before)
    assert all(before[name] <= share for name, share in group.shares().items())


def test_a_new_leader_disturbs_no_member(group):
    for name in "abc":
        group.join(name)
    before, leader = group.begin(2, 3, 3), group.leader()
    group.leave(leader)
    eventually(lambda: group.leader() not in (None, leader))
    group.settle(4, 4)
    assert group.epoch() == 2
    group.expect_only_moves(before)
    assert all(before[name] <= share for name, share in group.shares().items())


def test_a_leader_whose_session_expires_becomes_a_follower(group):
    for name in "abc":
        group.join(name)
    group.settle(2, 3, 3)
    leader = group.leader()
    expire(group.members[leader])
    eventually(lambda: group.leader() not in (None, leader))
    eventually(lambda: group.members[leader].stats().session_expiries == 1)
    group.settle(2, 3, 3)


def test_what_an_expired_follower_owned_is_owned_again(group):
    for name in "abc":
        group.join(name)
    group.settle(2, 3, 3)
    follower = group.follower()
    expire(group.members[follower])
    eventually(lambda: group.members[follower].stats().session_expiries == 1)
    group.settle(2, 3, 3)
    assert group.epoch() == 1


def test_new_partitions_are_added_to_what_runs(group):
    for name in "ab":
        group.join(name)
    before = group.begin(4, 4)
    document = {"version": 1, "partitions": {str(number): [1] for number in range(10)}}
    group.cluster.zookeeper.set(f"{group.cluster.root}/brokers/topics/t", json.dumps(document).encode())
    group.settle(5, 5, partitions=10)
    group.expect_only_moves(before)
    assert all(before[name] <= share for name, share in group.shares().items())


def test_a_partition_is_committed_before_its_next_owner_starts(group):
    group.join("a", commit_on="delivery")
    group.settle(8)
    for number in range(8):
        group.fetches["a"].move(**{f"p{number}": 100 + number})
    group.join("b", commit_on="delivery")
    group.settle(4, 4)
    started = group.fetches["b"].starts
    assert started == {partition: 100 + partition.partition for partition in group.members["b"].ownership()}


def test_a_group_changes_its_protocol_member_by_member(group):
    """And back again, without a moment in which a partition has two owners: the owner znode is the lock."""
    for name in "ab":
        group.join(name, protocol="zookeeper")
    group.settle(4, 4)
    for name in "ab":
        group.leave(name)
        group.join(f"{name}2")
        group.settle(4, 4)
    assert group.leader() is not None
    for name in "ab":
        group.leave(f"{name}2")
        group.join(f"{name}3", protocol="zookeeper")
        group.settle(4, 4)
    assert group.leader() is None


def test_a_member_without_commands_is_assigned_by_the_shared_assignor(group):
    for name in "ac":
        group.join(name)
    group.settle(4, 4)
    group.join("b", protocol="zookeeper")
    group.settle(2, 3, 3)
    numbers = {name: sorted(p.partition for p in share) for name, share in group.shares().items()}
    assert numbers == {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7]}


@pytest.mark.slow
@pytest.mark.parametrize("node", ["command", "registration", "session node"])
def test_a_member_whose_node_was_deleted_registers_again(group, node):
    for name in "ab":
        group.join(name)
    group.settle(4, 4)
    follower = group.follower()
    before = group.command(follower)
    path = {
        "command": before,
        "registration": f"/consumers/g/ids/g_{follower}",
        "session node": group.session_node(follower),
    }[node]
    group.cluster.zookeeper.delete(group.cluster.root + path)
    eventually(lambda: group.cluster.zookeeper.exists(group.cluster.root + before) is None)
    eventually(lambda: group.command(follower))
    group.settle(4, 4)


@pytest.mark.parametrize("damage", ["deletion", "garbage"])
def test_a_leader_whose_office_was_damaged_is_replaced(group, damage):
    for name in "ab":
        group.join(name)
    group.settle(4, 4)
    if damage == "deletion":
        group.cluster.zookeeper.delete(group.cluster.root + PATHS.leader)
    else:
        group.cluster.zookeeper.set(group.cluster.root + PATHS.leader, b"garbage")
    eventually(lambda: group.epoch() == 2)
    group.join("c")
    group.settle(2, 3, 3)
    assert group.epoch() == 2


@pytest.mark.slow
def test_a_session_node_that_was_deleted_is_created_again_without_a_coordinator(group):
    """No watch guards it in this protocol: the probe of the lease finds that."""
    group.join("a", protocol="zookeeper")
    path = group.cluster.root + group.session_node("a")
    group.cluster.zookeeper.delete(path)
    eventually(lambda: group.cluster.zookeeper.exists(path))
    group.settle(8)


def test_a_subtree_that_was_deleted_is_rebuilt(group):
    """Epoch, leader, candidates, and the commands of all members, while they run."""
    for name in "abc":
        group.join(name)
    group.settle(2, 3, 3)
    commands = {name: group.command(name) for name in "abc"}
    eventually(group.delete_coordinator)  # in one transaction: members create their nodes again at once
    eventually(lambda: all(group.command(name) not in (None, commands[name]) for name in "abc"))
    eventually(lambda: group.leader() is not None)
    group.settle(2, 3, 3)
    group.join("d")
    group.settle(2, 2, 2, 2)


def test_a_member_whose_command_is_garbage_gets_another(group):
    for name in "ab":
        group.join(name)
    group.settle(4, 4)
    follower = group.follower()
    path = group.command(follower)
    group.cluster.zookeeper.set(group.cluster.root + path, b"garbage")
    eventually(lambda: group.command(follower) not in (None, path))
    group.join("c")
    group.settle(2, 3, 3)
    path = group.command(follower)
    assert CommandNode.decode(path, group.read(path)[0]).share == group.members[follower].ownership()


def test_a_leader_that_reconnects_still_leads(group):
    for name in "ab":
        group.join(name)
    group.settle(4, 4)
    leader, views = group.leader(), group.members[group.leader()].describe().views
    break_connection(group.members[leader])
    eventually(lambda: group.members[leader].describe().views > views)
    group.join("c")
    group.settle(2, 3, 3)
    assert (group.leader(), group.epoch()) == (leader, 1)


def test_a_member_with_a_short_session_does_not_join(group):
    group.join("a", coordinator_min_session_ms=10_000)
    group.settle(8)
    with pytest.raises(ZkConsumerError, match=r"below coordinator\.min\.session\.ms=10000"):
        group.join("b", zookeeper_session_timeout_ms=6000, rebalance_max_retries=2)
    assert len(group.members["a"].ownership()) == 8


class Hanging(ConsumerRebalanceListener):
    """Hangs when something is to be released, until the test ends that; or in the first attempt already."""

    def __init__(self, *, always=False) -> None:
        self.end = threading.Event()
        self.always = always

    def before_releasing_partitions(self, owned):
        if owned or self.always:
            self.end.wait()


@pytest.mark.slow
def test_a_slow_member_is_evicted_and_comes_back(group):
    """Its partitions are free when its lease has lapsed; what it does later is fenced."""
    values = {"coordinator_evict_slow_ms": 1}
    group.join("a", **values)
    group.settle(8)
    listener = Hanging()
    slow = group.join("b", listener=listener, zookeeper_session_timeout_ms=4000, **values)
    try:
        group.settle(4, 4)
        joining = threading.Thread(target=group.join, args=("c",), kwargs=values)
        joining.start()
        eventually(lambda: "c" in group.members)
        eventually(lambda: sum(len(group.members[name].ownership()) for name in "ac") == 8)
        assert not slow.may_deliver()
        joining.join()
    finally:
        listener.end.set()
    eventually(lambda: len(slow.ownership()) > 0 and slow.may_deliver())
    group.settle(2, 3, 3)


@pytest.mark.slow
def test_a_command_of_more_than_a_mebibyte_is_obeyed(group):
    """As JSON it would exceed jute.maxbuffer, and the leader would lose its connection."""
    names = [f"{'topic' * 46}-{number:05}" for number in range(4800)]
    group.cluster.create_topics(*names)
    member = group.cluster.member("a", Fetch(), group_protocol="coordinator", rebalance_backoff_ms=700)
    member.join(Subscription.by_filter(Whitelist("topic.*"), 1))
    assert len(member.ownership()) == len(names)


@pytest.mark.slow
def test_partitions_that_a_member_does_not_claim_go_to_others(group):
    """It hangs in the first attempt to rebalance: what it should own has no owner."""
    values = {"coordinator_evict_slow_ms": 1, "zookeeper_session_timeout_ms": 4000}
    group.join("a", **values)
    group.settle(8)
    listener = Hanging(always=True)
    joining = threading.Thread(target=group.join, args=("b",), kwargs={"listener": listener, **values})
    joining.start()
    try:
        eventually(lambda: len(group.members["a"].ownership()) == 4)
        eventually(lambda: StatusNode.decode(PATHS.status, group.read(PATHS.status)[0]).waits_for.keys() == {"g_b"})
        eventually(lambda: len(group.members["a"].ownership()) == 8)
    finally:
        listener.end.set()
    joining.join()
    group.settle(4, 4)


def test_a_member_that_is_refused_later_reports_the_reason(group):
    """The next leader may have another coordinator.min.session.ms than the one that it joined under."""
    reports = []
    member = group.join("a", on_refusal=reports.append)
    group.settle(8)
    path = group.cluster.root + group.command("a")
    refused = CommandNode.encode(Command({}, 1, 2, "its session is too short"))
    group.cluster.zookeeper.set(path, refused)
    eventually(lambda: reports)
    assert isinstance(reports[0], MemberRefused)
    assert "its session is too short" in str(reports[0])
    assert not member.ownership()
    group.cluster.zookeeper.delete(path)
    eventually(lambda: reports[-1] is None)
    group.settle(8)


def test_tools_describe_the_coordinator(group):
    for name in "ab":
        group.join(name)
    group.settle(4, 4)
    with tool_session(group.cluster) as (session, config):
        descriptions = []

        def is_complete():
            descriptions.append(describe_group(session, config, "g"))
            return descriptions[-1].coordinator.status is not None

        eventually(is_complete)
        description = descriptions[-1]
        znodes = read_group(session, open_group_reader(session, config), "g")
    assert list(rebalance_findings(znodes)) == []
    assert list(explain_coordinator(znodes)) == []
    document = description_document(description)["coordinator"]
    assert (document["leader"], document["epoch"]) == (f"g_{group.leader()}", 1)
    assert document["refused"] is None
    assert document["commanded"] == {"g_a": 4, "g_b": 4}
    assert document["generation"] >= 1
    assert "coordinator g_" in "".join(coordinator_lines([description]))


def test_a_group_that_had_a_coordinator_is_deleted_as_a_whole(group):
    group.join("a")
    group.leave("a")
    with tool_session(group.cluster) as (session, config):
        assert describe_group(session, config, "g").coordinator is None
        nodes = {change.path for change in deletions(session, ["/consumers/g"])}
    assert {PATHS.root, PATHS.epoch, PATHS.commands} <= nodes


def test_a_member_that_no_coordinator_commands_reports_that(group, monkeypatch):
    monkeypatch.setattr("zkconsumer.group.coordinator.election.Election.look", lambda self: None)
    with pytest.raises(ZkConsumerError, match="no coordinator of group g"):
        group.join("a", rebalance_max_retries=1)
