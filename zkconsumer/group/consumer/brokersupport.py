"""Whether brokers have the protocol in which they assign (KIP-848)."""

from __future__ import annotations

import uuid

from zkconsumer.errors import ConfigError
from zkconsumer.group.consumer.heartbeatmessages import (
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_HEARTBEAT_VERSIONS,
    HeartbeatSettings,
    consumer_heartbeat,
    leave_beat,
)
from zkconsumer.group.consumer.rules.epochmember import LEAVING
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import broker_release
from zkconsumer.wire.errorcodes import ErrorCode


def require_support(brokers: BrokerClient, settings: HeartbeatSettings) -> None:
    """Check that a broker has the protocol, by leaving a group in the name of a member that does not exist.

    A broker may know the request, and refuse it, since the protocol is disabled.

    Raises:
        BrokerUnavailable: no broker answers.
        ConfigError: the brokers do not have it.
    """

    def ask(connection: BrokerConnection) -> str | None:
        release = ".".join(map(str, broker_release(connection)))
        if not connection.knows(CONSUMER_GROUP_HEARTBEAT, CONSUMER_HEARTBEAT_VERSIONS[0]):
            return f"{connection} is of release {release}, and has no ConsumerGroupHeartbeat of Kafka 4.0 (KIP-848)"
        unknown = CommitIdentity(str(uuid.uuid4()), LEAVING)
        if consumer_heartbeat(connection, settings, leave_beat(unknown)).code == ErrorCode.UNSUPPORTED_VERSION:
            return (
                f"{connection}, of release {release}, has the protocol of KIP-848 disabled; see group.version "
                "(kafka-features describe) and group.coordinator.rebalance.protocols"
            )
        return None

    why = brokers.ask_any(ask)
    if why is not None:
        raise ConfigError([f"group.protocol=consumer cannot be used: {why}; use group.protocol=kafka"])
