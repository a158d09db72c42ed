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

# ruff: noqa: I001 - ruff would write a separate import for each name with "as"

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zkconsumer.errors import (
    AssignorFailed as AssignorFailed,
    AuthenticationFailed as AuthenticationFailed,
    BrokerUnavailable as BrokerUnavailable,
    ChrootMissing as ChrootMissing,
    CommitRefused as CommitRefused,
    ConfigError as ConfigError,
    ConsumerClosed as ConsumerClosed,
    ConsumerIdInUse as ConsumerIdInUse,
    ConsumerTimeout as ConsumerTimeout,
    CoordinatorMoved as CoordinatorMoved,
    CorruptRecord as CorruptRecord,
    DecoderUnavailable as DecoderUnavailable,
    GenerationEnded as GenerationEnded,
    GroupAuthorizationFailed as GroupAuthorizationFailed,
    GroupMigrated as GroupMigrated,
    InstanceIdInUse as InstanceIdInUse,
    LeaderUnknown as LeaderUnknown,
    LeaseLapsed as LeaseLapsed,
    MalformedZnode as MalformedZnode,
    MemberRefused as MemberRefused,
    MembershipLost as MembershipLost,
    NotLeader as NotLeader,
    NotOwner as NotOwner,
    OffsetOutOfRange as OffsetOutOfRange,
    OffsetsNotStored as OffsetsNotStored,
    OwnershipAwaited as OwnershipAwaited,
    ProtocolError as ProtocolError,
    RebalanceAwaited as RebalanceAwaited,
    RebalanceFailed as RebalanceFailed,
    RecordTooLarge as RecordTooLarge,
    RetriableError as RetriableError,
    SandboxError as SandboxError,
    SessionExpired as SessionExpired,
    StreamIdle as StreamIdle,
    ThreadLimit as ThreadLimit,
    TopicAuthorizationFailed as TopicAuthorizationFailed,
    TopicUnreadable as TopicUnreadable,
    UsageError as UsageError,
    WokenUp as WokenUp,
    ZkConsumerError as ZkConsumerError,
    ZooKeeperRefused as ZooKeeperRefused,
    ZooKeeperUnavailable as ZooKeeperUnavailable,
)

if TYPE_CHECKING:  # type checkers read "as" as a public name
    from zkconsumer.config.consumerconfig import ConsumerConfig as ConsumerConfig
    from zkconsumer.connector.asyncconnector import AsyncConsumerConnector as AsyncConsumerConnector
    from zkconsumer.connector.asyncstream import AsyncMessageStream as AsyncMessageStream
    from zkconsumer.connector.loopcalls import AsyncRebalanceListener as AsyncRebalanceListener
    from zkconsumer.connector.connector import ConsumerConnector as ConsumerConnector, PartitionState as PartitionState
    from zkconsumer.connector.decoder import DecodedMessage as DecodedMessage
    from zkconsumer.connector.handlerrun import run as run
    from zkconsumer.connector.rules.retry import Retry as Retry
    from zkconsumer.connector.stream import MessageStream as MessageStream
    from zkconsumer.group.rules.memberstate import MemberState as MemberState
    from zkconsumer.java.producerpartitioner import DefaultPartitioner as DefaultPartitioner
    from zkconsumer.group.rules.partitionassignor import PartitionAssignor as PartitionAssignor
    from zkconsumer.group.rules.subscription import Blacklist as Blacklist, Whitelist as Whitelist
    from zkconsumer.connector.simpleconsumer import SimpleConsumer as SimpleConsumer
    from zkconsumer.ranges.topicread import read as read
    from zkconsumer.group.memberdescription import MemberDescription as MemberDescription
    from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener as ConsumerRebalanceListener
    from zkconsumer.model import ConsumerThreadId as ConsumerThreadId, Message as Message
    from zkconsumer.model import TopicPartition as TopicPartition

_LAZY = {
    "zkconsumer.config.consumerconfig": ("ConsumerConfig",),
    "zkconsumer.connector.asyncconnector": ("AsyncConsumerConnector",),
    "zkconsumer.connector.asyncstream": ("AsyncMessageStream",),
    "zkconsumer.connector.loopcalls": ("AsyncRebalanceListener",),
    "zkconsumer.connector.connector": ("ConsumerConnector", "PartitionState"),
    "zkconsumer.connector.decoder": ("DecodedMessage",),
    "zkconsumer.connector.handlerrun": ("run",),
    "zkconsumer.connector.rules.retry": ("Retry",),
    "zkconsumer.connector.stream": ("MessageStream",),
    "zkconsumer.group.rules.memberstate": ("MemberState",),
    "zkconsumer.java.producerpartitioner": ("DefaultPartitioner",),
    "zkconsumer.group.rules.partitionassignor": ("PartitionAssignor",),
    "zkconsumer.group.rules.subscription": ("Blacklist", "Whitelist"),
    "zkconsumer.connector.simpleconsumer": ("SimpleConsumer",),
    "zkconsumer.ranges.topicread": ("read",),
    "zkconsumer.group.memberdescription": ("MemberDescription",),
    "zkconsumer.group.rebalancelistener": ("ConsumerRebalanceListener",),
    "zkconsumer.model": ("ConsumerThreadId", "Message", "TopicPartition"),
}
"""The other public names, by the module that defines them."""

_MADE_HERE = {"AsyncMessageStream", "MemberDescription", "MessageStream", "PartitionState"}
"""Classes whose instances only this package makes."""

_HOMES = {name: module for module, names in _LAZY.items() for name in names}

_AT_ONCE = [name for name, value in globals().items() if getattr(value, "__module__", "").startswith("zkconsumer.")]

__all__ = sorted([*_AT_ONCE, *_HOMES])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: kazoo, kafka-python and pyarrow are slow to load.

    See architecture.md#imports.
    """
    if name == "__version__":
        from importlib.metadata import version

        return version("zkconsumer")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zkconsumer.signatures import describe_for_help

    value = getattr(import_module(home), name)
    describe_for_help(value, is_made_here=name in _MADE_HERE)
    globals()[name] = value
    return value
