"""ZkSession on a real ZooKeeper: bulk reads, fenced transactions, watches."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.security import make_acl

from tests.fixtures.fork import in_forked_child
from tests.fixtures.waiting import eventually
from zkconsumer.errors import ChrootMissing, SessionExpired
from zkconsumer.zookeeper.fencedtransaction import Operation
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads

pytestmark = pytest.mark.integration


@pytest.fixture
def session(sandbox, zookeeper, open_session, unique_name):
    """A session with a chroot of its own."""
    zookeeper.ensure_path(f"/{unique_name}")
    return open_session(f"{sandbox.zookeeper_connect}/{unique_name}")


@pytest.fixture
def fence(session):
    session.create_ephemerals([("/fence", b"")])
    return "/fence"


def create_all(session, fence, count):
    session.ensure_path("/n", None)
    paths = [f"/n/{number}" for number in range(count)]
    session.transact(fence, [Operation("create", path, path.encode()) for path in paths])
    return paths


def test_a_chroot_that_was_deleted_is_not_created_again(session, zookeeper, unique_name):
    zookeeper.delete(f"/{unique_name}")
    with pytest.raises(ChrootMissing, match=unique_name):
        session.ensure_path("/consumers/g", None)
    assert not zookeeper.exists(f"/{unique_name}")


def test_bulk_reads_agree_with_single_ones(session, fence):
    paths = create_all(session, fence, 1200)
    wanted = [*paths, "/n/none", "/n"]
    in_bulk = session.get_many(wanted)
    assert session.multi_read_known is True
    session.multi_read_known = False
    assert session.get_many(wanted) == in_bulk
    assert in_bulk["/n/7"].data == b"/n/7"
    assert in_bulk["/n/none"] is None
    assert in_bulk["/n"].data is None


def test_children_in_bulk_agree_with_single_ones(session, fence):
    paths = create_all(session, fence, 40)
    session.ensure_path("/n/5/<\u00fc>", None)
    wanted = [*paths, "/n/none", "/n"]
    in_bulk = session.children_of(wanted)
    assert session.multi_read_known is True
    session.multi_read_known = False
    one_by_one = session.children_of(wanted)
    assert in_bulk.names["/n/5"] == ["<\u00fc>"]
    assert (in_bulk.names["/n/6"], in_bulk.names["/n/none"], in_bulk.refused) == ([], None, {})
    assert len(in_bulk.names["/n"]) == 40
    assert {path: names and sorted(names) for path, names in in_bulk.names.items()} == {
        path: names and sorted(names) for path, names in one_by_one.names.items()
    }


def test_impossible_operations_are_reported_and_the_rest_is_done(session, fence):
    paths = create_all(session, fence, 30)
    operations = [Operation("create-ephemeral", path) for path in paths[::2]]
    operations += [Operation("set", path, b"new") for path in paths[1::2]]
    operations += [
        Operation("create-ephemeral", "/n/fresh"),
        Operation("delete", "/n/none"),
        Operation("set", "/x/y", b""),
    ]
    outcomes = session.transact(fence, operations)
    assert {outcomes[path] for path in paths[::2]} == {"exists"}
    assert {outcomes[path] for path in paths[1::2]} == {"done"}
    assert (outcomes["/n/fresh"], outcomes["/n/none"], outcomes["/x/y"]) == ("done", "missing", "missing")
    assert session.get("/n/1").data == b"new"
    assert session.get("/n/fresh").owner_session == session.session_id


def test_missing_parents_are_found_all_at_once(session, fence):
    operations = [Operation("create", f"/no/{number}", b"") for number in range(50)]
    before = session._client._connection._xid
    assert set(session.try_transact(fence, operations).values()) == {"missing"}
    assert session._client._connection._xid - before < 5


def test_creating_below_a_missing_parent_is_reported(session, fence):
    assert session.transact(fence, [Operation("create", "/no/parent", b"")]) == {"/no/parent": "missing"}


def test_without_the_fence_nothing_is_done(session, fence):
    (path,) = create_all(session, fence, 1)
    session.transact("/", [Operation("delete", fence)])
    with pytest.raises(SessionExpired):
        session.transact(fence, [Operation("set", path, b"zombie")])
    assert session.get(path).data == path.encode()


def test_watches_fire_for_what_does_not_exist_yet(session, fence):
    fired = []
    assert session.children("/later", lambda: fired.append("children")) is None
    assert session.get_many(["/other"], lambda: fired.append("data")) == {"/other": None}
    session.ensure_path("/later", None)
    session.ensure_path("/other", b"1")
    eventually(lambda: sorted(fired) == ["children", "data"])


def paths_that_fire(session, paths):
    """Read with watches; returns the set in which the paths of those that have fired appear."""
    fired = set()
    reads = session.read_many(paths, lambda path: lambda: fired.add(path))
    assert reads.refused == {}
    return fired


def test_bulk_reads_arm_watches_in_few_requests(session, fence, zookeeper, unique_name):
    paths = create_all(session, fence, 1200)
    session.get_many(paths)  # the server's release is known
    before = session._client._connection._xid
    fired = paths_that_fire(session, [*paths, "/n/later"])
    assert session._client._connection._xid == before + 2
    zookeeper.set(f"/{unique_name}/n/5", b"new")
    zookeeper.delete(f"/{unique_name}/n/7")
    zookeeper.create(f"/{unique_name}/n/later", b"")
    eventually(lambda: fired == {"/n/5", "/n/7", "/n/later"})
    session.get("/")  # an answer: from now on this client knows the server's last transaction
    assert paths_that_fire(session, paths[:100]) == set(), "what was there before the read does not fire"


def test_a_change_between_reading_and_arming_fires(session, fence, zookeeper, unique_name):
    """1. A node is read in bulk; 2. another client changes it; 3. the watch is armed."""
    paths = create_all(session, fence, 3)
    reader, fired = session, set()
    zxid = session._client.last_zxid
    reads = reader._multi_read([*paths, "/n/later"])
    zookeeper.set(f"/{unique_name}/n/0", b"new")
    zookeeper.delete(f"/{unique_name}/n/1")
    zookeeper.create(f"/{unique_name}/n/later", b"")
    reader._arm_watches(zxid, [*paths, "/n/later"], reads, lambda path: lambda: fired.add(path))
    eventually(lambda: fired == {"/n/0", "/n/1", "/n/later"})
    zookeeper.set(f"/{unique_name}/n/2", b"new")
    eventually(lambda: "/n/2" in fired)


def test_a_node_that_may_not_be_read_prevents_no_other_read(session, fence, zookeeper, unique_name):
    paths = create_all(session, fence, 30)
    zookeeper.set_acls(f"/{unique_name}/n/3", [make_acl("world", "anyone", write=True)])
    for known in (True, False):
        session.multi_read_known = known
        reads = session.read_many(paths)
        assert reads.refused.keys() == {"/n/3"}
        assert reads.nodes.keys() == set(paths) - {"/n/3"}


def test_children_that_may_not_be_listed_prevent_no_others(session, fence, zookeeper, unique_name):
    paths = create_all(session, fence, 30)
    zookeeper.set_acls(f"/{unique_name}/n/3", [make_acl("world", "anyone", write=True)])
    for known in (True, False):
        session.multi_read_known = known
        found = session.children_of(paths)
        assert [str(reason) for reason in found.refused.values()] == [str(found.refused["/n/3"])]
        assert "children of /n/3" in str(found.refused["/n/3"])
        assert found.names.keys() == set(paths) - {"/n/3"}


def test_missing_parents_are_created_in_few_requests(session):
    paths = [f"/a/b/{number}" for number in range(1200)]
    session.ensure_path("/a", None)
    before = session._client._connection._xid
    assert session.ensure_paths(paths, None) == {}
    assert session._client._connection._xid - before < 10
    assert session.ensure_paths(paths, None) == {}, "idempotent"
    assert all(node is not None and node.data is None for node in session.get_many(paths).values())


def test_a_node_that_flashes_fires_and_is_never_there(session, fence):
    session.ensure_path("/n", None)
    fired = threading.Event()
    session.children("/n", fired.set)
    session.flash(fence, "/n/flash", b"x")
    assert fired.wait(30)
    assert session.children("/n") == []
    session.transact("/", [Operation("delete", fence)])
    with pytest.raises(SessionExpired):
        session.flash(fence, "/n/flash", b"x")


def test_what_watches_guard_is_read_once(session, fence, zookeeper, unique_name):
    paths = create_all(session, fence, 30)
    changed = threading.Semaphore(0)
    watched = WatchedReads(session, changed.release)

    def requests(action):
        before = session._client._connection._xid
        result = action()
        return session._client._connection._xid - before, result

    watched.nodes(paths)
    assert requests(lambda: list(watched.nodes(paths).nodes)) == (0, paths)
    zookeeper.set(f"/{unique_name}/n/4", b"new")
    assert changed.acquire(timeout=30)
    number, reads = requests(lambda: watched.nodes(paths))
    assert (number, reads.nodes["/n/4"].data) == (1, b"new")
    assert watched.children("/n") is watched.children("/n")
    zookeeper.create(f"/{unique_name}/n/x")
    assert changed.acquire(timeout=30)
    assert "x" in watched.children("/n")
    session._client._connection._socket.shutdown(socket.SHUT_RDWR)
    eventually(lambda: session.connections > 2 and session.connected)
    assert requests(lambda: watched.nodes(paths))[0] > 0, "watches are gone with the connection"


def test_parents_get_the_data_that_the_jvm_gives_them(session):
    session.ensure_path("/a/b/c", None)
    session.ensure_path("/d/e", b"")
    assert session.get("/a/b").data is None
    assert session.get("/d").data == b""


def test_the_granted_timeout_is_known(sandbox, open_session):
    opened = open_session(sandbox.zookeeper_connect, session_timeout_ms=3_600_000)
    assert opened.negotiated_timeout == 60.0  # the longest that the sandbox grants


def test_the_first_answer_may_take_as_long_as_the_connection(sandbox, zookeeper, monkeypatch):
    """A login may come before it, and a server may have just started."""
    session = ZkSession(sandbox.zookeeper_connect, session_timeout_ms=1000, connection_timeout_ms=20_000)
    root, asked = zookeeper.exists("/"), time.monotonic()

    def answer_late(path, watch=None):
        answer = session._client.handler.async_result()
        threading.Timer(1.5, answer.set, [root]).start()
        return answer

    monkeypatch.setattr(session._client, "exists_async", answer_late)
    try:
        session.open()
        assert time.monotonic() - asked >= 1.5
    finally:
        session.close()


def test_a_connection_that_breaks_before_its_first_answer_is_replaced(sandbox, monkeypatch):
    session = ZkSession(sandbox.zookeeper_connect, session_timeout_ms=30_000, connection_timeout_ms=20_000)
    real, asked = session._client.exists_async, []

    def ask(path, watch=None):
        asked.append(path)
        answer = real(path, watch=watch)
        if len(asked) == 1:
            answer = session._client.handler.async_result()
            answer.set_exception(ConnectionLoss())
        return answer

    monkeypatch.setattr(session._client, "exists_async", ask)
    try:
        session.open()
        assert asked == ["/", "/"]
    finally:
        session.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_end_its_parents_session(session, fence):
    identity = session.session_id
    assert in_forked_child(session.close)
    assert session.exists(fence).owner_session == identity
    assert session.connected


def test_an_interrupted_open_does_not_wait_for_a_silent_server():
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as threads:
        session = ZkSession(
            f"127.0.0.1:{silent.getsockname()[1]}", session_timeout_ms=60_000, connection_timeout_ms=600_000
        )

        def interrupt() -> socket.socket:
            connection, _ = silent.accept()
            os.kill(os.getpid(), signal.SIGINT)
            return connection

        accepted = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.open()
        with accepted.result() as connection:
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):  # else the connection is closed
                list(iter(partial(connection.recv, 1000), b""))
