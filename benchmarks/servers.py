"""The servers of a benchmark, with a ZooKeeper session to observe them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.slownetwork import disk_properties
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.session import ZkSession

_SESSION_MS: Final = 60_000


@contextmanager
def bench_servers(progress: Progress, *, brokers: int = 1) -> Iterator[tuple[Sandbox, ZkSession]]:
    """A running sandbox and an open session to its ZooKeeper.

    Raises:
        SandboxError: a server did not start.
    """
    kafka, zookeeper = disk_properties()
    with Sandbox(brokers=brokers, kafka_properties=kafka, zookeeper_properties=zookeeper, progress=progress) as sandbox:
        session = ZkSession(
            sandbox.zookeeper_connect, session_timeout_ms=_SESSION_MS, connection_timeout_ms=_SESSION_MS
        )
        session.open()
        try:
            yield sandbox, session
        finally:
            session.close()
