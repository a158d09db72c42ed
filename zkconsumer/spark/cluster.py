"""The state of cluster and group that a query needs without being a member: brokers, partitions, offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.config import ConsumerConfig
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.spark.options import SourceOptions

if TYPE_CHECKING:
    from zkconsumer.zookeeper.session import ZkSession


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of cluster and group at one time.

    Attributes:
        brokers: live brokers.
        partitions: every partition of the subscribed topics that exist.
        committed: the group's offset of each partition, None if none is stored; without unreadable ones, and empty if
            offsets were not requested.
        members: consumer ids of the group's live members.
        our_members: those of them that use this package.
    """

    brokers: tuple[Broker, ...]
    partitions: frozenset[TopicPartition]
    committed: Mapping[TopicPartition, int | None]
    members: frozenset[str]
    our_members: frozenset[str]

    def partition_counts(self) -> dict[str, int]:
        """Number of partitions of each topic."""
        counts: dict[str, int] = {}
        for partition in self.partitions:
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        return counts


def read_cluster(options: SourceOptions, *, with_offsets: bool = False) -> ClusterView:
    """Read the cluster and, in a separate session, which registers nothing and is closed afterwards, the group.

    Args:
        options: options of the query.
        with_offsets: also read the group's offsets, from the store that ``offsets.storage`` specifies.

    Raises:
        RetriableError: ``offsets.storage=kafka``, and the group's coordinator does not answer; or
            ``bootstrap.servers`` is set, and no broker answers.
        ZooKeeperUnavailable: no server answered.
        ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
    """
    from zkconsumer.clusterchoice import open_registry
    from zkconsumer.zookeeper.session import ZkSession

    config = options.config
    session = ZkSession.from_config(config)
    session.open()
    try:
        registry = open_registry(session, config)
        found = registry.partitions(options.select(registry.topics()))
        partitions = frozenset(
            TopicPartition(topic, number) for topic, of_topic in found.items() for number in of_topic
        )
        brokers = registry.live_brokers()
        group = registry.view(config.group_id)
        return ClusterView(
            brokers=brokers,
            partitions=partitions,
            committed=_committed(config, session, brokers, sorted(partitions)) if with_offsets else {},
            members=frozenset(group.members.keys() | group.unreadable.keys()),
            our_members=frozenset(group.our_clients),
        )
    finally:
        session.close()


def _committed(
    config: ConsumerConfig, session: ZkSession, brokers: Sequence[Broker], partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int | None]:
    from zkconsumer.offsets.storechoice import open_store
    from zkconsumer.offsets.zookeeper import ZooKeeperOffsetStore

    def wait_before_retry(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    store = open_store(
        config,
        ZooKeeperOffsetStore(session, config.group_id),
        live_brokers=lambda: brokers,
        wait_before_retry=wait_before_retry,
    )
    try:
        return store.fetch(partitions)
    finally:
        store.close()
