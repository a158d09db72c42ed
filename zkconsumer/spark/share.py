"""SparkFetchControl: passes the query's share of the group between the rebalance thread and Spark's thread.

Spark calls the source on the main thread of its process; the group takes and gives partitions on the member's
rebalance thread. They meet here and nowhere else, under one condition that is never held across I/O.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.errors import ConsumerClosed, GroupAuthorizationFailed
from zkconsumer.model import TopicPartition
from zkconsumer.spark.planning import Span

_log = logging.getLogger(__name__)

_LONGEST_DRAIN_MS = 4000


def drain_timeout_ms(config: ConsumerConfig) -> float:
    """How long releasing partitions may wait for the batch in flight, in ms: ``rebalance.drain.timeout.ms``.

    JVM members try to claim at 0, 1, .. times the backoff and then give up for good, so half of that window is left
    to them (DESIGN 4.7).
    """
    return max(0, min(_LONGEST_DRAIN_MS, (config.rebalance_max_retries - 1) * config.rebalance_backoff_ms / 2))


@dataclass(frozen=True, slots=True)
class _Finished:
    """Ends of finished batches under one generation of the assignment: what may be committed."""

    generation: int = -1
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch that Spark was given and has not come back from.

    ``generation`` is None where an earlier run of the query planned it.
    """

    generation: int | None
    number: int
    ends: Mapping[TopicPartition, int]


