"""AbsentZooKeeper: stands for ZooKeeper where a command names brokers alone. It has no node, and takes no change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.zookeeper.access import Access
from zkconsumer.zookeeper.fencedtransaction import Conflict, Operation
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.reads import ChildrenReads, Reads, Znode
from zkconsumer.zookeeper.session import ZkSession


class AbsentZooKeeper(ZkSession):
    """Tools that read what both stores have of a group find nothing in this one; nothing is connected.

    Args:
        brokers: the servers that are named instead, for snapshots and messages.
    """

    is_absent = True

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers

    @property
    def address(self) -> str:
        """The brokers."""
        return self._brokers

    def close(self) -> None:
        """Nothing is open."""

    def exists(self, path: str, watch: Watch | None = None, *, timeout: float | None = None) -> Znode | None:  # noqa: ARG002
        """None."""
        return None

    def read_many(self, paths: Iterable[str], watch_of: Callable[[str], Watch] | None = None) -> Reads:  # noqa: ARG002
        """None for each."""
        return Reads(dict.fromkeys(paths), {})

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:  # noqa: ARG002
        """None."""
        return None

    def children_of(self, paths: Iterable[str]) -> ChildrenReads:
        """None for each."""
        return ChildrenReads(dict.fromkeys(paths), {})

    def access(self, paths: Iterable[str], *, masked: bool = False) -> dict[str, Access]:  # noqa: ARG002
        """That of no node."""
        return {}

    def commit_changes(self, fence: str, changes: Sequence[Operation]) -> Conflict | None:  # noqa: ARG002
        """Refused.

        Raises:
            ZooKeeperUnavailable: always.
        """
        _refuse()

    def commit_independent(self, fence: str, parts: Iterable[Sequence[Operation]]) -> list[Conflict | None]:  # noqa: ARG002
        """Refused; raises as :meth:`commit_changes`."""
        _refuse()


def _refuse() -> NoReturn:
    raise ZooKeeperUnavailable("no ZooKeeper is named, so nothing is written there; give --zookeeper")
