"""QueryStamps: znodes that show which plan of a Spark query an offset in ZooKeeper was committed by (adr/0029)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from zkconsumer.errors import MalformedZnode, ZooKeeperRefused
from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.zookeeper.fencedtransaction import Operation
from zkconsumer.zookeeper.partialtransactions import Outcomes
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import StampNode
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)


class QueryStamps:
    """Writes the stamp of each offset in the transaction that writes the offset, so both have the same mzxid.

    An offset whose stamp has another mzxid was written by another client. Where stamps may not be written, offsets are
    stored without them.

    Args:
        session: an open session.
        paths: of the group.
    """

    def __init__(self, session: ZkSession, paths: GroupPaths) -> None:
        self._session = session
        self._paths = paths
        self._exists: dict[TopicPartition, bool] = {}
        self._parents: set[str] = set()
        self._refused = False

    def paths(self, partitions: Collection[TopicPartition]) -> list[str]:
        """The znodes to read together with the offsets of these partitions."""
        return [self._paths.stamp(partition) for partition in partitions]

    def read(self, partition: TopicPartition, nodes: Mapping[str, Znode | None], mzxid: int) -> Stamp | None:
        """The stamp of the offset that the transaction ``mzxid`` wrote; None if it has none."""
        path = self._paths.stamp(partition)
        if path not in nodes:
            return None  # it may not be read
        node = nodes[path]
        self._exists[partition] = node is not None
        if node is None or node.mzxid != mzxid:
            return None
        try:
            return StampNode.decode(path, node.data)
        except MalformedZnode as error:
            _log.error("%s", error)
            return None

    def operations(
        self, partitions: Collection[TopicPartition], stamp: Stamp | None
    ) -> dict[TopicPartition, Operation]:
        """What writes the stamp for each partition whose offset is about to be written; none without a stamp.

        Raises:
            ZooKeeperUnavailable, SessionExpired: the parents, or whether a stamp exists, cannot be found out.
        """
        if stamp is None or self._refused:
            return {}
        try:
            self._create_parents({partition.topic for partition in partitions} - self._parents)
            self._find([partition for partition in partitions if partition not in self._exists])
        except ZooKeeperRefused as refusal:
            self.give_up(refusal)
            return {}
        data = StampNode.encode(stamp)
        return {p: Operation("set" if self._exists[p] else "create", self._paths.stamp(p), data) for p in partitions}

    def _create_parents(self, topics: Collection[str]) -> None:
        if not topics:
            return
        for refusal in self._session.ensure_paths([self._paths.stamp_topic(topic) for topic in topics], None).values():
            raise refusal
        self._parents |= set(topics)

    def _find(self, partitions: Collection[TopicPartition]) -> None:
        reads = self._session.read_many(self.paths(partitions))
        for refusal in reads.refused.values():
            raise refusal
        self._exists.update((p, reads.nodes[self._paths.stamp(p)] is not None) for p in partitions)

    def note(self, partitions: Collection[TopicPartition], outcomes: Outcomes | None) -> None:
        """Record what became of the operations; None if their answers were lost."""
        for partition in partitions:
            outcome = None if outcomes is None else outcomes.get(self._paths.stamp(partition))
            self._exists.pop(partition, None)
            if outcome == "done":
                self._exists[partition] = True
            elif outcome == "missing":
                self._parents.discard(partition.topic)
            elif outcome == "refused" and outcomes is not None:
                self.give_up(outcomes.refused[self._paths.stamp(partition)])

    def give_up(self, refusal: ZooKeeperRefused) -> None:
        """Write no stamps any more, since ZooKeeper does not allow it."""
        if not self._refused:
            self._refused = True
            _log.warning(
                "group %s: %s: offsets are stored without the query that committed them, so an older checkpoint of the "
                "query does not rewind the group",
                self._paths.group,
                refusal,
            )
