"""What a query needs to know of ZooKeeper without being a member: brokers, partitions, the group's offsets."""

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
    """One reading of ZooKeeper.

    Attributes:
        brokers: live brokers.
        partitions: every partition of the subscribed topics that exist.
        committed: the group's offset of each of them, None where none is stored; unreadable ones are left out, and
            all of them where they were not asked for.
        members: consumer ids of the group's live members.
        our_members: those that are zkconsumers.
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
    """Read ZooKeeper in a session of its own, which registers nothing and is closed again.

    Args:
        options: of the query.
        with_offsets: also read the group's offsets, wherever ``offsets.storage`` says that they are.

    Raises:
        RetriableError: ``offsets.storage=kafka``, and the group's coordinator does not answer.
        ZooKeeperUnavailable: no server answered.
        ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
    """
    from zkconsumer.zookeeper.registry import Registry
    from zkconsumer.zookeeper.session import ZkSession

    config = options.config
    session = ZkSession.from_config(config)
    session.open()
    try:
        registry = Registry(session, config.security_protocol)
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
