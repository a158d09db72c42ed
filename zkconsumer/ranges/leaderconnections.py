"""LeaderConnections: who leads partitions, and connections to the leaders, kept from one reading to the next."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import is_refusal
from zkconsumer.wire.refusals import DESCRIBE, topic_refused
from zkconsumer.wire.rules.leaderepochs import KnownEpochs
from zkconsumer.wire.rules.readreplica import AT_LEADER, ReadReplica

_NO_EPOCHS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})
IDLE_LIMIT_S: Final = 60.0
"""Limit of the idle time of connections in seconds: brokers (and firewalls) silently drop older ones."""
MOST_CONNECTIONS: Final = 32
"""Connections to leaders that are open at a time, in use or idle. There may be thousands of readers of a cluster: each
Python worker of a Spark application is one."""


class Source(NamedTuple):
    """Where partitions are read from, and how: partitions with equal ones are read by one fetcher.

    Attributes:
        broker: the broker.
        follows: True if it is not their leader, but a follower that the leader has named.
        rack: what requests name as the rack of this client; "" if the broker has to send the records itself.
    """

    broker: Broker
    follows: bool
    rack: str


@dataclass(eq=False)
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

    There are at most ``most`` to leaders, as long as readings use no more than that at a time: another one takes the
    place of the one that was idle for the longest time.

    Attributes:
        config: the properties.
        most: how many connections to leaders are open at a time, in use or idle.
        limit_others: called before a connection is opened, with how many connections the owner of several sets may
            keep open in the other ones.
        used_at: start or end of the newest reading that uses it, by ``time.monotonic``.
        leaders: leaders of partitions, as far as known.
        epochs: their epochs, to be named in requests.
        leaderless: error codes of the partitions for which the last answer names no leader.
        replicas: partitions that are read from a follower, or have to be read from their leader for a while.
    """

    config: ConsumerConfig
    most: int = MOST_CONNECTIONS
    limit_others: Callable[[int], None] = lambda _most: None
    used_at: float = 0.0
    leaders: dict[TopicPartition, Broker] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    leaderless: dict[TopicPartition, int] = field(default_factory=dict)
    replicas: dict[TopicPartition, ReadReplica] = field(default_factory=dict)
    _live: dict[int, Broker] = field(default_factory=dict)
    _idle_connections: dict[Broker, list[PooledConnection]] = field(default_factory=dict)
    _brokers: Sequence[Broker] = ()
    _client: BrokerClient | None = None
    _known_epochs: KnownEpochs = field(default_factory=KnownEpochs)
    _in_use: int = 0

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
            if not self._known_epochs.expect(partition, epoch):
                self.leaders.pop(partition, None)
        unknown = {partition.topic for partition in partitions if partition not in self.leaders}
        if unknown:
            if self._client is None:
                self._client = BrokerClient.from_config(lambda: self._brokers, self.config, epochs=self._known_epochs)
            metadata = self._client.metadata(unknown)
            self.leaders.update(metadata.leaders)
            self._live = dict(metadata.brokers)
            self.epochs.update(metadata.epochs)
            self.leaderless = {p: metadata.why_leaderless(p) for p in partitions if p not in self.leaders}
            for topic, code in metadata.failed_topics.items():
                if is_refusal(code):
                    raise topic_refused(topic, code, DESCRIBE, "a broker", self._client.security)
        return {partition: self.leaders[partition] for partition in partitions if partition in self.leaders}

    def source(self, partition: TopicPartition, leader: Broker, *, needs_leader: bool) -> Source:
        """Where to read a partition from.

        Args:
            partition: the partition.
            leader: its leader.
            needs_leader: True if the leader has to be asked about its log first.
        """
        now = time.monotonic()
        replica = self.replicas.get(partition, AT_LEADER)
        broker, replica = replica.broker(leader, self._live, now, self._max_age_s, needs_leader=needs_leader)
        if replica is AT_LEADER:
            self.replicas.pop(partition, None)
        else:
            self.replicas[partition] = replica
        rack = self.config.client_rack or ""
        return Source(broker, follows=broker != leader, rack=rack if replica.may_move(now) else "")

    def named(self, partition: TopicPartition, broker: int) -> None:
        """Read a partition from the broker of this id, which its leader has named."""
        self.replicas[partition] = AT_LEADER.named(broker, time.monotonic(), self._max_age_s)

    def follower_failed(self, partition: TopicPartition) -> None:
        """Read a partition from its leader for a while."""
        self.replicas[partition] = AT_LEADER.failed(time.monotonic(), self._max_age_s)

    @property
    def _max_age_s(self) -> float:
        return self.config.metadata_max_age_ms / 1000

    def forget_leaders(self, partitions: Iterable[TopicPartition], fenced: Mapping[TopicPartition, int]) -> None:
        """Ask for these leaders again; those of ``fenced`` have refused these epochs as older than theirs."""
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
                self._in_use += 1
                return pooled
            pooled.connection.close()
        for surplus in self.take_surplus(self.most - self._in_use - 1):
            surplus.close()
        self.limit_others(self.most - self._in_use - len(self._idle()) - 1)
        connection = BrokerConnection.from_config(broker, self.config)
        connection.connect()
        self._in_use += 1
        return PooledConnection(connection)

    def return_connection(self, broker: Broker, pooled: PooledConnection) -> None:
        """Return a connection to the pool; no answer may be awaited on it."""
        self._in_use -= 1
        pooled.reused = True
        pooled._idle_since = time.monotonic()
        self._idle_connections.setdefault(broker, []).append(pooled)

    def discard_connection(self, pooled: PooledConnection) -> None:
        """Close a connection that was taken and cannot be used again."""
        self._in_use -= 1
        pooled.connection.close()

    def idle_since(self) -> list[float]:
        """Since when each open connection is idle while no reading uses this, the longest time first."""
        since = [pooled._idle_since for _, pooled in self._idle()]
        return sorted([*since, self.used_at] if self._client is not None else since)

    def take_surplus(self, most: int) -> list[BrokerConnection]:
        """Remove idle connections, those that were idle for the longest time, and return them to be closed.

        Args:
            most: how many may stay.
        """
        return self._take(sorted(self._idle(), key=_since)[: max(0, len(self._idle()) - max(0, most))])

    def take_idle(self, before: float) -> list[BrokerConnection | BrokerClient]:
        """Remove what was idle since before a time, and return it to be closed; no reading may use this."""
        taken: list[BrokerConnection | BrokerClient] = []
        taken += self._take([(broker, pooled) for broker, pooled in self._idle() if pooled._idle_since <= before])
        if self._client is not None and self.used_at <= before:
            taken.append(self._client)
            self._client = None
        return taken

    def close(self) -> None:
        """Close the idle connections and that of the metadata client."""
        for connection in self.take_idle(math.inf):
            connection.close()

    def _idle(self) -> list[tuple[Broker, PooledConnection]]:
        return [(broker, pooled) for broker, idle in self._idle_connections.items() for pooled in idle]

    def _take(self, chosen: Iterable[tuple[Broker, PooledConnection]]) -> list[BrokerConnection]:
        taken = []
        for broker, pooled in chosen:
            of_broker = self._idle_connections[broker]
            of_broker.remove(pooled)
            if not of_broker:
                del self._idle_connections[broker]
            taken.append(pooled.connection)
        return taken


def _since(idle: tuple[Broker, PooledConnection]) -> float:
    return idle[1]._idle_since
