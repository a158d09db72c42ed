"""Chooses the offset store that ``offsets.storage``, ``dual.commit.enabled`` and ``dual.read`` ask for."""

from __future__ import annotations

from functools import partial

from zkconsumer.config import ConsumerConfig
from zkconsumer.connector.member import GroupMember
from zkconsumer.kafka.client import BrokerClient
from zkconsumer.kafka.coordinator import OffsetCoordinator
from zkconsumer.offsets.dual import DualOffsetStore
from zkconsumer.offsets.kafka import KafkaOffsetStore
from zkconsumer.offsets.store import OffsetStore


def choose_store(config: ConsumerConfig, member: GroupMember, zookeeper: OffsetStore) -> OffsetStore:
    """The store for one member.

    Args:
        config: of the member.
        member: asked for brokers, and whether it may still commit.
        zookeeper: the member's offsets in ZooKeeper, fenced.
    """
    if config.offsets_storage == "zookeeper":
        return zookeeper
    client = BrokerClient(
        member.live_brokers, client_id=config.client_id, timeout_ms=config.offsets_channel_socket_timeout_ms
    )
    kafka = KafkaOffsetStore(
        OffsetCoordinator(client, config.group_id),
        retries=config.offsets_commit_max_retries,
        pause=partial(member.pause, config.offsets_channel_backoff_ms / 1000),
        may_commit=member.may_deliver,
        on_close=client.close,
    )
    return DualOffsetStore(zookeeper, kafka, config.dual_read) if config.dual_commit_enabled else kafka
