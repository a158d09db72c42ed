"""RangeFetcher: a thread that reads ranges from one leader, or from a follower that leaders have named (KIP-392).

Unlike a consumer's fetcher it has an end: it requests nothing beyond the ranges, so its connection is free for the next
reading when it ends, and a small micro-batch costs one round trip. Like a consumer's fetcher it only receives, and
leaves verifying and decoding to the thread that takes the records: the decoded data are in that core's cache then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode.batchdecoder import BatchDecoder, DecodedChunk, ScannedChunk
from zkconsumer.errors import (
    BrokerUnavailable,
    CorruptRecord,
    LeaderUnknown,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicUnreadable,
    name_some,
)
from zkconsumer.fetch.requestedpartitions import turn, wait_ms
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.lag import AFTER_LOG, BEFORE_LOG, outside_log
from zkconsumer.ranges.fetchedqueue import Fetched, FetchedQueue
from zkconsumer.ranges.leaderconnections import PooledConnection
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.wire.brokerclient import list_offsets
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.epochendmessages import EpochEnds, EpochQuestion, epoch_ends
from zkconsumer.wire.errorcodes import ErrorCode, error_name, is_refusal, verdict_on
from zkconsumer.wire.fetchconversation import FetchConversation
from zkconsumer.wire.fetchmessages import FetchedPartition
from zkconsumer.wire.fetchsession import PartitionFetch
from zkconsumer.wire.refusals import DESCRIBE, READ, topic_refused
from zkconsumer.wire.rules.fetchanswers import UNDECODABLE, Faults, Verdict, next_size, resume_at
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH, must_ask
from zkconsumer.wire.rules.readreplica import names_another

_log = logging.getLogger(__name__)

_PARTITION_BYTES = 4 << 20
"""Maximum bytes to request per partition: fewer, larger Arrow batches cost less per row, in Spark above all."""
_RESPONSE_BYTES = 8 << 20
"""Most bytes of a request. Memory that is reused in few blocks stays in the processor's cache: with twice as much,
reading costs a quarter more."""
_MORE = 1.125
_MORE_BYTES = 1 << 18
"""Bytes requested beyond the rest of a range, in case its records are longer than those before, and for the end of the
batch in which the range ends: an incomplete batch is useless."""


_WHY_SHORTER: Final = ". Check for an unclean leader election, or a topic that was deleted and created again"
"""What to check where a log ends before a range, unless epochs prove the reason."""

_FOLLOWERS_PATIENCE_S: Final = 3.0
"""How long a follower may have no data of a range, which the leader had when it was planned: followers lag."""


class RangeEpochs(NamedTuple):
    """Leader epochs of a range (KIP-320).

    Attributes:
        planned: the epoch in whose log its end was seen; UNKNOWN_EPOCH if unknown.
        leader: the epoch of the leader that is asked.
    """

    planned: int = UNKNOWN_EPOCH
    leader: int = UNKNOWN_EPOCH

    @property
    def needs_leader(self) -> bool:
        """True if the leader has to be asked whether its log has the range."""
        return must_ask(self.planned, self.leader)


@dataclass(frozen=True, slots=True)
class FetcherEnded:
    """The last item of a fetcher.

    Attributes:
        fetcher: the fetcher that has ended.
        left: the ranges that it did not read; empty unless there is an ``error``.
        error: the reason; a RetriableError if another leader or a retry may help.
        connection_is_reusable: True if no answer is awaited on the fetcher's connection.
    """

    fetcher: RangeFetcher
    left: dict[TopicPartition, Span]
    error: Exception | None
    connection_is_reusable: bool


_NO_EPOCHS: Final[Mapping[TopicPartition, RangeEpochs]] = MappingProxyType({})


class RangeFetcher(threading.Thread):
    """Reads its ranges to their ends and puts :class:`Fetched`, then :class:`FetcherEnded`, into the queue.

    Args:
        pooled: the connection, used only by this thread until it has ended.
        decoder: used only by this thread, too; records are received into its memory.
        broker: the broker of the connection.
        ranges: the ranges to read; the thread changes only its copy.
        queue: receives the results.
        config: properties with the limits of fetch requests.
        reader: who reads, for messages.
        fail_on_data_loss: fail if offsets are not in the log any more; otherwise skip them with a warning.
        epochs: those of the ranges, as far as known.
        response_bytes: bytes to request at a time, at most 8 MiB, or ``fetch.message.max.bytes`` if that is more; a
            larger batch comes all the same (KIP-74).
        rack: ``client.rack``, if the broker may name another one to read from; else "".
        follows: True if the broker is a follower: it answers no questions about the log, and may lag.

    Attributes:
        partitions: those of the ranges.
        checked: later epochs in whose logs ends of ranges were found; to be read when the thread has ended.
        fenced: epochs that leaders refused as older than theirs, by partition; likewise.
        named: partitions that have to be read from another broker, whose id their leader has named; likewise.
    """

    def __init__(  # noqa: PLR0913 - the last have their keywords and their defaults
        self,
        pooled: PooledConnection,
        decoder: BatchDecoder,
        broker: Broker,
        ranges: dict[TopicPartition, Span],
        queue: FetchedQueue,
        config: ConsumerConfig,
        *,
        reader: str,
        fail_on_data_loss: bool,
        epochs: Mapping[TopicPartition, RangeEpochs] = _NO_EPOCHS,
        response_bytes: int = _RESPONSE_BYTES,
        rack: str = "",
        follows: bool = False,
    ) -> None:
        super().__init__(name=f"range-fetcher-{broker.id}", daemon=True)
        self.pooled = pooled
        self._decoder = decoder
        self.broker = broker
        self.partitions = frozenset(ranges)
        self._left = dict(ranges)
        self._given_up: set[TopicPartition] = set()
        self._moved: dict[TopicPartition, tuple[Span, int]] = {}
        self._queue = queue
        self._config = config
        self._reader = reader
        self._fail_on_data_loss = fail_on_data_loss
        self._epochs = {partition: epochs.get(partition, RangeEpochs()) for partition in ranges}
        self.checked: dict[TopicPartition, int] = {}
        self.fenced: dict[TopicPartition, int] = {}
        self._response_bytes = min(
            max(min(response_bytes, _RESPONSE_BYTES), config.fetch_message_max_bytes), config.fetch_max_bytes
        )
        self.named: dict[TopicPartition, int] = {}
        self._rack = rack
        self.follows = follows
        self._grown: dict[TopicPartition, int] = {}
        self._faults: dict[TopicPartition, Faults] = {}
        self._conversation = FetchConversation(
            pooled.connection,
            decoder.memory.take,
            min_bytes=config.fetch_min_bytes,
            isolation=config.isolation_level,
            keeps_session=False,
        )
        self._stuck_since: float | None = None

    def give_up(self, partition: TopicPartition) -> None:
        """Do not read the rest of a range; from any thread. What is fetched of it until then is put all the same."""
        self._given_up.add(partition)

    def run(self) -> None:
        """Fetch until all ranges are read, the reading ends, or an error occurs."""
        error: Exception | None = None
        good = False
        try:
            good = all(self._queue.put(fetched, nbytes) for fetched, nbytes in self._fetch())
            if self._moved:
                codes = name_some([f"{p}: {error_name(code)}" for p, (_, code) in self._moved.items()])
                error = LeaderUnknown(f"{self.broker} does not serve {codes}")
        except Exception as caught:  # noqa: BLE001  the reading thread raises it
            error = caught
        moved = {partition: left for partition, (left, _) in self._moved.items()}
        self._queue.put(FetcherEnded(self, {**self._left, **moved}, error, good), 0)

    def _fetch(self) -> Iterator[tuple[Fetched, int]]:
        """Fetch the remaining ranges; yields results with sizes in bytes. Until the end an answer may be awaited."""
        self._check_epochs()
        while self._left or self._conversation.in_flight:
            for partition in tuple(self._given_up):
                self._left.pop(partition, None)
            if self._left and not self._conversation.in_flight:
                self._send({partition: span.start for partition, span in self._left.items()})
            if self._conversation.in_flight:
                yield from self._receive()

    def _check_epochs(self) -> None:
        """Find out if the leaders' logs contain the ranges, where these were planned in earlier epochs (adr/0027).

        Raises:
            OffsetOutOfRange: a log does not, and ``fail_on_data_loss`` is set.
        """
        questions = {
            partition: EpochQuestion(epochs.leader, epochs.planned)
            for partition, epochs in self._epochs.items()
            if epochs.needs_leader
        }
        answer = epoch_ends(self.pooled.connection, questions) if questions else EpochEnds()
        for partition, code in answer.errors.items():
            self._moves(partition, code)
        for partition, reason in answer.unknown.items():
            _log.warning(
                "%s: %s cannot report if %s has lost records: %s",
                self._reader,
                self.broker,
                partition,
                reason,
            )
        for partition, end in answer.found.items():
            leader, planned = questions[partition]
            if end.offset < self._left[partition].until:
                log = f"the log of leader epoch {planned}"
                self._end_at(partition, end.offset, log, ", after an unclean leader election")
            self.checked[partition] = leader

    def _moves(self, partition: TopicPartition, code: int) -> None:
        """Leave a partition to another leader, or to this one in another epoch, or when its error has passed."""
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self.fenced[partition] = self._epochs[partition].leader
        self._moved[partition] = self._left.pop(partition), code

    def _send(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Request partitions from their offsets on."""
        sizes = {partition: self._size(partition, offset) for partition, offset in wanted.items()}
        max_wait_ms, named = self._config.fetch_wait_max_ms, list(wanted)
        if not self._conversation.limits_responses:
            named = turn(sizes, min(self._response_bytes, self._config.queued_max_bytes))
            max_wait_ms = wait_ms(max_wait_ms, len(named), len(wanted))
            for partition in named:  # to the end of the list, even without data
                self._left[partition] = self._left.pop(partition)
        self._conversation.send(
            [
                PartitionFetch(*partition, wanted[partition], sizes[partition], self._epochs[partition].leader)
                for partition in named
            ],
            max_wait_ms=max_wait_ms,
            max_bytes=max(self._response_bytes, *sizes.values()),
            rack=self._rack,
        )

    def _size(self, partition: TopicPartition, offset: int) -> int:
        """Bytes to request: slightly more than the estimated size of the rest of the range."""
        if partition in self._grown:
            return self._grown[partition]
        share = self._response_bytes // len(self._left)
        most = max(self._config.fetch_message_max_bytes, min(_PARTITION_BYTES, share))
        per_offset = self.pooled.bytes_per_offset.get(partition)
        if per_offset is None:
            return most
        return min(most, _MORE_BYTES + int(_MORE * per_offset * (self._left[partition].until - offset)))

    def _receive(self) -> Iterator[tuple[Fetched, int]]:
        """Receive one answer, and send the next request when its last partition was received."""
        before, faults = dict(self._left), dict(self._faults)
        out_of_range = []
        for partition, asked, fetched, is_first in self._conversation.receive(self._position_of):
            if verdict_on(fetched.error, of_follower=self.follows) is Verdict.OUT_OF_RANGE:
                out_of_range.append(partition)
            # To look up log ends no request may be in flight.
            if fetched.is_last and not out_of_range and not self._conversation.muted:
                self._send_ahead(partition, fetched, before)
            chunk = self._accept(partition, fetched, asked.max_bytes, is_first=is_first)
            if chunk is not None:
                yield chunk
        for partition in out_of_range:
            self._skip_lost(partition)
        self._watch_progress(before, is_faulty=self._faults != faults)

    def _position_of(self, partition: TopicPartition) -> int | None:
        span = self._left.get(partition)
        return None if span is None else span.start

    def _send_ahead(
        self, partition: TopicPartition, last: FetchedPartition, before: Mapping[TopicPartition, Span]
    ) -> None:
        """Send the next request if this answer has data: otherwise the log end may have to be looked up.

        Args:
            partition: the last partition in the answer.
            last: its received part, which is not accepted yet.
            before: ranges that were left before this answer.
        """
        wanted = {p: span.start for p, span in self._left.items()}
        moves = self._left != before
        position = wanted.pop(partition)  # and re-added at the end, see _accept()
        foreseen = self._decoder.next_offset(position, last.records, last.high_watermark)
        if foreseen > position:
            moves = True
            self.pooled.bytes_per_offset[partition] = len(last.records) / (foreseen - position)
        stays = not last.error and not names_another(last.read_replica, self.broker.id)
        if stays and (foreseen > position or not last.records) and foreseen < self._left[partition].until:
            wanted[partition] = foreseen
        if wanted and moves:
            self._send(wanted)

    def _accept(
        self, partition: TopicPartition, fetched: FetchedPartition, asked: int, *, is_first: bool
    ) -> tuple[Fetched, int] | None:
        """Move the position; returns the received part with its size in bytes, None if it is empty."""
        if names_another(fetched.read_replica, self.broker.id):
            self.named[partition] = fetched.read_replica
            self._moves(partition, fetched.error)
            return None
        match verdict_on(fetched.error, of_follower=self.follows):
            case Verdict.OUT_OF_RANGE:
                return None  # looked up before the next request
            case Verdict.LEADER_MOVED | Verdict.FAILED | Verdict.LEADER_DECIDES:
                self._moves(partition, fetched.error)
                return None
            case Verdict.REFUSED:
                raise self._refused(partition, fetched.error, READ)
        chunk = self._scan_or_retry(partition, fetched, asked, is_first=is_first)
        if chunk is None:
            return None
        position, until = self._left[partition]
        self.pooled.bytes_per_offset[partition] = len(fetched.records) / (chunk.next_offset - position)
        # To the end of the list: partitions that fetch.max.bytes cut off now come first in the next request (KIP-74).
        del self._left[partition]
        if chunk.next_offset < until:
            self._left[partition] = Span(chunk.next_offset, until)
        return Fetched(partition, chunk, until), chunk.nbytes

    def _scan_or_retry(
        self, partition: TopicPartition, fetched: FetchedPartition, asked: int, *, is_first: bool
    ) -> ScannedChunk | DecodedChunk | None:
        """What moves the position; None if these bytes do not, and have to be requested again."""
        position, most = self._left[partition].start, self._config.fetch_max_bytes
        try:
            chunk = self._find(partition, fetched)
        except UNDECODABLE as error:
            return self._believe(partition, error)
        if chunk.next_offset > position:
            return chunk
        try:
            size = next_size(partition, position, len(fetched.records), asked, most, is_first=is_first)
        except CorruptRecord as error:
            return self._believe(partition, error)
        if size > asked:
            self._grown[partition] = size
        return None

    def _find(self, partition: TopicPartition, fetched: FetchedPartition) -> ScannedChunk | DecodedChunk:
        """Find the batches; with ``on.corrupt=skip`` decode them: the next position is after what cannot be decoded."""
        position = self._left[partition].start
        arguments = (*partition, position, fetched.records, fetched.aborted, fetched.high_watermark)
        if self._config.on_corrupt == "skip":
            return self._decoder.decode(*arguments)._replace(rest=None)  # which is fetched again
        return self._decoder.scan(*arguments)

    def _believe(self, partition: TopicPartition, error: CorruptRecord | RecordTooLarge) -> DecodedChunk | None:
        """What moves the position to after bytes that cannot be decoded; None to fetch them again.

        Raises:
            CorruptRecord, RecordTooLarge: ``on.corrupt=fail``, or the offset after the damaged batch is unknown.
        """
        position, until = self._left[partition]
        faults = self._faults[partition] = self._faults.get(partition, Faults()).after(position, error)
        if not faults.are_believed:
            level = logging.WARNING if faults.times else logging.DEBUG
            _log.log(level, "%s: %s; fetching it again", self._reader, error)
            return None
        resumed = resume_at(error, self._config.on_corrupt, until)
        if resumed is None:
            raise error
        values = self._reader, position, resumed - 1, partition, error
        _log.error("%s: offsets %d to %d of %s are skipped: %s", *values)
        return DecodedChunk(None, resumed, 0)

    def _skip_lost(self, partition: TopicPartition) -> None:
        """Continue at the current beginning of a log that does not hold the position, or fail.

        A log that ends before the position has nothing of the range; one that holds it by now has lost nothing.

        Raises:
            OffsetOutOfRange: with ``fail_on_data_loss``.
            BrokerUnavailable: the broker does not return the beginning of the log.
        """
        first = self._ask(partition, EARLIEST)
        end = None if first is None else self._ask(partition, LATEST)
        if first is None or end is None:
            return
        outside = outside_log(self._left[partition].start, first, end)
        if outside == AFTER_LOG:
            self._end_at(partition, end)
        if outside != BEFORE_LOG:
            return
        position, until = self._left.pop(partition)
        loss = f"{partition} has lost offsets {position} to {min(first, until)}: its log begins at {first}"
        if self._fail_on_data_loss:
            raise OffsetOutOfRange(f"{loss}. Check the retention, and whether the topic was created again")
        _log.warning("%s: %s; they are skipped", self._reader, loss)
        if first < until:
            self._left[partition] = Span(first, until)

    def _end_with_log(self, partition: TopicPartition) -> None:
        """Drop the rest of a range that is beyond the log end.

        Raises:
            BrokerUnavailable: the broker does not return the log end.
        """
        end = self._ask(partition, LATEST)
        if end is not None and outside_log(self._left[partition].until, None, end) == AFTER_LOG:
            self._end_at(partition, end)

    def _end_at(self, partition: TopicPartition, end: int, log: str = "its log", why: str = _WHY_SHORTER) -> None:
        """Drop the rest of a range, which is not in the log any more, or fail.

        Raises:
            OffsetOutOfRange: with ``fail_on_data_loss``.
        """
        position, until = self._left.pop(partition)
        loss = f"{partition} has lost offsets {max(position, end)} to {until}: {log} ends at {end}"
        if self._fail_on_data_loss:
            raise OffsetOutOfRange(f"{loss}{why}")
        _log.warning("%s: %s; they are skipped", self._reader, loss)
        if position < end:
            self._left[partition] = Span(position, end)

    def _ask(self, partition: TopicPartition, timestamp: int) -> int | None:
        """The beginning or end of the log; None if its leader moved, which then reads the rest of the range.

        What an open transaction holds back (``isolation.level=read_committed``) is before the end.

        Raises:
            TopicUnreadable: a permission is missing, or the name is that of no topic.
            BrokerUnavailable: the broker answered with another error, which may pass.
        """
        answer = list_offsets(
            self.pooled.connection,
            {partition: timestamp},
            epochs={partition: self._epochs[partition].leader},
        )
        code = answer.errors.get(partition, ErrorCode.NONE)
        if verdict_on(code) is Verdict.LEADER_MOVED:
            self._moves(partition, code)
            return None
        offset = answer.found.get(partition)
        if offset is None:
            if is_refusal(code):
                raise self._refused(partition, code, DESCRIBE)
            raise BrokerUnavailable(f"{self.broker} cannot look up the log ends of {partition}: {error_name(code)}")
        return offset

    def _refused(self, partition: TopicPartition, code: int, operation: str) -> TopicUnreadable:
        security = BrokerSecurity.from_config(self._config)
        place = f"{partition} at offset {self._left[partition].start}"
        return topic_refused(partition.topic, code, operation, self.broker, security, place)

    def _watch_progress(self, before: dict[TopicPartition, Span], *, is_faulty: bool) -> None:
        """Fail if answers have no data for too long: data up to ``until`` existed when the range was planned.

        Args:
            before: ranges that were left before this answer.
            is_faulty: True if it has data that cannot be decoded, however long it takes to fetch them again.

        Raises:
            OffsetOutOfRange: no data for ``socket.timeout.ms``: the log became shorter.
            BrokerUnavailable: the broker does not return a log end.
        """
        if self._left != before or is_faulty:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = time.monotonic()
        elif self.follows and time.monotonic() - self._stuck_since > _FOLLOWERS_PATIENCE_S:
            for partition in before:
                self._moves(partition, ErrorCode.OFFSET_NOT_AVAILABLE)
        elif time.monotonic() - self._stuck_since > self._config.socket_timeout_ms / 1000:
            if not self._fail_on_data_loss:
                for partition in before:
                    self._end_with_log(partition)
                if self._left != before:
                    self._stuck_since = None
                    return
            raise OffsetOutOfRange(
                f"{self.broker} does not have records that existed when the read was planned: "
                + ", ".join(f"{partition} [{span.start}, {span.until})" for partition, span in self._left.items())
                + f"{_WHY_SHORTER}, or, with isolation.level=read_committed, a transaction that is open"
            )
