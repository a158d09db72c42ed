"""GroupSession: keeps one consumer in a group that brokers coordinate.

- The *session thread* joins and synchronises, on a connection of its own: the answer to JoinGroup comes when all
  members have joined, which may take the rebalance timeout.
- The *heartbeat thread* (``group/kafka/heartbeats.py``) sends heartbeats on another connection, also meanwhile.

Both report what they learn to the membership (``group/kafka/sharedmembership.py``), which the member's rebalance thread
asks for what it may use. Commits have a third connection, that of the offset store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from zkconsumer.cluster.rules.clustercatalog import ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, ZkConsumerError
from zkconsumer.group.kafka.groupmessages import JoinSettings
from zkconsumer.group.kafka.groupreactions import REMOVED, Reaction, group_error, pause_s, reaction_to
from zkconsumer.group.kafka.heartbeats import Heartbeats
from zkconsumer.group.kafka.joinconversation import GroupConversation
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.group.kafka.rules.membership import Assigned, BrokerMembership
from zkconsumer.group.kafka.rules.strategies import configured_strategies
from zkconsumer.group.kafka.sharedmembership import SharedMembership
from zkconsumer.group.kafka.subscriptionbytes import decode_assignment
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.group.rules.subscribedtopics import read_subscribed
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Topic
from zkconsumer.process.boottime import boot_seconds
from zkconsumer.process.threads import start_thread
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.findcoordinator import CoordinatorLocation
from zkconsumer.wire.rules.outage import Outage

_log: Final = logging.getLogger(__name__)

_END_S: Final = 2.0


class GroupSession:
    """The membership of one consumer, and the threads that keep it.

    Args:
        config: the consumer's properties.
        consumer_id: id of the consumer, for names of threads.
        cluster: where brokers and topics are read from; opened and closed by the session.
        changed: called on any thread when there is something to do for the rebalance thread; never blocks.
        clock: see :class:`~zkconsumer.group.kafka.sharedmember.SharedMember`.

    Attributes:
        membership: what the rebalance thread may use.
        topic_ids: None: commits name topics, not their ids.
        location: where the coordinator is, for every client of this member.
        views: assignments received so far; written by the session thread.
        failure: why the last attempt to join failed, None once the next one is sent; written by the session thread.
        streams: topic to number of consumer threads, for the subscribed topics; replaced, never changed.
        topics: descriptions of these topics; replaced, never changed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        cluster: ClusterSource,
        changed: Callable[[], None],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._config = config
        self._group = config.group_id
        self._cluster = cluster
        self._changed = changed
        strategies = configured_strategies(config.partition_assignment_strategy)
        self.cooperative: Final = all(strategy.cooperative for strategy in strategies)
        session_ms, rebalance_ms = config.session_timeout_ms, config.max_poll_interval_ms
        settings = JoinSettings(self._group, session_ms, rebalance_ms, config.group_instance_id)
        self.topic_ids = None
        self.location = CoordinatorLocation()
        self._conversation = GroupConversation(config, settings, strategies, cluster, self.location)
        self.membership = SharedMembership(
            BrokerMembership(self.cooperative, config.group_instance_id),
            BrokerLease(session_ms / 1000, rebalance_ms / 1000),
            changed,
            clock,
        )
        self._heartbeats = Heartbeats(
            config,
            consumer_id,
            cluster,
            self.location,
            self.membership,
            removed=self._fence,
            silent=self._conversation.interrupt,
            changed=changed,
        )
        self._thread = threading.Thread(target=self._run, name=f"{consumer_id}-group", daemon=True)
        self._subscription: Subscription | None = None  # written by the rebalance thread before the first join
        # Written by the session thread:
        self._outage = Outage()
        self._reason = "joins the group"
        self._declared: frozenset[str] = frozenset()  # topics of the last JoinGroup
        self.views = 0
        self.failure: ZkConsumerError | None = None
        self.streams: Mapping[str, int] = {}
        self.topics: Mapping[str, Topic] = {}

    # -- on any thread ----------------------------------------------------------------------------------------------

    def open(self, lease_changed: Callable[[], None]) -> None:
        """Check that a broker answers, and start the threads; to be called once.

        Raises:
            BrokerUnavailable: no broker answers.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
        """
        self._heartbeats.open(lease_changed)
        self._cluster.open(self.membership.note_topics)
        start_thread(self._thread)

    def close(self) -> None:
        """Leave the group at once, unless the member is a static one, and end the threads. Idempotent."""
        self.membership.close()
        self._conversation.close()
        self._heartbeats.close()
        self._cluster.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def begin(self, subscription: Subscription) -> None:
        """Become a member; returns at once, and the assignment comes later.

        Raises:
            InstanceIdInUse: another consumer uses the same ``group.instance.id``.
        """
        self._subscription = subscription
        self.membership.note_topics()
        self.membership.begin()

    @property
    def connected(self) -> bool:
        """False while the coordinator does not answer the heartbeats of a member."""
        return self._heartbeats.answered or not self.membership.in_group

    @property
    def lease_lapses(self) -> int:
        """How often the lease has lapsed."""
        return self._heartbeats.lapses

    # -- the session thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while self.membership.await_work():
            try:
                self._work()
            except ZkConsumerError as error:
                self._report(error)
            except Exception as error:  # noqa: BLE001 - without this thread the member would never join again
                _log.exception("group %s: unexpected error while joining", self._group)
                self.failure = BrokerUnavailable(f"unexpected error: {error!r}")
            else:
                failures = 0
                continue
            failures += 1
            self.membership.note_topics()
            self._changed()
            self.membership.sleep(pause_s(failures))

    def _work(self) -> None:
        topics_changed = self.membership.take_topics_change()
        if self.membership.may_join():
            # A new topic would cost a rebalance for each member that notices it later than the first one.
            self._join(with_topics=topics_changed or self._has_filter())
        elif topics_changed and self._topics_differ():
            self._reason = "its topics have changed"
            self.membership.join_again()

    def _has_filter(self) -> bool:
        return self._subscription is not None and self._subscription.topic_filter is not None

    def _topics_differ(self) -> bool:
        """True if this member's topics are not those that it has declared, or if it leads, those of the group."""
        self._read_topics()
        return self.streams.keys() != self._declared or self._conversation.led_topics_differ()

    def _read_topics(self) -> None:
        """Read which topics the subscription selects."""
        subscription = self._subscription
        assert subscription is not None
        exclude_internal = self._config.exclude_internal_topics
        before = self.topics
        self.topics, self.streams = read_subscribed(self._cluster, subscription, exclude_internal=exclude_internal)
        if self.topics != before:
            self._changed()  # a topic may have been deleted and created again, which the leader does not notice

    def _join(self, *, with_topics: bool) -> None:
        """Join and synchronise.

        Args:
            with_topics: True if this member's topics have to be read before. Otherwise nothing has reported a change
                since they were read.
        """
        if with_topics:
            self._read_topics()
        intent = self.membership.join()
        if intent is None:
            return
        reason, self._reason = self._reason, "the group rebalances"
        self._declared = frozenset(self.streams)
        try:
            answer = self._conversation.join(
                intent, self._weights(), reason, id_given=self.membership.id_given, before_send=self._asks
            )
            if answer.code:
                self._refused(answer.code)
                return
            self.membership.joined(answer.member_id, answer.generation, answer.rebalance_ms / 1000)
            sent = self.membership.clock()
            result = self._conversation.synchronise(answer)
            if result.code:
                self._refused(result.code)
                return
            assigned = Assigned(answer.generation, decode_assignment(result.assignment))
            self._read_topics_of(assigned)
            self._publish(assigned, sent)
        finally:
            self.membership.join_ended()
        has_assigned = answer.leads and not answer.skips
        if self._config.group_instance_id is not None and intent.generation < 0 and not has_assigned:
            self._check_return(assigned)

    def _check_return(self, assigned: Assigned) -> None:
        """Join again, once, if a static member has got an assignment that was made for what it declared before.

        1. The member ends, and its place waits for it; 2. partitions are added, or it is configured with another topic;
        3. it comes back within its session: the coordinator answers with the former assignment, without a rebalance,
        also if this member leads and alone would have noticed the change. The second JoinGroup has a generation, so its
        metadata differ, and the coordinator begins a rebalance.
        """
        try:
            unassigned = self._conversation.unassigned(self._declared)
        except ZkConsumerError as error:
            _log.info("group %s: whether all partitions are assigned is unknown: %s", self._group, error)
            unassigned = frozenset()
        foreign = frozenset(p for p in assigned.partitions if p.topic not in self._declared)
        if unassigned or foreign:
            _log.info(
                "group %s: joining again, since the assignment of the static member %s is an earlier one: %s",
                self._group,
                self._config.group_instance_id,
                format_partitions(unassigned | foreign),
            )
            self._reason = "its former assignment does not fit its subscription"
            self.membership.join_again()

    def _asks(self) -> None:
        """JoinGroup is sent: what failed before is over, and the coordinator may take a rebalance timeout to answer."""
        self.failure = None

    def _read_topics_of(self, assigned: Assigned) -> None:
        """Read the topics again before the rebalance thread may acquire partitions that it does not hold.

        1. Topic t is deleted and created again, and another member commits offset 500 of t-0; 2. a rebalance gives t-0
        to this member, which has read the former t; 3. it begins at 500; 4. it learns of the new topic, for which its
        own position 500 means nothing, and resets it.
        """
        if assigned.partitions <= self.membership.held.keys():
            return
        try:
            self._read_topics()
        except ZkConsumerError as error:  # they are read after this assignment, which the group awaits
            _log.info("group %s: topics were not read again: %s", self._group, error)
            self.membership.note_topics()
        if self.streams.keys() != self._declared:
            self.membership.note_topics()

    def _weights(self) -> dict[str, int]:
        """Topic to the number of streams for which this member counts."""
        weight = 1 if self._subscription is None else self._subscription.weight
        return {topic: streams * weight for topic, streams in self.streams.items()}

    def _publish(self, assigned: Assigned, sent: float) -> None:
        if not self.membership.synchronised(assigned, sent):
            return
        self.views += 1
        lasted = self._outage.end(time.monotonic())
        if lasted is not None:
            _log.info("group %s: joined again after %.1f s", self._group, lasted)
        self._changed()

    def _refused(self, code: int) -> None:
        """React to an error code of JoinGroup or SyncGroup.

        Raises:
            ZkConsumerError: the member has to pause before it joins again.
        """
        reaction = reaction_to(code)
        _log.info("group %s: joining was answered with %s: %s", self._group, error_name(code), reaction.value)
        if reaction in REMOVED:
            self._fence(code)
        elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise self._error(code, self._conversation.strategy_in_use())
        elif reaction is not Reaction.JOIN_AGAIN:
            raise self._error(code)

    def _report(self, error: ZkConsumerError) -> None:
        self.failure = error
        if not self.membership.closed and self._outage.is_news(str(error), time.monotonic()):
            _log.warning("group %s: cannot join, trying again: %s", self._group, error)

    # -- on both threads --------------------------------------------------------------------------------------------

    def _error(self, code: int, in_use: str = "") -> ZkConsumerError:
        strategies = self._config.partition_assignment_strategy
        return group_error(code, self._group, strategies, self._conversation.security, in_use)

    def _fence(self, code: int) -> None:
        """The coordinator has removed this member, as this error code reports."""
        reaction = reaction_to(code)
        self.membership.fence(
            keeps_id=reaction is Reaction.LOSE_PARTITIONS,
            stopped=self._error(code) if reaction is Reaction.STAY_OUT else None,
        )
