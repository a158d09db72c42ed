"""run: a whole consumer around one function that handles a record, from joining the group to leaving it.

A thread for each stream reads and puts records into lanes (``rules/lanes.py``); workers take them out, call the handler
and declare them done. Where a signal, or an error of any thread, stops the run, no worker takes another record. What
was not handled is not done, so it is not committed, and is read again by its next owner.

A rebalance that releases partitions holds their lanes, and waits for the handlers that have a record of them, so that
the next owner reads nothing that is handled here, too. A record that waits is dropped if its partition was lost. It is
not begun while the lease has lapsed, since another member may own its partition.

The thread of the caller waits for the stop only, and takes no lock that the other threads need: an interrupt of it
leaves nothing locked.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.connector.connector import ConsumerConnector
from zkconsumer.connector.rules.lanes import Lane, Lanes, Order, lane_by
from zkconsumer.connector.rules.plainresult import refuse_awaitable, refuse_coroutine_functions
from zkconsumer.connector.rules.retry import Retry
from zkconsumer.connector.stream import MessageStream, is_unfinished
from zkconsumer.errors import ConsumerClosed, UsageError, ZkConsumerError
from zkconsumer.group.committer import warn_of_release_without_commit
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules.subscription import TopicFilter
from zkconsumer.model import ConsumerThreadId, Message, TopicPartition
from zkconsumer.process.threads import start_thread
from zkconsumer.process.wakeup import SIGNALS_S, Latch

_log = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_RECHECK_S: Final = 0.1
"""How often threads ask whether the lease holds again, or whether the run is to stop; neither notifies them."""


def run(
    handler: Callable[[Message], object],
    config: ConsumerConfig,
    topics: Collection[str] | TopicFilter,
    *,
    workers: int = 4,
    ordered_by: Order = "partition",
    retry: Retry = Retry(),  # noqa: B008  it is immutable
    dead_letter: Callable[[Message, Exception], object] | None = None,
) -> None:
    """Consume topics until SIGTERM or SIGINT: call ``handler`` for each record, and commit those that it has handled.

    On a signal no more records are handed out; what handlers hold is finished and committed, then the consumer leaves
    the group, and this returns. A signal that comes while the consumer joins ends that, too. The second signal has its
    usual effect. Outside of the main thread signals are not handled; then only an exception ends the run.

    An exception of the handler is retried, and then given to ``dead_letter``; after that the record counts as handled.
    Without ``dead_letter``, or if that raises too, the run ends with the exception, and nothing is skipped: the record
    is not committed, and it is read again. The run also ends with any other exception of the handler, such as
    KeyboardInterrupt, and with an error of the consumer.

    A record may be handled more than once: after a crash, after the end of a session, and if a rebalance gives its
    partition to another member while its handler takes longer than :attr:`.ConsumerConnector.release_s`. With
    ``ordered_by="key"`` a signal and a rebalance repeat records, too: in each partition a commit stops before the first
    record that is not handled, and those after it that are handled already are read again.

    Args:
        handler: is called by several threads. When it returns, the record's effects must be durable.
        config: the properties; ``commit.on``, ``auto.commit.enable`` and ``consumer.timeout.ms`` are set by this. At
            most ``max.unfinished.records`` records are held in memory, of all partitions together.
        topics: names, or a filter.
        workers: number of threads that call the handler.
        ordered_by: ``partition``: the records of a partition are handled one by one, in their order; ``key``: only
            records with the same key are, so that several workers can work on one partition. Records without a key
            then have no order.
        retry: how often the handler is called again after an exception. A stop ends the pauses; the record is not done
            then.
        dead_letter: is called by several threads with a record and the last exception of its handler. When it returns,
            the record must be stored durably.

    Raises:
        UsageError: an argument is wrong.
        BaseException: what the handler or ``dead_letter`` raised, as above; or the consumer, see
            :class:`~zkconsumer.ConsumerConnector` and :class:`~zkconsumer.MessageStream`.
    """
    lane_of = lane_by(ordered_by)
    if workers < 1:
        raise UsageError(f"workers must be at least 1, not {workers}")
    if isinstance(topics, str):
        raise UsageError(f"topics must be a collection of names, or a filter: [{topics!r}], not {topics!r}")
    if not topics:
        raise UsageError("run needs at least one topic, or a filter")
    refuse_coroutine_functions(handler, dead_letter)
    limit = config.max_unfinished_records
    # Each worker has a partition to work on, also where all records that fit are of partitions whose handlers are slow.
    config = config.replace(
        commit_on="done",
        auto_commit_enable=True,
        consumer_timeout_ms=-1,
        max_unfinished_records=max(1, limit // workers),
    )
    work = _Work(handler, retry, dead_letter, lane_of, limit)
    with _Signals(work.stopping) as signals, suppress(_EndedEarly), ConsumerConnector(config) as connector:
        connector.set_rebalance_listener(_Releases(work, connector, config.group_id))
        streams = _streams(connector, topics)
        signals.raises = False
        try:
            work.start(streams, workers, connector)
            work.stopping.wait()
        finally:  # also after an interrupt, or where not all threads could be started
            work.stopping.set()
        connector.end_streams()
        work.join()
    if work.error is not None:
        raise work.error


def _streams(connector: ConsumerConnector, topics: Collection[str] | TopicFilter) -> Sequence[MessageStream[Message]]:
    if isinstance(topics, TopicFilter):
        return connector.create_message_streams_by_filter(topics, 1)
    streams = connector.create_message_streams(dict.fromkeys(topics, 1))
    return [stream for of_topic in streams.values() for stream in of_topic]


class _EndedEarly(BaseException):
    """A signal came before the consumer had joined; raised in the main thread, wherever it is."""


class _Signals:
    """Lets the first signal set the latch, and later ones have their former effect; only in the main thread.

    Attributes:
        raises: the signal also raises :class:`_EndedEarly`: joining may wait for other members, or for servers.
    """

    def __init__(self, stopping: Latch) -> None:
        self._stopping = stopping
        self._former: dict[int, Any] = {}
        self.raises = True

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._former[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._stopping.set()
        self.__exit__()
        _log.info("%s: finishing what handlers hold; a second one ends at once", signal.Signals(number).name)
        if self.raises:
            raise _EndedEarly


class _Item(NamedTuple):
    """A record that waits for a worker, the stream that has it, and how often its handler has failed."""

    stream: MessageStream[Message]
    message: Message
    failures: int = 0


class _Work:
    """The records that wait, and the threads that read and handle them.

    Args:
        handler: see :func:`run`; likewise the next two.
        retry: likewise.
        dead_letter: likewise.
        lane_of: gives the lane of a record.
        limit: most records that wait or are handled.

    Attributes:
        stopping: set when no further record is to be handled.
        error: what stopped the run; None if a signal did. Written once, under the lock.
    """

    def __init__(
        self,
        handler: Callable[[Message], object],
        retry: Retry,
        dead_letter: Callable[[Message, Exception], object] | None,
        lane_of: Callable[[Message], Lane],
        limit: int,
    ) -> None:
        self._handler = handler
        self._retry = retry
        self._dead_letter = dead_letter
        self._lane_of = lane_of
        self._limit = limit
        self.stopping = Latch()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._taken = threading.Condition(self._lock)
        self._finished = threading.Condition(self._lock)
        self._paused = threading.Condition(self._lock)
        self._lanes: Lanes[_Item] = Lanes()
        self._may_hand_out: Callable[[TopicPartition], bool] = lambda _: True
        self._threads: list[threading.Thread] = []

    def start(self, streams: Sequence[MessageStream[Message]], workers: int, connector: ConsumerConnector) -> None:
        """Start the threads: one for each stream, and the workers.

        Raises:
            ThreadLimit: not all could be started.
        """
        self._may_hand_out, name = connector.may_hand_out, connector.consumer_id
        makes: list[tuple[str, Callable[[], None]]] = [
            (f"{name}-read-{number}", lambda stream=stream: self._read(stream))  # type: ignore[misc]
            for number, stream in enumerate(streams)
        ]
        makes += [(f"{name}-work-{number}", self._work) for number in range(workers)]
        for thread_name, target in makes:
            thread = threading.Thread(target=self._guarded, args=[target], name=thread_name, daemon=True)
            start_thread(thread)
            self._threads.append(thread)

    def join(self) -> None:
        """Wait for the threads to end, after the stop and the end of the streams."""
        for thread in self._threads:
            while thread.is_alive():
                thread.join(SIGNALS_S)

    # -- a rebalance --------------------------------------------------------------------------------------------------

    def hold(self, partitions: Collection[TopicPartition], patience_s: float) -> None:
        """Hand out nothing more of these partitions, and wait for the handlers that have records of them.

        A record whose handler is to be called again waits like the others.
        """
        with self._lock:
            self._lanes.hold(partitions)
            self._paused.notify_all()
            if not self._finished.wait_for(lambda: not self._lanes.is_busy(), patience_s):
                _log.warning(
                    "a handler has not finished a record within %.1f s, and its partition is released: the next owner "
                    "reads the record again",
                    patience_s,
                )

    def resume(self, kept: Collection[TopicPartition]) -> None:
        """Hand out records of the kept partitions again, and forget those of the others."""
        with self._lock:
            self._lanes.resume(kept)
            self._arrived.notify_all()
            self._taken.notify_all()

    # -- the threads ------------------------------------------------------------------------------------------------

    def _guarded(self, target: Callable[[], None]) -> None:
        """Run a thread; its error stops the run, and its end wakes those that wait."""
        try:
            target()
        except BaseException as error:  # noqa: BLE001  the caller of run gets it
            with self._lock:
                if self.error is None:
                    self.error = error
            self.stopping.set()
        finally:
            with self._lock:
                self._arrived.notify_all()
                self._taken.notify_all()
                self._finished.notify_all()
                self._paused.notify_all()

    def _read(self, stream: MessageStream[Message]) -> None:
        """Put the records of a stream into lanes, until it ends."""
        for message in stream:
            with self._lock:
                while len(self._lanes) >= self._limit and not self.stopping.is_set():
                    self._taken.wait(_RECHECK_S)  # a stop does not notify it; its end wakes the others
                if self.stopping.is_set():
                    return
                self._lanes.put(self._lane_of(message), _Item(stream, message))
                self._arrived.notify()

    def _work(self) -> None:
        """Handle records until the stop."""
        while (taken := self._take()) is not None:
            lane, item = taken
            try:
                pause_s = self._handle(item)
            except BaseException:
                with self._lock:
                    self._lanes.give_up(lane)
                raise
            with self._lock:
                if pause_s is not None:
                    self._pause(lane, pause_s)
                    failures = item.failures + (not self._lanes.is_held(lane))  # a pause that was cut costs no attempt
                    self._lanes.put_back(lane, item._replace(failures=failures))
                self._lanes.finish(lane)
                self._taken.notify()
                self._finished.notify_all()

    def _pause(self, lane: Lane, seconds: float) -> None:
        """Wait before the next attempt, under the lock; a stop, and a rebalance that holds the lane, end it."""
        self._paused.wait_for(lambda: self.stopping.is_set() or self._lanes.is_held(lane), seconds)

    def _take(self) -> tuple[Lane, _Item] | None:
        """Wait for a record that may be handled; None after the stop."""
        with self._lock:
            while not self.stopping.is_set():
                taken = self._lanes.take(self._may_begin)
                if taken is not None:
                    return taken
                self._arrived.wait(_RECHECK_S if self._lanes.is_waiting() else None)
        return None

    def _may_begin(self, item: _Item) -> bool:
        """False while another member may own the partition; a record of one that was lost is taken, and dropped."""
        stream, message, _ = item
        return not is_unfinished(stream, message) or self._may_hand_out(TopicPartition(*message[:2]))

    def _handle(self, item: _Item) -> float | None:
        """Handle a record and declare it done, or return the pause after which it is to be tried again, in seconds.

        It stays unfinished if this raises.
        """
        stream, message, failures = item
        if not is_unfinished(stream, message):
            return None
        try:
            result = self._handler(message)
        except Exception as error:
            failures += 1
            pause_s = self._retry.pause_s(failures, error)
            where = f"{TopicPartition(*message[:2])} offset {message.offset}"
            if pause_s is not None:
                _log.warning("%s: the handler failed, trying again in %.1f s: %r", where, pause_s, error)
                return pause_s
            if self._dead_letter is None:
                _log.error("%s: the handler failed %d times; the run ends: %r", where, failures, error)
                raise
            _log.warning("%s: the handler failed %d times; dead letter: %r", where, failures, error)
            result = self._dead_letter(message, error)
        refuse_awaitable(result)
        stream.done(message)
        return None


class _Releases(ConsumerRebalanceListener):
    """Keeps handlers from working on partitions that are released, and commits what they finish meanwhile.

    Args:
        work: whose handlers they are.
        connector: commits.
        group: consumer group.
    """

    def __init__(self, work: _Work, connector: ConsumerConnector, group: str) -> None:
        self._work = work
        self._connector = connector
        self._group = group

    def before_releasing_partitions(self, owned: Set[TopicPartition]) -> None:
        """See :class:`~zkconsumer.ConsumerRebalanceListener`.

        The automatic commit does not cover what handlers have finished while it was made, and since.
        """
        if not owned:
            return
        self._work.hold(owned, self._connector.release_s)
        try:
            self._connector.commit_offsets()
        except ConsumerClosed:
            raise
        except ZkConsumerError as error:
            warn_of_release_without_commit(self._group, error)

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """See :class:`~zkconsumer.ConsumerRebalanceListener`."""
        self._work.resume([partition for partition, thread in assignment.items() if thread.consumer_id == consumer_id])
