"""HeartbeatSession: keeps one consumer in a group in which the broker assigns (KIP-848, adr/0022).

The *session thread* sends heartbeats, by which a member joins, reports what it owns, is assigned partitions, and
leaves.
"""

from __future__ import annotations

import logging
import uuid
from math import inf
from typing import Final

from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, ProtocolError, RebalanceAwaited, ZkConsumerError
from zkconsumer.group.consumer.brokersupport import require_support
from zkconsumer.group.consumer.consumererrors import consumer_group_error
from zkconsumer.group.consumer.heartbeatmessages import (
    HeartbeatAnswer,
    HeartbeatSettings,
    consumer_heartbeat,
    leave_beat,
)
from zkconsumer.group.consumer.rules.epochmember import LEAVING, EpochBeat, EpochMember
from zkconsumer.group.kafka.brokersession import BrokerSession, BrokerSessionParts
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.offsets.membershipanswers import MembershipAnswer, membership_answer
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import SESSION_TIMEOUT, consumer_session_ms
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.findcoordinator import expect_coordinator

_log: Final = logging.getLogger(__name__)

_IDLE_S: Final = 3600.0
_SESSION_VALID_S: Final = 60.0
"""How often the session timeout is read, which an operator may change while the group is running."""


class HeartbeatSession(BrokerSession[EpochMember]):
    """The membership of one consumer, and the thread that keeps it; for ``parts`` see :class:`BrokerSessionParts`."""

    _timeout = f"the session timeout ({SESSION_TIMEOUT})"
    _task = "of a heartbeat"

    def __init__(self, parts: BrokerSessionParts) -> None:
        config = parts.config
        lease = BrokerLease(config.session_timeout_ms / 1000, config.max_poll_interval_ms / 1000)
        member = EpochMember(member_id=str(uuid.uuid4()), instance_id=config.group_instance_id, lease=lease)
        super().__init__(parts, member)
        self.strategy = config.group_remote_assignor or ""
        self._settings = HeartbeatSettings(
            self._group, config.max_poll_interval_ms, config.group_remote_assignor, config.client_rack
        )
        self.topic_ids = lambda: self.membership.read(lambda member: member.topic_ids())
        # Written by the session thread:
        self._due = self._session_due = -inf  # of the next heartbeat; of the next reading of the timeout
        self._unreadable = ""
        self._regex = self._refused_regex = ""  # by which the coordinator selects topics; which it does not accept

    # -- on any thread ----------------------------------------------------------------------------------------------

    def _check(self, brokers: BrokerClient) -> None:
        require_support(brokers, self._settings)

    def _interrupt(self) -> None:
        """Nothing: there are only heartbeats."""

    def _ask_to_leave(self, connection: BrokerConnection, member: CommitIdentity) -> int:
        return _heartbeat(connection, self._settings, leave_beat(member)).code

    # -- the session thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        with self.membership.changing() as member:
            takes_part = member.takes_part
            has_to_read = takes_part and member.take_topics_change()
        if not takes_part:
            self._due = self.membership.clock() + _IDLE_S
            return
        topics_changed = has_to_read and self._read_topics()
        is_urgent = self.membership.read(lambda member: member.is_urgent())
        if topics_changed or is_urgent or self.membership.clock() >= self._due:
            if self.membership.clock() >= self._session_due:
                self._read_session_timeout()
            self._beat()

    def _read_topics(self) -> bool:
        changed = super()._read_topics()
        ids = {name: topic.identity.topic_id for name, topic in self.topics.items()}
        # After the topics: the rebalance thread must not use a topic whose identity it cannot compare.
        with self.membership.changing() as member:
            member.name_topics({name: topic_id for name, topic_id in ids.items() if topic_id is not None})
        before, self._regex = self._regex, self._broker_regex()
        return changed if not self._regex else self._regex != before

    def _broker_regex(self) -> str:
        """By which the coordinator has to select topics; empty if this member does."""
        subscription = self._subscription
        if subscription is None or subscription.topic_filter is None:
            return ""
        regex = subscription.topic_filter.broker_regex(exclude_internal=self._config.exclude_internal_topics)
        return "" if regex == self._refused_regex else regex

    def _beat(self) -> None:
        beat, sent, answer = self._ask()
        if answer.code:
            self._refused(answer, beat)
            self._contact.heard()
            return
        self._contact.heard()
        heartbeat_s = answer.interval_ms / 1000
        self._due = sent + heartbeat_s
        with self.membership.changing() as member:
            member.interval_read(heartbeat_s)
            member.answered(beat, answer.epoch, answer.assignment, sent)

    def _ask(self) -> tuple[EpochBeat, float, HeartbeatAnswer]:
        """Send a heartbeat; returns it, when it was sent, and its answer.

        Raises:
            ZkConsumerError: there is no answer.
        """
        topics = tuple(sorted(self.streams))
        last: list[tuple[EpochBeat, float]] = []

        def question(connection: BrokerConnection) -> HeartbeatAnswer:
            with self.membership.changing() as member:
                if last:  # the connection broke: the coordinator may have processed the heartbeat, advanced the epoch
                    member.unanswered()
                beat = member.beat(topics, self._regex)
            if beat is None:
                raise RebalanceAwaited(f"group {self._group}: the membership has ended")
            last[:] = [(beat, self.membership.clock())]
            return _heartbeat(connection, self._settings, beat)

        answer = self._contact.ask(question)
        return *last[0], answer

    def _refused(self, answer: HeartbeatAnswer, beat: EpochBeat) -> None:
        """React to an error code.

        Raises:
            ZkConsumerError: the member has to pause before the next heartbeat.
        """
        if answer.code == ErrorCode.INVALID_REGULAR_EXPRESSION and self._regex:
            _log.warning(
                "group %s: the coordinator does not accept the regex %r (%s); this member selects topics itself, once "
                "every metadata.max.age.ms",
                self._group,
                self._regex,
                answer.message,
            )
            self._refused_regex, self._regex = self._regex, ""
            with self.membership.changing() as member:
                member.unanswered()
            self._due = self.membership.clock()
            return
        in_group = beat.member.generation > 0
        means = membership_answer(answer.code, joins=not in_group)
        error = consumer_group_error(
            answer.code, answer.message, self._group, self._settings.assignor, self._contact.security
        )
        may_leave = (means.ends and means is not MembershipAnswer.REPLACED) or (
            answer.code == ErrorCode.UNRELEASED_INSTANCE_ID
        )
        if may_leave and not in_group:
            # The coordinator may have this member still: its former membership has ended here only, or the answer by
            # which it joined was lost. Before 4.2 it refuses epoch 0 then, of a static member in every release. The
            # member holds nothing, so it can leave; another one with its group.instance.id is not affected.
            former = CommitIdentity(beat.member.member_id, LEAVING, beat.member.instance_id)
            self._contact.leave(lambda connection: self._ask_to_leave(connection, former))
            raise error
        if not means.ends:
            raise error
        with self.membership.changing() as member:
            removed = member.refused(keeps_id=means.keeps_id, stopped=self._why_stopped(answer.code) and error)
        if removed:
            self._contact.removed(beat.member, answer.code)

    def _error(self, code: int) -> ZkConsumerError:
        return consumer_group_error(code, "", self._group, self._settings.assignor, self._contact.security)

    def _read_session_timeout(self) -> None:
        """Read the session timeout, which heartbeats do not report; unreadable, it is ``session.timeout.ms``.

        Raises:
            BrokerUnavailable, CoordinatorMoved: it was never read, so the member must not join yet.
        """
        self._session_due = self.membership.clock() + _SESSION_VALID_S
        timeout_ms = self._config.session_timeout_ms
        try:
            timeout_ms = self._contact.ask(lambda connection: consumer_session_ms(connection, self._group))
        except (BrokerUnavailable, CoordinatorMoved) as error:
            if not self.membership.read(lambda member: member.in_group):
                self._session_due = -inf
                raise
            _log.info("group %s: the session timeout was not read again: %s", self._group, error)
            return  # heartbeats must not wait for it
        except ProtocolError as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                _log.warning(
                    "group %s: the coordinator's session timeout cannot be read: %s; session.timeout.ms is used, which "
                    "must not be longer than the brokers' group.consumer.session.timeout.ms",
                    self._group,
                    error,
                )
        with self.membership.changing() as member:
            member.session_timeout_read(timeout_ms / 1000)

    def _report(self, error: ZkConsumerError) -> None:
        self._contact.failed(error)
        self._due = self.membership.clock()  # after the pause


def _heartbeat(connection: BrokerConnection, settings: HeartbeatSettings, beat: EpochBeat) -> HeartbeatAnswer:
    answer = consumer_heartbeat(connection, settings, beat)
    expect_coordinator(answer.code, f"heartbeat of group {settings.group}")
    return answer
