"""Registration of a member, over a ZooKeeper in memory."""

from contextlib import closing

import pytest
from kazoo.protocol.serialization import Transaction

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.kazooinmemory import Loss
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.errors import ConsumerIdInUse, GroupMigrated, ZooKeeperUnavailable
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.operate.migrate.migrationmark import remove_mark, write_mark
from zkconsumer.zookeeper.rules.znodes import MigrationMark, SessionNode
from zkconsumer.zookeeper.session import ZkSession

MARK = "/consumers/g/zkconsumer/migrated"


@pytest.fixture
def server():
    return ZooKeeperInMemory()


@pytest.fixture
def session(server):
    with closing(session_in_memory(server)) as opened:
        yield opened


def register(session, protocol="zookeeper"):
    registration = MemberRegistration(session, "g", "g_c", "range", lambda: 5, lambda: 0.0, protocol)
    registration.register(Subscription.static({"t": 1}), lambda *_: None, lambda _: False)
    return registration


@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator"])
@pytest.mark.parametrize("state", ["migrating", "migrated", "undoing"])
def test_no_member_joins_a_group_with_a_mark(server, session, protocol, state):
    write_mark(session, "g", MigrationMark(state, "kafka:g", 1))
    with pytest.raises(GroupMigrated, match=r"kafka:g.*migrate unmark --group g"):
        register(session, protocol)
    assert not [path for path in server.nodes if path.startswith("/consumers/g/ids/")]
    remove_mark(session, "g")
    assert register(session, protocol).is_registered


@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator"])
def test_a_mark_that_is_written_right_before_the_registration_is_seen_by_it(server, session, protocol, monkeypatch):
    """1. The member has read what it needs; 2. a tool marks the group; 3. the registration arrives at the server."""
    perform, left = server.perform, [True]

    def mark_before(client, request):
        if isinstance(request, Transaction) and client == session.session_id and left:
            left.clear()
            with closing(session_in_memory(server)) as tool:
                write_mark(tool, "g", MigrationMark("migrated", "kafka:g", 1))
        return perform(client, request)

    monkeypatch.setattr(server, "perform", mark_before)
    with pytest.raises(GroupMigrated, match=r"migrate rollback` or `reverse`.*migrate unmark --group g"):
        register(session, protocol)
    assert left == []
    assert not [path for path in server.nodes if path.startswith(("/consumers/g/ids/", "/consumers/g/zkconsumer/mem"))]


IDS = "/consumers/g/ids/g_c"


def test_another_subscription_replaces_the_registration_and_tells_who_watches_the_members(server, session):
    registration = register(session)
    before, members = server.nodes[IDS], dict(server.nodes["/consumers/g/zkconsumer/members"].__dict__)
    fired = []
    session.children("/consumers/g/ids", lambda: fired.append(None))
    registration.change(Subscription.by_filter(Whitelist("u.*"), 2))
    session._client.deliver()
    assert fired == [None]
    assert server.nodes[IDS] is not before
    assert b'"subscription":{"u.*":2},"pattern":"white_list"' in server.nodes[IDS].data
    assert server.nodes["/consumers/g/zkconsumer/members"].__dict__ == members
    assert registration.is_registered


def test_a_registration_of_another_session_is_not_replaced(server, session):
    registration = register(session)
    server.nodes[IDS].owner = 99
    data = server.nodes[IDS].data
    registration.change(Subscription.static({"u": 1}))
    assert server.nodes[IDS].data == data
    del server.nodes[IDS]
    server.nodes["/consumers/g/ids"].children.discard("g_c")
    registration.change(Subscription.static({"u": 1}))
    assert IDS not in server.nodes


def test_a_change_without_an_answer_can_be_repeated(server, session):
    registration = register(session)
    session._client.loses = Loss(0, request=False, writes_below="/consumers/g/ids", reconnects=True)
    with pytest.raises(ZooKeeperUnavailable):
        registration.change(Subscription.static({"u": 1}))
    registration.change(Subscription.static({"u": 1}))
    assert b'"subscription":{"u":1}' in server.nodes[IDS].data


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"state":7}', b"\xff"])
def test_a_mark_that_cannot_be_read_counts(server, session, content):
    write_mark(session, "g", MigrationMark("migrated", "kafka:g", 1))
    server.nodes[MARK].data = content
    with pytest.raises(GroupMigrated, match="was migrated to another store"):
        register(session)


def test_the_lease_is_by_the_shorter_of_the_announced_and_the_negotiated_timeout(session, monkeypatch):
    """A server negotiates at each connection, and a coordinator reads what was announced."""
    timeouts = iter([6.0, 40.0, 4.0, 40.0])
    monkeypatch.setattr(ZkSession, "negotiated_timeout", property(lambda _: next(timeouts)))
    registration = register(session)
    assert (registration.session_timeout, registration.session_timeout) == (6.0, 4.0)
    registration.session_lost()
    assert registration.session_timeout == 40.0


def test_registration_leaves_no_mark(server, session):
    register(session)
    assert MARK not in server.nodes


def test_a_killed_member_is_waited_for_as_long_as_its_own_session_lasts(server, session):
    """Its servers granted more than this member's do: the id is free only when that session has ended."""
    with closing(session_in_memory(server)) as killed:
        register(killed)
        ours, node = session.negotiated_timeout, f"/consumers/g/zkconsumer/members/g_c@{killed.session_id:016x}"
        server.nodes[node].data = SessionNode.encode("range", session_ms=round(10 * ours * 1000))
        waits = []
        again = MemberRegistration(session, "g", "g_c", "range", lambda: 5, lambda: 0.0)
        with pytest.raises(ConsumerIdInUse):
            again.register(Subscription.static({"t": 1}), lambda *_: None, waits.append)
        assert waits == [pytest.approx(15 * ours)]
