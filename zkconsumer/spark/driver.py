"""QueryDriver: the driver side of one streaming query, a member of the group that plans what executors fetch.

Everything here runs on Spark's thread, the main thread of the query's source process, except where a method names
another. What the group does meanwhile arrives through :class:`~zkconsumer.spark.share.SparkFetchControl`. The order of
calls is Spark's (FACTS C.2b): for an unfinished batch of an earlier run first :meth:`QueryDriver.partitions`; then
:meth:`QueryDriver.latest_offset` after every finished batch and at every idle trigger, with the end of the last
*finished* batch.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Mapping
from typing import Any

from zkconsumer.cpus import available_cpus
from zkconsumer.errors import (
    GenerationEnded,
    NotOwner,
    RetriableError,
    SessionExpired,
    UsageError,
    ZkConsumerError,
)
from zkconsumer.group.identity import new_consumer_id
from zkconsumer.group.member import GroupMember
from zkconsumer.memberassembly import assemble_member
from zkconsumer.model import Broker
from zkconsumer.spark.acknowledge import AcknowledgementServer, open_server
from zkconsumer.spark.cluster import ClusterView, read_cluster
from zkconsumer.spark.logends import LogEnds
from zkconsumer.spark.offsets_json import decode_offset, encode_offset, encode_report
from zkconsumer.spark.options import SourceOptions
from zkconsumer.spark.planner import BatchPlanner
from zkconsumer.spark.planning import RangePartition, group_by_thread, split_tasks, stream_counts
from zkconsumer.spark.process import leave_on_sigterm, log_to_stderr
from zkconsumer.spark.share import SparkFetchControl, drain_timeout_ms
from zkconsumer.spark.sourceoffset import SourceOffset

_log = logging.getLogger(__name__)


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
        self._brokers: tuple[Broker, ...] = ()
        self._ends = LogEnds(self._config, lambda: self._brokers)
        self._member: GroupMember | None = None
        self._planner: BatchPlanner | None = None
        self._acknowledgements: AcknowledgementServer | None = None

    # -- what Spark calls -------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """Join, and fix the ends to read to: the log ends of what is owned now.

        What is gained later is read to the log end of that time; what is lost drops out.

        Raises:
            ZkConsumerError: the group or the brokers cannot be reached, or partitions stay without a leader.
        """
        planner = self._join()
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                planner.fix_targets()
            except RetriableError as error:
                self._wait_to_retry(error, deadline)
            else:
                return

    def latest_offset(self, start: dict[str, Any], limit: int | None, least: int | None = None) -> dict[str, Any]:
        """Commit the end of the last finished batch, and plan the next; ``start`` itself if there is nothing to read.

        The first plan of a query is never ``start``: it names where every owned partition begins, with rows or without.

        Args:
            start: end of the last finished batch.
            limit: most offsets to plan, None for all.
            least: offsets to wait for, at most ``maxTriggerDelay`` after the last batch; AvailableNow does not wait.

        Raises:
            OffsetOutOfRange: offsets to read are gone and ``failOnDataLoss`` is true.
            UsageError: the checkpoint is not this query's.
            ZkConsumerError: joining failed; or, under AvailableNow, group or brokers stay unreachable.
        """
        finished = self._decode(start)
        planner = self._join()
        self._control.finish(finished.number)
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                planned = planner.plan(finished, limit, least)
            except (RetriableError, SessionExpired, NotOwner, GenerationEnded) as error:
                # A plain trigger asks again anyway. AvailableNow would take "nothing new" for its end.
                self._wait_to_retry(error, deadline if planner.has_targets else math.inf)
                if not planner.has_targets:
                    return start
            else:
                return start if planned is None else encode_offset(planned)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The tasks of the batch that ends at ``end``; it may be one that an earlier run of the query planned.

        Raises:
            UsageError: the checkpoint is not this query's.
            ZkConsumerError: no brokers are known and ZooKeeper cannot be asked for them.
        """
        if start == end:
            return []
        planned = self._decode(end)
        spans = {partition: span for partition, span in planned.spans.items() if span.size > 0}
        self._control.replay(planned.number, spans)
        assignment = self._control.current()
        threads = {} if assignment is None else {p: thread.number for p, thread in assignment.threads.items()}
        self._refresh_brokers()
        if spans and not self._brokers:
            self._brokers = read_cluster(self._options).brokers
        tasks = group_by_thread(spans, threads, self._options.num_streams or available_cpus())
        tasks = split_tasks(tasks, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition(task, self._brokers) for task in tasks]

    def report(self) -> dict[str, Any] | None:
        """The group, and position and log end of each owned partition when they were last looked at.

        Partitions without a leader are missing. None before the first plan.
        """
        if self._planner is None or self._planner.available is None:
            return None
        path = None if self._acknowledgements is None else self._acknowledgements.path
        return encode_report(self._config.group_id, self._planner.available, path)

    def stop(self) -> None:
        """Leave the group: ids and owners are gone when this returns. Idempotent."""
        if self._acknowledgements is not None:
            self._acknowledgements.close()  # first: what was received is committed by the leaving
        self._control.abandon()
        self._ends.close()
        if self._member is not None:
            self._member.leave()

    # -- membership -------------------------------------------------------------------------------------------------

    def _join(self) -> BatchPlanner:
        if self._planner is not None:
            return self._planner
        leave_on_sigterm()
        log_to_stderr()
        view = read_cluster(self._options)
        self._brokers = view.brokers
        self._warn_of_others(view)
        self._member = member = assemble_member(
            self._config,
            new_consumer_id(self._config),
            self._control,
            on_failure=self._control.fail,
            on_refusal=self._control.refuse,
            without_last_commit="this query continues at its checkpoint and commits it then; until that, another "
            "consumer of the group that gets these partitions reads the records again",
        )
        cpus = available_cpus()
        counts = stream_counts(self._options.topics, view.partition_counts(), self._options.num_streams, cpus)
        threads = max(counts.values(), default=1)
        _log.info(
            "group %s: joining with %d consumer threads (option numStreams: %s, CPUs of this process: %d)",
            self._config.group_id,
            threads,
            self._options.num_streams or "not set",
            cpus,
        )
        member.join(self._options.subscription(counts, threads))
        self._acknowledgements = open_server(self._acknowledged)
        return self._plan_for(member, view.members)

    def _plan_for(self, member: GroupMember, others: Collection[str] = ()) -> BatchPlanner:
        self._planner = BatchPlanner(
            self._options, self._control, member, self._ends, settle_s=self._patience_s, others=others
        )
        return self._planner

    def _acknowledged(self, number: int) -> None:
        """On the acknowledgements' thread: commit a batch that has finished while Spark waits for its next trigger."""
        committable = self._control.acknowledge(number)
        if committable is None or self._member is None:
            return
        generation, offsets = committable
        try:
            self._member.commit(offsets, generation=generation)
        except ZkConsumerError as error:
            _log.info("group %s: a finished batch is committed later: %s", self._config.group_id, error)

    def _warn_of_others(self, view: ClusterView) -> None:
        if view.our_members:
            _log.warning(
                "group %s has live zkconsumer members already: %s. This query shares the partitions with them, it "
                "does not get a copy; give each query that is to read everything its own group.id",
                self._config.group_id,
                ", ".join(sorted(view.our_members)),
            )

    def _decode(self, offset: Mapping[str, Any]) -> SourceOffset:
        decoded = decode_offset(offset)
        accepted = (None, self._config.group_id, self._options.checkpoint_group)
        if decoded.group not in accepted:
            raise UsageError(
                f"the checkpoint is of group {decoded.group}, and this query is in group {self._config.group_id}: give "
                f"each group a checkpoint of its own, or set checkpointGroup={decoded.group} to continue from this one"
            )
        return decoded

    def _refresh_brokers(self) -> None:
        try:
            if self._member is not None:
                self._brokers = self._member.live_brokers() or self._brokers
        except ZkConsumerError as error:
            _log.warning("using the brokers known so far: %s", error)

    def _wait_to_retry(self, error: Exception, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise error
        _log.warning("group %s: no batch is planned now: %s", self._config.group_id, error)
        self._refresh_brokers()
        time.sleep(self._config.refresh_leader_backoff_ms / 1000)
