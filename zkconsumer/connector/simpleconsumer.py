"""SimpleConsumer: a client of one broker, for tools that read known partitions without a group.

See jvm-consumer.md#simpleconsumer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NoReturn, Self, TypeVar

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.config.serveraddresses import server_address
from zkconsumer.connector.versionzerorequests import commit_through_broker, fetch_through_broker, segment_offsets
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import (
    LeaderUnknown,
    NotLeader,
    OffsetOutOfRange,
    OffsetsNotStored,
    ProtocolError,
    RetriableError,
    TopicUnreadable,
)
from zkconsumer.model import Broker, Message, TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.storedoffsets import unmarked
from zkconsumer.wire.brokerclient import EARLIEST, LATEST, BrokerClient, fetch_metadata, list_offsets
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name, is_refusal, verdict_on
from zkconsumer.wire.fetchmessages import FetchedPartition, receive_fetch, send_fetch
from zkconsumer.wire.fetchsession import PartitionFetch, without_session
from zkconsumer.wire.metadatamessages import Metadata
from zkconsumer.wire.refusals import DESCRIBE, READ, topic_refused
from zkconsumer.wire.rules.fetchanswers import UNDECODABLE, Faults, Verdict, next_size

if TYPE_CHECKING:
    import pyarrow as pa

    from zkconsumer.decode.batchdecoder import BatchDecoder, DecodedChunk
    from zkconsumer.decode.records import Records

Storage = Literal["zookeeper", "kafka"]

_UNKNOWN_ID: Final = -1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Answer to one fetch.

    Attributes:
        records: the records; None if there are none yet.
        next_offset: the offset to fetch next, after control records and gaps, too.
        high_watermark: the offset after the last record that consumers may read.
    """

    records: Records | None
    next_offset: int
    high_watermark: int

    @property
    def batch(self) -> pa.RecordBatch | None:
        """The records as a ``pyarrow.RecordBatch`` with headers; None if there are none yet."""
        from zkconsumer.decode.arrow import batch_of

        return None if self.records is None else batch_of(self.records)

    def __iter__(self) -> Iterator[Message]:
        """The records as messages, in order."""
        from zkconsumer.decode.messages import records

        return iter(()) if self.records is None else records(self.records)


