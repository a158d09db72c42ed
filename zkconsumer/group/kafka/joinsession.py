"""JoinSession: keeps one consumer in a group whose members assign.

- The *session thread* joins and synchronises. The answer to JoinGroup comes when all members have joined, which may
  take the rebalance timeout; the connection answers nothing else meanwhile.
- The *heartbeat thread* (``group/kafka/heartbeats.py``) sends heartbeats, also meanwhile: the pool has another
  connection for it then (``wire/connectionpool.py``).
"""

from __future__ import annotations

import logging
import time
from typing import Final

from zkconsumer.errors import StrategyConflict, ZkConsumerError
from zkconsumer.group.assignorloading import load_assignors
from zkconsumer.group.kafka.brokersession import BrokerSession, BrokerSessionParts
from zkconsumer.group.kafka.grouperrors import group_error
from zkconsumer.group.kafka.groupmessages import JoinAnswer, JoinSettings, leave_group
from zkconsumer.group.kafka.heartbeats import Heartbeats
from zkconsumer.group.kafka.joinconversation import JoinConversation
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.group.kafka.rules.generationmember import Assigned, GenerationMember, JoinIntent
from zkconsumer.group.kafka.rules.strategies import configured_strategies
from zkconsumer.group.kafka.subscriptionbytes import decode_assignment
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.offsets.membershipanswers import MembershipAnswer, membership_answer
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.rules.outage import Outage

_log: Final = logging.getLogger(__name__)


