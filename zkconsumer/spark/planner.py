"""BatchPlanner: commits finished batches and plans the next micro-batch of a query.

Runs on Spark's thread. The decisions are in :mod:`zkconsumer.spark.microbatch`, :mod:`zkconsumer.spark.positions` and
:mod:`zkconsumer.spark.sourceoffset`; this module does the I/O with the group and the brokers.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.core.groupview import format_partitions
from zkconsumer.core.offsets import Stamp, StoredOffset
from zkconsumer.errors import BrokerUnavailable, LeaderUnknown, ZooKeeperUnavailable, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.spark.logends import LogEnds
from zkconsumer.spark.microbatch import Span, cap_offsets
from zkconsumer.spark.options import SourceOptions
from zkconsumer.spark.querypositions import QueryPositions
from zkconsumer.spark.sourceoffset import Plan, SourceOffset, next_offset
from zkconsumer.spark.sparkfetchcontrol import SparkFetchControl

_log = logging.getLogger(__name__)

_IDLE_POLL_S = 0.05
_IDLE_FACTOR = 4
"""While there are no new records, Spark asks every 10 ms. The next request to the brokers waits this multiple of the
time that their last answer took, but at most the first of these values; new records wait as long."""


class Member(Protocol):
    """The part of a :class:`~zkconsumer.group.member.GroupMember` that the planner uses."""

    def may_deliver(self) -> bool:
        """True while no other member can own our partitions."""

    def commit(self, offsets: Mapping[TopicPartition, int], *, generation: int) -> None:
        """Commit offsets that were read in a generation."""

    def stored(self, partitions: Collection[TopicPartition], generation: int) -> dict[TopicPartition, StoredOffset]:
        """The stored offsets, with their marks."""


class BatchPlanner:
    """Plans the micro-batches of a query.

    Args:
        options: options of the query.
        control: provides the query's assignment, and receives the batch in flight.
        member: the query's member of the group.
        ends: requests log ends from the brokers.
        settle_s: limit of the wait for the end of a rebalance, in seconds.
        others: consumer ids of the members that the group had before this query joined.
        accept: called with the assignment before each plan; raises if the query must not use it.

    Attributes:
        available: last known position and log end of each owned partition; None before the first plan.
    """

    def __init__(
        self,
        options: SourceOptions,
        control: SparkFetchControl,
        member: Member,
        ends: LogEnds,
        *,
        settle_s: float,
        others: Collection[str] = (),
        accept: Callable[[FetchAssignment], None] = lambda _: None,
    ) -> None:
        self._options = options
        self._group = options.config.group_id
        self._brokers_coordinate = options.config.brokers_coordinate
        self._control = control
        self._member = member
        self._ends = ends
        self._settle_s = settle_s
        self._accept = accept
        self._positions = QueryPositions(options, ends, others)
        self._committed: tuple[int, Mapping[TopicPartition, int]] = (0, {})
        self._targets: dict[TopicPartition, int] | None = None
        self._not_ours: list[TopicPartition] = []
        self._idle_until = 0.0
        self._planned_at = -math.inf
        self.available: Mapping[TopicPartition, Span] | None = None

    @property
    def has_targets(self) -> bool:
        """True with the trigger AvailableNow."""
        return self._targets is not None

    def fix_targets(self) -> None:
        """AvailableNow: read the partitions that are owned now up to their current log ends.

        Raises:
            RetriableError: a rebalance is in progress, or a partition has no leader.
        """
        assignment = self._await_assignment()
        stored = {p: one.offset for p, one in assignment.stored.items() if one.offset is not None}
        ends = self._ends.latest(assignment.threads, stored)
        _require_leaders(assignment.threads.keys() - ends.keys())
        self._targets = ends

    def plan(self, finished: SourceOffset, limit: int | None, least: int | None) -> SourceOffset | None:
        """Plan and declare the next batch; None if there is nothing to read.

        Args:
            finished: the last batch that Spark finished.
            limit: maximum number of offsets to plan, None for all.
            least: minimum number of offsets to plan; None for any.

        Raises:
            RetriableError, SessionExpired, NotOwner, GenerationEnded: a rebalance is in progress, or the group or a
                broker cannot be reached.
            OffsetOutOfRange: offsets to read are not in the log any more and ``failOnDataLoss`` is true.
        """
        while True:
            assignment = self._await_assignment()
            positions = self._positions.of(assignment, finished, self.available)
            self._commit(assignment.generation, self._positions.committable(finished), finished.stamp)
            available = self._available(positions)
            if available is None:
                continue
            if finished.is_initial:
                _require_leaders(assignment.threads.keys() - available.keys())
            waits = self._waits_for_more(available, least)
            rows = {} if waits else cap_offsets(available, limit)
            if not rows and not finished.is_initial:
                if not waits:
                    self._require_targets(assignment, positions)
                return None
            planned = self._declare(assignment, finished, rows, positions)
            if planned is not None:
                return planned

    def _declare(
        self,
        assignment: FetchAssignment,
        finished: SourceOffset,
        rows: Mapping[TopicPartition, Span],
        positions: Mapping[TopicPartition, int],
    ) -> SourceOffset | None:
        """Declare a batch in flight; None if a rebalance came first."""
        self._idle_until = 0.0
        generation = assignment.generation
        stored = self._member.stored(positions.keys(), generation)
        epochs = self._ends.epochs({**positions, **{partition: span.until for partition, span in rows.items()}})
        plan = Plan(rows, dict(positions), stored, assignment.topics, epochs, uuid.uuid4().hex, self._positions.gone)
        planned = next_offset(finished, plan, self._group)
        if not self._member.may_deliver():
            # Not "nothing new", which would end an AvailableNow query.
            unavailable = BrokerUnavailable if self._brokers_coordinate else ZooKeeperUnavailable
            raise unavailable("this member's lease expired: other members may own its partitions by now")
        if not self._control.take(generation, planned.number, rows, planned.stamp):
            return None
        self._positions.advance(rows)
        self._planned_at = time.monotonic()
        return planned

    def _await_assignment(self) -> FetchAssignment:
        assignment = self._control.await_assignment(self._settle_s)
        if assignment is None:
            to_check = (
                "that its coordinator answers, and that all members join within their max.poll.interval.ms"
                if self._brokers_coordinate
                else "that brokers are registered in ZooKeeper and that no other member still owns partitions that it "
                "should release"
            )
            raise LeaderUnknown(f"group {self._group} did not settle within {self._settle_s:g} s; check {to_check}")
        self._accept(assignment)
        return assignment

    def _commit(self, generation: int, offsets: Mapping[TopicPartition, int], stamp: Stamp | None) -> None:
        """Commit offsets, so that the group's offsets follow the checkpoint.

        A rebalance in between is not a problem: the release has committed the same offsets, and after GenerationEnded
        the caller plans again with the new assignment.
        """
        if (generation, offsets) == self._committed:
            return
        self._control.may_commit(generation, offsets, stamp)
        self._member.commit(offsets, generation=generation)
        self._committed = (generation, dict(offsets))

    def _waits_for_more(self, available: Mapping[TopicPartition, Span], least: int | None) -> bool:
        if least is None or self._targets is not None:
            return False
        waited_ms = (time.monotonic() - self._planned_at) * 1000
        return sum(span.size for span in available.values()) < least and waited_ms < self._options.max_trigger_delay_ms

    def _available(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Span] | None:
        """Spans from position to log end or target; None if positions had to be moved because a log became shorter."""
        time.sleep(max(0.0, self._idle_until - time.monotonic()))
        began = time.monotonic()
        reached = {p: max(offset, (self._targets or {}).get(p, offset)) for p, offset in positions.items()}
        ends = self._ends.latest(positions, reached)
        answered = time.monotonic()
        self._idle_until = answered + min(_IDLE_POLL_S, _IDLE_FACTOR * (answered - began))
        if self._positions.follow_shorter_logs(ends):
            return None
        spans = {partition: Span(positions[partition], end) for partition, end in ends.items()}
        self.available = spans
        if self._targets is None:
            return spans
        targets = self._targets
        for partition, end in ends.items():
            # A partition without a target was gained since the query began; an end below the target is a truncated log.
            targets[partition] = min(end, targets.get(partition, end))
        return {p: Span(s.start, max(s.start, min(s.until, targets[p]))) for p, s in spans.items()}

    def _require_targets(self, assignment: FetchAssignment, positions: Mapping[TopicPartition, int]) -> None:
        """Check that "nothing new", which ends AvailableNow, does not result from leaders that do not answer.

        Raises:
            LeaderUnknown: an owned partition has not been read to its target.
        """
        if self._targets is None:
            return
        targets = self._targets
        _require_leaders({p for p in assignment.threads if positions.get(p, -1) < targets.get(p, math.inf)})
        self._log_partitions_of_other_members(assignment)

    def _log_partitions_of_other_members(self, assignment: FetchAssignment) -> None:
        subscribed = [TopicPartition(name, n) for name, topic in assignment.topics.items() for n in topic.partitions]
        not_ours = [partition for partition in subscribed if partition not in assignment.threads]
        if not_ours and not_ours != self._not_ours:
            _log.warning(
                "group %s: this run has read its partitions; other members own %s. A member that was killed owns its "
                "partitions until its session times out: run again to read the rest of them",
                self._group,
                format_partitions(not_ours),
            )
        self._not_ours = not_ours


def _require_leaders(leaderless: Collection[TopicPartition]) -> None:
    if leaderless:
        raise LeaderUnknown(f"no leader answers for {name_some(sorted(leaderless))}; check that all brokers run")
