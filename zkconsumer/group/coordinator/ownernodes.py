"""OwnerNodes: the owner znodes of partitions that are in no command, as the leader reads them (adr/0017)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from zkconsumer.errors import MalformedZnode, ZooKeeperRefused
from zkconsumer.group.coordinator.rules.coordinatorplan import Owners
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads

_log: Final = logging.getLogger(__name__)


class OwnerNodes:
    """Reads owner znodes and the parents that they need. Used by the coordinator's thread only.

    Args:
        session: an open session.
        group: consumer group.
        released: called on kazoo's thread when a partition may have become free.
    """

    def __init__(self, session: ZkSession, group: str, released: Watch) -> None:
        self._session = session
        self._paths = GroupPaths(group)
        self._watched = WatchedReads(session, released)
        self._parents: set[str] = set()

    def read(self, partitions: Collection[TopicPartition]) -> Owners:
        """The owners of partitions without a command; a watch remains on each owner znode that exists.

        Not on missing ones: 10,000 watches of a new group would all fire when its members claim. A znode whose watch
        has not fired is not read again, so each release costs the read of what was released.

        Raises:
            ZooKeeperUnavailable, SessionExpired, ZooKeeperRefused: they cannot be read.
        """
        paths = {self._paths.owner(partition): partition for partition in partitions}
        unchanged = self._watched.unchanged(paths)
        nodes = self._session.get_many(path for path in paths if path not in unchanged)
        existing = unchanged | {path for path, node in nodes.items() if node is not None}
        watched = self._watched.nodes(path for path in paths if path in existing)
        for reason in watched.refused.values():
            raise reason
        owners: dict[TopicPartition, str | None] = {}
        for path, partition in paths.items():
            node = watched.nodes.get(path)
            owners[partition] = None if node is None else owner_or_unknown(path, node.data)
        return owners

    def ensure_parents(self, topics: Iterable[str]) -> None:
        """Create the parents of the owner znodes of topics that no member of the group ever owned.

        Otherwise members that claim for the first time, all at once, would each find them missing.

        Raises:
            ZooKeeperUnavailable, SessionExpired: it is unknown which of them exist.
        """
        paths = {self._paths.owner_topic(topic) for topic in topics} - self._parents
        if not paths:
            return
        try:
            missing = [path for path, node in self._session.get_many(sorted(paths)).items() if node is None]
            if missing:
                self._session.ensure_paths(missing, None)
        except ZooKeeperRefused as error:
            _log.info("the members that claim create the parents of their owner znodes: %s", error)
        self._parents |= paths


def owner_or_unknown(path: str, data: bytes | None, *, is_reported: bool = False) -> str:
    """The text of an owner znode; empty if another program wrote something else, which is logged once."""
    try:
        return PartitionOwnerNode.decode(path, data)
    except MalformedZnode as error:
        level = logging.DEBUG if is_reported else logging.ERROR
        _log.log(level, "a partition is not assigned while it has an owner of another program: %s", error)
        return ""
