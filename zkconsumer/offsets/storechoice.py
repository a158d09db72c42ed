"""Chooses the offset store that ``offsets.storage``, ``dual.commit.enabled`` and ``dual.read`` specify."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import Broker
from zkconsumer.offsets.dualstore import DualOffsetStore
from zkconsumer.offsets.kafkastore import KafkaOffsetStore
from zkconsumer.offsets.offsetcoordinator import CommitMembership, OffsetCoordinator
from zkconsumer.offsets.offsetstore import OffsetStore
from zkconsumer.offsets.rules.commitfence import NO_MEMBER, CommitIdentity
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.rules.retrypolicy import RetryPolicy


def open_store(
    config: ConsumerConfig,
    zookeeper: OffsetStore,
    *,
    live_brokers: Callable[[], Sequence[Broker]],
    wait_before_retry: Callable[[float], bool],
    pool: ConnectionPool | None = None,
) -> OffsetStore:
    """The store that the properties specify, also for a client that is not a member and only reads.

    Args:
        config: the consumer's properties.
        zookeeper: the group's offsets in ZooKeeper.
        live_brokers: returns the brokers to ask for the group's coordinator.
        wait_before_retry: waits for the given seconds; True if there should be no further attempt.
        pool: connections that the member's clients share; its own if None.
    """
    if config.offsets_storage == "zookeeper":
        return zookeeper
    kafka = open_kafka_store(config, live_brokers=live_brokers, wait_before_retry=wait_before_retry, pool=pool)
    return kafka if config.offsets_only_in_kafka else DualOffsetStore(zookeeper, kafka, config.dual_read)


def open_kafka_store(
    config: ConsumerConfig,
    *,
    live_brokers: Callable[[], Sequence[Broker]],
    wait_before_retry: Callable[[float], bool],
    identity: Callable[[], CommitIdentity] = lambda: NO_MEMBER,
    membership: CommitMembership | None = None,
    pool: ConnectionPool | None = None,
) -> KafkaOffsetStore:
    """The store of a group's offsets in Kafka.

    Args:
        config: the consumer's properties.
        live_brokers: see :func:`open_store`.
        wait_before_retry: see there.
        identity: returns the member and generation that commits name, in a group that brokers coordinate.
        membership: see :class:`~zkconsumer.offsets.offsetcoordinator.OffsetCoordinator`.
        pool: see :func:`open_store`.
    """
    client = BrokerClient.from_config(
        live_brokers, config, timeout_ms=config.offsets_channel_socket_timeout_ms, pool=pool
    )
    return KafkaOffsetStore(
        OffsetCoordinator(client, config.group_id, identity, membership),
        policy=RetryPolicy.from_config(config),
        wait_before_retry=wait_before_retry,
        is_fenced=membership is not None,
        on_close=client.close,
    )
