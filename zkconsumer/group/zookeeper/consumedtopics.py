"""ConsumedTopics: which topics a member of a group in ZooKeeper has fetched, and whether they are others now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from zkconsumer.cluster.brokerznodes import BrokerZnodes
from zkconsumer.cluster.rules.clustercatalog import ClusterSource, read_identities
from zkconsumer.errors import ShareChanged, ZooKeeperUnavailable
from zkconsumer.group.rules.fetchedtopics import FetchedTopics
from zkconsumer.group.zookeeper.topicrecords import TopicRecords
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.topicorigins import TopicOrigin


class ConsumedTopics:
    """Used by the rebalance thread only.

    Args:
        topic_znodes: where topics are read from, without watches, unless there is a ``cluster``.
        records: in which the group keeps what its members have consumed.
        cluster: where topics are read from; None for ZooKeeper.

    Attributes:
        noticed: a topic is not the one that was fetched; the next attempt looks at all of the share.
    """

    def __init__(self, topic_znodes: BrokerZnodes, records: TopicRecords, cluster: ClusterSource | None) -> None:
        self._topic_znodes = topic_znodes
        self._records = records
        self._cluster = cluster
        self._fetched = FetchedTopics()
        self.noticed = False

    def recreated(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """See :meth:`.GroupProtocol.recreated`; also partitions of topics that do not exist, if they are known to.

        Without ZooKeeper nothing is known; offsets in Kafka can be committed then, as long as the lease holds.
        """
        try:
            now = self._identities(p.topic for p in partitions if p.topic in self._fetched)
        except ZooKeeperUnavailable:
            return frozenset()
        gone = {topic for topic, identity in now.items() if identity is None} | self.others(now)
        self.noticed |= bool(gone)
        return frozenset(partition for partition in partitions if partition.topic in gone)

    def consume(self, topics: Collection[str], recreated: Collection[str]) -> dict[str, TopicOrigin]:
        """See :meth:`.GroupProtocol.consume`.

        Raises:
            BrokerUnavailable: no broker has described the topics, so an offset of an earlier topic would be used: 1. a
                group has consumed a topic, which is created again while no member runs; 2. a member starts, and brokers
                are silent; 3. it begins at the stored offset of the former topic, and skips the records before it.
        """
        now = self._identities(topics, required=True)
        begun = {topic: identity for topic, identity in now.items() if identity is not None}
        try:
            self._fetched.begin(begun, recreated)
        except ShareChanged:
            self.noticed = True
            raise
        return self._records.consume(begun)

    def fetched(self) -> None:
        """The topics of the last :meth:`consume` are fetched."""
        self._fetched.started()

    def others(self, now: Mapping[str, TopicIdentity | None]) -> set[str]:
        """See :meth:`FetchedTopics.replaced`."""
        return self._fetched.replaced(now)

    def changed(self, gained: Iterable[TopicPartition], share: Iterable[TopicPartition]) -> set[str]:
        """:meth:`others` of the topics of gained partitions, or, if one was noticed, of the share, as they are now.

        What is noticed later, by a commit of the attempt or because the attempt fails, is looked for in the next one.
        """
        now = self._identities(partition.topic for partition in (share if self.noticed else gained))
        changed = self.others(now)
        self.noticed = bool(changed) or (self.noticed and None in now.values())
        return changed

    def _identities(self, topics: Iterable[str], *, required: bool = False) -> dict[str, TopicIdentity | None]:
        """The present identity of each topic, None if it does not exist; without those of which nothing is known.

        Raises:
            BrokerUnavailable: nothing is known although it is required.
        """
        if self._cluster is not None:
            return read_identities(self._cluster, topics, required=required)
        names = sorted(set(topics))
        return self._topic_znodes.identities(names) if names else {}
