"""KafkaCluster: topics and records of a cluster, however its servers were started."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from typing import Final

from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox.admin import create_topics
from zkconsumer.sandbox.producer import Record, produce
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient

_TIMEOUT_MS: Final = 30_000


class KafkaCluster:
    """A cluster in ZooKeeper mode.

    Args:
        zookeeper_connect: what consumers use as ``zookeeper.connect``.
        bootstrap_servers: ``host:port`` of its brokers, separated by commas.

    Attributes:
        zookeeper_connect: as given.
        bootstrap_servers: as given.
    """

    def __init__(self, zookeeper_connect: str, bootstrap_servers: str) -> None:
        self.zookeeper_connect = zookeeper_connect
        self.bootstrap_servers = bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1, *, replication: int = 1) -> None:
        """Create a topic and return when its leaders serve it; one that exists is left as it is.

        Raises:
            BrokerUnavailable: no leaders in time.
            ProtocolError: the brokers refuse; the message has their reason.
        """
        with closing(BrokerClient(self._brokers, client_id="zkconsumer-testing", timeout_ms=_TIMEOUT_MS)) as client:
            create_topics(client, {name: partitions}, replication_factor=replication)

    def produce(self, topic: str, values: Iterable[bytes | Record], *, partition: int = 0) -> int:
        """Append records to a partition, and return the offset of the first when all replicas have them.

        Values have the present time, so that no broker deletes them for their age.

        Raises:
            BrokerUnavailable: the leader cannot be reached.
            ProtocolError: the brokers refuse.
        """
        now_ms = int(time.time() * 1000)
        records = [value if isinstance(value, Record) else Record(value, timestamp=now_ms) for value in values]
        target = TopicPartition(topic, partition)
        return produce(self._brokers, {target: records}, timeout_ms=_TIMEOUT_MS)[target]

    def _brokers(self) -> tuple[Broker, ...]:
        return bootstrap_brokers(self.bootstrap_servers)
