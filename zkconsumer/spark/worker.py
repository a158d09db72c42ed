"""The state that a Spark Python worker keeps between tasks: connections and decoders.

Spark reuses worker processes (``spark.python.worker.reuse``), one task at a time in each, so this module's state
survives between micro-batches. A task takes connections and decoders from here and returns those that can be reused.

A connection belongs to one set of options, since it was opened and logged in with them. A decoder can be used for any
query: it is kept for its memory, since the first access to new memory costs more than filling it.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.spark.daemonworker import is_first_task, jvm_socket
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import is_refusal
from zkconsumer.wire.refusals import DESCRIBE, topic_refused
from zkconsumer.wire.rules.leaderepochs import KnownEpochs

_NO_EPOCHS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})
_IDLE_LIMIT_S = 60.0
"""Limit of the idle time of connections in seconds: brokers (and firewalls) silently drop older ones."""


@dataclass
class PooledConnection:
    """A connection to one broker, with its state between tasks; one thread uses it at a time.

    Attributes:
        connection: connected.
        bytes_per_offset: from the newest answer of each partition; used to choose the request size of the next batch.
        reused: True if an earlier task has used the connection, so it may be broken.
    """

    connection: BrokerConnection
    bytes_per_offset: dict[TopicPartition, float] = field(default_factory=dict)
    reused: bool = False
    _idle_since: float = 0.0


@dataclass
class Worker:
    """Idle connections, leaders and the metadata client for one set of options. Used by the task thread only.

    Attributes:
        used_at: start of the newest task that uses it, by ``time.monotonic``.
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
            if time.monotonic() - pooled._idle_since < _IDLE_LIMIT_S:
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


_workers: dict[ConsumerConfig, Worker] = {}
_spare_decoders: dict[DecoderSettings, list[BatchDecoder]] = {}


def this_worker(config: ConsumerConfig, workers: dict[ConsumerConfig, Worker] = _workers) -> Worker:
    """The state of this process for these options; closes the state of other queries that is unused for long."""
    now = time.monotonic()
    for other_config, worker in list(workers.items()):
        if other_config != config and now - worker.used_at >= _IDLE_LIMIT_S:
            worker.close()
            del workers[other_config]
    worker = workers.setdefault(config, Worker(config))
    worker.used_at = now
    return worker


@contextmanager
def borrowed_decoder(settings: DecoderSettings, columns: tuple[str, ...]) -> Iterator[BatchDecoder]:
    """A decoder for exclusive use, whose batches have these columns."""
    spare = _spare_decoders.setdefault(settings, [])
    decoder = spare.pop() if spare else BatchDecoder(settings)
    decoder.choose_columns(columns)
    try:
        yield decoder
    finally:
        spare.append(decoder)


def acknowledge_quickly() -> None:
    """Make the kernel acknowledge data of the JVM on this worker's socket at once.

    Spark 4.2 writes a task in two pieces and, with Nagle's algorithm on, sends the second only when the first is
    acknowledged; the worker's kernel delays that by 40 ms, in every task (notes.md#cost-of-sparks-tasks). The kernel
    resets the option, so each task sets it for the next one. Spark 4.3 sends one piece, where it has no effect.
    """
    jvm = jvm_socket()
    # A Unix socket does not have the option, nor do other kernels than Linux.
    if jvm is not None and jvm.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_QUICKACK"):
        with suppress(OSError):  # the JVM has closed the connection: it will not send another task
            jvm.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def collect_less() -> None:
    """Exclude existing objects from garbage collections: modules, which never become garbage.

    A worker collects after each task, and traversing them takes 60 ms of a core. To be called at the end of a task,
    when all modules are loaded.

    It has an effect only in the first task of a worker. Later the objects of earlier tasks would be excluded too, and
    cycles among them would never be freed.
    """
    if is_first_task():
        gc.collect()
        gc.freeze()
