"""BrokerClient: the requests of low rate: who leads which partition, which offsets exist.

The messages are encoded by kafka-python; this module chooses versions, picks brokers and translates errors.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self, TypeVar

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ConfigError, ProtocolError
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.errorcodes import ErrorCode
from zkconsumer.kafka.isolation import ISOLATION_LEVELS, READ_UNCOMMITTED
from zkconsumer.kafka.library import load_kafka_python
from zkconsumer.kafka.security import PLAINTEXT, BrokerSecurity
from zkconsumer.model import Broker, TopicPartition

LATEST: Final = -1
"""Timestamp that stands for the log end offset in :func:`list_offsets`."""
EARLIEST: Final = -2
"""Timestamp that stands for the log start offset in :func:`list_offsets`."""

_METADATA_VERSIONS: Final = (0, 12)
_LIST_OFFSETS_VERSIONS: Final = (0, 7)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Metadata:
    """What one broker knows about some topics.

    Attributes:
        brokers: live brokers by id, with the address for the listener that was asked.
        controller: id of the controller, or None where the broker does not tell.
        leaders: the leader of each partition that has one.
        leaderless: partitions without a usable leader, with the protocol's error code.
        failed_topics: topics that the broker cannot describe (unknown, not allowed), with the error code.
    """

    brokers: Mapping[int, Broker]
    controller: int | None
    leaders: Mapping[TopicPartition, Broker]
    leaderless: Mapping[TopicPartition, int]
    failed_topics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Answer to a look-up of offsets.

    Attributes:
        found: the offset of each partition; None where no record has the wanted timestamp or a later one.
        errors: error code of each partition that could not be answered.
    """

    found: dict[TopicPartition, int | None] = field(default_factory=dict)
    errors: dict[TopicPartition, int] = field(default_factory=dict)


def fetch_metadata(connection: BrokerConnection, topics: Collection[str]) -> Metadata:
    """Ask one broker about ``topics``, without letting it create those that do not exist.

    Brokers before 0.11 do not know that option and create them where ``auto.create.topics.enable`` is on (SPEC 15.10).

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: malformed answer or no common version.
    """
    load_kafka_python()
    from kafka.protocol.metadata import MetadataRequest

    version = connection.version(MetadataRequest.API_KEY, MetadataRequest.name, *_METADATA_VERSIONS)
    request = MetadataRequest(
        version=version,
        topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
    )
    response = connection.call(request)
    brokers = {broker.node_id: Broker(broker.node_id, broker.host, broker.port) for broker in response.brokers}
    leaders: dict[TopicPartition, Broker] = {}
    leaderless: dict[TopicPartition, int] = {}
    failed: dict[str, int] = {}
    for topic in response.topics:
        if topic.error_code:
            failed[topic.name] = topic.error_code
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            leader = brokers.get(partition.leader_id)
            # REPLICA_NOT_AVAILABLE tells about followers: the leader in the same answer is good (as clients agree).
            if leader is not None and partition.error_code in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                leaders[key] = leader
            else:
                leaderless[key] = partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE
    controller = response.controller_id if version >= 1 and response.controller_id >= 0 else None
    return Metadata(brokers, controller, leaders, leaderless, failed)


