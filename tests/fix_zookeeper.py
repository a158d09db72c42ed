"""Sessions and servers of ZooKeeper, a plain client to look behind the product's back, and real session expiry."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkconsumer.connector.member import GroupMember
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
        session = ZkSession(address, **{"session_timeout_ms": 4000, "connection_timeout_ms": 4000, **arguments})
        opened.append(session)
        session.open()
        return session

    yield open_one
    for session in opened:
        session.close()


def expire(member: GroupMember) -> None:
    """End a member's session for real: connect with its identity elsewhere and close there."""
    victim = member._session._client
    thief = KazooClient(",".join(f"{host}:{port}" for host, port in victim.hosts), client_id=victim.client_id)
    thief.start()
    thief.stop()
    thief.close()
