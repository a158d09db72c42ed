"""The executor side: one task reads its ranges from the brokers and passes Arrow batches to Spark.

A task joins no group and does not use ZooKeeper. Fetcher threads, one per leader, fill a bounded queue. The task's own
thread takes chunks from it, verifies and decodes them, and passes them to Spark, in parallel to the fetching.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import BrokerUnavailable, LeaderUnknown, RetriableError, ThreadLimit
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.process.threads import start_thread
from zkconsumer.spark.rangefetcher import Damage, FetchedQueue, FetcherEnded, RangeEpochs, RangeFetcher
from zkconsumer.spark.rules.microbatch import RangePartition, Span
from zkconsumer.spark.rules.options import SourceOptions
from zkconsumer.spark.worker import Worker, acknowledge_quickly, borrowed_decoder, collect_less, this_worker
from zkconsumer.wire.errorcodes import error_name
from zkconsumer.wire.rules.fetchanswers import Faults
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH

if TYPE_CHECKING:
    import pyarrow as pa

    from zkconsumer.decode.batchdecoder import BatchDecoder

_log = logging.getLogger(__name__)

_AHEAD_BYTES = 8 << 20
"""Bytes that may be fetched ahead of Spark. More would not stay in the processor's cache."""


def read_ranges(options: SourceOptions, task: RangePartition, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Fetch the ranges of one task, as batches with these columns in this order.

    Ends when the position of every range has reached its ``until``: a position also moves over offsets without a record
    (compaction, transactions), so there may be fewer records than offsets.

    Raises:
        OffsetOutOfRange: offsets are not in the log any more and ``failOnDataLoss`` is true.
        BrokerUnavailable: no broker answered for ``socket.timeout.ms``.
        CorruptRecord: bytes cannot be decoded, also when they were fetched again, twice.
        ProtocolError: a broker sent an answer that cannot be decoded.
        TopicUnreadable: brokers refuse to serve a topic, for example because a permission is missing.
        RecordTooLarge: a batch decompresses to more than ``decompressed.max.bytes``.
    """
    acknowledge_quickly()
    # The end of a range is found by the offsets, which are decoded anyway; dropping the column at the end costs
    # nothing.
    decoded = columns if "offset" in columns else (*columns, "offset")
    reading = _TaskReading(options, task, decoded, this_worker(options.config))
    try:
        for batch in reading.batches():
            yield batch if decoded == columns else batch.select(columns)
    finally:
        reading.close()
        acknowledge_quickly()
        collect_less()


class _TaskReading:
    """Starts fetchers, and starts them again if a leader moved. Runs on the task's thread only."""

    def __init__(self, options: SourceOptions, task: RangePartition, columns: tuple[str, ...], worker: Worker) -> None:
        self._options = options
        self._columns = columns
        self._worker = worker
        self._borrowed = ExitStack()
        self._decoder = self._borrow_decoder(self._borrowed)
        self._brokers = task.brokers
        self._epochs = dict(task.epochs)
        self._waiting = {piece.topic_partition: Span(piece.start, piece.until) for piece in task.ranges}
        self._fetchers: set[RangeFetcher] = set()
        self._faults: dict[TopicPartition, Faults] = {}
        self._damaged: dict[TopicPartition, Span] = {}  # to be fetched again when their fetchers have ended
        self._queue = FetchedQueue(min(options.config.queued_max_bytes, _AHEAD_BYTES))
        self._backoff_s = options.config.refresh_leader_backoff_ms / 1000
        self._patience_s = options.config.socket_timeout_ms / 1000
        self._try_at = 0.0
        self._failure: Exception | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        give_up_at = time.monotonic() + self._patience_s
        while self._waiting or self._fetchers:
            if self._waiting and time.monotonic() >= self._try_at:
                self._try_at = time.monotonic() + self._backoff_s
                self._start_fetchers()
            item = self._queue.get(self._backoff_s)
            if isinstance(item, FetcherEnded):
                self._ended(item)
            elif item is not None:
                if item.partition not in self._damaged:
                    damage = yield from item.batches(self._decoder)
                    if damage is not None:
                        self._fetch_again(item.partition, damage)
                give_up_at = time.monotonic() + self._patience_s
            if self._waiting and time.monotonic() > give_up_at:
                raise BrokerUnavailable(
                    f"no leader could be read from for {self._patience_s:g} s: {', '.join(map(str, self._waiting))}; "
                    f"last error: {self._failure}"
                ) from self._failure

    def _fetch_again(self, partition: TopicPartition, damage: Damage) -> None:
        """Drop what follows damaged bytes, and fetch all of that again, since they may be damaged in transit.

        Raises:
            CorruptRecord, RecordTooLarge: the damage is believed.
        """
        faults = self._faults.get(partition, Faults()).after(damage.left.start, damage.error)
        if faults.are_believed:
            raise damage.error
        _log.warning("group %s: %s; fetching it again", self._options.config.group_id, damage.error)
        self._faults[partition], self._damaged[partition] = faults, damage.left
        for fetcher in self._fetchers:
            fetcher.give_up(partition)

    def close(self) -> None:
        """End the running fetchers: Spark may stop reading before the end, as for ``LIMIT``."""
        self._queue.close()
        for fetcher in self._fetchers:
            fetcher.pooled.connection.close()
        for fetcher in self._fetchers:
            fetcher.join()
        self._borrowed.close()

    def _start_fetchers(self) -> None:
        """Start a fetcher per leader of the waiting ranges; those without a reachable leader continue to wait."""
        by_leader: dict[Broker, dict[TopicPartition, Span]] = {}
        try:
            leaders = self._worker.find_leaders(list(self._waiting), self._brokers, self._epochs)
        except RetriableError as error:
            self._failure = error
            return
        if reasons := {error_name(self._worker.leaderless[p]) for p in self._waiting.keys() - leaders.keys()}:
            self._failure = LeaderUnknown(f"brokers name no leader: {', '.join(sorted(reasons))}")
        for partition, leader in leaders.items():
            by_leader.setdefault(leader, {})[partition] = self._waiting[partition]
        for leader, ranges in by_leader.items():
            try:
                self._start_fetcher(leader, ranges)
            except RetriableError as error:
                self._find_leaders_again(ranges, error)

    def _start_fetcher(self, leader: Broker, ranges: dict[TopicPartition, Span]) -> None:
        connection = self._worker.take_connection(leader)
        with ExitStack() as borrowed:
            fetcher = RangeFetcher(
                connection,
                self._borrow_decoder(borrowed),
                leader,
                ranges,
                self._queue,
                self._options.config,
                fail_on_data_loss=self._options.fail_on_data_loss,
                epochs={p: RangeEpochs(self._epochs.get(p), self._worker.epochs.get(p, UNKNOWN_EPOCH)) for p in ranges},
            )
            try:
                start_thread(fetcher)
            except ThreadLimit:
                self._worker.return_connection(leader, connection)
                raise
            self._borrowed.push(borrowed.pop_all())
        self._fetchers.add(fetcher)
        for partition in ranges:
            del self._waiting[partition]

    def _borrow_decoder(self, borrowed: ExitStack) -> BatchDecoder:
        settings = DecoderSettings.from_config(self._options.config)
        return borrowed.enter_context(borrowed_decoder(settings, self._columns))

    def _ended(self, ended: FetcherEnded) -> None:
        fetcher = ended.fetcher
        self._fetchers.discard(fetcher)
        fetcher.join()  # its run method is about to return
        self._epochs.update(fetcher.checked)
        if ended.connection_is_reusable:
            self._worker.return_connection(fetcher.broker, fetcher.pooled)
        else:
            fetcher.pooled.connection.close()
        if ended.error is not None:
            if not isinstance(ended.error, RetriableError):
                raise ended.error
            if fetcher.pooled.reused and not ended.connection_is_reusable:
                self._try_at = 0.0  # it may have broken between two tasks: no sign of a broker failure
            self._find_leaders_again(ended.left, ended.error, fetcher.fenced)
        for partition in fetcher.partitions & self._damaged.keys():
            self._waiting[partition] = self._damaged.pop(partition)

    def _find_leaders_again(
        self, ranges: dict[TopicPartition, Span], error: Exception, fenced: Collection[TopicPartition] = ()
    ) -> None:
        """Read these ranges from another leader, or over another connection."""
        _log.info("group %s: %s; looking for leaders again", self._options.config.group_id, error)
        self._failure = error
        self._waiting.update(ranges)
        self._worker.forget_leaders(ranges, fenced)
