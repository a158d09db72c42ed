"""CoordinatorContact: how the thread that keeps a membership talks to the coordinator, in both protocols of brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from zkconsumer.cluster.rules.clustercatalog import ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, ZkConsumerError
from zkconsumer.group.kafka.rules.groupmembership import GroupMembership
from zkconsumer.group.kafka.sharedmembership import SharedMembership
from zkconsumer.offsets.membershipanswers import membership_answer
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.process.deadline import Deadline
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.errorcodes import error_name
from zkconsumer.wire.findcoordinator import CoordinatorClient, CoordinatorLocation
from zkconsumer.wire.rules.outage import Outage

_log: Final = logging.getLogger(__name__)
_events: Final = logging.getLogger("zkconsumer.events")

_END_S: Final = 2.0
_LEAST_TIMEOUT_MS: Final = 1000
_TIMEOUTS_PER_SESSION: Final = 10
"""A heartbeat is repeated on a new connection after this part of the session timeout, so several fit into the lease."""

T = TypeVar("T")


class CoordinatorContact:
    """A client for heartbeats, and whether they are answered. One thread uses it, unless a method says otherwise.

    Args:
        config: the consumer's properties.
        cluster: where brokers are read from.
        location: where the coordinator is, shared with the member's other clients.
        membership: the member's state.
        changed: called when the coordinator answers again; never blocks.
        pool: connections that the member's clients share.

    Attributes:
        answers: False while the coordinator does not answer; written by the thread.
        end_s: how long the last request of the thread may take, in seconds.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: ClusterSource,
        location: CoordinatorLocation,
        membership: SharedMembership[GroupMembership],
        changed: Callable[[], None],
        pool: ConnectionPool | None = None,
    ) -> None:
        self._group = config.group_id
        self._membership = membership
        self._changed = changed
        timeout_ms = max(_LEAST_TIMEOUT_MS, config.session_timeout_ms // _TIMEOUTS_PER_SESSION)
        self._brokers = BrokerClient.from_config(cluster.live_brokers, config, timeout_ms=timeout_ms, pool=pool)
        self._client = CoordinatorClient(self._brokers, self._group, location)
        self._outage = Outage()
        self.answers = True
        self.end_s: Final = _END_S + 2 * timeout_ms / 1000

    @property
    def security(self) -> BrokerSecurity:
        """Settings of the connection, for messages."""
        return self._client.security

    def open(self, check: Callable[[BrokerClient], None]) -> None:
        """Check that a broker answers; to be called before the thread starts.

        Args:
            check: called first, with a client of the cluster; it may raise.

        Raises:
            BrokerUnavailable: no broker answers.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
        """
        try:
            check(self._brokers)
            self._client.locate()
        except CoordinatorMoved as error:  # a new cluster creates the topic of offsets at the first request
            _log.info("group %s: %s; it will be asked for again", self._group, error)
        except BaseException:
            self._client.close()
            raise

    def close(self) -> None:
        """Close the connection; a request in progress raises BrokerUnavailable. Idempotent, from any thread."""
        self._client.close()

    def ask(self, question: Callable[[BrokerConnection], T]) -> T:
        """See :meth:`CoordinatorClient.ask`; within a part of the session timeout that the broker has named, if any."""
        session_s = self._membership.read(lambda member: member.lease.session_s)
        limit = Deadline.after(max(_LEAST_TIMEOUT_MS / 1000, session_s / _TIMEOUTS_PER_SESSION))
        return self._client.ask(question, limit)

    def heard(self) -> None:
        """A heartbeat was answered."""
        self.answers = True
        lasted = self._outage.end(time.monotonic())
        if lasted is not None:
            _log.info("group %s: the coordinator answers again after %.1f s", self._group, lasted)
            self._changed()

    def failed(self, error: ZkConsumerError) -> None:
        """A heartbeat failed: it was not answered, or with an error after which it has to be repeated."""
        self.answers = not isinstance(error, BrokerUnavailable)
        has_left = self._membership.read(lambda member: member.has_left)
        if not has_left and self._outage.is_news(str(error), time.monotonic()):
            _log.warning("group %s: a heartbeat failed, trying again: %s", self._group, error)

    def removed(self, member: CommitIdentity, code: int) -> None:
        """Log that a heartbeat of this member was answered with an error by which the coordinator has removed it."""
        text = "group %s: the coordinator has removed member %s: %s: %s"
        _events.warning(text, self._group, member.member_id, error_name(code), membership_answer(code).value)

    def leave(self, question: Callable[[BrokerConnection], int]) -> None:
        """Send the request by which a member leaves. A failure is logged: the session will time out.

        Args:
            question: sends it, and returns the error code of the answer.
        """
        try:
            code = self.ask(question)
        except ZkConsumerError as error:
            _log.info("group %s: not left, the session will time out: %s", self._group, error)
        else:
            if code:
                _log.info("group %s: leaving was answered with %s", self._group, error_name(code))
