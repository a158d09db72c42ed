"""QueryMonitor: lag, rows and owned partitions of a session's queries, from Spark's listener events.

A source written in Python has no metrics of its own (notes.md#sparks-data-source-api). It puts the lag into
``reportLatestOffset``; Spark passes that to listeners with every progress event, on a thread of the user's process.
"""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import lag
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.acknowledge import acknowledge, request_report
from zkconsumer.spark.querymetrics import SourceState, expose
from zkconsumer.spark.rules.offsetsjson import Report, decode_offset, decode_report
from zkconsumer.spark.rules.sourceoffset import SourceOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)


class _Source(NamedTuple):
    """A source of a query, with its place among the query's sources: two of them may be readers of one group."""

    query: str
    group: str
    place: int


class QueryMonitor(StreamingQueryListener):
    """Keeps a :class:`SourceState` for each query of this source that runs in a session.

    Each progress event is a line in the log ``zkconsumer.spark.monitor``. The registry of ``prometheus_client`` exposes
    ``zkconsumer_spark_lag``, ``zkconsumer_spark_owned_partitions`` and ``zkconsumer_spark_rows_total``. Only Spark's
    listener thread writes the states.

    Args:
        parallelism: called with each progress; returns how many tasks the cluster runs at a time, None if unknown.
    """

    def __init__(self, parallelism: Callable[[], int | None] = lambda: None) -> None:
        self._parallelism = parallelism
        self._states: Mapping[_Source, SourceState] = {}
        self._sockets: Mapping[_Source, str | None] = {}
        self._unreachable: frozenset[str] = frozenset()

    def snapshot(self) -> list[SourceState]:
        """The current states, by query and group, in a new list; that of several readers of one group covers all.

        What a query owns is asked of its source, if that runs on this machine: Spark reports no progress of a query
        without new records, while a rebalance takes partitions away from it.
        """
        states = [(source, _newest(state, self._sockets.get(source))) for source, state in sorted(self._states.items())]
        return [merged([state for _, state in of_group]) for _, of_group in groupby(states, lambda item: item[0][:2])]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing: a query that has just started has no state."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  Spark's name
        """Record the progress of the query's sources of this package."""
        progress = event.progress
        query, name = str(progress.id), progress.name or str(progress.id)
        for place, source in enumerate(progress.sources):
            report = decode_report(source.latestOffset)
            if report is None:
                continue
            planned = planned_offset(source.endOffset)
            self._acknowledge(report, planned)
            key = _Source(query, report.group, place)
            before = self._states.get(key)
            state = SourceState(
                name,
                report.group,
                progress.batchId,
                source.numInputRows + (before.rows if before else 0),
                lag_after(report.available, planned),
                report.owned,
                report.rebalances,
            )
            self._sockets = {**self._sockets, key: report.acknowledge}
            self._states = {**self._states, key: state}
            _log.info(
                "query %s group %s batch %d: %d rows, lag %d, %d partitions owned, %d rebalances",
                name,
                state.group,
                state.batch,
                source.numInputRows,
                sum(state.lag.values()),
                len(state.owned),
                state.rebalances,
            )

    def _acknowledge(self, report: Report, planned: SourceOffset) -> None:
        """Notify the source that its batch has finished, so that it is committed before the next trigger.

        A socket that is gone, or was never on this machine, is not tried again. After any other error it is: a commit
        may have waited for a broker, or this process may have had no file descriptor left.
        """
        path = report.acknowledge
        if path is None or path in self._unreachable:
            return
        try:
            acknowledge(path, planned.number, self._parallelism())
        except TimeoutError:
            _log.info("group %s: the source has not yet committed batch %d", report.group, planned.number)
        except OSError as error:
            if isinstance(error, FileNotFoundError | ConnectionRefusedError):
                self._unreachable |= {path}
            _log.info("group %s: cannot acknowledge finished batches over %s: %s", report.group, path, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing: the state has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  Spark's name
        """Forget the query, which owns no partitions any more."""
        ended = str(event.id)
        self._sockets = {key: path for key, path in self._sockets.items() if key.query != ended}
        self._states = {key: state for key, state in self._states.items() if key.query != ended}


def _newest(state: SourceState, path: str | None) -> SourceState:
    """A state with what its source reports now; unchanged if the source does not answer."""
    try:
        report = None if path is None else decode_report(request_report(path))
    except OSError:
        return state
    if report is None:
        return state
    # Not of what was lost and gained again since the plan, though it is owned.
    lag_of_owned = {partition: offsets for partition, offsets in state.lag.items() if partition in report.available}
    return replace(state, lag=lag_of_owned, owned=report.owned, rebalances=report.rebalances)


def merged(states: Sequence[SourceState]) -> SourceState:
    """The state of one query in one group, of those of its readers.

    Each reader is a member, and sees the rebalances of their group: the one that has seen most has seen them all.
    """
    return replace(
        states[0],
        batch=max(state.batch for state in states),
        rows=sum(state.rows for state in states),
        lag={partition: offsets for state in states for partition, offsets in state.lag.items()},
        owned=frozenset().union(*(state.owned for state in states)),
        rebalances=max(state.rebalances for state in states),
    )


def lag_after(available: Mapping[TopicPartition, Span], planned: SourceOffset) -> dict[TopicPartition, int]:
    """Lag of each owned partition once a batch is done.

    Args:
        available: positions and log ends when the source planned the batch.
        planned: the batch's end offset, or an older one if no new batch was planned.
    """
    lags = {}
    for partition, (position, log_end) in available.items():
        batch = planned.spans.get(partition)
        done = batch.until if batch is not None and batch.start == position else position
        lags[partition] = lag(done, log_end) or 0
    return lags


def planned_offset(end: str | None) -> SourceOffset:
    """The end offset of a batch; an offset without partitions if there is none, or it is another source's."""
    try:
        return SourceOffset() if end is None else decode_offset(json.loads(end))
    except (ValueError, UsageError, AttributeError):  # another source's offset need not even be an object
        return SourceOffset()


def _all_states() -> list[SourceState]:
    monitors = [monitor() for monitor in list(_monitors.values())]
    return [state for monitor in monitors if monitor is not None for state in monitor.snapshot()]


_monitors: weakref.WeakKeyDictionary[SparkSession, weakref.ref[QueryMonitor]] = weakref.WeakKeyDictionary()
"""The monitor of each session. Weak, since Spark Connect gives a listener its session: a strong reference here would
keep both forever. Spark holds a listener as long as it is attached."""


def attach(spark: SparkSession) -> QueryMonitor:
    """The monitor of a session, created and attached at the first call.

    A client of Spark Connect drops all listeners when its connection breaks, and this cannot be detected. So with Spark
    Connect each call attaches the monitor again; it is removed first, so it is attached only once.
    """
    reference = _monitors.get(spark)
    monitor = None if reference is None else reference()
    if monitor is None:
        expose(_all_states)
        session = weakref.ref(spark)
        monitor = QueryMonitor(lambda: _parallelism(session()))
        _monitors[spark] = weakref.ref(monitor)
        spark.streams.addListener(monitor)
    elif _is_connect(spark):
        spark.streams.removeListener(monitor)
        spark.streams.addListener(monitor)
    return monitor


def _parallelism(spark: SparkSession | None) -> int | None:
    """How many tasks the cluster runs at a time now: executors come and go."""
    try:
        return None if spark is None else spark.sparkContext.defaultParallelism
    except Exception as error:  # noqa: BLE001  Spark's and py4j's: Spark Connect has no context, another one has ended
        _log.debug("the parallelism of the cluster is unknown: %s", error)
        return None


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")