class SimpleConsumer:
    """A client of one broker; a context manager that closes its connections on exit. One thread uses it.

    Like the original, it connects on first use, repeats a request once if an old connection broke, and does not look
    for leaders: asking a broker that does not lead a partition is an error, which names the leader. Unlike the
    original, it finds the coordinator of a group by itself, and reports errors as exceptions.

    Args:
        host: name or address of the broker.
        port: port of a listener for the security protocol.
        client_id: sent with every request.
        timeout_ms: limit for connecting and for each answer, in ms.
        config: replaces ``client_id`` and ``timeout_ms``, and specifies all other settings for brokers:
            ``isolation.level``, ``check.crcs``, ``broker.version.fallback`` and more.

    Attributes:
        EARLIEST: stands for the log start offset where a time is expected.
        LATEST: stands for the log end offset where a time is expected.
    """

    EARLIEST: ClassVar = EARLIEST
    LATEST: ClassVar = LATEST

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "zkconsumer",
        timeout_ms: int = 30_000,
        config: ConsumerConfig | None = None,
    ) -> None:
        if config is None:
            config = ConsumerConfig.without_group(
                bootstrap_servers=server_address(host, port), client_id=client_id, socket_timeout_ms=timeout_ms
            )
        self._config = config
        self._broker = Broker(_UNKNOWN_ID, host, port)
        self._client = BrokerClient.from_config(lambda: [self._broker], config)
        self._decoder: BatchDecoder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the object cannot be used afterwards. Idempotent, from any thread."""
        self._client.close()

    # -- topics and records -------------------------------------------------------------------------------------

    def metadata(self, *topics: str) -> Metadata:
        """Brokers, and the leaders of the topics' partitions.

        Raises:
            BrokerUnavailable: the broker does not answer, or this consumer is closed. All other methods raise it too.
            ProtocolError: the answer is malformed. All other methods raise it too.
        """
        return self._ask(lambda connection: fetch_metadata(connection, topics))

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
    ) -> FetchedRecords:
        """Records from ``offset`` on.

        Args:
            partition: the partition to fetch; this broker should lead it.
            offset: the first offset to return.
            max_bytes: approximate limit. Brokers from 0.10.1 on exceed it for a first record that is larger.
            max_wait_ms: how long the broker may wait for ``min_bytes``, in ms.
            min_bytes: the broker answers as soon as it has this many bytes.

        Raises:
            OffsetOutOfRange: the partition does not hold that offset; see :meth:`earliest` and :meth:`latest`.
            NotLeader: another broker leads the partition.
            LeaderUnknown: no broker leads the partition, or it does not exist.
            TopicUnreadable: the broker refuses to serve the topic; TopicAuthorizationFailed if a permission is missing.
            RecordTooLarge: the broker is older than 0.10.1, and the record at ``offset`` is longer than ``max_bytes``;
                or the batch is larger than ``decompressed.max.bytes`` once decompressed.
            CorruptRecord: the bytes at ``offset`` cannot be read. Both are raised when the bytes have been requested
                again, twice.
        """

        def ask(connection: BrokerConnection) -> tuple[int, int, int, DecodedChunk | None]:
            wanted = without_session([PartitionFetch(*partition, offset, max_bytes)])
            isolation = self._config.isolation_level
            limits = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
            correlation_id = send_fetch(connection, wanted, isolation=isolation, rack="", **limits)
            answers = receive_fetch(connection, correlation_id, isolation=isolation)
            answer = next((fetched for fetched in answers if (fetched.topic, fetched.partition) == partition), None)
            if answer is None:
                raise ProtocolError(f"{connection} sent a Fetch response without {partition}")
            if answer.error:
                return answer.error, 0, 0, None
            chunk = self._decode(partition, offset, answer)
            return answer.error, answer.readable_end(isolation), len(answer.records), chunk

        faults = Faults()
        while True:
            try:
                code, high_watermark, received, chunk = self._ask(ask)
                if chunk is None:
                    self._refuse(partition, code, f"fetch from offset {offset}", READ)
                if chunk.next_offset == offset:
                    next_size(partition, offset, received, max_bytes, max_bytes, is_first=True, limit="max_bytes")
                return FetchedRecords(chunk.records, chunk.next_offset, high_watermark)
            except UNDECODABLE as error:
                faults = faults.after(offset, error)
                if faults.are_believed:
                    raise

    def _decode(self, partition: TopicPartition, offset: int, answer: FetchedPartition) -> DecodedChunk:
        if self._decoder is None:
            from zkconsumer.decode.batchdecoder import BatchDecoder

            self._decoder = BatchDecoder(DecoderSettings.from_config(self._config), headers=True)
        return self._decoder.decode(*partition, offset, answer.records, answer.aborted, answer.high_watermark)

    # -- offsets of a log ---------------------------------------------------------------------------------------

    def earliest(self, partition: TopicPartition) -> int:
        """The offset of the first record.

        Raises: NotLeader, LeaderUnknown and TopicUnreadable as :meth:`fetch`.
        """
        return self._log_offset(partition, EARLIEST)

    def latest(self, partition: TopicPartition) -> int:
        """The offset that the next record will have. Raises the same as :meth:`earliest`."""
        return self._log_offset(partition, LATEST)

    def offsets_before(self, partition: TopicPartition, timestamp_ms: int, max_offsets: int = 1) -> list[int]:
        """First offsets of the log segments that were last modified at or before a time, newest first.

        The granularity is a whole segment: records of that time and older ones are at these offsets or after them.

        Args:
            partition: which one.
            timestamp_ms: ms since the epoch, or ``SimpleConsumer.LATEST``, which puts the log end offset first, or
                ``SimpleConsumer.EARLIEST``, which returns the log start offset only.
            max_offsets: maximum number of offsets.

        Raises: the same as :meth:`earliest`.
        """
        error, offsets = self._ask(lambda connection: segment_offsets(connection, partition, timestamp_ms, max_offsets))
        if error:
            self._refuse(partition, error, "looking up offsets")
        return offsets

    def _log_offset(self, partition: TopicPartition, timestamp: int) -> int:
        isolation = self._config.isolation_level
        answer = self._ask(lambda connection: list_offsets(connection, {partition: timestamp}, isolation=isolation))
        offset = answer.found.get(partition)
        if offset is None:
            self._refuse(
                partition, answer.errors.get(partition, ErrorCode.OFFSET_NOT_AVAILABLE), "looking up an offset"
            )
        return offset

    # -- offsets of a group -------------------------------------------------------------------------------------

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, storage: Storage = "zookeeper"
    ) -> None:
        """Store a group's offsets. Ownership of the partitions is not checked, so the group should not be running.

        Args:
            group: consumer group.
            offsets: next offset to consume, by partition.
            storage: ``zookeeper`` lets this broker write the znodes; ``kafka`` asks the group's coordinator.

        Raises:
            OffsetsNotStored: some offsets were refused; the message has the reasons. The others are stored.
            CoordinatorMoved: the group has no coordinator at the moment; try again.
            GroupAuthorizationFailed: a permission on the group is missing.
        """
        if storage == "zookeeper":
            outcome = self._ask(lambda connection: commit_through_broker(connection, group, offsets))
        else:
            outcome = OffsetCoordinator(self._client, group).commit(unmarked(offsets))
        if outcome.refused:
            reasons = ", ".join(f"{partition}: {error_name(code)}" for partition, code in outcome.refused.items())
            raise OffsetsNotStored(f"offsets of group {group} were not stored in {storage}: {reasons}")

    def fetch_offsets(
        self, group: str, partitions: Collection[TopicPartition], *, storage: Storage = "zookeeper"
    ) -> dict[TopicPartition, int | None]:
        """A group's stored offsets; None for a partition without one. For ``storage`` see :meth:`commit_offsets`.

        Raises:
            CoordinatorMoved: the group has no coordinator at the moment; try again.
            GroupAuthorizationFailed: a permission on the group is missing.
            TopicUnreadable: offsets of a topic are refused; TopicAuthorizationFailed if a permission is missing.
        """
        coordinator = OffsetCoordinator(self._client, group)
        if storage == "kafka":
            stored = coordinator.fetch(partitions)
            offsets = {partition: stored_offset.offset for partition, stored_offset in stored.found.items()}
            errors = stored.errors
        else:
            offsets, errors = self._ask(lambda connection: fetch_through_broker(connection, group, partitions))
        for partition, code in errors.items():
            if is_refusal(code) and storage == "kafka":
                raise coordinator.refusal(partition.topic, code)
            if is_refusal(code):
                raise self._denied(partition.topic, DESCRIBE, code)
        if errors:
            reasons = ", ".join(f"{partition}: {error_name(code)}" for partition, code in errors.items())
            raise ProtocolError(f"offsets of group {group} cannot be read from {storage}: {reasons}")
        return offsets

    # -- the broker ---------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[BrokerConnection], T]) -> T:
        return self._client.ask(self._broker, question)

    def _denied(self, topic: str, operation: str, code: int, what: str = "") -> TopicUnreadable:
        sender = f"{self._broker.host}:{self._broker.port}"
        return topic_refused(topic, code, operation, sender, self._client.security, what)

    def _refuse(self, partition: TopicPartition, code: int, what: str, operation: str = DESCRIBE) -> NoReturn:
        verdict = verdict_on(code)
        if verdict is Verdict.REFUSED:
            raise self._denied(partition.topic, operation, code, f"{what} of {partition}")
        text = f"{what} of {partition}: broker {self._broker.host}:{self._broker.port} answered {error_name(code)}"
        if verdict is Verdict.OUT_OF_RANGE:
            raise OffsetOutOfRange(f"{text}; see earliest() and latest() for the offsets that exist")
        if verdict is not Verdict.LEADER_MOVED:
            raise ProtocolError(text)
        leader = None
        with contextlib.suppress(RetriableError):
            metadata = self.metadata(partition.topic)
            leader = metadata.leaders.get(partition)
            # ListOffsets of version 0 answers UNKNOWN_TOPIC_OR_PARTITION if a permission is missing.
            failed = metadata.failed_topics.get(partition.topic, ErrorCode.NONE)
            if is_refusal(failed):
                raise self._denied(partition.topic, DESCRIBE, failed)
        if leader is None:
            raise LeaderUnknown(f"{text}, and it has no leader; check the topic's name and its brokers")
        raise NotLeader(f"{text}; the leader is {leader}", leader)
