"""RangeReading: reads ranges of known offsets to their ends, from whichever brokers lead their partitions.

Fetcher threads, one per leader, fill a bounded queue. The reading thread takes chunks from it, verifies and decodes
them, and hands them out, in parallel to the fetching.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import BrokerUnavailable, LeaderUnknown, RetriableError, ThreadLimit
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.process.threads import start_thread
from zkconsumer.ranges.decoderpool import DecoderPool
from zkconsumer.ranges.fetchedqueue import Damage, FetchedQueue
from zkconsumer.ranges.leaderconnections import LeaderConnections, Source
from zkconsumer.ranges.rangefetcher import FetcherEnded, RangeEpochs, RangeFetcher
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.wire.errorcodes import error_name
from zkconsumer.wire.rules.fetchanswers import Faults
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import BatchDecoder
    from zkconsumer.decode.records import Records

_log = logging.getLogger(__name__)

_AHEAD_BYTES = 8 << 20
"""Bytes that may be fetched ahead of the reading thread. More would not stay in the processor's cache."""
_MOST_FETCHERS: Final = 16
"""Leaders that are read from at a time. Each fetcher holds a response in memory, and a connection."""
_RESPONSES_BYTES: Final = 32 << 20
"""Bytes that all fetchers together request at a time, or ``fetch.message.max.bytes`` of each if that is more."""


