"""How a hold ends for members that registered meanwhile, by a clock that the test turns."""

import sys
from contextlib import closing, suppress

import pytest
from kazoo.protocol.states import EventType

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.interrupts import Injector, Interrupt
from tests.fixtures.kazooinmemory import Loss
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS, TO_KAFKA, TO_ZOOKEEPER, Servers
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.errors import WriteRefused
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.groupremoval import plan_delete
from zkconsumer.operate.migrate import mirror as migrationmirror
from zkconsumer.operate.migrate import run as migrationrun
from zkconsumer.operate.migrate.mirror import Mirror
from zkconsumer.operate.migrate.run import run_plan
from zkconsumer.operate.offsets import grouphold as hold_module
from zkconsumer.operate.offsets import kafkawrites, offsetwrites, patience, znodewrites
from zkconsumer.operate.offsets.grouphold import GroupHold, HoldEnd
from zkconsumer.operate.offsets.offsetnodes import OffsetNodes
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.snapshot import SnapshotFile
from zkconsumer.operate.offsets.writeplan import Guards
from zkconsumer.zookeeper.fencedtransaction import Operation
from zkconsumer.zookeeper.rules.grouppaths import HOLD

HELD = {TopicPartition("t", number) for number in range(2)}
WRITERS = frozenset(
    module.__file__ for module in (hold_module, kafkawrites, migrationmirror, migrationrun, offsetwrites, znodewrites)
)