class SparkFetchControl:
    """A :class:`~zkconsumer.core.fetchcontrol.FetchControl` whose fetching is done by Spark's tasks.

    The rebalance thread alone writes the assignment. The batch in flight is declared by Spark's thread, and ended by
    Spark's thread or by an acknowledgement, whichever is first. What may be committed is the ends of finished batches:
    so every commit by timer, rebalance or leaving follows the checkpoint.

    Args:
        drain_timeout_s: how long :meth:`stop` waits for a batch in flight, in seconds.
    """

    def __init__(self, drain_timeout_s: float) -> None:
        self._drain_timeout_s = drain_timeout_s
        self._changed = threading.Condition()
        self._assignment: FetchAssignment | None = None
        self._stopped = True
        self._finished = _Finished()
        self._in_flight: _Batch | None = None
        self._given_up: _Batch | None = None
        self._failure: BaseException | None = None
        self._refusal: GroupAuthorizationFailed | None = None

    # -- the rebalance thread ---------------------------------------------------------------------------------------

    def stop(self, *, drain: bool = True) -> None:
        """Plan nothing more, and wait for the batch in flight, at most the drain timeout.

        After that the partitions are released with the offset from before the batch, and their next owner reads it
        again. That is decided once for each batch: a later attempt of the same rebalance does not wait again.
        """
        with self._changed:
            self._stopped = True
            batch = self._in_flight
            if not drain or batch is None or batch is self._given_up:
                return
            if self._changed.wait_for(lambda: self._in_flight is not batch, self._drain_timeout_s):
                return
            self._given_up = batch
            timeout_s = self._drain_timeout_s
        _log.warning(
            "a batch of %d partitions did not finish within %.1f s; partitions that another member gets are read again "
            "from where it began. Where batches are long, raise rebalance.max.retries and rebalance.backoff.ms in all "
            "members",
            len(batch.ends),
            timeout_s,
        )

    def release(self, partitions: Collection[TopicPartition], *, drain: bool = True) -> None:
        """Plan nothing more until :meth:`start`; wait for the batch in flight only where it reads these partitions."""
        with self._changed:
            batch = self._in_flight
            concerned = batch is not None and not batch.ends.keys().isdisjoint(partitions)
        self.stop(drain=drain and concerned)

    def start(self, assignment: FetchAssignment) -> None:
        """Let Spark's thread plan with a new assignment."""
        with self._changed:
            self._assignment = assignment
            self._stopped = False
            self._changed.notify_all()

    def withhold(self) -> None:
        """Nothing to take back: the planner asks the member's lease before it plans, and tasks cannot be recalled."""

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:  # noqa: ARG002  see below
        """Ends of finished batches, also where ``commit.on=delivery`` asks for what was handed out.

        Spark does nothing with a batch that it can repeat only if the batch was not committed.
        """
        with self._changed:
            newest = -1 if self._assignment is None else self._assignment.generation
            return dict(self._finished.offsets) if self._finished.generation == newest else {}

    def fail(self, error: BaseException) -> None:
        """The rebalance thread has died; Spark's thread raises that when it asks for the assignment."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def refuse(self, error: GroupAuthorizationFailed | None) -> None:
        """The group's offsets in Kafka cannot be read or stored for lack of a permission; None: they can again."""
        with self._changed:
            self._refusal = error
            self._changed.notify_all()

    # -- Spark's thread ---------------------------------------------------------------------------------------------

    def await_assignment(self, timeout_s: float) -> FetchAssignment | None:
        """Wait until no rebalance is under way; None if it takes longer than ``timeout_s`` seconds.

        Raises:
            ConsumerClosed: the rebalance thread has died.
            GroupAuthorizationFailed, TopicUnreadable: a permission for the offsets that Kafka stores is missing.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._refusal or not self._stopped, timeout_s)
            if self._failure is not None:
                raise ConsumerClosed("the query's membership of its group ended by an error") from self._failure
            if self._refusal is not None:
                raise self._refusal
            if not self._stopped and self._assignment is not None and self._assignment.refused:
                raise next(iter(self._assignment.refused.values())).error
            return None if self._stopped else self._assignment

    def current(self) -> FetchAssignment | None:
        """The newest assignment, which a rebalance may be about to replace; None before the first."""
        with self._changed:
            return self._assignment

    def may_commit(self, generation: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Set what may be committed under this generation: ends of finished batches."""
        with self._changed:
            self._finished = _Finished(generation, dict(offsets))

    def take(self, generation: int, number: int, rows: Mapping[TopicPartition, Span]) -> bool:
        """Declare a batch in flight; False if a rebalance has begun meanwhile, then nothing may be read of it.

        Without this check: the batch is planned, the rebalance stops fetching and sees nothing in flight, releases,
        another member claims and reads, and then Spark reads the same offsets.

        Args:
            generation: of the assignment that the batch was planned in.
            number: of the plan.
            rows: what the batch reads.
        """
        with self._changed:
            if self._stopped or self._assignment is None or self._assignment.generation != generation:
                return False
            self._in_flight = _Batch(generation, number, {p: span.until for p, span in rows.items()})
            return True

    def replay(self, number: int, spans: Mapping[TopicPartition, Span]) -> None:
        """Declare that Spark reads a batch again which an earlier run of the query planned.

        Before the first assignment there is nothing to release that could wait for it. The batch is over when the
        query joins, but only the first plan would say so: the join would wait for the drain timeout.
        """
        with self._changed:
            if self._in_flight is None and self._assignment is not None:
                self._in_flight = _Batch(None, number, {p: span.until for p, span in spans.items()})

    def finish(self, number: int) -> None:
        """The batch in flight is over, since Spark asks for the next one; ``number`` is that of the last finished."""
        with self._changed:
            if self._in_flight is not None:
                self._end_batch(is_finished=self._in_flight.number == number)

    # -- any thread -------------------------------------------------------------------------------------------------

    def acknowledge(self, number: int) -> tuple[int, dict[TopicPartition, int]] | None:
        """Spark has finished the batch of this number, and has not asked for the next one.

        Returns:
            The generation, and what may be committed in it now; None if another batch, or none, is in flight.
        """
        with self._changed:
            batch = self._in_flight
            if batch is None or batch.number != number:
                return None
            self._end_batch(is_finished=True)
            if batch.generation != self._finished.generation:
                return None
            return batch.generation, dict(self._finished.offsets)

    def abandon(self) -> None:
        """The query ends: no answer about the batch in flight will come, so do not wait for one."""
        with self._changed:
            self._drain_timeout_s = 0
            self._in_flight = None
            self._changed.notify_all()

    def _end_batch(self, *, is_finished: bool) -> None:
        """Under the lock. The ends become committable before :meth:`stop` wakes up: a release commits them."""
        batch, self._in_flight = self._in_flight, None
        if batch is not None and is_finished and batch.generation == self._finished.generation:
            self._finished = _Finished(batch.generation, {**self._finished.offsets, **batch.ends})
        self._changed.notify_all()
