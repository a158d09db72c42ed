"""SparkFetchControl: passes the query's share of the group between the rebalance thread and Spark's thread.

Spark calls the source on the main thread of its process; the group takes and gives partitions on the member's
rebalance thread. They meet here and nowhere else, under one condition that is never held across I/O.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.errors import ConsumerClosed
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
class _Positions:
    """Ends of finished batches under one generation of the assignment."""

    generation: int = -1
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch that Spark was given and has not come back from."""

    generation: int
    spans: Mapping[TopicPartition, Span]


class SparkFetchControl:
    """A :class:`~zkconsumer.core.fetchcontrol.FetchControl` whose fetching is done by Spark's tasks.

    The rebalance thread alone writes the assignment, Spark's thread alone the batch in flight and the positions. A
    position is the end of a batch that Spark finished, or where the first one will start: so every commit by timer,
    rebalance or leaving covers finished batches only.

    Args:
        drain_timeout_s: how long :meth:`stop` waits for a batch in flight, in seconds.
    """

    def __init__(self, drain_timeout_s: float) -> None:
        self._drain_timeout_s = drain_timeout_s
        self._changed = threading.Condition()
        self._assignment: FetchAssignment | None = None
        self._stopped = True
        self._positions = _Positions()
        self._in_flight: _Batch | None = None
        self._failure: BaseException | None = None

    # -- the rebalance thread ---------------------------------------------------------------------------------------

    def stop(self, *, drain: bool = True) -> None:
        """Plan nothing more, and wait for the batch in flight, at most the drain timeout.

        Past it the partitions go with the offset from before the batch, and whoever gets them reads it again.
        """
        with self._changed:
            self._stopped = True
            drained = self._changed.wait_for(lambda: self._in_flight is None, self._drain_timeout_s if drain else 0)
            late = None if drained else self._in_flight
        if late is not None:
            _log.warning(
                "a batch of %d partitions did not finish within %.1f s; partitions that another member gets are "
                "read again from where it began",
                len(late.spans),
                self._drain_timeout_s,
            )

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
            return dict(self._positions.offsets) if self._positions.generation == newest else {}

    def fail(self, error: BaseException) -> None:
        """The rebalance thread has died; Spark's thread is told when it asks for the assignment."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    # -- Spark's thread ---------------------------------------------------------------------------------------------

    def settled(self, timeout_s: float) -> FetchAssignment | None:
        """Wait until no rebalance is under way; None if it takes longer than ``timeout_s`` seconds.

        Raises:
            ConsumerClosed: the rebalance thread has died.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._stopped, timeout_s)
            if self._failure is not None:
                raise ConsumerClosed("the query's membership of its group ended by an error") from self._failure
            return None if self._stopped else self._assignment

    def current(self) -> FetchAssignment | None:
        """The newest assignment, which a rebalance may be about to replace; None before the first."""
        with self._changed:
            return self._assignment

    def known(self, generation: int) -> Mapping[TopicPartition, int] | None:
        """Positions under this generation, None before :meth:`adopt` was called for it."""
        return self._positions.offsets if self._positions.generation == generation else None

    def adopt(self, generation: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Set where the partitions of a new assignment go on."""
        with self._changed:
            self._positions = _Positions(generation, dict(offsets))

    def take(self, generation: int, spans: Mapping[TopicPartition, Span]) -> bool:
        """Declare a batch in flight; False if a rebalance has begun meanwhile, then nothing may be read of it.

        Without this check: the batch is planned, the rebalance stops fetching and sees nothing in flight, releases,
        another member claims and reads, and then Spark reads the same offsets.
        """
        with self._changed:
            if self._stopped or self._assignment is None or self._assignment.generation != generation:
                return False
            self._in_flight = _Batch(generation, dict(spans))
            return True

    def replay(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Declare that Spark reads a batch again which an earlier run of the query planned.

        Before the first assignment there is nothing to release that could wait for it. The batch is over when the
        query joins, but only the first plan would say so: the join would wait for the drain timeout.
        """
        with self._changed:
            if self._in_flight is None and self._assignment is not None:
                self._in_flight = _Batch(-1, dict(spans))

    def finish(self, spans: Mapping[TopicPartition, Span]) -> None:
        """The batch in flight is over; its ends become positions if it is the one that Spark reports as done.

        Positions come before the wake-up of :meth:`stop`, so the commit that follows it covers this batch.

        Args:
            spans: the last batch that Spark finished.
        """
        with self._changed:
            batch, self._in_flight = self._in_flight, None
            if batch is not None and batch.generation == self._positions.generation and batch.spans == dict(spans):
                ends = {partition: span.until for partition, span in spans.items()}
                self._positions = _Positions(batch.generation, {**self._positions.offsets, **ends})
            self._changed.notify_all()

    def abandon(self) -> None:
        """The query ends: nobody will report the batch in flight, so do not wait for it."""
        with self._changed:
            self._drain_timeout_s = 0
            self._in_flight = None
            self._changed.notify_all()
