"""LeaderConnections: who leads partitions, and connections to the leaders, kept from one reading to the next."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import is_refusal
from zkconsumer.wire.refusals import DESCRIBE, topic_refused
from zkconsumer.wire.rules.leaderepochs import KnownEpochs

_NO_EPOCHS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})
IDLE_LIMIT_S: Final = 60.0
"""Limit of the idle time of connections in seconds: brokers (and firewalls) silently drop older ones."""


@dataclass
class PooledConnection:
    """A connection to one broker, with its state between readings; one thread uses it at a time.

    Attributes:
        connection: connected.
        bytes_per_offset: from the newest answer of each partition; used to choose the size of the next request.
        reused: True if an earlier reading has used the connection, so it may be broken.
    """

    connection: BrokerConnection
    bytes_per_offset: dict[TopicPartition, float] = field(default_factory=dict)
    reused: bool = False
    _idle_since: float = 0.0


@dataclass
class LeaderConnections:
    """Idle connections, leaders and the client that asks for them, for one set of properties. One thread uses it.

    Attributes:
        used_at: start of the newest reading that uses it, by ``time.monotonic``.
        leaders: leaders of partitions, as far as known.
        epochs: their epochs, to be named in requests.
        leaderless: error codes of the partitions for which the last answer names no leader.
    """

    config: ConsumerConfig
    used_at: float = 0.0
    leaders: dict[TopicPartition, Broker] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    leaderless: dict[TopicPartition, int] = field(default_factory=dict)
    _idle_connections: dict[Broker, list[PooledConnection]] = field(default_factory=dict)
    _brokers: Sequence[Broker] = ()
    _client: BrokerClient | None = None
    _known_epochs: KnownEpochs = field(default_factory=KnownEpochs)

    def find_leaders(
        self,
        partitions: Sequence[TopicPartition],
        brokers: Sequence[Broker],
        planned: Mapping[TopicPartition, int] = _NO_EPOCHS,
    ) -> dict[TopicPartition, Broker]:
        """Leaders of the partitions that have one; asks the brokers only for unknown ones.

        Args:
            partitions: the partitions.
            brokers: the brokers to ask.
            planned: epochs that leaders had when the ranges were planned; leaders of earlier epochs are outdated.

        Raises:
            BrokerUnavailable: no broker answers.
            TopicUnreadable: the brokers refuse to describe a topic, for example because a permission is missing.
        """
        self._brokers = brokers
        for partition, epoch in planned.items():
            self._known_epochs.expect(partition, epoch)
            if self.epochs.get(partition, epoch) < epoch:
                self.leaders.pop(partition, None)
        unknown = {partition.topic for partition in partitions if partition not in self.leaders}
        if unknown:
            if self._client is None:
                self._client = BrokerClient.from_config(lambda: self._brokers, self.config, epochs=self._known_epochs)
            metadata = self._client.metadata(unknown)
            self.leaders.update(metadata.leaders)
            self.epochs.update(metadata.epochs)
            self.leaderless = {p: metadata.why_leaderless(p) for p in partitions if p not in self.leaders}
            for topic, code in metadata.failed_topics.items():
                if is_refusal(code):
                    raise topic_refused(topic, code, DESCRIBE, "a broker", self._client.security)
        return {partition: self.leaders[partition] for partition in partitions if partition in self.leaders}

    def forget_leaders(self, partitions: Iterable[TopicPartition], fenced: Collection[TopicPartition]) -> None:
        """Ask for these leaders again; those of ``fenced`` have refused their epochs as older than theirs."""
        for partition in partitions:
            self.leaders.pop(partition, None)
        if self._client is not None:
            self._client.fenced(fenced)

    def take_connection(self, broker: Broker) -> PooledConnection:
        """An idle connection to the broker, or a new one.

        Raises:
            BrokerUnavailable: the broker cannot be reached.
            ProtocolError: the server is not a supported Kafka broker.
        """
        idle = self._idle_connections.get(broker, [])
        while idle:
            pooled = idle.pop()
            if time.monotonic() - pooled._idle_since < IDLE_LIMIT_S:
                return pooled
            pooled.connection.close()
        connection = BrokerConnection.from_config(broker, self.config)
        connection.connect()
        return PooledConnection(connection)

    def return_connection(self, broker: Broker, pooled: PooledConnection) -> None:
        """Return a connection to the pool; no answer may be awaited on it."""
        pooled.reused = True
        pooled._idle_since = time.monotonic()
        self._idle_connections.setdefault(broker, []).append(pooled)

    def close(self) -> None:
        """Close the idle connections and that of the metadata client."""
        for of_broker in self._idle_connections.values():
            for pooled in of_broker:
                pooled.connection.close()
        self._idle_connections.clear()
        if self._client is not None:
            self._client.close()
            self._client = None
