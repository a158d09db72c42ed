"""SparkFetchControl: passes the query's assignment between the rebalance thread and Spark's thread.

Spark calls the source on the main thread of its process; the member's rebalance thread starts and stops partitions. The
two meet only here, under one condition that is never held across I/O.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.core.offsets import Stamp
from zkconsumer.errors import ConsumerClosed, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.spark.microbatch import Span

_log = logging.getLogger(__name__)

_LONGEST_DRAIN_MS = 4000
_LONGEST_HEARTBEAT_MS = 15_000
"""Longest interval that a broker determines with ``group.protocol=consumer``, unless its limits were raised."""
_SHARE_OF_REBALANCE_TIMEOUT = 0.8


def drain_timeout_ms(config: ConsumerConfig) -> float:
    """How long releasing partitions may wait for the batch in flight, in ms.

    JVM members try to claim at 0, 1, .. times the backoff and then give up for good, so half of that window remains for
    them (architecture.md#spark-source). In a group that brokers coordinate the limit is 0.8 of the rebalance timeout,
    as that of the lease, which ends so long after the last heartbeat before the rebalance; the member learns of the
    rebalance by the next one.
    """
    if config.brokers_coordinate:
        limit_ms = _SHARE_OF_REBALANCE_TIMEOUT * config.max_poll_interval_ms
        by_broker = config.group_protocol == "consumer"
        return max(0, limit_ms - (_LONGEST_HEARTBEAT_MS if by_broker else config.heartbeat_interval_ms))
    return max(0, min(_LONGEST_DRAIN_MS, (config.rebalance_max_retries - 1) * config.rebalance_backoff_ms / 2))


def drain_remedy(config: ConsumerConfig) -> str:
    """What to change where batches take longer, as text for the log."""
    if config.brokers_coordinate:
        return "raise max.poll.interval.ms of this query"
    return "raise rebalance.max.retries and rebalance.backoff.ms in all members"


@dataclass(frozen=True, slots=True)
class _Finished:
    """Ends of finished batches in one generation of the assignment, which may be committed; stamp of the last one."""

    generation: int = -1
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch that Spark is processing.

    ``generation`` is that of the newest assignment which its partitions were kept for; None if an earlier run of the
    query planned it. ``ends`` has only the partitions that were not released meanwhile.
    """

    generation: int | None
    number: int
    ends: Mapping[TopicPartition, int]
    stamp: Stamp | None = None


class SparkFetchControl:
    """A :class:`~zkconsumer.core.fetchcontrol.FetchControl` for which Spark's tasks do the fetching.

    Only the rebalance thread writes the assignment. Spark's thread declares the batch in flight; Spark's thread or an
    acknowledgement ends it, whichever is first. Only the ends of finished batches may be committed, so every commit by
    timer, rebalance or leaving follows the checkpoint.

    Args:
        drain_timeout_s: how long :meth:`stop` waits for a batch in flight, in seconds.
        remedy: see :func:`drain_remedy`.
    """

    needs_topics = True

    def __init__(self, drain_timeout_s: float, remedy: str = "") -> None:
        self._drain_timeout_s = drain_timeout_s
        self._remedy = remedy
        self._changed = threading.Condition()
        self._assignment: FetchAssignment | None = None
        self._released: Set[TopicPartition] = frozenset()  # since the last start
        self._stopped = True
        self._finished = _Finished()
        self._in_flight: _Batch | None = None
        self._given_up: _Batch | None = None
        self._failure: BaseException | None = None
        self._refusal: ZkConsumerError | None = None

    # -- the rebalance thread ---------------------------------------------------------------------------------------

    def stop(self, *, drain: bool = True) -> None:
        """Stop planning, and wait for the batch in flight if it reads assigned partitions; see :meth:`release`."""
        self.release(() if self._assignment is None else self._assignment.threads.keys(), drain=drain)

    def release(self, partitions: Collection[TopicPartition], *, drain: bool = True) -> None:
        """Stop planning until :meth:`start`; wait for the batch in flight only if it reads these partitions.

        At most the drain timeout: after it the partitions are released with the offset before the batch, and their next
        owner reads it again. That is decided once for each batch: a later attempt of the same rebalance does not wait
        again.

        Whether it reads them is decided when no further batch can be declared. Otherwise: 1. no batch is in flight;
        2. one is declared that reads these partitions; 3. they are released at once.
        """
        with self._changed:
            self._stopped = True
            self._released |= set(partitions)
            batch = self._in_flight
            if not drain or batch is None or batch is self._given_up or batch.ends.keys().isdisjoint(partitions):
                return
            if self._changed.wait_for(lambda: self._in_flight is not batch, self._drain_timeout_s):
                return
            self._given_up = batch
            timeout_s = self._drain_timeout_s
        _log.warning(
            "a batch of %d partitions did not finish within %.1f s; the next owners of its partitions read them again "
            "from its start. If batches take longer, %s",
            len(batch.ends),
            timeout_s,
            self._remedy,
        )

    def start(self, assignment: FetchAssignment) -> None:
        """Let Spark's thread plan with a new assignment.

        The ends of batches, finished or in flight, of partitions that were kept belong to the new assignment, too.
        Otherwise: 1. a batch is in flight; 2. the member gains a partition; 3. the batch finishes, but its end belongs
        to a former assignment; 4. before the next plan another rebalance releases what the batch read, at the offset
        before it, and the next owner reads all of it again.
        """
        with self._changed:
            kept = self._kept_for(assignment)
            batch, generation = self._in_flight, assignment.generation
            before = None if self._assignment is None else self._assignment.generation
            if self._finished.generation == before:
                self._finished = replace(
                    self._finished, generation=generation, offsets=_only(self._finished.offsets, kept)
                )
            if batch is not None and batch.generation == before and not kept.isdisjoint(batch.ends):
                self._in_flight = replace(batch, generation=generation, ends=_only(batch.ends, kept))
                if self._given_up is batch:
                    self._given_up = self._in_flight
            self._assignment = assignment
            self._released = frozenset()
            self._stopped = False
            self._changed.notify_all()

    def _kept_for(self, assignment: FetchAssignment) -> Set[TopicPartition]:
        """Partitions of both assignments that were never released between them."""
        former = {} if self._assignment is None else self._assignment.threads
        return {p for p, thread in assignment.threads.items() if former.get(p) == thread and p not in self._released}

    def withhold(self) -> None:
        """Do nothing: the planner checks the member's lease before it plans, and tasks cannot be recalled."""

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:  # noqa: ARG002  see below
        """Ends of finished batches, even if ``commit.on=delivery`` requests handed-out positions.

        Spark repeats a failed batch, which is possible only if the batch was not committed.
        """
        with self._changed:
            newest = -1 if self._assignment is None else self._assignment.generation
            return dict(self._finished.offsets) if self._finished.generation == newest else {}

    def superseded(self) -> Collection[tuple[TopicPartition, int]]:
        """Nothing: Spark commits explicit offsets of a generation."""
        return ()

    def fail(self, error: BaseException) -> None:
        """Record that the rebalance thread died; Spark's thread raises the error when it needs the assignment."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def refuse(self, error: ZkConsumerError | None) -> None:
        """Record that this member's group may not be used, and why; None: that has ended."""
        with self._changed:
            self._refusal = error
            self._changed.notify_all()

    # -- Spark's thread ---------------------------------------------------------------------------------------------

    def await_assignment(self, timeout_s: float) -> FetchAssignment | None:
        """Wait until no rebalance is in progress; None if that takes longer than ``timeout_s`` seconds.

        Raises:
            ConsumerClosed: the rebalance thread has died.
            GroupAuthorizationFailed, TopicUnreadable: a permission for offsets stored in Kafka is missing.
            ZooKeeperRefused, MemberRefused: the same in ZooKeeper; the coordinator refuses this member.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._refusal or not self._stopped, timeout_s)
            if self._failure is not None:
                raise ConsumerClosed("the query's membership in its group ended with an error") from self._failure
            if self._refusal is not None:
                raise self._refusal
            if not self._stopped and self._assignment is not None and self._assignment.refused:
                raise next(iter(self._assignment.refused.values()))
            return None if self._stopped else self._assignment

    def await_partitions(self, timeout_s: float) -> None:
        """Wait until the query owns a partition, at most ``timeout_s`` seconds; an error ends the wait.

        The first assignment of a member of a cooperative group has none: 1. it joins; 2. the others release partitions
        for it; 3. they are assigned to it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._refusal or self._owns_or_cannot(), timeout_s)

    def _owns_or_cannot(self) -> bool:
        """True if a partition is owned, or the subscribed topics have none; under the lock."""
        assignment = None if self._stopped else self._assignment
        if assignment is None:
            return False
        has_partitions = any(topic.partitions for topic in assignment.topics.values())
        return bool(assignment.threads or assignment.refused) or not has_partitions

    def await_newer(self, assignment: FetchAssignment | None, timeout_s: float) -> None:
        """Wait until there is another assignment than this one, at most ``timeout_s`` seconds; an error ends the wait.

        There may never be one: a rebalance that gives the query what it has makes none.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or self._refusal or self._assignment is not assignment, timeout_s
            )

    def current(self) -> FetchAssignment | None:
        """The newest assignment, which a rebalance may be about to replace; None before the first."""
        with self._changed:
            return self._assignment

    def may_commit(self, generation: int, offsets: Mapping[TopicPartition, int], stamp: Stamp | None = None) -> None:
        """Set the offsets that may be committed in this generation, ends of finished batches, and their stamp.

        No effect if there is a newer assignment: what it has kept of the former one may be committed still.
        """
        with self._changed:
            if self._assignment is None or generation != self._assignment.generation:
                return
            self._finished = _Finished(generation, dict(offsets), stamp)

    def take(
        self, generation: int, number: int, rows: Mapping[TopicPartition, Span], stamp: Stamp | None = None
    ) -> bool:
        """Declare a batch in flight; False if a rebalance has begun meanwhile, then the batch must not be read.

        Without this check: a batch is planned; the rebalance stops fetching, sees no batch in flight, and releases;
        another member claims and reads; then Spark reads the same offsets.

        Args:
            generation: generation of the assignment for which the batch was planned.
            number: number of the plan.
            rows: offsets that the batch reads.
            stamp: of the plan.
        """
        with self._changed:
            if self._stopped or self._assignment is None or self._assignment.generation != generation:
                return False
            self._in_flight = _Batch(generation, number, {p: span.until for p, span in rows.items()}, stamp)
            return True

    def replay(self, number: int, spans: Mapping[TopicPartition, Span]) -> None:
        """Declare that Spark repeats a batch that an earlier run of the query planned.

        No effect before the first assignment, when there are no partitions whose release could wait for it. The batch
        is over when the query joins, but only the first plan would report that: the join would wait for the drain
        timeout.
        """
        with self._changed:
            if self._in_flight is None and self._assignment is not None:
                self._in_flight = _Batch(None, number, {p: span.until for p, span in spans.items()})

    def finish(self, number: int) -> None:
        """End the batch in flight, since Spark requests the next one; ``number`` is that of the last finished one."""
        with self._changed:
            if self._in_flight is not None:
                self._end_batch(is_finished=self._in_flight.number == number)

    # -- any thread -------------------------------------------------------------------------------------------------

    def acknowledge(self, number: int) -> tuple[int, dict[TopicPartition, int]] | None:
        """End the batch with this number, which Spark has finished, before it requests the next one.

        Returns:
            The generation, and the offsets that may be committed in it now; None if this batch is not in flight.
        """
        with self._changed:
            batch = self._in_flight
            if batch is None or batch.number != number:
                return None
            self._end_batch(is_finished=True)
            if batch.generation != self._finished.generation:
                return None
            return batch.generation, dict(self._finished.offsets)

    def stamp(self) -> Stamp | None:
        """The stamp of the offsets that may be committed."""
        with self._changed:
            return self._finished.stamp

    def abandon(self) -> None:
        """Do not wait for the batch in flight any more: the query ends, so its end will not be reported."""
        with self._changed:
            self._drain_timeout_s = 0
            self._in_flight = None
            self._changed.notify_all()

    def _end_batch(self, *, is_finished: bool) -> None:
        """End the batch, under the lock. Its end is committable before :meth:`stop` wakes up: a release commits it."""
        batch, self._in_flight = self._in_flight, None
        if batch is not None and is_finished and batch.generation == self._finished.generation:
            self._finished = _Finished(batch.generation, {**self._finished.offsets, **batch.ends}, batch.stamp)
        self._changed.notify_all()


def _only(ends: Mapping[TopicPartition, int], partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
    return {partition: end for partition, end in ends.items() if partition in partitions}
