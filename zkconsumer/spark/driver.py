"""QueryDriver: the driver side of one streaming query, a member of the group that plans what executors fetch.

Everything here runs on Spark's thread, the main thread of the query's source process, unless a method names another.
Changes of the group arrive through :class:`~zkconsumer.spark.sparkfetchcontrol.SparkFetchControl`. The order of calls
is Spark's (notes.md#order-of-sparks-calls): for an unfinished batch of an earlier run first
:meth:`QueryDriver.partitions`; then :meth:`QueryDriver.latest_offset` after every finished batch and at every idle
trigger, with the end of the last *finished* batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from zkconsumer.assembly.memberassembly import assemble_member
from zkconsumer.errors import (
    NEEDS_AN_OPERATOR,
    GenerationEnded,
    MembershipLost,
    NotOwner,
    OffsetOutOfRange,
    RebalanceAwaited,
    RetriableError,
    UsageError,
    ZkConsumerError,
    name_some,
)
from zkconsumer.group.consumerid import new_consumer_id
from zkconsumer.group.member import GroupMember
from zkconsumer.group.rules.rebalancetimes import retry_window_seconds
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.process.cpus import available_cpus
from zkconsumer.process.forks import Owner
from zkconsumer.ranges.logends import LogEnds
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.acknowledge import AcknowledgementServer, open_server
from zkconsumer.spark.batchplan import choose_tasks
from zkconsumer.spark.clusterview import ClusterView, read_cluster
from zkconsumer.spark.groupsharing import GroupSharing
from zkconsumer.spark.planner import BatchPlanner, LookedAt
from zkconsumer.spark.readerclaim import ReaderClaim, claim_reader
from zkconsumer.spark.recordsizes import RecordSizes
from zkconsumer.spark.rules.microbatch import RangePartition, stream_counts, with_epochs
from zkconsumer.spark.rules.offsetsjson import Report, decode_offset, encode_offset, encode_report
from zkconsumer.spark.rules.options import SourceOptions
from zkconsumer.spark.rules.queryrecords import QueryPartition, QueryPartitionState
from zkconsumer.spark.rules.querystate import QueryState
from zkconsumer.spark.rules.sourceoffset import SourceOffset
from zkconsumer.spark.sourceprocess import ignore_sigterm, prepare_process
from zkconsumer.spark.sparkfetchcontrol import SparkFetchControl, drain_remedy
from zkconsumer.wire.rules.denials import PATIENCE, pause_s

_log = logging.getLogger(__name__)

_BROKERS_S: Final = 10.0
"""For how long tasks are given the brokers that were read last: reading them takes two round trips."""
_PLANNED_AGAIN = (GenerationEnded, RebalanceAwaited, MembershipLost)
"""The positions of a plan, or its commit, belong to a generation of the group, or to a membership, that has ended."""


@dataclass(frozen=True, slots=True)
class DriverParts:
    """The collaborators of a driver; a test replaces them by a group in memory.

    Attributes:
        prepare_process: called once before joining the group, with the function that leaves it.
        ignore_sigterm: called before leaving the group.
        claim_reader: called before joining the group, and before reading anything; refuses a second reader of the
            group under one driver.
        read_cluster: reads brokers, partitions and members of the group.
        assemble_member: creates the member, which the driver opens; takes the consumer's properties, the consumer id,
            the fetch control, and the callbacks of :class:`~zkconsumer.group.member.GroupMember`.
        open_acknowledgements: opens the server that receives acknowledgements; returns None if that is impossible.
    """

    prepare_process: Callable[[Callable[[], None]], None] = prepare_process
    ignore_sigterm: Callable[[], None] = ignore_sigterm
    claim_reader: Callable[[SourceOptions], ReaderClaim] = claim_reader
    read_cluster: Callable[[SourceOptions], ClusterView] = read_cluster
    assemble_member: Callable[..., GroupMember] = assemble_member
    open_acknowledgements: Callable[..., AcknowledgementServer | None] = open_server


class _Patience:
    """How long AvailableNow asks again; other triggers ask again anyway.

    It fails when the time is over, but not before the second attempt: one request to a broker that has just gone may
    take longer than all the time, and the next one finds the new leader.
    """

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._has_failed = False

    def failed(self, error: Exception) -> None:
        """Raise the error if no further attempt is to be made."""
        if self._has_failed and time.monotonic() > self._deadline:
            raise error
        self._has_failed = True


class _MadeReport(NamedTuple):
    """A report, and what it was made of: an idle query has the same several times a second."""

    looked_at: LookedAt
    partitions: Mapping[TopicPartition, QueryPartition]
    encoded: dict[str, Any]


class QueryDriver:
    """Joins the group at the first request for offsets; see the module for the order of calls."""

    def __init__(self, options: SourceOptions, parts: DriverParts | None = None) -> None:
        self._process = Owner()
        self._options = options
        self._parts = parts or DriverParts()
        # Finished batches are committed whatever the value of auto.commit.enable: the checkpoint is the user's commit.
        self._config = options.config.replace(auto_commit_enable=True)
        self._control = SparkFetchControl(self._release_s, drain_remedy(self._config))
        self._backoff_s = self._config.refresh_leader_backoff_ms / 1000
        self._patience_s = retry_window_seconds(self._config.rebalance_max_retries, self._config.rebalance_backoff_ms)
        self._brokers_coordinate = self._config.brokers_coordinate
        # Brokers let each member take the rebalance timeout; those before 0.10.1 the session timeout.
        rebalance_ms = self._config.max_poll_interval_ms if self._brokers_coordinate else 0
        session_ms = self._config.session_timeout_ms if self._config.group_protocol == "kafka" else 0
        self._settle_s = max(self._patience_s, rebalance_ms / 1000, session_ms / 1000)
        self._brokers: tuple[Broker, ...] = ()
        self._brokers_read_at = float("-inf")
        self._ends = LogEnds(self._config, lambda: self._brokers, f"group {self._config.group_id}")
        self._sizes = RecordSizes(self._ends.bytes_per_offset)
        self._member: GroupMember | None = None
        self._planner: BatchPlanner | None = None
        self._acknowledgements: AcknowledgementServer | None = None
        self._parallelism: int | None = None  # written by the threads of acknowledgements
        self._claim: ReaderClaim | None = None
        self._sharing = GroupSharing(self._config, lambda: self._parts.read_cluster(self._options))
        self._report: _MadeReport | None = None
        self._newest: tuple[Mapping[str, Any], SourceOffset] = ({}, SourceOffset())

    # -- what Spark calls -------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """Join the group; the first plan fixes the ends to read to, the log ends of the owned partitions then.

        A partition gained later is read to its log end at that time; a lost one is not read further.

        Raises:
            ZkConsumerError: the group cannot be joined.
        """
        planner = self._join()
        if self._config.group_protocol != "zookeeper":  # a join of which ends with the whole share
            self._control.await_partitions(self._patience_s)
        planner.has_targets = True

    def latest_offset(self, start: dict[str, Any], limit: int | None, least: int | None = None) -> dict[str, Any]:
        """Commit the end of the last finished batch, and plan the next; returns ``start`` if there is nothing to read.

        The first plan of a query is never ``start``: it contains the start of every owned partition, even without rows.

        Args:
            start: end of the last finished batch.
            limit: maximum number of offsets to plan, None for all.
            least: minimum number of offsets, awaited at most ``maxTriggerDelay`` after the last batch; not by
                AvailableNow.

        Raises:
            OffsetOutOfRange: offsets to read are not in the log any more and ``failOnDataLoss`` is true.
            UsageError: the checkpoint belongs to another query; or an option names partitions that do not exist; or the
                group is used by another reader of this driver, or with ``group.share=false`` by another member; or
                another member does not share it.
            ZkConsumerError: joining failed; or, with AvailableNow, the group or brokers remain unreachable.
        """
        finished = self._decode(start)
        planner = self._join()
        self._control.update(lambda query: query.finished(finished.number))
        planned = self._settled(lambda: planner.plan(finished, limit, least), available_now=planner.has_targets)
        return start if planned is None else self._encode(planned)

    def _settled(self, plan: Callable[[], SourceOffset | None], *, available_now: bool) -> SourceOffset | None:
        """Plan again until a plan belongs to one generation of the group; None if the next trigger has to plan.

        Args:
            plan: plans a batch; None if there is nothing to read.
            available_now: "nothing new" would be the end, so attempt until it succeeds or the patience is over.

        Raises:
            NEEDS_AN_OPERATOR: at the fourth refusal without a plan, or at once if the member has counted as many.
        """
        began, patience, refusals = time.monotonic(), _Patience(self._patience_s), 0
        while True:
            generation = self._control.query.generation
            try:
                return plan()
            except NEEDS_AN_OPERATOR as error:
                refusals += 1
                if refusals == PATIENCE or error is self._control.refusal:
                    raise
                self._wait_to_retry(error, pause_s(refusals, self._backoff_s))
            except (RetriableError, MembershipLost, NotOwner, GenerationEnded) as error:
                if isinstance(error, _PLANNED_AGAIN) and time.monotonic() < began + self._settle_s:
                    _log.debug("group %s: planning the batch again: %s", self._config.group_id, error)
                    self._control.await_newer(generation, self._backoff_s)
                    continue
                if available_now:
                    patience.failed(error)
                self._wait_to_retry(error, self._backoff_s)
                if not available_now:
                    return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The tasks of the batch that ends at ``end``, which an earlier run of the query may have planned.

        Raises:
            OffsetOutOfRange: an earlier run planned the batch, a topic of it was deleted, and ``failOnDataLoss`` is
                true.
            UsageError: the checkpoint belongs to another query; or an earlier run planned the batch, and this one is
                refused its group, as by :meth:`latest_offset`.
            ZkConsumerError: an earlier run planned the batch, and ZooKeeper or ``bootstrap.servers`` cannot be reached.
        """
        if start == end:
            return []
        planned = self._decode(end)
        spans = {partition: span for partition, span in planned.spans.items() if span.size > 0}
        ends = {partition: span.until for partition, span in spans.items()}
        query = self._control.update(lambda query: query.begun(planned.number, ends))
        if time.monotonic() > self._brokers_read_at + _BROKERS_S:
            self._refresh_brokers()
        if spans and not query.has_planned(planned.number):
            view = self._admit() if self._planner is None else self._parts.read_cluster(self._options)
            self._brokers = view.brokers or self._brokers
            spans = self._without_deleted(planned, spans, view)
        tasks = choose_tasks(self._options, spans, self._parallelism, self._sizes)
        return with_epochs(tasks, self._brokers, planned.epochs)

    def _without_deleted(
        self, planned: SourceOffset, spans: dict[TopicPartition, Span], view: ClusterView
    ) -> dict[TopicPartition, Span]:
        """What can be read of a batch that an earlier run planned: without the topics that were deleted since.

        Whether a topic was created again is decided as by the next plan (:meth:`.SourceOffset.recreated`), since
        brokers before 2.8 do not know that. They know whether a topic exists that is not subscribed to any more.

        Raises:
            OffsetOutOfRange: there are such topics, and ``failOnDataLoss`` is true.
        """
        topics = {partition.topic for partition in spans}
        gone = planned.recreated(view.topics)
        try:
            gone |= self._ends.gone({topic: planned.known[topic].identity for topic in topics & planned.known.keys()})
        except RetriableError as error:  # the tasks wait for brokers
            _log.info("group %s: cannot ask whether topics of the batch exist: %s", self._config.group_id, error)
        lost = [f"{p} [{span.start}, {span.until})" for p, span in sorted(spans.items()) if p.topic in gone]
        if lost and self._options.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"group {self._config.group_id}: the topics of an unfinished batch were deleted: {name_some(lost)}. To "
                "continue without these records set failOnDataLoss=false"
            )
        if lost:
            _log.warning(
                "group %s: the topics of an unfinished batch were deleted; it is repeated without %s",
                self._config.group_id,
                name_some(lost),
            )
        return {partition: span for partition, span in spans.items() if partition.topic not in gone}

    def report(self) -> dict[str, Any] | None:
        """What the query owns, and the position and log end of each partition at the last plan that still owns it.

        Partitions without a leader have none. None before the first plan. Also on threads of acknowledgements.
        """
        if self._planner is None or (looked_at := self._planner.looked_at) is None:
            return None
        query, made = self._control.query, self._report
        if made is None or made.looked_at is not looked_at or made.partitions is not query.partitions:
            path = None if self._acknowledgements is None else self._acknowledgements.path
            owned = {p: one for p, one in query.owned.items() if one.state is not QueryPartitionState.RELEASING}
            kept = {p for p, one in owned.items() if one.is_kept_since(looked_at.generation)}
            available = {p: span for p, span in looked_at.available.items() if p in kept}
            encoded = encode_report(Report(self._config.group_id, available, path, owned.keys(), query.rebalances))
            self._report = made = _MadeReport(looked_at, query.partitions, encoded)
        return made.encoded

    def stop(self) -> None:
        """Leave the group; other members can own its partitions when this returns. Idempotent.

        In a forked child nothing is done.
        """
        if self._process.spares(f"the query's member of group {self._options.config.group_id}"):
            return
        self._parts.ignore_sigterm()
        if self._acknowledgements is not None:
            self._acknowledgements.close()  # first: batches acknowledged before are committed on leaving
        self._control.update(QueryState.abandoned)
        self._ends.close()
        if self._member is not None:
            self._member.leave()
        if self._claim is not None:
            self._claim.release()

    # -- membership -------------------------------------------------------------------------------------------------

    def _join(self) -> BatchPlanner:
        if self._planner is not None:
            return self._planner
        self._parts.prepare_process(self.stop)
        view = self._admit()
        self._brokers = view.brokers
        self._warn_of_others(view)
        self._member = member = self._parts.assemble_member(
            self._config,
            new_consumer_id(self._config),
            self._control,
            stamp=self._control.stamp,
            on_failure=self._control.fail,
            on_refusal=self._control.refuse,
            without_last_commit="this query continues at its checkpoint and commits it then; until then, another "
            "consumer of the group that owns these partitions reads the records again",
        )
        member.open()
        member.join(self._subscription(view))
        self._acknowledgements = self._parts.open_acknowledgements(
            self._acknowledged, self._commit_acknowledged, self.report
        )
        self._planner = BatchPlanner(
            self._options,
            self._control,
            member,
            self._ends,
            settle_s=self._settle_s,
            view=view,
            accept=lambda query: self._sharing.require_everything(query, member.consumer_id),
        )
        return self._planner

    def _admit(self) -> ClusterView:
        """The cluster and the group, once this query may join; before it reads anything, so also before it joins.

        Raises:
            UsageError: another reader of this driver, or a member that does not share the group, excludes the query; or
                with ``group.share=false`` any member.
            ZkConsumerError: the group cannot be read.
        """
        self._claim = self._claim or self._parts.claim_reader(self._options)
        return self._sharing.await_admission()

    def _release_s(self) -> float:
        assert self._member is not None  # which releases
        return self._member.release_s

    def _subscription(self, view: ClusterView) -> Subscription:
        cpus = available_cpus()
        counts = stream_counts(self._options.topics, view.partition_counts(), self._options.num_streams, cpus)
        threads = max(counts.values(), default=1)
        _log.info(
            "group %s: joining with %d %s (option numStreams: %s, CPUs of this process: %d)",
            self._config.group_id,
            threads,
            "streams" if self._brokers_coordinate else "consumer threads",
            self._options.num_streams or "not set",
            cpus,
        )
        if self._brokers_coordinate:  # a partition that changed its thread would be released as one that moves away
            return replace(self._options.subscription(dict.fromkeys(counts, 1), 1), weight=threads)
        return self._options.subscription(counts, threads)

    def _acknowledged(self, number: int, parallelism: int | None) -> bool:
        """Spark has finished a batch, and has not triggered the next one; on a thread of the acknowledgements.

        Args:
            number: of the batch's plan.
            parallelism: how many tasks the cluster runs at a time; None if that is unknown.

        Returns:
            True if there is something to commit.
        """
        self._parallelism = parallelism
        return self._control.acknowledge(number)

    def _commit_acknowledged(self) -> None:
        """Commit what is finished; on a thread of the acknowledgements, and the next plan need not do it again."""
        assert self._member is not None  # which planned the batch
        query = self._control.query
        try:
            self._member.commit()  # what is finished when the rebalance thread comes to it, perhaps a later batch
        except ZkConsumerError as error:
            _log.info(
                "group %s: a finished batch is committed later, with the next one: %s", self._config.group_id, error
            )
            return
        with suppress(GenerationEnded):
            self._control.update(lambda newest: newest.committed(query.generation, query.committable))

    def _warn_of_others(self, view: ClusterView) -> None:
        if view.our_members:
            _log.warning(
                "group %s has live zkconsumer members already: %s. This query shares the partitions with them and "
                "does not read all records; set a separate group.id for each query that must read all records",
                self._config.group_id,
                ", ".join(sorted(view.our_members)),
            )

    def _encode(self, planned: SourceOffset) -> dict[str, Any]:
        offset = encode_offset(planned)
        self._newest = offset, planned
        return offset

    def _decode(self, offset: Mapping[str, Any]) -> SourceOffset:
        """Decode an offset, unless it is the newest: Spark returns that at once, and again when it has finished it."""
        if offset != self._newest[0]:
            self._newest = offset, self._decode_other(offset)
        return self._newest[1]

    def _decode_other(self, offset: Mapping[str, Any]) -> SourceOffset:
        decoded = decode_offset(offset)
        if decoded.group not in (self._config.group_id, self._options.checkpoint_group):
            raise UsageError(
                f"the checkpoint is of group {decoded.group}, but this query is in group {self._config.group_id}: use "
                f"a checkpoint for each group, or set checkpointGroup={decoded.group} to continue from this one"
            )
        return decoded

    def _refresh_brokers(self) -> None:
        try:
            if self._member is not None:
                self._brokers = self._member.live_brokers() or self._brokers
                self._brokers_read_at = time.monotonic()
        except ZkConsumerError as error:
            _log.warning(
                "group %s: cannot read the brokers, using those known so far: %s",
                self._config.group_id,
                error,
            )

    def _wait_to_retry(self, error: Exception, seconds: float) -> None:
        _log.warning("group %s: cannot plan a batch now, trying again: %s", self._config.group_id, error)
        self._refresh_brokers()
        time.sleep(seconds)