def list_offsets(
    connection: BrokerConnection, wanted: Mapping[TopicPartition, int], *, isolation: str = READ_UNCOMMITTED
) -> Offsets:
    """Ask the leader of all ``wanted`` partitions for offsets, in one request.

    Args:
        connection: to that leader.
        wanted: per partition a timestamp in ms since the epoch, :data:`LATEST` or :data:`EARLIEST`. Brokers before
            0.10.1 find timestamps only to the granularity of a log segment.
        isolation: a value of ``isolation.level``; under read_committed :data:`LATEST` is the last stable offset, which
            no open transaction lies before (KIP-98).

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: malformed answer or no common version.
    """
    load_kafka_python()
    from kafka.protocol.consumer import ListOffsetsRequest

    version = connection.version(ListOffsetsRequest.API_KEY, ListOffsetsRequest.name, *_LIST_OFFSETS_VERSIONS)
    make_topic = ListOffsetsRequest.ListOffsetsTopic
    make_partition = make_topic.ListOffsetsPartition
    topics = [
        make_topic(
            name=topic,
            partitions=[make_partition(partition_index=tp.partition, timestamp=wanted[tp]) for tp in partitions],
        )
        for topic, partitions in by_topic(wanted).items()
    ]
    response = connection.call(
        ListOffsetsRequest(version=version, isolation_level=ISOLATION_LEVELS[isolation], topics=topics)
    )
    offsets = Offsets()
    for topic in response.topics:
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                offsets.errors[key] = partition.error_code
            elif version == 0:
                offsets.found[key] = next(iter(partition.old_style_offsets), None)
            else:
                offsets.found[key] = partition.offset if partition.offset >= 0 else None
    if missing := wanted.keys() - offsets.found.keys() - offsets.errors.keys():
        raise ProtocolError(f"{connection} left {len(missing)} partitions out of its ListOffsets response")
    return offsets


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Topic to its partitions, in the order given: the shape of most requests."""
    grouped: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        grouped[partition.topic].append(partition)
    return grouped


class BrokerClient:
    """Asks a cluster, keeping one connection to each broker that it has asked.

    One thread uses a client; :meth:`close` may come from any other.

    Args:
        live_brokers: brokers to begin with, asked for again at each use; may do I/O and raise.
        client_id: sent with every request.
        timeout_ms: limit for connecting and for each answer.
        version_fallback: see :class:`BrokerConnection`.
        security: TLS and login.
        isolation: see :func:`list_offsets`.
    """

    def __init__(
        self,
        live_brokers: Callable[[], Sequence[Broker]],
        *,
        client_id: str,
        timeout_ms: int,
        version_fallback: str | None = None,
        security: BrokerSecurity = PLAINTEXT,
        isolation: str = READ_UNCOMMITTED,
    ) -> None:
        self._live_brokers = live_brokers
        self._connect = partial(
            BrokerConnection,
            client_id=client_id,
            timeout_ms=timeout_ms,
            version_fallback=version_fallback,
            security=security,
        )
        self._isolation = isolation
        self._connections: dict[Broker, BrokerConnection] = {}
        self._closed = False

    @classmethod
    def from_config(
        cls,
        live_brokers: Callable[[], Sequence[Broker]],
        config: ConsumerConfig,
        *,
        timeout_ms: int | None = None,
    ) -> Self:
        """A client as the properties ask for; ``timeout_ms`` is ``socket.timeout.ms`` unless given."""
        return cls(
            live_brokers,
            client_id=config.client_id,
            timeout_ms=timeout_ms or config.socket_timeout_ms,
            version_fallback=config.broker_version_fallback,
            security=BrokerSecurity.from_config(config),
            isolation=config.isolation_level,
        )

    def metadata(self, topics: Collection[str]) -> Metadata:
        """Ask the brokers, in random order, until one answers (SPEC 6.1).

        Raises:
            BrokerUnavailable, ConfigError: see :meth:`ask_any`.
        """
        return self.ask_any(partial(fetch_metadata, topics=topics))

    def ask_any(self, question: Callable[[BrokerConnection], T]) -> T:
        """Call ``question`` with connections to brokers in random order until one answers.

        Raises:
            BrokerUnavailable: none did; the message tells the last reason.
            AuthenticationFailed: none did, and one refused; the message tells why.
            ConfigError: a file that the settings name cannot be used.
        """
        brokers = list(self._live_brokers())
        random.shuffle(brokers)
        failure: Exception | None = None
        for broker in brokers:
            try:
                return self.ask(broker, question)
            except (BrokerUnavailable, ProtocolError) as error:
                if not isinstance(failure, AuthenticationFailed):  # that one somebody must mend
                    failure = error
        if isinstance(failure, AuthenticationFailed):
            raise AuthenticationFailed(f"none of {len(brokers)} brokers answers; one refuses: {failure}") from failure
        raise BrokerUnavailable(f"none of {len(brokers)} brokers answers; last: {failure}") from failure

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Offsets of many partitions, one request per leader; see :func:`list_offsets` for the arguments.

        Partitions that have no leader, or whose leader cannot be reached, appear among the errors.

        Raises:
            BrokerUnavailable: no broker tells who the leaders are.
        """
        answer = Offsets()
        if not wanted:
            return answer
        metadata = self.metadata({tp.topic for tp in wanted})
        by_leader: dict[Broker, dict[TopicPartition, int]] = defaultdict(dict)
        for tp, timestamp in wanted.items():
            if tp in metadata.leaders:
                by_leader[metadata.leaders[tp]][tp] = timestamp
            else:
                unknown = metadata.failed_topics.get(tp.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answer.errors[tp] = metadata.leaderless.get(tp, unknown)
        for leader, theirs in by_leader.items():
            try:
                part = self.ask(leader, partial(list_offsets, wanted=theirs, isolation=self._isolation))
            except BrokerUnavailable:
                answer.errors.update(dict.fromkeys(theirs, ErrorCode.LEADER_NOT_AVAILABLE))
            else:
                answer.found.update(part.found)
                answer.errors.update(part.errors)
        return answer

    def close(self) -> None:
        """Close all connections; a call that is under way ends with BrokerUnavailable. Harmless when repeated."""
        self._closed = True
        for connection in list(self._connections.values()):
            connection.close()

    def ask(self, broker: Broker, question: Callable[[BrokerConnection], T]) -> T:
        """Call ``question`` with a connection to ``broker``, once more with a new one if an old one broke.

        Raises:
            BrokerUnavailable: the broker cannot be reached, or this client is closed.
            AuthenticationFailed: the broker refuses us, or we do not trust it.
            ConfigError: a file that the settings name cannot be used.
            ProtocolError: the broker's answer makes no sense.
        """
        connection = self._connections.get(broker)
        if connection is not None:
            try:
                return question(connection)
            except BrokerUnavailable:
                del self._connections[broker]  # brokers hang up on idle connections; a new one may well work
        connection = self._connect(broker.host, broker.port)
        self._connections[broker] = connection
        # After the connection is in the table: either this line sees the flag, or close() sees the connection.
        if self._closed:
            raise BrokerUnavailable("this client is closed")
        try:
            connection.connect()
            return question(connection)
        except (BrokerUnavailable, ConfigError, ProtocolError):
            connection.close()
            self._connections.pop(broker, None)
            raise
