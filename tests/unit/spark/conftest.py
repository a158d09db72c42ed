"""Shared fixtures of the unit tests of the Spark source."""

import pytest

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.cluster import brokercatalog
from zkconsumer.zookeeper.session import ZkSession


@pytest.fixture(autouse=True)
def denied_topics_are_soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.2)


@pytest.fixture
def znodes(monkeypatch: pytest.MonkeyPatch) -> ZkSession:
    """The session of a read, of a ZooKeeper in memory."""
    session = session_in_memory(ZooKeeperInMemory())
    monkeypatch.setattr(ZkSession, "from_config", lambda _config: session)
    monkeypatch.setattr(session, "open", lambda: None)
    return session
