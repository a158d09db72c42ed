"""A plain ZooKeeper client to look behind the product's back, and real session expiry."""

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from zkconsumer.connector.member import GroupMember


@pytest.fixture
def zookeeper(sandbox) -> Iterator[KazooClient]:
    """Connected to the session's sandbox."""
    client = KazooClient(sandbox.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


def expire(member: GroupMember) -> None:
    """End a member's session for real: connect with its identity elsewhere and close there."""
    victim = member._session._client
    thief = KazooClient(",".join(f"{host}:{port}" for host, port in victim.hosts), client_id=victim.client_id)
    thief.start()
    thief.stop()
    thief.close()
