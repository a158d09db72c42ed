"""Kafka's ZooKeeper-based high-level consumer in Python.

::

    from zkconsumer import ConsumerConfig, ConsumerConnector

    config = ConsumerConfig(zookeeper_connect="h1:2181/chroot", group_id="g", auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        streams = connector.create_message_streams({"clicks": 1})
        for message in streams["clicks"][0]:
            print(message.partition, message.offset, message.value)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig
    from zkconsumer.connector.connector import ConsumerConnector, PartitionState
    from zkconsumer.connector.decoder import DecodedMessage
    from zkconsumer.connector.stream import MessageStream
    from zkconsumer.core.partitioner import DefaultPartitioner
    from zkconsumer.core.subscription import Blacklist, Whitelist
    from zkconsumer.errors import (
        AuthenticationFailed,
        BrokerUnavailable,
        ChrootMissing,
        CommitRefused,
        ConfigError,
        ConsumerClosed,
        ConsumerIdInUse,
        ConsumerTimeout,
        CoordinatorMoved,
        CorruptRecord,
        DecoderUnavailable,
        GenerationEnded,
        GroupAuthorizationFailed,
        LeaderUnknown,
        LeaseLapsed,
        MalformedZnode,
        NotLeader,
        NotOwner,
        OffsetOutOfRange,
        OffsetsNotStored,
        ProtocolError,
        RebalanceFailed,
        RecordTooLarge,
        RetriableError,
        SessionExpired,
        StreamIdle,
        TopicAuthorizationFailed,
        TopicUnreadable,
        UsageError,
        ZkConsumerError,
        ZooKeeperRefused,
        ZooKeeperUnavailable,
    )
    from zkconsumer.fetch.simple import SimpleConsumer
    from zkconsumer.group.listener import ConsumerRebalanceListener
    from zkconsumer.model import ConsumerThreadId, Message, TopicPartition

_HOMES = {
    "AuthenticationFailed": "zkconsumer.errors",
    "Blacklist": "zkconsumer.core.subscription",
    "BrokerUnavailable": "zkconsumer.errors",
    "ChrootMissing": "zkconsumer.errors",
    "CommitRefused": "zkconsumer.errors",
    "ConfigError": "zkconsumer.errors",
    "ConsumerClosed": "zkconsumer.errors",
    "ConsumerConfig": "zkconsumer.config",
    "ConsumerConnector": "zkconsumer.connector.connector",
    "ConsumerIdInUse": "zkconsumer.errors",
    "ConsumerRebalanceListener": "zkconsumer.group.listener",
    "ConsumerThreadId": "zkconsumer.model",
    "ConsumerTimeout": "zkconsumer.errors",
    "CoordinatorMoved": "zkconsumer.errors",
    "CorruptRecord": "zkconsumer.errors",
    "DecoderUnavailable": "zkconsumer.errors",
    "DecodedMessage": "zkconsumer.connector.decoder",
    "DefaultPartitioner": "zkconsumer.core.partitioner",
    "GenerationEnded": "zkconsumer.errors",
    "GroupAuthorizationFailed": "zkconsumer.errors",
    "LeaderUnknown": "zkconsumer.errors",
    "LeaseLapsed": "zkconsumer.errors",
    "MalformedZnode": "zkconsumer.errors",
    "Message": "zkconsumer.model",
    "MessageStream": "zkconsumer.connector.stream",
    "NotLeader": "zkconsumer.errors",
    "NotOwner": "zkconsumer.errors",
    "OffsetOutOfRange": "zkconsumer.errors",
    "OffsetsNotStored": "zkconsumer.errors",
    "PartitionState": "zkconsumer.connector.connector",
    "ProtocolError": "zkconsumer.errors",
    "RebalanceFailed": "zkconsumer.errors",
    "RecordTooLarge": "zkconsumer.errors",
    "RetriableError": "zkconsumer.errors",
    "SessionExpired": "zkconsumer.errors",
    "SimpleConsumer": "zkconsumer.fetch.simple",
    "StreamIdle": "zkconsumer.errors",
    "TopicAuthorizationFailed": "zkconsumer.errors",
    "TopicPartition": "zkconsumer.model",
    "TopicUnreadable": "zkconsumer.errors",
    "UsageError": "zkconsumer.errors",
    "Whitelist": "zkconsumer.core.subscription",
    "ZkConsumerError": "zkconsumer.errors",
    "ZooKeeperRefused": "zkconsumer.errors",
    "ZooKeeperUnavailable": "zkconsumer.errors",
}

__all__ = [
    "AuthenticationFailed",
    "Blacklist",
    "BrokerUnavailable",
    "ChrootMissing",
    "CommitRefused",
    "ConfigError",
    "ConsumerClosed",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerIdInUse",
    "ConsumerRebalanceListener",
    "ConsumerThreadId",
    "ConsumerTimeout",
    "CoordinatorMoved",
    "CorruptRecord",
    "DecodedMessage",
    "DecoderUnavailable",
    "DefaultPartitioner",
    "GenerationEnded",
    "GroupAuthorizationFailed",
    "LeaderUnknown",
    "LeaseLapsed",
    "MalformedZnode",
    "Message",
    "MessageStream",
    "NotLeader",
    "NotOwner",
    "OffsetOutOfRange",
    "OffsetsNotStored",
    "PartitionState",
    "ProtocolError",
    "RebalanceFailed",
    "RecordTooLarge",
    "RetriableError",
    "SessionExpired",
    "SimpleConsumer",
    "StreamIdle",
    "TopicAuthorizationFailed",
    "TopicPartition",
    "TopicUnreadable",
    "UsageError",
    "Whitelist",
    "ZkConsumerError",
    "ZooKeeperRefused",
    "ZooKeeperUnavailable",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: kazoo, numba and pyarrow are slow to load (DESIGN 4.14)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("zkconsumer")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
