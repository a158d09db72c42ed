"""BatchPlanner: commits finished batches and plans the next micro-batch of a query.

Runs on Spark's thread. The decisions are in :mod:`zkconsumer.spark.rules.querystate`,
:mod:`zkconsumer.spark.rules.microbatch` and :mod:`zkconsumer.spark.rules.sourceoffset`; this module does the I/O with
the group and the brokers.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple

from zkconsumer.errors import LeaderUnknown, LeaseLapsed, OffsetsNotStored
from zkconsumer.group.member import GroupMember
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.logends import LogEnds
from zkconsumer.ranges.rangeplan import require_leaders
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.clusterview import ClusterView
from zkconsumer.spark.querypositions import QueryPositions, unreadable_offset
from zkconsumer.spark.rules.idlepauses import IdlePauses, longest_pause_s
from zkconsumer.spark.rules.microbatch import cap_offsets
from zkconsumer.spark.rules.options import SourceOptions
from zkconsumer.spark.rules.querystate import QueryState
from zkconsumer.spark.rules.sourceoffset import BatchPlan, SourceOffset, next_offset
from zkconsumer.spark.sparkfetchcontrol import SparkFetchControl

_log = logging.getLogger(__name__)


class LookedAt(NamedTuple):
    """Position of each partition that was owned, and up to where its log can be read if its leader has answered.

    In one generation: what was lost and gained again since then may have been read by another member.
    """

    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    generation: int

    @property
    def available(self) -> Mapping[TopicPartition, Span]:
        """What can be read of each partition whose leader has answered."""
        return {p: Span(self.positions[p], max(self.positions[p], end)) for p, end in self.ends.items()}


class BatchPlanner:
    """Plans the micro-batches of a query.

    Args:
        settle_s: limit of the wait for the end of a rebalance, in seconds.
        view: the cluster and the group before this query joined.
        accept: called with the state before each plan; raises if the query must not use its assignment.

    Attributes:
        has_targets: True with the trigger AvailableNow: a partition is read up to the log end that a plan sees first.
        looked_at: what the last plan has seen; the same object until a plan sees something else. None before one.
    """

    def __init__(
        self,
        options: SourceOptions,
        control: SparkFetchControl,
        member: GroupMember,
        ends: LogEnds,
        *,
        settle_s: float,
        view: ClusterView,
        accept: Callable[[QueryState], None],
    ) -> None:
        self._options = options
        self._group = options.config.group_id
        self._brokers_coordinate = options.config.brokers_coordinate
        self._control = control
        self._member = member
        self._ends = ends
        self._settle_s = settle_s
        self._accept = accept
        self._view = view
        self._positions = QueryPositions(options, control, ends, view.others)
        self._not_ours: list[TopicPartition] = []
        self._idle = IdlePauses()
        self._longest_pause_s = longest_pause_s(options.config.fetch_wait_max_ms)
        self._planned_at = float("-inf")
        self.has_targets = False
        self.looked_at: LookedAt | None = None

    def plan(self, finished: SourceOffset, limit: int | None, least: int | None) -> SourceOffset | None:
        """Plan and declare the next batch; None if there is nothing to read.

        While there is nothing, Spark asks every 10 ms, and this method pauses before it returns None, not with
        AvailableNow: see :class:`~zkconsumer.spark.rules.idlepauses.IdlePauses`. A rebalance ends the pause.

        Args:
            finished: the last batch that Spark finished.
            limit: maximum number of offsets to plan, None for all.
            least: minimum number of offsets to plan; None for any.

        Raises:
            RetriableError, MembershipLost, NotOwner, GenerationEnded: a rebalance is in progress, or the group or a
                broker cannot be reached.
            MalformedZnode: AvailableNow has read everything but a partition whose stored offset cannot be read.
            OffsetOutOfRange: offsets to read are not in the log any more and ``failOnDataLoss`` is true.
            UsageError: the first plan of a query has to start partitions that do not exist.
        """
        began = time.monotonic()
        if finished.is_initial:
            self._view.require(self._options)
        while True:
            query = self._positions.find(self._await_assignment(), finished, is_first=self.looked_at is None)
            self._commit(query, finished)
            latest = self._ends.latest(query.positions, query.reached)
            if not self._positions.follow_shorter_logs(query, latest):
                break
        ends = self._ends.readable(latest)
        query = self._control.update(lambda newest: newest.seen(query.generation, ends, fix_targets=self.has_targets))
        if (looked_at := LookedAt(query.positions, ends, query.generation)) != self.looked_at:
            self.looked_at = looked_at
        if finished.is_initial:
            require_leaders(query.owned.keys() - ends.keys())
        readable = query.readable(ends)
        waits = self._waits_for_more(readable, least)
        rows = {} if waits else cap_offsets(readable, limit)
        if rows or finished.is_initial:
            return self._declare(query, finished, rows)
        if self.has_targets:
            # "Nothing new", which ends AvailableNow, must not result from leaders that do not answer.
            require_leaders(query.unread)
            self._require_offsets(query)
            self._log_partitions_of_other_members(query)
        else:
            self._pause(began, query.generation)
        return None

    def _pause(self, began: float, generation: int) -> None:
        pause_s = self._idle.next_pause_s(began, self._longest_pause_s)
        if pause_s:
            self._control.await_newer(generation, pause_s)
        is_same = self._control.query.generation == generation
        self._idle = IdlePauses(time.monotonic(), pause_s) if is_same else IdlePauses()

    def _declare(self, query: QueryState, finished: SourceOffset, rows: Mapping[TopicPartition, Span]) -> SourceOffset:
        """Plan a batch, which is in flight then; GenerationEnded if a rebalance came first."""
        self._idle = IdlePauses()
        positions = query.positions
        stored = self._member.stored(positions.keys(), query.generation)
        epochs = self._ends.epochs({**positions, **{partition: span.until for partition, span in rows.items()}})
        plan = BatchPlan(rows, positions, stored, query.topics, epochs, uuid.uuid4().hex, query.gone or frozenset())
        planned = next_offset(finished, plan, self._group)
        if not self._member.may_deliver():
            # Not "nothing new", which would end an AvailableNow query.
            raise LeaseLapsed("this member's lease has lapsed: other members may own its partitions by now")
        self._control.update(lambda newest: newest.planned(query.generation, planned.number, rows, planned.stamp))
        self._planned_at = time.monotonic()
        return planned

    def _await_assignment(self) -> QueryState:
        query = self._control.await_assignment(self._settle_s)
        if query is None:
            to_check = (
                "that its coordinator answers, and that all members join within their max.poll.interval.ms"
                if self._brokers_coordinate
                else "that brokers are registered in ZooKeeper and that no other member still owns partitions that it "
                "should release"
            )
            raise LeaderUnknown(f"group {self._group} did not settle within {self._settle_s:g} s; check {to_check}")
        self._accept(query)
        return query

    def _commit(self, query: QueryState, finished: SourceOffset) -> None:
        """Commit offsets, so that the group's offsets follow the checkpoint.

        A rebalance in between is not a problem: the release has committed the same offsets, and after GenerationEnded
        the caller plans again with the new assignment. Neither is an offset that the store refuses, as that of a topic
        that was deleted: the member's timer, or the commit of the next batch, tries again.
        """
        generation, offsets = query.generation, query.to_commit(finished)
        query = self._control.update(lambda newest: newest.may_commit(generation, offsets, finished.stamp))
        if unconfirmed := query.unconfirmed(offsets):
            try:
                self._member.commit(unconfirmed, generation=generation)
            except OffsetsNotStored as error:
                _log.warning("group %s: the offsets of finished batches are committed later: %s", self._group, error)
            self._control.update(lambda newest: newest.committed(generation, unconfirmed))

    def _require_offsets(self, query: QueryState) -> None:
        """Fail if the query owns partitions that it does not read, since their stored offsets cannot be read.

        Raises:
            MalformedZnode, BrokerUnavailable: there is one, with offsets in ZooKeeper or in Kafka.
            GenerationEnded: a rebalance has begun.
        """
        unreadable = self._member.ownership().keys() - query.owned.keys()
        self._control.update(lambda newest: newest.current(query.generation))  # and so was the ownership
        if unreadable:
            raise unreadable_offset(self._options.config, min(unreadable))

    def _waits_for_more(self, readable: Mapping[TopicPartition, Span], least: int | None) -> bool:
        if least is None or self.has_targets:
            return False
        waited_ms = (time.monotonic() - self._planned_at) * 1000
        return sum(span.size for span in readable.values()) < least and waited_ms < self._options.max_trigger_delay_ms

    def _log_partitions_of_other_members(self, query: QueryState) -> None:
        owned = query.owned
        not_ours = [partition for partition in query.subscribed if partition not in owned]
        if not_ours and not_ours != self._not_ours:
            _log.warning(
                "group %s: this run has read its partitions; other members own %s. A member that was killed owns its "
                "partitions until its session times out: run again to read the rest of them",
                self._group,
                format_partitions(not_ours),
            )
        self._not_ours = not_ours