class RangeReading:
    """Starts fetchers, and starts them again if a leader moved. One thread uses it.

    Args:
        connections: where fetchers get their connections, and its properties.
        ranges: what to read, by partition.
        brokers: the brokers to ask for leaders.
        epochs: the leader epoch in whose log the end of each range was seen, as far as known.
        columns: those to decode.
        decoders: where fetchers and the reading thread get their decoders.
        reader: who reads, for messages.
        fail_on_data_loss: fail if offsets are not in the log any more; otherwise skip them with a warning.
    """

    def __init__(
        self,
        connections: LeaderConnections,
        ranges: Mapping[TopicPartition, Span],
        brokers: Sequence[Broker],
        epochs: Mapping[TopicPartition, int],
        *,
        columns: tuple[str, ...],
        decoders: DecoderPool,
        reader: str,
        fail_on_data_loss: bool,
    ) -> None:
        self._connections = connections
        self._config = connections.config
        self._waiting = dict(ranges)
        self._brokers = brokers
        self._epochs = dict(epochs)
        self._columns = columns
        self._decoders = decoders
        self._reader = reader
        self._fail_on_data_loss = fail_on_data_loss
        self._borrowed = ExitStack()
        self._decoder = self._borrow_decoder(self._borrowed)
        self._fetchers: dict[RangeFetcher, ExitStack] = {}  # with what each has borrowed
        self._faults: dict[TopicPartition, Faults] = {}
        self._damaged: dict[TopicPartition, Span] = {}  # to be fetched again when their fetchers have ended
        self._queue = FetchedQueue(min(self._config.queued_max_bytes, _AHEAD_BYTES))
        self._backoff_s = self._config.refresh_leader_backoff_ms / 1000
        self._patience_s = self._config.socket_timeout_ms / 1000
        self._try_at = 0.0
        self._failure: Exception | None = None
        self._failing_since: float | None = None  # the first failure after the last records

    def records(self) -> Iterator[Records]:
        """The records, in order within each partition; ends when the position of every range has reached its end.

        A position also moves over offsets without a record (compaction, transactions), so there may be fewer records
        than offsets.

        Raises:
            OffsetOutOfRange: offsets are not in the log any more and ``fail_on_data_loss`` is true.
            BrokerUnavailable: no leader could be read from for ``socket.timeout.ms`` after the first failure.
            CorruptRecord: bytes cannot be decoded, also when they were fetched again, twice.
            ProtocolError: a broker sent an answer that cannot be decoded.
            TopicUnreadable: brokers refuse to serve a topic, for example because a permission is missing.
            RecordTooLarge: a batch decompresses to more than ``decompressed.max.bytes``.
        """
        while self._waiting or self._fetchers:
            if self._waiting and time.monotonic() >= self._try_at:
                self._try_at = time.monotonic() + self._backoff_s
                self._start_fetchers()
            item = self._queue.get(self._backoff_s)
            if isinstance(item, FetcherEnded):
                self._ended(item)
            elif item is not None:
                if item.partition not in self._damaged:
                    damage = yield from item.records(self._decoder)
                    if damage is not None:
                        self._fetch_again(item.partition, damage)
                self._failing_since = None
            if self._waiting and self._is_out_of_patience():
                raise BrokerUnavailable(
                    f"no leader could be read from for {self._patience_s:g} s: {', '.join(map(str, self._waiting))}; "
                    f"last error: {self._failure}"
                ) from self._failure

    def _is_out_of_patience(self) -> bool:
        """True if there were no records for ``socket.timeout.ms`` after the first failure.

        It does not count from the last records: 1. a leader falls silent; 2. the same timeout ends its connection,
        later than that; 3. no other leader would be asked for.
        """
        return self._failing_since is not None and time.monotonic() - self._failing_since > self._patience_s

    def _failed(self, error: Exception) -> None:
        self._failure = error
        if self._failing_since is None:
            self._failing_since = time.monotonic()

    def _fetch_again(self, partition: TopicPartition, damage: Damage) -> None:
        """Drop what follows damaged bytes, and fetch all of that again, since they may be damaged in transit.

        Raises:
            CorruptRecord, RecordTooLarge: the damage is believed.
        """
        faults = self._faults.get(partition, Faults()).after(damage.left.start, damage.error)
        if faults.are_believed:
            raise damage.error
        _log.warning("%s: %s; fetching it again", self._reader, damage.error)
        self._faults[partition], self._damaged[partition] = faults, damage.left
        for fetcher in self._fetchers:
            fetcher.give_up(partition)

    def close(self) -> None:
        """End the running fetchers, which are left where the records are not read to the end, as for ``LIMIT``."""
        self._queue.close()
        for fetcher in self._fetchers:
            self._connections.discard_connection(fetcher.pooled)
        for fetcher, borrowed in self._fetchers.items():
            fetcher.join()
            borrowed.close()
        self._fetchers.clear()
        self._borrowed.close()

    def _start_fetchers(self) -> None:
        """Start a fetcher per leader of the waiting ranges; those without a reachable leader continue to wait."""
        by_source: dict[Source, dict[TopicPartition, Span]] = {}
        try:
            leaders = self._connections.find_leaders(list(self._waiting), self._brokers, self._epochs)
        except RetriableError as error:
            self._failed(error)
            return
        if reasons := {error_name(self._connections.leaderless[p]) for p in self._waiting.keys() - leaders.keys()}:
            self._failed(LeaderUnknown(f"brokers name no leader: {', '.join(sorted(reasons))}"))
        for partition, leader in leaders.items():
            source = self._connections.source(partition, leader, needs_leader=self._epochs_of(partition).needs_leader)
            by_source.setdefault(source, {})[partition] = self._waiting[partition]
        at_a_time = min(_MOST_FETCHERS, len(by_source) + len(self._fetchers))
        for source, ranges in by_source.items():
            if len(self._fetchers) >= _MOST_FETCHERS:
                break  # the others wait for the end of a fetcher
            try:
                self._start_fetcher(source, ranges, _RESPONSES_BYTES // at_a_time)
            except RetriableError as error:
                self._left(ranges, error, follows=source.follows)

    def _epochs_of(self, partition: TopicPartition) -> RangeEpochs:
        leaders = self._connections.epochs
        return RangeEpochs(self._epochs.get(partition, UNKNOWN_EPOCH), leaders.get(partition, UNKNOWN_EPOCH))

    def _start_fetcher(self, source: Source, ranges: dict[TopicPartition, Span], response_bytes: int) -> None:
        connection = self._connections.take_connection(source.broker)
        with ExitStack() as borrowed:
            fetcher = RangeFetcher(
                connection,
                self._borrow_decoder(borrowed),
                source.broker,
                ranges,
                self._queue,
                self._config,
                reader=self._reader,
                fail_on_data_loss=self._fail_on_data_loss,
                response_bytes=response_bytes,
                epochs={partition: self._epochs_of(partition) for partition in ranges},
                rack=source.rack,
                follows=source.follows,
            )
            try:
                start_thread(fetcher)
            except ThreadLimit:
                self._connections.return_connection(source.broker, connection)
                raise
            self._fetchers[fetcher] = borrowed.pop_all()
        for partition in ranges:
            del self._waiting[partition]

    def _borrow_decoder(self, borrowed: ExitStack) -> BatchDecoder:
        settings = DecoderSettings.from_config(self._config)
        return borrowed.enter_context(self._decoders.borrowed(settings, self._columns))

    def _ended(self, ended: FetcherEnded) -> None:
        fetcher = ended.fetcher
        if len(self._fetchers) == _MOST_FETCHERS:
            self._try_at = 0.0  # others may wait for this
        fetcher.join()  # its run method is about to return
        self._fetchers.pop(fetcher).close()
        self._epochs.update(fetcher.checked)
        if ended.connection_is_reusable:
            self._connections.return_connection(fetcher.broker, fetcher.pooled)
        else:
            self._connections.discard_connection(fetcher.pooled)
        named = fetcher.named.keys() & ended.left.keys()
        for partition in named:
            self._connections.named(partition, fetcher.named[partition])
            self._waiting[partition] = ended.left.pop(partition)
        if named:
            self._try_at = 0.0
        if ended.error is not None and not isinstance(ended.error, RetriableError):
            raise ended.error
        if ended.error is not None and (ended.left or not named):
            failing_since = self._failing_since
            self._left(ended.left, ended.error, fetcher.fenced, follows=fetcher.follows)
            if fetcher.pooled.reused and not ended.connection_is_reusable:
                # It may have broken between two readings: no sign of a broker failure, after which the next one counts.
                self._try_at, self._failing_since = 0.0, failing_since
        for partition in fetcher.partitions & self._damaged.keys():
            self._waiting[partition] = self._damaged.pop(partition)

    def _left(
        self,
        ranges: dict[TopicPartition, Span],
        error: Exception,
        fenced: Mapping[TopicPartition, int] = MappingProxyType({}),
        *,
        follows: bool,
    ) -> None:
        """Read these ranges from another leader, or over another connection; after a follower, from the leader."""
        if follows:
            for partition in ranges:
                self._connections.follower_failed(partition)
        _log.info("%s: %s; looking for leaders again", self._reader, error)
        self._failed(error)
        self._waiting.update(ranges)
        self._connections.forget_leaders(ranges, fenced)
