"""What a client may do to topics and groups, as brokers since 2.3 report it (KIP-430)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from zkconsumer.errors import ProtocolError
from zkconsumer.wire.apiversions import METADATA
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import DESCRIBE_GROUPS, FIRST_WITH_OPERATIONS, describe
from zkconsumer.wire.kafkapython import load_kafka_python

_READ: Final = 3
"""Code of the operation in the answers; commits need it on the group and on each topic."""

_TOPIC_VERSIONS: Final = (8, 8)


def unreadable_topics(connection: BrokerConnection, topics: Collection[str]) -> set[str] | None:
    """Topics that this client may describe, but whose offsets it may not commit; None if the broker is older than 2.3.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: the answer is malformed.
    """
    load_kafka_python()
    from kafka.protocol.metadata import MetadataRequest

    try:
        version = connection.version(METADATA, "Metadata", *_TOPIC_VERSIONS)
    except ProtocolError:
        return None
    make = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(
        version=version,
        topics=[make(name=topic) for topic in sorted(topics)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )
    answer = connection.call(request)
    return {topic.name for topic in answer.topics if _READ not in (topic.authorized_operations or ())}


def may_commit(connection: BrokerConnection, group: str) -> bool | None:
    """True if this client may commit offsets of a group; None if the coordinator is older than 2.3.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: the answer is malformed.
    """
    if not connection.knows(DESCRIBE_GROUPS, FIRST_WITH_OPERATIONS):
        return None
    description = describe(connection, group, with_operations=True)
    return None if description.error_code else _READ in (description.authorized_operations or ())
