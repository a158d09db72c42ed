"""QueryDriver: the driver side of one streaming query, a member of the group that plans what executors fetch.

Everything here runs on Spark's thread, the main thread of the query's source process. What the group does meanwhile
arrives through :class:`~zkconsumer.spark.share.SparkFetchControl`. The order of calls is Spark's (FACTS C.2b): for an
unfinished batch of an earlier run first :meth:`QueryDriver.partitions`; then :meth:`QueryDriver.latest_offset` after
every finished batch and at every idle trigger, with the end of the last *finished* batch.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.connector.identity import new_consumer_id
from zkconsumer.connector.member import GroupMember
from zkconsumer.connector.storage import choose_store
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.errors import (
    LeaderUnknown,
    NotOwner,
    OffsetOutOfRange,
    RetriableError,
    SessionExpired,
    ZkConsumerError,
    ZooKeeperUnavailable,
)
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.spark.cluster import ClusterView, read_cluster
from zkconsumer.spark.logends import LogEnds
from zkconsumer.spark.offsets_json import decode_batch, encode_batch
from zkconsumer.spark.options import SourceOptions
from zkconsumer.spark.planning import (
    RangePartition,
    Span,
    cap_offsets,
    distinct,
    group_by_thread,
    split_tasks,
    stream_counts,
)
from zkconsumer.spark.positions import Wanted, locate, start_positions, tell_losses
from zkconsumer.spark.process import leave_on_sigterm, log_to_stderr
from zkconsumer.spark.share import SparkFetchControl, drain_timeout_ms

_log = logging.getLogger(__name__)

_IDLE_POLL_S = 0.05
_IDLE_FACTOR = 4
"""When there is nothing new Spark asks every 10 ms. Before the brokers are asked again it has to wait so many times as
long as their last answer took, but not longer than the first of these; new records wait with it."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where partitions were to start under one generation of the assignment.

    Attributes:
        generation: of the assignment.
        stored: the group's offset of each partition when that was decided.
        offsets: what was decided: an offset, or what a broker has to be asked for.
    """

    generation: int = -1
    stored: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, Wanted] = field(default_factory=dict)


class QueryDriver:
    """Joins the group when it is first asked for offsets; see the module for who calls what and when.

    Args:
        options: of the query.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # What Spark has finished is committed whatever auto.commit.enable says: the checkpoint is the user's commit.
        self._config = options.config.replace(auto_commit_enable=True)
        self._control = SparkFetchControl(drain_timeout_ms(self._config) / 1000)
        self._patience_s = self._config.rebalance_max_retries * self._config.rebalance_backoff_ms / 1000
        self._member: GroupMember | None = None
        self._brokers: tuple[Broker, ...] = ()
        self._ends = LogEnds(self._config, lambda: self._brokers)
        self._seen_before: frozenset[TopicPartition] = frozenset()
        self._first_generation: int | None = None
        self._choice = _Choice()
        self._committed: tuple[int, Mapping[TopicPartition, int]] = (0, {})
        self._target: Mapping[TopicPartition, int] | None = None
        self._report: dict[str, Any] | None = None
        self._idle_until = 0.0
        self._planned_at = -math.inf

    # -- what Spark calls -------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """Join, and fix the ends to read to: the log ends of what is owned now. Lost partitions drop out of it.

        Raises:
            ZkConsumerError: the group or the brokers cannot be reached, or partitions stay without a leader.
        """
        self._join()
        deadline = time.monotonic() + self._patience_s
        while self._target is None:
            try:
                self._target = self._log_ends_of_all()
            except RetriableError as error:
                self._wait_to_retry(error, deadline)

    def latest_offset(self, start: dict[str, Any], limit: int | None, least: int | None = None) -> dict[str, Any]:
        """Commit the end of the last finished batch, and plan the next; ``start`` itself if there is nothing to read.

        Args:
            start: end of the last finished batch.
            limit: most offsets to plan, None for all.
            least: offsets to wait for, at most ``maxTriggerDelay`` after the last batch; AvailableNow does not wait.

        Raises:
            OffsetOutOfRange: offsets to read are gone and ``failOnDataLoss`` is true.
            ZkConsumerError: joining failed; or, under AvailableNow, group or brokers stay unreachable.
        """
        finished = decode_batch(start)
        self._join()
        self._control.finish(finished)
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                planned = self._plan(finished, limit, least)
            except (RetriableError, SessionExpired, NotOwner) as error:
                # A plain trigger asks again anyway. AvailableNow would take "nothing new" for its end.
                self._wait_to_retry(error, math.inf if self._target is None else deadline)
                if self._target is None:
                    return start
            else:
                return encode_batch(planned) if planned else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The tasks of the batch that ends at ``end``; it may be one that an earlier run of the query planned.

        Raises:
            ZkConsumerError: no brokers are known and ZooKeeper cannot be asked for them.
        """
        if start == end:
            return []
        spans = decode_batch(end)
        self._control.replay(spans)
        assignment = self._control.current()
        threads = {} if assignment is None else {p: thread.number for p, thread in assignment.threads.items()}
        self._refresh_brokers()
        if not self._brokers:
            self._brokers = read_cluster(self._options).brokers
        tasks = group_by_thread(spans, threads, self._options.num_streams or os.cpu_count() or 1)
        tasks = split_tasks(tasks, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition(task, self._brokers) for task in tasks]

    def report(self) -> dict[str, Any] | None:
        """The group, and position and log end of each owned partition when they were last looked at.

        In the form of an offset with a key ``group``. Partitions without a leader are left out.
        """
        return self._report

    def stop(self) -> None:
        """Leave the group: ids and owners are gone when this returns. Harmless when called again."""
        self._control.abandon()
        self._ends.close()
        if self._member is not None:
            self._member.leave()

    # -- membership -------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if self._member is not None:
            return
        leave_on_sigterm()
        log_to_stderr()
        view = read_cluster(self._options)
        self._brokers = view.brokers
        self._seen_before = view.partitions
        self._warn_of_others(view)
        self._member = GroupMember(
            self._config, new_consumer_id(self._config), self._control, self._control.fail, make_store=choose_store
        )
        counts = stream_counts(
            self._options.topics, view.partition_counts(), self._options.num_streams, os.cpu_count() or 1
        )
        self._member.join(self._options.subscription(counts, max(counts.values(), default=1)))

    def _warn_of_others(self, view: ClusterView) -> None:
        if view.our_members:
            _log.warning(
                "group %s has live zkconsumer members already: %s. This query shares the partitions with them, it "
                "does not get a copy; give each query that is to read everything its own group.id",
                self._config.group_id,
                ", ".join(sorted(view.our_members)),
            )

    def _refresh_brokers(self) -> None:
        try:
            if self._member is not None:
                self._brokers = self._member.live_brokers() or self._brokers
        except ZkConsumerError as error:
            _log.warning("using the brokers known so far: %s", error)

    def _wait_to_retry(self, error: Exception, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise error
        _log.warning("group %s: no batch is planned just now: %s", self._config.group_id, error)
        self._refresh_brokers()
        threading.Event().wait(self._config.refresh_leader_backoff_ms / 1000)

    # -- planning ---------------------------------------------------------------------------------------------------

    def _plan(
        self, finished: Mapping[TopicPartition, Span], limit: int | None, least: int | None
    ) -> dict[TopicPartition, Span]:
        """Plan and declare the next batch; empty if there is nothing to read.

        Raises:
            RetriableError, SessionExpired, NotOwner: a rebalance is under way, or somebody cannot be reached.
        """
        while True:
            assignment = self._control.settled(self._patience_s)
            if assignment is None:
                raise LeaderUnknown(self._unsettled())
            positions = self._positions(assignment, finished)
            self._commit(assignment.generation, positions)
            available = self._available(assignment, positions)
            if available is None:
                continue
            if self._waits_for_more(available, least):
                return {}
            planned = distinct(cap_offsets(available, limit), finished)
            if not planned:
                self._require_target(assignment, positions, available)
                return {}
            self._idle_until = 0.0
            if self._member is None or not self._member.may_deliver():
                # Not "nothing new", which would end an AvailableNow query.
                raise ZooKeeperUnavailable("other members may own this query's partitions by now (DESIGN 4.5)")
            if self._control.take(assignment.generation, planned):
                self._planned_at = time.monotonic()
                return planned

    def _waits_for_more(self, available: Mapping[TopicPartition, Span], least: int | None) -> bool:
        if least is None or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._planned_at) * 1000
        return sum(span.size for span in available.values()) < least and waited_ms < self._options.max_trigger_delay_ms

    def _available(
        self, assignment: FetchAssignment, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Span] | None:
        """From position to log end or target; None if positions had to be moved because a log became shorter."""
        threading.Event().wait(max(0.0, self._idle_until - time.monotonic()))
        began = time.monotonic()
        ends = self._ends.latest(positions)
        answered = time.monotonic()
        self._idle_until = answered + min(_IDLE_POLL_S, _IDLE_FACTOR * (answered - began))
        if any(ends[partition] < positions[partition] for partition in ends):
            self._control.adopt(assignment.generation, {**positions, **self._located(positions)})
            return None
        spans = {partition: Span(positions[partition], end) for partition, end in ends.items()}
        self._report = {"group": self._config.group_id, **encode_batch(spans)}
        if self._target is None:
            return spans
        target = self._target
        return {p: Span(s.start, min(s.until, target.get(p, s.start))) for p, s in spans.items()}

    def _log_ends_of_all(self) -> Mapping[TopicPartition, int]:
        """Log ends of what is owned now.

        Raises:
            RetriableError: a rebalance is under way, or a partition has no leader.
        """
        assignment = self._control.settled(self._patience_s)
        if assignment is None:
            raise LeaderUnknown(self._unsettled())
        ends = self._ends.latest(assignment.threads)
        _require_leaders(assignment.threads.keys() - ends.keys())
        return ends

    def _require_target(
        self,
        assignment: FetchAssignment,
        positions: Mapping[TopicPartition, int],
        available: Mapping[TopicPartition, Span],
    ) -> None:
        """Nothing new is the end of AvailableNow, so it must not come from leaders that do not answer.

        Raises:
            LeaderUnknown: a partition has not been read to the target.
        """
        target = self._target or {}
        silent = assignment.threads.keys() & target.keys() - available.keys()
        _require_leaders({p for p in silent if p not in positions or positions[p] < target[p]})

    def _positions(
        self, assignment: FetchAssignment, finished: Mapping[TopicPartition, Span]
    ) -> Mapping[TopicPartition, int]:
        """Where to go on, of partitions that have had a leader; moved on by finished batches."""
        generation = assignment.generation
        known = self._control.known(generation)
        wanted = self._chosen(assignment, finished).offsets
        unlocated = {partition: offset for partition, offset in wanted.items() if partition not in (known or {})}
        if known is not None and not unlocated:
            return known
        self._refresh_brokers()
        positions = {**(known or {}), **self._located(unlocated)}
        self._control.adopt(generation, positions)
        return positions

    def _chosen(self, assignment: FetchAssignment, finished: Mapping[TopicPartition, Span]) -> _Choice:
        """Where each partition is to start; decided once for each assignment.

        A choice that no leader has answered for yet outlasts the assignment, unless somebody stored an offset.
        """
        before = self._choice
        if before.generation == assignment.generation:
            return before
        if self._first_generation is None:
            self._first_generation = assignment.generation
        is_first_batch = not finished and assignment.generation == self._first_generation
        stored = {partition: assignment.offsets[partition] for partition in assignment.threads}
        located = self._control.known(before.generation) or {}
        kept = {
            partition: offset
            for partition, offset in before.offsets.items()
            if partition in stored and partition not in located and stored[partition] == before.stored[partition]
        }
        start = start_positions(
            {partition: offset for partition, offset in stored.items() if partition not in kept},
            finished,
            starting=self._options.starting if is_first_batch else "group",
            seen_before=self._seen_before,
            reset=self._config.auto_offset_reset,
        )
        for partition, span in start.foreign.items():
            _log.warning(
                "%s: the group's offset is %s although this query's last batch was [%d, %d): somebody else consumed "
                "or reset it, so the query follows the group",
                partition,
                stored[partition],
                *span,
            )
        self._choice = _Choice(assignment.generation, stored, {**start.offsets, **kept})
        return self._choice

    def _located(self, places: Mapping[TopicPartition, Wanted]) -> Mapping[TopicPartition, int]:
        wanted = self._ends.resolve(places)
        found = locate(wanted, self._ends.earliest(wanted), self._ends.latest(wanted), self._config.auto_offset_reset)
        if found.lost:
            story = tell_losses(found.lost)
            if self._options.fail_on_data_loss:
                raise OffsetOutOfRange(
                    f"offsets of group {self._config.group_id} are not in the log any more ({story}). Check retention "
                    "and whether a topic was created anew; to go on where auto.offset.reset says set "
                    "failOnDataLoss=false"
                )
            _log.warning("going on at auto.offset.reset=%s: %s", self._config.auto_offset_reset, story)
        return found.offsets

    def _commit(self, generation: int, positions: Mapping[TopicPartition, int]) -> None:
        """Make the group's offsets equal to the checkpoint.

        A rebalance that comes between planning and this commit is no harm: releasing has committed the same
        positions, and NotOwner leads to another round with the new assignment.
        """
        if (generation, positions) == self._committed:
            return
        if self._member is None:
            raise ZooKeeperUnavailable("the query has not joined its group")
        self._member.commit(positions)
        self._committed = (generation, dict(positions))

    def _unsettled(self) -> str:
        return (
            f"group {self._config.group_id} did not settle within {self._patience_s:g} s; check that brokers are "
            "registered in ZooKeeper and that no other member holds on to partitions"
        )


def _require_leaders(leaderless: Set[TopicPartition]) -> None:
    if leaderless:
        raise LeaderUnknown(
            f"no leader answers for {', '.join(map(str, sorted(leaderless)))}; check that all brokers run"
        )