class JoinSession(BrokerSession[GenerationMember]):
    """The membership of one consumer, and the threads that keep it; for ``parts`` see :class:`BrokerSessionParts`."""

    _timeout = "session.timeout.ms"
    _task = "while joining"

    def __init__(self, parts: BrokerSessionParts) -> None:
        config = parts.config
        named = config.partition_assignment_strategy
        strategies = configured_strategies(named, load_assignors(named))
        self.cooperative = all(strategy.cooperative for strategy in strategies)
        session_ms, rebalance_ms = config.session_timeout_ms, config.max_poll_interval_ms
        lease = BrokerLease(session_ms / 1000, rebalance_ms / 1000, config.heartbeat_interval_ms / 1000)
        member = GenerationMember(self.cooperative, instance_id=config.group_instance_id, lease=lease)
        super().__init__(parts, member)
        settings = JoinSettings(self._group, session_ms, rebalance_ms, config.group_instance_id)
        self._conversation = JoinConversation(config, settings, strategies, parts.cluster, self.location, parts.pool)
        self._leaver = Heartbeats(
            self._group,
            config.heartbeat_interval_ms / 1000,
            parts.consumer_id,
            self._contact,
            self.membership,
            why_stopped=self._why_stopped,
            silent=self._conversation.interrupt,
            leave=self._leave,
        ).thread
        # Written by the session thread:
        self._outage = Outage()
        self._reason = "joins the group"
        self._declared: frozenset[str] = frozenset()  # topics of the last JoinGroup

    # -- on any thread ----------------------------------------------------------------------------------------------

    def _check(self, brokers: BrokerClient) -> None:
        """Nothing: brokers of every release have the protocol."""

    def _interrupt(self) -> None:
        self._conversation.close()

    def _ask_to_leave(self, connection: BrokerConnection, member: CommitIdentity) -> int:
        return leave_group(connection, self._group, member)

    # -- the session thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        with self.membership.changing() as member:
            topics_changed, may_join = member.take_topics_change(), member.may_join()
        if may_join:
            # A new topic would cost a rebalance for each member that notices it later than the first one.
            self._join(with_topics=topics_changed or self._has_filter())
        elif topics_changed and self._topics_differ():
            self._join_again("its topics have changed")

    def _join_again(self, reason: str) -> None:
        self._reason = reason
        with self.membership.changing() as member:
            member.join_again()

    def _has_filter(self) -> bool:
        return self._subscription is not None and self._subscription.topic_filter is not None

    def _topics_differ(self) -> bool:
        """True if this member's topics are not those that it has declared, or if it leads, those of the group."""
        self._read_topics()
        return self.streams.keys() != self._declared or self._conversation.led_topics_differ()

    def _join(self, *, with_topics: bool) -> None:
        """Join and synchronise.

        Args:
            with_topics: True if this member's topics have to be read before. Otherwise nothing has reported a change
                since they were read.
        """
        if with_topics:
            self._read_topics()
        with self.membership.changing() as member:
            intent = member.join()
        if intent is None:
            return
        self._declared = frozenset(self.streams)
        try:
            answer = self._ask_to_join(intent)
            assigned = None if answer is None else self._synchronise(answer)
        finally:
            with self.membership.changing() as member:
                member.join_ended()
        if answer is None or assigned is None:
            return
        has_assigned = answer.leads and not answer.skips
        if self._config.group_instance_id is not None and intent.generation < 0 and not has_assigned:
            self._check_return(assigned)

    def _ask_to_join(self, intent: JoinIntent) -> JoinAnswer | None:
        """Join a generation; None if the answer is an error, or the membership has ended meanwhile."""
        reason, self._reason = self._reason, "the group rebalances"
        answer = self._conversation.join(
            intent, self._weights(), reason, id_given=self._id_given, before_send=self._join_sent
        )
        if answer.code:
            self._refused(answer.code)
            return None
        with self.membership.changing() as member:
            joined = member.joined(answer.member_id, answer.generation, answer.rebalance_ms / 1000)
        self.strategy, self.leads = answer.strategy, answer.leads
        return answer if joined else None

    def _synchronise(self, answer: JoinAnswer) -> Assigned | None:
        """Receive the assignment of a generation; None as of :meth:`_ask_to_join`."""
        sent = self.membership.clock()
        result = self._conversation.synchronise(answer)
        if result.code:
            self._refused(result.code)
            return None
        assigned = Assigned(answer.generation, decode_assignment(result.assignment))
        self._read_topics_of(assigned)
        with self.membership.changing() as member:
            synchronised = member.synchronised(assigned, sent, self.membership.clock())
        if not synchronised:
            return None
        lasted = self._outage.end(time.monotonic())
        if lasted is not None:
            _log.info("group %s: joined again after %.1f s", self._group, lasted)
        return assigned

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
            self._join_again("its former assignment does not fit its subscription")

    def _id_given(self, member_id: str) -> None:
        with self.membership.changing() as member:
            member.id_given(member_id)

    def _join_sent(self) -> None:
        with self.membership.changing() as member:
            member.join_sent()

    def _read_topics_of(self, assigned: Assigned) -> None:
        """Read the topics again before the rebalance thread may acquire partitions that it does not hold.

        1. Topic t is deleted and created again, and another member commits offset 500 of t-0; 2. a rebalance gives t-0
        to this member, which has read the former t; 3. it begins at 500; 4. it learns of the new topic, for which its
        own position 500 means nothing, and resets it.
        """
        if self.membership.read(lambda member: assigned.partitions <= member.held.keys()):
            return
        try:
            self._read_topics()
        except ZkConsumerError as error:  # they are read after this assignment, which the group awaits
            _log.info("group %s: topics were not read again: %s", self._group, error)
        if self.streams.keys() != self._declared:
            self.note_topics()

    def _weights(self) -> dict[str, int]:
        """Topic to the number of streams for which this member counts."""
        weight = 1 if self._subscription is None else self._subscription.weight
        return {topic: streams * weight for topic, streams in self.streams.items()}

    def _refused(self, code: int) -> None:
        """React to an error code of JoinGroup or SyncGroup.

        Raises:
            ZkConsumerError: the member has to pause before it joins again.
        """
        means = membership_answer(code, joins=True)
        _log.info("group %s: joining was answered with %s: %s", self._group, error_name(code), means.value)
        if means.ends:
            with self.membership.changing() as member:
                member.refused(keeps_id=means.keeps_id, stopped=self._why_stopped(code))
        elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise self._error(code, self._conversation.strategy_in_use())
        elif means is not MembershipAnswer.REBALANCING:
            raise self._error(code)

    def _report(self, error: ZkConsumerError) -> None:
        has_left = self.membership.read(lambda member: member.has_left)
        if isinstance(error, StrategyConflict):
            return  # each attempt of the rebalance thread fails for it, and reports it
        if not has_left and self._outage.is_news(str(error), time.monotonic()):
            _log.warning("group %s: cannot join, trying again: %s", self._group, error)

    # -- on both threads --------------------------------------------------------------------------------------------

    def _error(self, code: int, in_use: str = "") -> ZkConsumerError:
        strategies = self._config.partition_assignment_strategy
        return group_error(code, self._group, strategies, self._conversation.security, in_use)
