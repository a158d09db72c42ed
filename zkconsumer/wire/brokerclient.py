"""BrokerClient: the low-rate requests: leaders of partitions, and offsets of logs.

``metadatamessages.py`` and ``listoffsetsmessages.py`` encode and decode the messages. This module chooses the brokers
to send them to, and caches leaders.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, Self, TypeVar

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ProtocolError, ZkConsumerError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.process.deadline import NO_DEADLINE, Deadline
from zkconsumer.process.together import call_together
from zkconsumer.wire.apiversions import LIST_OFFSETS, METADATA
from zkconsumer.wire.brokersecurity import PLAINTEXT, BrokerSecurity
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
from zkconsumer.wire.rules.askingorder import asking_order
from zkconsumer.wire.rules.leaderepochs import KnownEpochs

LATEST: Final = -1
"""Timestamp that stands for the log end offset in :func:`list_offsets`."""
EARLIEST: Final = -2
"""Timestamp that stands for the log start offset in :func:`list_offsets`."""

_SILENCE_S: Final = 30.0
"""For how long others are asked before a broker that did not answer in time, if any of them will do."""

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


class BrokerClient:
    """Sends requests to a cluster, and keeps one connection to each broker that it has asked, or shares it.

    One thread uses a client; any other thread may call :meth:`close`. It asks leaders on threads of their own, and
    waits for them.

    A question is part of an operation, which may have a deadline: no wait of a connection goes beyond it, and after it
    no broken connection is replaced, and no other broker asked.

    Args:
        live_brokers: returns the brokers to ask, called whenever any broker will do; may do I/O and raise.
        client_id: sent with every request.
        timeout_ms: limit for connecting and for each answer, in ms.
        version_fallback: see :class:`BrokerConnection`.
        security: TLS and login.
        isolation: see :func:`list_offsets`.
        epochs: the known epochs of leaders, if they outlast this client; only its thread uses them.
        connection: creates a connection to a host and port, not connected yet, with the settings of
            :class:`BrokerConnection`.
        pool: connections that clients with the same settings share; its own if None.
        waits_long: True if answers may take long, so that others do not wait for its connections.
    """

    def __init__(  # noqa: PLR0913 - each has its keyword and its default
        self,
        live_brokers: Callable[[], Sequence[Broker]],
        *,
        client_id: str,
        timeout_ms: int,
        version_fallback: str | None = None,
        security: BrokerSecurity = PLAINTEXT,
        isolation: str = READ_UNCOMMITTED,
        epochs: KnownEpochs | None = None,
        connection: Callable[..., BrokerConnection] = BrokerConnection,
        pool: ConnectionPool | None = None,
        waits_long: bool = False,
    ) -> None:
        self._live_brokers = live_brokers
        self._connection = partial(
            connection,
            client_id=client_id,
            timeout_ms=timeout_ms,
            version_fallback=version_fallback,
            security=security,
        )
        self._timeout_s = timeout_ms / 1000
        self._isolation = isolation
        self.security = security
        self._timeout_ms = timeout_ms
        self._pool = pool or ConnectionPool()
        self._shares = pool is not None
        self._returns = not waits_long
        self._pool.enter()
        self._in_use: dict[BrokerConnection, Broker] = {}  # each thread writes its own connections
        self._leaders: dict[TopicPartition, Broker] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._known_epochs = epochs or KnownEpochs()
        self._answered: Broker | None = None  # the last broker that answered a request for any broker
        self._silent: dict[tuple[str, int], BrokerUnavailable] | None = None  # by address, in this round
        self._silences: dict[tuple[str, int], tuple[float, str]] = {}  # when one last did not answer in time
        self._closed = False

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

    def begin_round(self) -> None:
        """From now on a broker that did not answer is not asked again until the next round begins."""
        self._silent = {}

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

    def fenced(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the leaders refused the epochs that :meth:`metadata` returned, as older than theirs."""
        now = time.monotonic()
        for partition in partitions:
            self._known_epochs.fenced(partition, now)

    def ask_any(self, question: Callable[[BrokerConnection], T], deadline: Deadline = NO_DEADLINE) -> T:
        """Call ``question`` with a connection to one broker after the other until one answers.

        Raises:
            BrokerUnavailable: no broker answered, or none in time; the message has the last reason.
            AuthenticationFailed: no broker answered, and one refused the login or certificate; the message has the
                reason.
            ConfigError: a file that the settings name cannot be used.
        """
        brokers = list(self._live_brokers())
        random.shuffle(brokers)
        failure: Exception | None = None
        asked = 0
        since = time.monotonic() - _SILENCE_S
        silent = [broker for broker in brokers if self._silence(broker, since) is not None]
        connected = {broker for broker in brokers if self._pool.has((broker.host, broker.port))}
        for broker in asking_order(brokers, connected, self._answered, silent):
            if failure is not None and deadline.passed:
                break
            asked += 1
            try:
                answer = self.ask(broker, question, deadline)
            except (BrokerUnavailable, ProtocolError) as error:
                if not isinstance(failure, AuthenticationFailed):  # that error needs an operator, so it is kept
                    failure = error
            else:
                self._answered = broker
                return answer
        if isinstance(failure, AuthenticationFailed):
            raise AuthenticationFailed(f"none of {len(brokers)} brokers answers; one refuses: {failure}") from failure
        if not brokers:
            raise BrokerUnavailable(
                "no broker is registered in ZooKeeper; check that brokers run, and zookeeper.connect; for brokers "
                "without ZooKeeper set bootstrap.servers"
            )
        late = "" if asked == len(brokers) else " in time"
        raise BrokerUnavailable(f"none of {len(brokers)} brokers answers{late}; last error: {failure}") from failure

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

    def _ask_together(
        self,
        questions: Mapping[Broker, Callable[[BrokerConnection], T]],
        ask: Callable[[Broker, Callable[[BrokerConnection], T], Deadline], T],
        within_s: float = math.inf,
    ) -> dict[Broker, T | Exception]:
        """Ask all of these brokers at the same time, and wait for all answers, at most for the timeout of one.

        At most for ``within_s`` seconds if that is less.

        Each is asked on a thread of its own, which alone uses its connection meanwhile, and its entries in the tables
        of this client.

        Returns:
            What ``ask`` returns, or the exception that it raises.
        """
        ended = False
        deadline = Deadline.after(min(self._timeout_s, within_s), lambda: math.inf if ended else time.monotonic())

        def end() -> None:
            nonlocal ended
            ended = True  # no connection is opened any more
            for broker in questions:
                self._close_used(broker)

        calls = [partial(ask, broker, question, deadline) for broker, question in questions.items()]
        return dict(zip(questions, call_together(calls, end, name="leader-question"), strict=True))

    def _ask_connected(self, broker: Broker, question: Callable[[BrokerConnection], T], deadline: Deadline) -> T:
        connection = self._take(broker, deadline)
        if connection is None:  # another client uses it, and for longer than was waited
            return self._ask_new(broker, question, deadline)
        return self._put(question, broker, connection, deadline)

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

    def close(self) -> None:
        """Close all connections that are not shared; a call in progress raises BrokerUnavailable. Idempotent."""
        was_closed, self._closed = self._closed, True
        for connection in list(self._in_use):
            connection.close()
        if not was_closed:
            self._pool.leave()

    def ask(self, broker: Broker, question: Callable[[BrokerConnection], T], deadline: Deadline = NO_DEADLINE) -> T:
        """Call ``question`` with a connection to ``broker``, and again with a new one if an old one broke.

        Raises:
            BrokerUnavailable: the broker cannot be reached, or not in time, or this client is closed.
            AuthenticationFailed: the broker refused the login or certificate, or its certificate is not trusted.
            ConfigError: a file that the settings name cannot be used.
            ProtocolError: the broker's answer is malformed.
        """
        if deadline.passed:
            raise BrokerUnavailable(f"broker {broker.host}:{broker.port}: not asked, since no time is left")
        if self._silent and (silence := self._silent.get((broker.host, broker.port))):
            raise silence
        try:
            return self._ask(broker, question, deadline)
        except BrokerUnavailable as error:
            self._note(broker, error)
            if self._silent is not None:
                self._silent[broker.host, broker.port] = error
            raise

    def _note(self, broker: Broker, error: BaseException) -> bool:
        """Note that a broker did not answer in time on a connection; False if a new connection may work."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ConnectionError | ProtocolError):
            cause = cause.__cause__
        if cause is not None or not isinstance(error, BrokerUnavailable):
            return False
        self._silences[broker.host, broker.port] = time.monotonic(), str(error)
        if self._silent is None:
            return False
        self._silent[broker.host, broker.port] = error
        return True

    def _silence(self, broker: Broker, since: float) -> str | None:
        """Why a broker did not answer in time, at that time or later; None if it did, or was not asked."""
        at, error = self._silences.get((broker.host, broker.port), (-math.inf, ""))
        return error if at >= since else None

    def _ask(self, broker: Broker, question: Callable[[BrokerConnection], T], deadline: Deadline) -> T:
        connection = self._take(broker, deadline)
        if connection is not None:
            try:
                return self._put(question, broker, connection, deadline)
            except BrokerUnavailable as error:  # brokers close idle connections; a new one may work
                if self._note(broker, error) or deadline.passed:
                    raise
        return self._ask_new(broker, question, deadline)

    def _ask_new(self, broker: Broker, question: Callable[[BrokerConnection], T], deadline: Deadline) -> T:
        connection = self._connection(broker.host, broker.port)
        self._pool.opens((broker.host, broker.port), connection, returns=self._returns)
        return self._put(question, broker, connection, deadline, is_new=True)

    def _take(self, broker: Broker, deadline: Deadline) -> BrokerConnection | None:
        connection = self._pool.take((broker.host, broker.port), deadline, returns=self._returns)
        if connection is not None and self._shares:
            connection.limit_waits(self._timeout_ms)
        return connection

    def _put(
        self,
        question: Callable[[BrokerConnection], T],
        broker: Broker,
        connection: BrokerConnection,
        deadline: Deadline,
        *,
        is_new: bool = False,
    ) -> T:
        """Connect, if it is new, call ``question``, and keep the connection unless it cannot be used again."""
        address = broker.host, broker.port
        is_connected, is_usable = not is_new, False
        self._in_use[connection] = broker
        try:
            # Checked after the connection is in the set: either this line sees the flag, or close() the connection.
            if self._closed:
                raise BrokerUnavailable("this client is closed")
            with connection.within(deadline) if deadline.exists else nullcontext():
                if is_new:
                    connection.connect()
                    is_connected = True
                answer = question(connection)
            is_usable = True
            return answer
        except (BrokerUnavailable, ProtocolError):  # the latter: its versions may be those of another release
            raise
        except ZkConsumerError:  # a refusal
            is_usable = is_connected
            raise
        finally:  # after an interrupt the rest of this answer would be read as the next one
            self._in_use.pop(connection, None)
            if is_usable:
                self._pool.give(address, connection)
            else:
                self._pool.drop(address, connection)

    def _close_used(self, broker: Broker) -> None:
        """End what is being asked of a broker."""
        for connection, of_broker in list(self._in_use.items()):
            if of_broker == broker:
                connection.close()


def _add_unavailable(answer: Offsets, partitions: Iterable[TopicPartition], cause: str) -> None:
    """Add partitions whose leader cannot be asked."""
    partitions = list(partitions)
    answer.errors.update(dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE))
    answer.causes.update(dict.fromkeys(partitions, cause))
