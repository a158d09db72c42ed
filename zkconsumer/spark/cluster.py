"""What a query needs to know of ZooKeeper without being a member: brokers, partitions, the group's offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkconsumer.model import Broker, TopicPartition
from zkconsumer.spark.options import SourceOptions


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One reading of ZooKeeper.

    Attributes:
        brokers: live brokers.
        partitions: every partition of the subscribed topics that exist.
        committed: the group's offset of each of them, None where none is stored; unreadable ones are left out.
        our_members: consumer ids of the group's live members that are zkconsumers.
    """

    brokers: tuple[Broker, ...]
    partitions: frozenset[TopicPartition]
    committed: Mapping[TopicPartition, int | None]
    our_members: frozenset[str]

    def partition_counts(self) -> dict[str, int]:
        """Number of partitions of each topic."""
        counts: dict[str, int] = {}
        for partition in self.partitions:
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        return counts


def read_cluster(options: SourceOptions) -> ClusterView:
    """Read ZooKeeper in a session of its own, which registers nothing and is closed again.

    Raises:
        ZooKeeperUnavailable: no server answered.
        ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
    """
    from zkconsumer.offsets.zookeeper import ZooKeeperOffsetStore
    from zkconsumer.zookeeper.registry import Registry
    from zkconsumer.zookeeper.session import ZkSession

    config = options.config
    session = ZkSession.from_config(config)
    session.open()
    try:
        registry = Registry(session)
        found = registry.partitions(options.select(registry.topics()))
        partitions = frozenset(
            TopicPartition(topic, number) for topic, of_topic in found.items() for number in of_topic
        )
        return ClusterView(
            brokers=registry.live_brokers(),
            partitions=partitions,
            committed=ZooKeeperOffsetStore(session, config.group_id).fetch(sorted(partitions)),
            our_members=frozenset(registry.view(config.group_id).our_clients),
        )
    finally:
        session.close()
