"""Sessions and servers of ZooKeeper, a plain client to look behind the product's back, and real session expiry."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.fix_waiting import eventually
from zkconsumer.group.member import GroupMember
from zkconsumer.sandbox import ZooKeeperServer
from zkconsumer.zookeeper.session import ZkSession


@pytest.fixture
def zookeeper(sandbox) -> Iterator[KazooClient]:
    """Connected to the session's sandbox."""
    client = KazooClient(sandbox.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def start_zookeeper(tmp_path: Path) -> Iterator[Callable[..., ZooKeeperServer]]:
    """Start servers of one's own: ``start_zookeeper(cls=ZooKeeperServer, **arguments)``; all are stopped at the end."""
    started = []

    def start(cls=ZooKeeperServer, **arguments):
        server = cls(tmp_path, **arguments)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def open_session() -> Iterator[Callable[..., ZkSession]]:
    """Open sessions: ``open_session(address, **arguments)``; all are closed at the end."""
    opened = []

    def open_one(address, **arguments):
        timeouts = {"session_timeout_ms": 10_000, "connection_timeout_ms": 20_000}
        session = ZkSession(address, **{**timeouts, **arguments})
        opened.append(session)
        session.open()
        return session

    yield open_one
    for session in opened:
        session.close()


def expire(member: GroupMember) -> None:
    """End a member's session for real: connect with its identity elsewhere and close there.

    Again until the member has another session: it connects anew as soon as the thief has taken its connection, and if
    that comes before the thief's close the server drops the thief.
    """
    victim = member._session._client
    eventually(lambda: victim.client_id is not None)  # there is none while the connection is down
    identity = victim.client_id

    def expired() -> bool:
        thief = KazooClient(",".join(f"{host}:{port}" for host, port in victim.hosts), client_id=identity)
        thief.start_async().wait(15)  # start() fails where the connection is lost again at once
        thief.stop()
        thief.close()
        eventually(lambda: victim.client_id is not None)
        return victim.client_id not in (None, identity)

    eventually(expired)


def cut_off(*members: GroupMember) -> None:
    """Break the connections of members whose server is paused, and return when they have noticed.

    By itself kazoo notices after up to two thirds of the session, and little would be left of that.
    """
    for member in members:
        member._session._client._connection._socket.shutdown(socket.SHUT_RDWR)
    eventually(lambda: not any(member._session.connected for member in members))