class Group:
    """A group in a ZooKeeper in memory; ``now`` is the time in seconds, ``nudges`` counts those of holds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.nudges = 0
        self.server = ZooKeeperInMemory(lambda: self.now)
        self.session = session_in_memory(self.server)
        self.server.observe = self._observe
        self.others = session_in_memory(self.server)

    def _observe(self, write) -> None:
        self.nudges += write.path.endswith("-nudge") and write.kind == EventType.CREATED

    def hold(self, **options) -> GroupHold:
        return GroupHold(self.session, "g", HELD, clock=lambda: self.now, **options)

    def register(self, name) -> None:
        self.others.ensure_path("/consumers/g/ids", None)
        assert self.others.create_ephemerals([(f"/consumers/g/ids/{name}", b"{}")])


@pytest.fixture
def group():
    return Group()


@pytest.mark.parametrize("long", [False, True])
def test_members_that_gave_up_are_not_said_to_continue(group, long):
    """An answer that was late makes a short hold last as long as a long one."""
    hold = group.hold(long=long)
    hold.take()
    group.register("g_a")
    group.now += 12
    group.register("g_b")
    group.now += 3
    assert hold.release() == HoldEnd(nudged=("g_b",), gave_up=("g_a",))
    assert group.nudges == 0


def own(group):
    """Own a partition, as a session does that has not expired yet."""
    group.others.ensure_path("/consumers/g/owners/t", None)
    assert group.others.create_ephemerals([("/consumers/g/owners/t/1", b"g_a-0")])


def test_a_hold_of_members_refuses_owners_without_a_member_as_the_guards_do(group):
    own(group)
    hold, guards = group.hold(live=True), Guards(group.session, live=True)
    guards.check_group("g", HELD, OffsetNodes({}))
    with pytest.raises(WriteRefused) as refused:
        hold.take()
    assert list(refused.value.reasons) == guards.refusals
    assert "/consumers/g/owners/t/1 by g_a-0" in guards.refusals[0]
    group.register("g_a")
    hold = group.hold(live=True)
    hold.take()
    hold.release()


def test_an_owner_that_no_session_ends_is_not_to_be_waited_for(group):
    """Receivers write such znodes, and who restores a ZooKeeper by hand."""
    group.others.ensure_path("/consumers/g/owners/t", None)
    group.others.ensure_path("/consumers/g/owners/t/1", b"Receiver-0")
    guards = Guards(group.session)
    guards.check_group("g", HELD, OffsetNodes({}))
    with pytest.raises(WriteRefused) as refused:
        group.hold().take()
    for (reason,) in (guards.refusals, refused.value.reasons):
        assert reason.endswith("no session ends these: /consumers/g/owners/t/1; stop what writes them, and delete them")


def test_another_hold_refuses_as_the_guards_do(group):
    group.others.ensure_path("/consumers/g/zkconsumer", None)
    assert group.others.create_ephemerals([(f"/consumers/g/zkconsumer/{HOLD}1", b"{}")])
    guards = Guards(group.session)
    guards.check_group("g", HELD, OffsetNodes({}))
    with pytest.raises(WriteRefused) as refused:
        group.hold().take()
    assert list(refused.value.reasons) == guards.refusals
    assert refused.value.is_held


def test_owners_of_another_hold_end_by_themselves(group):
    """Its session has not expired yet; members that run do not end so soon."""
    GroupHold(group.others, "g", HELD).take()
    guards = Guards(group.session)
    guards.check_group("g", HELD, OffsetNodes({}))
    assert (len(guards.refusals), WriteRefused(guards.refusals).is_held) == (1, True), "the hold has a reason"
    group.others.ensure_path("/consumers/g/owners/t/2", b"Receiver-0")
    guards = Guards(group.session)
    guards.check_group("g", {*HELD, TopicPartition("t", 2)}, OffsetNodes({}))
    assert (len(guards.refusals), WriteRefused(guards.refusals).is_held) == (2, False)


def test_a_parent_that_another_tool_removes_is_created_again(group):
    """1. A hold finds the parents of another one; 2. that one ends, and removes them."""
    group.others.ensure_path("/consumers/g/zkconsumer", None)
    commit, removed = group.session.commit_changes, []

    def removing(fence, changes):
        if changes[0].kind == "create-ephemeral" and not removed:
            removed.extend(Operation("delete", path) for path in ("/consumers/g/zkconsumer", "/consumers/g"))
            assert group.others.commit_changes("/", removed) is None
        return commit(fence, changes)

    group.session.commit_changes = removing
    hold = group.hold()
    hold.take()
    assert removed
    assert hold.fence in group.server.nodes
    hold.release()
    assert "/consumers/g" not in group.server.nodes


@pytest.mark.parametrize("long", [False, True])
def test_members_that_still_try_are_nudged(group, long):
    hold = group.hold(long=long)
    hold.take()
    group.now += 12
    group.register("g_a")
    group.now += 3
    assert hold.release() == HoldEnd(nudged=("g_a",))
    assert group.nudges == 1


def test_claims_that_ended_with_the_session_are_not_those_of_another_client(group):
    hold = group.hold()
    hold.take()
    group.server.end_session(group.session.session_id)
    for _ in range(2):  # it learns that the session has expired, and gets another
        group.session._client.connect()
    (problem,) = hold.release().problems
    assert "ends with its session" in problem


def test_a_claim_that_another_client_deleted_is_named(group):
    hold = group.hold()
    hold.take()
    (conflict,) = group.others.commit_independent("/", [[Operation("delete", "/consumers/g/owners/t/1")]])
    assert conflict is None
    (problem,) = hold.release().problems
    assert problem.startswith("/consumers/g/owners/t/1 was deleted by another client")


@pytest.fixture
def soon_lost(monkeypatch):
    """A connection that was lost comes back at once, or does not."""
    monkeypatch.setattr(patience, "_RECONNECT_S", 0.05)
    monkeypatch.setattr(patience, "_PAUSE_S", 0.0)


@pytest.mark.usefixtures("soon_lost")
@pytest.mark.parametrize("request_lost", [False, True])
@pytest.mark.parametrize("closing", [False, True])
def test_an_answer_that_is_lost_changes_nothing_in_a_release(request_lost, closing):
    """It is that of the first request, of the second one, and so on."""
    answered = 0
    while True:
        group = Group()
        hold = group.hold()
        hold.take()
        if not closing:
            group.register("g_a")
            group.register("g_b")
        client = group.session._client
        client.loses = Loss(answered, request=request_lost, reconnects=True)
        end = hold.release([Operation("delete", "/consumers/g", version=0)] if closing else ())
        assert end == (HoldEnd() if closing else HoldEnd(nudged=("g_a", "g_b")))
        left = {path for path in group.server.nodes if path.startswith("/consumers/g/")}
        assert left == (set() if closing else {"/consumers/g/ids", "/consumers/g/ids/g_a", "/consumers/g/ids/g_b"})
        assert ("/consumers/g" in group.server.nodes) is not closing
        if client.loses is not None:
            break
        answered += 1
    assert answered > 5


@pytest.mark.usefixtures("soon_lost")
def test_members_that_cannot_be_read_are_unknown(group):
    hold = group.hold()
    hold.take()
    group.register("g_a")
    group.session._client.loses = Loss(0, request=True)
    end = hold.release()
    assert (end.nudged, end.gave_up) == ((), ())
    assert "ZooKeeper did not answer" in end.unread


@pytest.mark.usefixtures("soon_lost")
def test_members_are_read_although_the_session_of_the_hold_has_ended(group):
    hold = group.hold()
    hold.take()
    group.register("g_a")
    group.server.end_session(group.session.session_id)
    for _ in range(2):  # it learns that the session has expired, and gets another
        group.session._client.connect()
    end = hold.release()
    assert (end.nudged, end.unread) == (("g_a",), "")
    assert "ends with its session" in end.problems[0]


@pytest.mark.usefixtures("soon_lost")
def test_a_hold_that_fails_gives_back_what_it_has_in_spite_of_a_lost_answer(group):
    own(group)
    before = dict(group.server.nodes)
    hold = group.hold()
    commit = group.session.commit_independent

    def losing(fence, parts):
        answer = commit(fence, parts)
        group.session._client.loses = Loss(1, request=True, reconnects=True)
        return answer

    group.session.commit_independent = losing
    with pytest.raises(WriteRefused):
        hold.take()
    assert group.session._client.loses is None
    assert group.server.nodes.keys() == before.keys()


def test_no_member_gave_up_where_nothing_was_claimed(group):
    group.register("g_a")
    group.now += 60
    hold = group.hold(live=True)
    hold.take()
    assert hold.release() == HoldEnd(nudged=("g_a",))


def test_a_write_that_the_hold_refuses_leaves_no_snapshot(tmp_path):
    """The same command may be given again with the same path."""
    servers = Servers(tmp_path)
    servers.store(OFFSETS)
    file = tmp_path / "snapshot"
    with closing(session_in_memory(servers.server)) as session:
        plan = plan_delete(session, servers.brokers, ["g"], None)
        with closing(session_in_memory(servers.server)) as member:
            member.ensure_path("/consumers/g/ids", None)
            assert member.create_ephemerals([("/consumers/g/ids/g_m", b"{}")])
            with pytest.raises(WriteRefused, match="g_m"):
                execute(session, servers.brokers, plan, SnapshotFile(file))
        assert not file.exists()
        plan = plan_delete(session, servers.brokers, ["g"], None)
        assert execute(session, servers.brokers, plan, SnapshotFile(file)).faults == []
    assert file.exists()


def test_a_hold_that_was_not_taken_is_released(group):
    before = dict(group.server.nodes)
    assert group.hold().release() == HoldEnd()
    assert group.server.nodes == before


def test_a_hold_is_released_once(group):
    group.register("g_a")
    hold = group.hold(live=True)
    hold.take()
    assert hold.release() == HoldEnd(nudged=("g_a",))
    assert hold.release() == HoldEnd()
    assert group.nudges == 1


def run(servers, session):
    run_plan(servers.ends(session), servers.plan, servers.file)


def mirror(servers, session):
    Mirror(servers.plan, servers.file).copy(servers.ends(session))


def delete(servers, session):
    execute(
        session,
        servers.brokers,
        plan_delete(session, servers.brokers, ["g"], None),
        SnapshotFile(servers.file.with_name("snapshot")),
    )


def prepared(write, directory):
    """Servers with a group on which a writer has something to do."""
    directory.mkdir()
    servers = Servers(directory)
    if write is delete:
        servers.store(OFFSETS)
        return servers
    servers.begin(*TO_KAFKA)
    if write is mirror:
        servers.run()
        servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 40})
        servers._ends = TO_ZOOKEEPER
    return servers


@pytest.mark.parametrize("write", [run, pytest.param(mirror, marks=pytest.mark.slow), delete])
def test_an_interrupt_before_the_release_leaves_no_hold(write, tmp_path, monkeypatch):
    """The session lives on, as in a program that is not a command. A hold is taken, and has begun to write."""
    take, release = GroupHold.take, GroupHold.release
    injector, taken = Injector(None, WRITERS), slice(0)

    def counted(hold):
        nonlocal taken
        begin = len(injector.points)
        take(hold)
        taken = slice(begin, len(injector.points) + 10)

    def untraced(hold, *arguments):
        sys.settrace(None)
        return release(hold, *arguments)

    monkeypatch.setattr(GroupHold, "take", counted)
    monkeypatch.setattr(GroupHold, "release", untraced)

    def interrupt(at):
        nonlocal injector
        servers = prepared(write, tmp_path / str(at))
        injector = Injector(at, WRITERS)
        with closing(session_in_memory(servers.server)) as session:
            with suppress(Interrupt), injector.active():
                write(servers, session)
            assert injector.raised == (at is not None)
            left = [path for path in servers.server.nodes if HOLD in path or "/owners/t/" in path]
            assert left == [], f"after an interrupt at point {at}"

    interrupt(None)
    points = injector.points[taken]
    assert len(points) > 50
    for point in points:
        interrupt(point)


def test_a_hold_that_no_session_ends_is_to_be_deleted(group):
    """As in an ensemble that was copied while a tool wrote."""
    path = f"/consumers/g/zkconsumer/{HOLD}0f-1"
    group.others.ensure_path(path, None)
    with pytest.raises(WriteRefused, match=f"no session ends these: {path}; .* delete them") as refused:
        group.hold().take()
    assert not refused.value.is_held, "waiting does not end it"
