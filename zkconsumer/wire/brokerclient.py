"""BrokerClient: the low-rate requests: leaders of partitions, and offsets of logs.

``metadatamessages.py`` and ``listoffsetsmessages.py`` encode and decode the messages. This module chooses the brokers
to send them to, and caches leaders.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self, TypeVar

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, ProtocolError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.apiversions import LIST_OFFSETS, METADATA
from zkconsumer.wire.brokercontacts import BrokerContacts
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.epochendmessages import EpochEnds, EpochQuestion, epoch_ends
from zkconsumer.wire.errorcodes import LEADER_MOVED, ErrorCode
from zkconsumer.wire.fetchmessages import FetchedPartition, receive_fetch, send_fetch
from zkconsumer.wire.fetchsession import PartitionFetch, SessionStep, without_session
from zkconsumer.wire.isolation import READ_UNCOMMITTED
from zkconsumer.wire.listoffsetsmessages import LIST_OFFSETS_VERSIONS, Offsets, decode_list_offsets, encode_list_offsets
from zkconsumer.wire.metadatamessages import (
    METADATA_VERSIONS,
    TOPIC_ID_VERSIONS,
    Metadata,
    decode_metadata,
    encode_metadata,
    has_topic_ids,
)
from zkconsumer.wire.rules.leaderepochs import KnownEpochs

LATEST: Final = -1
"""Timestamp that stands for the log end offset in :func:`list_offsets`."""
EARLIEST: Final = -2
"""Timestamp that stands for the log start offset in :func:`list_offsets`."""

T = TypeVar("T")


def fetch_metadata(connection: BrokerConnection, topics: Collection[str] | None) -> Metadata:
    """Ask one broker for the metadata of ``topics``, or (None) of all, without letting it create missing ones.

    Brokers before 0.11 do not have that option and create them if ``auto.create.topics.enable`` is on
    (jvm-consumer.md#defects).

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: malformed answer or no common version.
    """
    version = metadata_version(connection)
    body, decode = encode_metadata(version, topics), partial(decode_metadata, version)
    return connection.exchange(METADATA, version, body, decode, flexible=has_topic_ids(version))


def metadata_version(connection: BrokerConnection) -> int:
    """The version of Metadata to use: one with the ids of topics if the broker supports it.

    Raises:
        ProtocolError: there is no common version.
    """
    version = connection.version(METADATA, "Metadata", METADATA_VERSIONS[0], TOPIC_ID_VERSIONS[1])
    return version if has_topic_ids(version) else min(version, METADATA_VERSIONS[1])


def list_offsets(
    connection: BrokerConnection,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: str = READ_UNCOMMITTED,
    epochs: Mapping[TopicPartition, int] | None = None,
) -> Offsets:
    """Ask the leader of all ``wanted`` partitions for offsets, in one request.

    Args:
        connection: connection to that leader.
        wanted: per partition a timestamp in ms since the epoch, :data:`LATEST` or :data:`EARLIEST`. Brokers before
            0.10.1 find timestamps only to the granularity of a log segment.
        isolation: a value of ``isolation.level``; under read_committed :data:`LATEST` is the last stable offset, before
            which there is no open transaction (KIP-98).
        epochs: the leader epoch of each partition, as far as known: a broker that leads in another one refuses.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: malformed answer or no common version.
    """
    version = connection.version(LIST_OFFSETS, "ListOffsets", *LIST_OFFSETS_VERSIONS)
    body = encode_list_offsets(version, wanted, isolation=isolation, epochs=epochs or {})
    offsets = connection.exchange(LIST_OFFSETS, version, body, partial(decode_list_offsets, version))
    if missing := wanted.keys() - offsets.found.keys() - offsets.errors.keys():
        raise ProtocolError(f"{connection} sent a ListOffsets response without {len(missing)} requested partitions")
    return offsets


class BrokerClient(BrokerContacts):
    """Asks a cluster for leaders and for offsets; see :class:`BrokerContacts` for how brokers are asked.

    Leaders are asked at the same time, on threads of their own.

    Args:
        live_brokers: see :class:`BrokerContacts`.
        isolation: see :func:`list_offsets`.
        epochs: the known epochs of leaders, if they outlast this client; only its thread uses them.
        settings: see :class:`BrokerContacts`.
    """

    def __init__(
        self,
        live_brokers: Callable[[], Sequence[Broker]],
        *,
        isolation: str = READ_UNCOMMITTED,
        epochs: KnownEpochs | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(live_brokers, **settings)
        self._isolation = isolation
        self._leaders: dict[TopicPartition, Broker] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._known_epochs = epochs or KnownEpochs()

    @classmethod
    def from_config(
        cls,
        live_brokers: Callable[[], Sequence[Broker]],
        config: ConsumerConfig,
        *,
        timeout_ms: int | None = None,
        epochs: KnownEpochs | None = None,
        pool: ConnectionPool | None = None,
        waits_long: bool = False,
    ) -> Self:
        """Create a client from the consumer's properties; ``timeout_ms`` is ``socket.timeout.ms`` unless given."""
        return cls(
            live_brokers,
            client_id=config.client_id,
            timeout_ms=timeout_ms or config.socket_timeout_ms,
            version_fallback=config.broker_version_fallback,
            security=BrokerSecurity.from_config(config),
            isolation=config.isolation_level,
            epochs=epochs,
            pool=pool,
            waits_long=waits_long,
        )

    def metadata(self, topics: Collection[str]) -> Metadata:
        """Ask brokers for metadata until one answers (jvm-consumer.md#threads); for the order see :func:`asking_order`.

        A leader of an earlier epoch than an earlier answer named is outdated, and so no leader (KIP-320). The epochs
        in the result are those to name in requests to the leaders.

        Raises:
            BrokerUnavailable, ConfigError: see :meth:`ask_any`.
        """
        metadata = self.ask_any(partial(fetch_metadata, topics=topics))
        now, known = time.monotonic(), self._known_epochs
        outdated = {
            partition
            for partition, epoch in metadata.epochs.items()
            if not known.accept(partition, metadata.topic_ids.get(partition.topic), epoch, now)
        }
        return replace(
            metadata,
            leaders={p: leader for p, leader in metadata.leaders.items() if p not in outdated},
            leaderless={**metadata.leaderless, **dict.fromkeys(outdated, ErrorCode.UNKNOWN_LEADER_EPOCH)},
            epochs={partition: known.to_name(partition, now) for partition in metadata.epochs},
        )

    def fenced(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Note that the leaders refused these epochs, which :meth:`metadata` returned, as older than theirs."""
        now = time.monotonic()
        for partition, epoch in epochs.items():
            self._known_epochs.fenced(partition, epoch, now)

    def list_offsets(self, wanted: Mapping[TopicPartition, int], isolation: str | None = None) -> Offsets:
        """Offsets of many partitions, one request per leader; see :func:`list_offsets` for the arguments.

        ``isolation`` is that of this client if it is None.

        Leaders are cached. If a leader is unknown, does not answer or does not lead any more, the brokers are asked for
        the leaders, and the request is repeated once, unless the leader is still one that did not answer in time.
        Partitions without a leader, or with an unreachable one, appear among the errors.

        All leaders are asked at the same time. So however many do not answer, they cost one timeout together.

        Raises:
            BrokerUnavailable: no broker answers the request for the leaders.
            ProtocolError: a leader's answer is malformed.
        """
        question = partial(self._list_offsets, isolation=isolation or self._isolation)
        began = time.monotonic()
        first = self._ask_remembered(question, wanted)
        unasked = ErrorCode.LEADER_NOT_AVAILABLE
        left = {
            partition: timestamp
            for partition, timestamp in wanted.items()
            if partition not in first.found and first.errors.get(partition, unasked) in LEADER_MOVED
        }
        if not left:
            return first
        leaderless = self._learn_leaders(left)
        again = self._ask_leaders(question, left, began)
        refused = {partition: code for partition, code in first.errors.items() if partition not in left}
        errors = refused | leaderless | again.errors
        return Offsets(first.found | again.found, errors, again.causes, first.epochs | again.epochs)

    def _ask_remembered(self, question: Callable[..., Offsets], wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Ask the leaders that are known and connected; other leaders' partitions are missing in the answer.

        A broken connection is not replaced here: the broker may have moved, and another one may have its address.
        """
        connected = {
            leader: partial(question, wanted=of_leader)
            for leader, of_leader in self._by_leader(wanted).items()
            if self._pool.has((leader.host, leader.port))
            and not (self._silent and (leader.host, leader.port) in self._silent)
        }
        answer = Offsets()
        for leader, outcome in self._ask_together(connected, self._ask_connected).items():
            if isinstance(outcome, BrokerUnavailable | ProtocolError):
                self._note(leader, outcome)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                answer.add(outcome)
        return answer

    def _ask_leaders(
        self, question: Callable[..., Offsets], wanted: Mapping[TopicPartition, int], since: float
    ) -> Offsets:
        """Ask the known leaders; partitions of leaders that cannot be asked are errors, with the cause.

        So are those of leaders that were asked before, at or after ``since``, and did not answer in time.
        """
        answer = Offsets()
        questions = {}
        for leader, of_leader in self._by_leader(wanted).items():
            if (error := self._silence(leader, since)) is None:
                questions[leader] = partial(question, wanted=of_leader)
            else:
                _add_unavailable(answer, of_leader, error)
        for leader, outcome in self._ask_together(questions, self.ask).items():
            if isinstance(outcome, Offsets):
                answer.add(outcome)
            elif isinstance(outcome, BrokerUnavailable):
                _add_unavailable(answer, questions[leader].keywords["wanted"], str(outcome))
            else:
                raise outcome
        return answer

    def _list_offsets(
        self, connection: BrokerConnection, *, wanted: Mapping[TopicPartition, int], isolation: str
    ) -> Offsets:
        """Ask a leader, also one of a later epoch than known: its answer is newer, and has its epoch."""
        ask = partial(list_offsets, connection, isolation=isolation)
        answer = ask(wanted, epochs=self._leader_epochs)
        fenced = [partition for partition, code in answer.errors.items() if code == ErrorCode.FENCED_LEADER_EPOCH]
        return answer.updated(ask({partition: wanted[partition] for partition in fenced})) if fenced else answer

    def epoch_ends(self, wanted: Mapping[TopicPartition, EpochQuestion]) -> EpochEnds:
        """Ask the leaders that :meth:`list_offsets` has asked where the log of an epoch ends.

        Partitions whose leader does not answer are missing in the result.

        Raises:
            ProtocolError: a leader's answer is malformed.
        """
        answer = EpochEnds()
        by_leader = self._by_leader(wanted)
        questions = {leader: partial(epoch_ends, wanted=of_leader) for leader, of_leader in by_leader.items()}
        for outcome in self._ask_together(questions, self.ask).values():
            if isinstance(outcome, EpochEnds):
                answer.add(outcome)
            elif not isinstance(outcome, BrokerUnavailable):
                raise outcome
        return answer

    def records_at(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        partition_bytes: int,
        all_bytes: int,
        within_s: float = math.inf,
    ) -> list[FetchedPartition]:
        """Ask the leaders that :meth:`list_offsets` has asked for records from these offsets on, as they are stored.

        Partitions whose leader does not answer, or does not know the request, are missing in the result.

        Args:
            offsets: by partition.
            partition_bytes: about so many of each partition.
            all_bytes: of one leader; it sends one batch at least, also if that is larger (KIP-74).
            within_s: how long to wait at most, in seconds, if that is less than the timeout.
        """
        questions = {}
        for leader, of_leader in self._by_leader(offsets).items():
            step = without_session(PartitionFetch(*p, offset, partition_bytes) for p, offset in of_leader.items())
            questions[leader] = partial(self._fetch_once, step=step, all_bytes=all_bytes)
        answers: list[FetchedPartition] = []
        for outcome in self._ask_together(questions, self.ask, within_s).values():
            if isinstance(outcome, list):
                answers += outcome
            elif not isinstance(outcome, BrokerUnavailable | ProtocolError):
                raise outcome
        return answers

    def _fetch_once(self, connection: BrokerConnection, step: SessionStep, all_bytes: int) -> list[FetchedPartition]:
        limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": all_bytes}
        asked = send_fetch(connection, step, isolation=self._isolation, rack="", **limits)
        return receive_fetch(connection, asked, isolation=self._isolation)

    def _by_leader(self, wanted: Mapping[TopicPartition, T]) -> dict[Broker, dict[TopicPartition, T]]:
        """The known leaders, and what to ask each for."""
        questions: dict[Broker, dict[TopicPartition, T]] = defaultdict(dict)
        for partition, question in wanted.items():
            leader = self._leaders.get(partition)
            if leader is not None:
                questions[leader][partition] = question
        return questions

    def _learn_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask brokers for the leaders of partitions, and forget the cached ones of their topics.

        Returns:
            Error codes of the partitions without a leader.
        """
        topics = {partition.topic for partition in partitions}
        metadata = self.metadata(topics)
        leaders = {partition: leader for partition, leader in self._leaders.items() if partition.topic not in topics}
        self._leaders = {**leaders, **metadata.leaders}
        epochs = {partition: epoch for partition, epoch in self._leader_epochs.items() if partition in leaders}
        self._leader_epochs = {**epochs, **metadata.epochs}
        return {p: metadata.why_leaderless(p) for p in partitions if p not in self._leaders}

    def forget_leaders(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the leaders of partitions, so that the next request for them asks for the leaders first.

        A broker that is cut off from the controller does not know that it lost the leadership, and answers as before.
        """
        for partition in partitions:
            self._leaders.pop(partition, None)


def _add_unavailable(answer: Offsets, partitions: Iterable[TopicPartition], cause: str) -> None:
    """Add partitions whose leader cannot be asked."""
    partitions = list(partitions)
    answer.errors.update(dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE))
    answer.causes.update(dict.fromkeys(partitions, cause))
