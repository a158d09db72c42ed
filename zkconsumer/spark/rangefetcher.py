"""RangeFetcher: a thread of one task that reads ranges from one leader, and FetchedQueue, where it puts what it read.

Unlike a consumer's fetcher it knows where to end: it asks for nothing beyond the ranges, so its connection is free for
the next task when it ends, and a small micro-batch costs one round trip. Like a consumer's it receives, and leaves
verifying and decoding to the other thread: what is decoded there is in that core's cache when it goes to Spark.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from zkconsumer.config import ConsumerConfig
from zkconsumer.decode.batchdecoder import BatchDecoder, DecodedChunk, ScannedChunk
from zkconsumer.errors import BrokerUnavailable, CorruptRecord, LeaderUnknown, OffsetOutOfRange, ProtocolError
from zkconsumer.fetch.turns import turn, wait_ms
from zkconsumer.kafka.client import EARLIEST, LATEST, list_offsets
from zkconsumer.kafka.errorcodes import LEADER_MOVED, ErrorCode, error_name
from zkconsumer.kafka.fetch_protocol import FetchedPartition, limits_responses, open_response, send_fetch
from zkconsumer.kafka.fetch_session import PartitionFetch, without_session
from zkconsumer.kafka.refusals import DESCRIBE, READ, topic_refused
from zkconsumer.kafka.security import BrokerSecurity
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.spark.planning import Span
from zkconsumer.spark.worker import PooledConnection

_log = logging.getLogger(__name__)

_PARTITION_BYTES = 4 << 20
"""Most bytes to ask for per partition: fewer, larger Arrow batches cost Spark less per row."""
_RESPONSE_BYTES = 8 << 20
"""What partitions share where more than ``fetch.message.max.bytes`` is asked for. Memory that goes round in few blocks
stays in the processor's cache: with twice as much, reading costs a quarter more."""
_MORE = 1.125
_MORE_BYTES = 1 << 18
"""What is asked for beyond the rest of a range, should its records be longer than those before, and for the end of the
batch that the range ends in: a broker sends no half batch, or one that is of no use."""


class Fetched(NamedTuple):
    """What came of one range in one answer.

    Attributes:
        chunk: the bytes; decoded already where what is damaged is left out, since the fetcher has to go on behind it.
        until: the end of the range: what lies behind is not wanted.
    """

    chunk: ScannedChunk | DecodedChunk
    until: int

    def batches(self, decoder: BatchDecoder) -> Iterator[Any]:
        """The records as Arrow batches.

        Raises:
            CorruptRecord: they cannot be decoded; batches before may have come.
        """
        decoded = self.chunk if isinstance(self.chunk, DecodedChunk) else decoder.finish(self.chunk)
        while True:
            batch = _before(decoded.batch, self.until)
            if batch is not None:
                yield batch
            if decoded.rest is None or decoded.next_offset >= self.until:
                break
            decoded = decoder.finish(decoded.rest)


@dataclass(frozen=True, slots=True)
class FetcherEnded:
    """A fetcher has ended.

    Attributes:
        fetcher: which.
        left: what it did not read; nothing unless ``error`` is given.
        error: why; a RetriableError where another leader or another try may help.
        connection_is_reusable: True if no answer is outstanding on the fetcher's connection.
    """

    fetcher: RangeFetcher
    left: dict[TopicPartition, Span]
    error: Exception | None
    connection_is_reusable: bool


