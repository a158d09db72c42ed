"""ZooKeeperOffsetStore: offsets in znodes, as the JVM keeps them (SPEC 8.3), written in fenced transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from zkconsumer.core.offsets import changed_offsets
from zkconsumer.core.znodes import GroupPaths, OffsetNode
from zkconsumer.errors import MalformedZnode
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.session import Kind, Operation, ZkSession

_log = logging.getLogger(__name__)


_ROUNDS: tuple[Kind, ...] = ("set", "create", "set")
"""Most offset nodes exist; a missing one is created; unless somebody was faster, then it can be set."""


class ZooKeeperOffsetStore:
    """Offsets of one group in ZooKeeper; an :class:`~zkconsumer.offsets.store.OffsetStore`.

    Args:
        session: an open session.
        group: consumer group.
        fence: gives the path of a node whose absence stops every commit: the member's session node. Tools that write
            offsets of a group that they are not in leave it at the root, which always exists.
    """

    def __init__(self, session: ZkSession, group: str, fence: Callable[[], str] = lambda: "/") -> None:
        self._session = session
        self._paths = GroupPaths(group)
        self._fence = fence
        self._known: dict[TopicPartition, int | None] = {}

    def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """See :meth:`OffsetStore.fetch <zkconsumer.offsets.store.OffsetStore.fetch>`."""
        nodes = self._session.get_many(self._paths.offset(partition) for partition in partitions)
        offsets: dict[TopicPartition, int | None] = {}
        for partition in partitions:
            path = self._paths.offset(partition)
            node = nodes[path]
            try:
                offsets[partition] = None if node is None else OffsetNode.decode(path, node.data)
            except MalformedZnode as error:
                _log.error("group %s will not consume %s: %s", self._paths.group, partition, error)
        self._known = dict(offsets)
        return offsets

    def commit(self, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """See :meth:`OffsetStore.commit <zkconsumer.offsets.store.OffsetStore.commit>`.

        Only what differs from what was last read or written is written again (KAFKA-987), and that only of partitions
        that were read: nobody else writes those while this member owns them.
        """
        todo = changed_offsets(offsets, self._known)
        done = offsets.keys() - todo.keys()
        for kind in _ROUNDS:
            if kind == "create":
                for topic in sorted({partition.topic for partition in todo}):
                    self._session.ensure_path(self._paths.offset_topic(topic), None)
            done |= self._write(kind, todo)
            todo = {partition: offset for partition, offset in todo.items() if partition not in done}
            if not todo:
                break
        self._known.update((partition, offsets[partition]) for partition in done if partition in self._known)
        return done

    def close(self) -> None:
        """See :meth:`OffsetStore.close <zkconsumer.offsets.store.OffsetStore.close>`."""

    def _write(self, kind: Kind, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        operations = [
            Operation(kind, self._paths.offset(partition), OffsetNode.encode(offset))
            for partition, offset in offsets.items()
        ]
        outcomes = self._session.transact(self._fence(), operations)
        return {partition for partition in offsets if outcomes[self._paths.offset(partition)] == "done"}