class FetchedQueue:
    """From fetcher threads to the task's thread: what was fetched, bounded by bytes, and how fetchers ended.

    Args:
        max_bytes: bound; what is larger is admitted when nothing else waits.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._items: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._closed = False

    def put(self, item: Any, nbytes: int) -> bool:
        """Wait for room and add; False if the task has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._bytes == 0 or self._bytes + nbytes <= self._max_bytes)
            self._items.append((item, nbytes))
            self._bytes += nbytes
            self._changed.notify_all()
            return not self._closed

    def get(self, timeout_s: float) -> Any | None:
        """The oldest item; None if there is none within ``timeout_s`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._items), timeout_s):
                return None
            item, nbytes = self._items.popleft()
            self._bytes -= nbytes
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Nobody will get anything more: let the fetchers end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class RangeFetcher(threading.Thread):
    """Reads its ranges to their ends and puts :class:`Fetched`, then :class:`FetcherEnded`, into the queue.

    Args:
        pooled: the connection, used by this thread alone until it has ended.
        decoder: likewise; its memory is what records are received into.
        broker: at the other end of the connection.
        ranges: what to read; this thread alone changes its copy.
        queue: where to put it.
        config: limits of fetch requests.
        fail_on_data_loss: raise where offsets are gone, else skip them with a warning.
    """

    def __init__(
        self,
        pooled: PooledConnection,
        decoder: BatchDecoder,
        broker: Broker,
        ranges: dict[TopicPartition, Span],
        queue: FetchedQueue,
        config: ConsumerConfig,
        *,
        fail_on_data_loss: bool,
    ) -> None:
        super().__init__(name=f"range-fetcher-{broker.id}", daemon=True)
        self.pooled = pooled
        self._decoder = decoder
        self.broker = broker
        self._left = dict(ranges)
        self._moved: dict[TopicPartition, Span] = {}
        self._queue = queue
        self._config = config
        self._fail_on_data_loss = fail_on_data_loss
        self._grown: dict[TopicPartition, int] = {}
        self._asked: dict[TopicPartition, tuple[int, int]] = {}
        self._correlation_id: int | None = None  # of a request of whose answer nothing has come
        self._stuck_since: float | None = None

    def run(self) -> None:
        """Fetch until all ranges are read, the task ends, or an error comes."""
        error: Exception | None = None
        good = False
        try:
            good = all(self._queue.put(fetched, nbytes) for fetched, nbytes in self._fetch())
            if self._moved:
                error = LeaderUnknown(f"{self.broker} does not lead {', '.join(map(str, self._moved))} any more")
        except Exception as caught:  # noqa: BLE001  the task's thread raises it
            error = caught
        self._queue.put(FetcherEnded(self, {**self._left, **self._moved}, error, good), 0)

    def _fetch(self) -> Iterator[tuple[Fetched, int]]:
        """Fetch what is left, with sizes in bytes. Until it ends an answer may be outstanding."""
        while self._left or self._correlation_id is not None:
            if self._correlation_id is None:
                self._send({partition: span.start for partition, span in self._left.items()})
            yield from self._receive()

    def _send(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Ask for partitions from offsets on."""
        self._asked = {partition: (offset, self._size(partition, offset)) for partition, offset in wanted.items()}
        max_wait_ms = self._config.fetch_wait_max_ms
        if not limits_responses(self.pooled.connection):
            limit = min(self._config.fetch_max_bytes, self._config.queued_max_bytes)
            named = turn({partition: size for partition, (_, size) in self._asked.items()}, limit)
            max_wait_ms = wait_ms(max_wait_ms, len(named), len(wanted))
            self._asked = {partition: self._asked[partition] for partition in named}
            for partition in named:  # to the end of the line, also if it has no data
                self._left[partition] = self._left.pop(partition)
        self._correlation_id = send_fetch(
            self.pooled.connection,
            without_session([PartitionFetch(*partition, *asked) for partition, asked in self._asked.items()]),
            max_wait_ms=max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=self._config.fetch_max_bytes,
            isolation=self._config.isolation_level,
        )

    def _size(self, partition: TopicPartition, offset: int) -> int:
        """Bytes to ask for: little more than the rest of the range, as far as it can be told how long that is."""
        if partition in self._grown:
            return self._grown[partition]
        share = min(self._config.fetch_max_bytes, _RESPONSE_BYTES) // len(self._left)
        most = max(self._config.fetch_message_max_bytes, min(_PARTITION_BYTES, share))
        per_offset = self.pooled.bytes_per_offset.get(partition)
        if per_offset is None:
            return most
        return min(most, _MORE_BYTES + int(_MORE * per_offset * (self._left[partition].until - offset)))

    def _receive(self) -> Iterator[tuple[Fetched, int]]:
        """Take one answer, and send the next request when its last partition was received.

        That request asks for what should follow the last partition. There may be less; so an answer counts only where
        the partition still is where it was asked for, as in :mod:`zkconsumer.fetch.pipeline`.
        """
        assert self._correlation_id is not None
        connection, memory, isolation = self.pooled.connection, self._decoder.memory.take, self._config.isolation_level
        response = open_response(connection, self._correlation_id, memory, isolation=isolation)
        self._correlation_id, asked = None, self._asked
        response.require_success(self.broker)
        before = dict(self._left)
        out_of_range = []
        for fetched in response.partitions:
            partition = TopicPartition(fetched.topic, fetched.partition)
            offset, size = asked.get(partition, (-1, 0))
            counts = partition in self._left and self._left[partition].start == offset
            if counts and fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(partition)
            if fetched.is_last and not out_of_range:  # to ask where a log begins nothing may be in flight
                self._send_ahead(fetched if counts else None, before)
            chunk = self._accept(partition, fetched, size) if counts else None
            if chunk is not None:
                yield chunk
        for partition in out_of_range:
            self._skip_lost(partition)
        self._watch_progress(before)

    def _send_ahead(self, last: FetchedPartition | None, before: Mapping[TopicPartition, Span]) -> None:
        """Ask for what is wanted after this answer, if it brings anything: else the log's end may have to be looked up.

        Args:
            last: what was received, but is not accepted yet; None if it does not count.
            before: what was left before this answer.
        """
        wanted = {partition: span.start for partition, span in self._left.items()}
        moves = self._left != before
        if last is not None:
            partition = TopicPartition(last.topic, last.partition)
            position = wanted.pop(partition)  # and to the end, see _accept()
            foreseen = self._decoder.next_offset(position, last.records)
            if foreseen > position:
                moves = True
                self.pooled.bytes_per_offset[partition] = len(last.records) / (foreseen - position)
            if not last.error and (foreseen > position or not last.records) and foreseen < self._left[partition].until:
                wanted[partition] = foreseen
        if wanted and moves:
            self._send(wanted)

    def _accept(self, partition: TopicPartition, fetched: FetchedPartition, size: int) -> tuple[Fetched, int] | None:
        """Move on; returns what came, with its size in bytes, None if that is nothing."""
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None  # looked up before the next request
        if fetched.error in LEADER_MOVED:
            self._moved[partition] = self._left.pop(partition)
            return None
        if fetched.error:
            self._require_permission(partition, fetched.error, READ)
            raise ProtocolError(f"{self.broker} cannot serve {partition}: {error_name(fetched.error)}")
        position, until = self._left[partition]
        chunk = self._find(partition, fetched)
        if chunk.next_offset == position:
            self._grow(partition, position, size, len(fetched.records))
            return None
        self.pooled.bytes_per_offset[partition] = len(fetched.records) / (chunk.next_offset - position)
        # To the end of the line: whoever is cut off by fetch.max.bytes now comes first in the next request (KIP-74).
        del self._left[partition]
        if chunk.next_offset < until:
            self._left[partition] = Span(chunk.next_offset, until)
        return Fetched(chunk, until), chunk.nbytes

    def _find(self, partition: TopicPartition, fetched: FetchedPartition) -> ScannedChunk | DecodedChunk:
        """Find the batches; under ``on.corrupt=skip`` decode them, and go on behind those that cannot be.

        Raises:
            CorruptRecord: that is not wanted, or nobody knows where to go on.
        """
        position, until = self._left[partition]
        what = (*partition, position, fetched.records, fetched.aborted)
        if self._config.on_corrupt == "fail":
            return self._decoder.scan(*what)
        try:
            return self._decoder.decode(*what)._replace(rest=None)  # which is fetched again
        except CorruptRecord as error:
            if error.resume_at is None:
                raise
            resumed = min(error.resume_at, until)
            _log.error("offsets %d to %d of %s are left out: %s", position, resumed - 1, partition, error)
            return DecodedChunk(None, resumed, 0)

    def _grow(self, partition: TopicPartition, position: int, asked: int, received: int) -> None:
        """Ask for more where not even one batch fits; only brokers before 0.10.1 cut off the first (KIP-74).

        Raises:
            ProtocolError: a batch is longer than ``fetch.max.bytes``.
        """
        if received < asked:
            return  # nothing there yet, or others took the room
        if asked >= self._config.fetch_max_bytes:
            raise ProtocolError(
                f"{partition} at offset {position}: a batch is longer than fetch.max.bytes "
                f"({self._config.fetch_max_bytes}); raise it to read on"
            )
        self._grown[partition] = min(2 * asked, self._config.fetch_max_bytes)

    def _skip_lost(self, partition: TopicPartition) -> None:
        """The log does not hold the position: go on where it begins now, or give up.

        Raises:
            OffsetOutOfRange: under ``failOnDataLoss``.
            BrokerUnavailable: the broker does not tell where the log begins.
        """
        first = self._ask(partition, EARLIEST)
        if first is None:
            return
        position, until = self._left.pop(partition)
        # Not before the log's beginning: then beyond its end, which an unclean leader election has moved back.
        resumed = first if first > position else until
        story = f"{partition} has lost offsets {position} to {min(resumed, until)}: its log begins at {first}"
        if self._fail_on_data_loss:
            raise OffsetOutOfRange(
                f"{story}. Check retention and whether the topic was created anew; failOnDataLoss=false skips them"
            )
        _log.warning("%s; they are skipped", story)
        if resumed < until:
            self._left[partition] = Span(resumed, until)

    def _end_with_log(self, partition: TopicPartition) -> None:
        """Drop the rest of a range that lies beyond the log's end.

        Raises:
            BrokerUnavailable: the broker does not tell where the log ends.
        """
        end = self._ask(partition, LATEST)
        if end is None:
            return
        position, until = self._left[partition]
        if end >= until:
            return
        resumed = max(position, end)
        _log.warning(
            "%s has lost offsets %d to %d: its log ends at %d; they are skipped", partition, resumed, until, end
        )
        del self._left[partition]
        if position < end:
            self._left[partition] = Span(position, end)

    def _ask(self, partition: TopicPartition, which: int) -> int | None:
        """Where the log begins or ends; None if its leader moved, then the rest of the range is left to that.

        Raises:
            BrokerUnavailable: the broker does not tell, for another reason.
        """
        answer = list_offsets(self.pooled.connection, {partition: which}, isolation=self._config.isolation_level)
        code = answer.errors.get(partition, ErrorCode.NONE)
        if code in LEADER_MOVED:
            self._moved[partition] = self._left.pop(partition)
            return None
        offset = answer.found.get(partition)
        if offset is None:
            self._require_permission(partition, code, DESCRIBE)
            raise BrokerUnavailable(f"{self.broker} does not tell where the log of {partition} is: {error_name(code)}")
        return offset

    def _require_permission(self, partition: TopicPartition, code: int, operation: str) -> None:
        """Raise TopicAuthorizationFailed if that is what a broker answers."""
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            security = BrokerSecurity.from_config(self._config)
            raise topic_refused(partition.topic, code, operation, self.broker, security)

    def _watch_progress(self, before: dict[TopicPartition, Span]) -> None:
        """Data up to ``until`` existed when the batch was planned, so an answer without any is an exception.

        Raises:
            OffsetOutOfRange: nothing came for ``socket.timeout.ms``: the log became shorter.
            BrokerUnavailable: the broker does not tell where a log ends.
        """
        if self._left != before:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = time.monotonic()
        elif time.monotonic() - self._stuck_since > self._config.socket_timeout_ms / 1000:
            if not self._fail_on_data_loss:
                for partition in before:
                    self._end_with_log(partition)
                if self._left != before:
                    self._stuck_since = None
                    return
            raise OffsetOutOfRange(
                f"{self.broker} has no records where they were when the batch was planned: "
                + ", ".join(f"{partition} [{span.start}, {span.until})" for partition, span in self._left.items())
                + ". Check for an unclean leader election or a topic that was created anew"
            )


def _before(batch: Any | None, until: int) -> Any | None:
    """The rows of a batch whose offsets are below ``until``; None if there are none."""
    if batch is None:
        return None
    offsets = batch.column("offset").to_numpy()
    if offsets[-1] < until:
        return batch
    count = int(offsets.searchsorted(until))
    return batch.slice(0, count) if count else None
