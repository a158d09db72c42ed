"""ConsumerSession: keeps one consumer in a group in which the broker assigns (KIP-848, adr/0022).

The *session thread* sends heartbeats, by which a member joins, reports what it owns, is assigned partitions, and
leaves. It reports the answers to the membership (``group/consumer/sharedmembership.py``), which the member's rebalance
thread asks for what it may use. Commits have another connection, that of the offset store.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from zkconsumer.cluster.rules.clustercatalog import ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    BrokerUnavailable,
    CoordinatorMoved,
    ProtocolError,
    RebalanceAwaited,
    ZkConsumerError,
)
from zkconsumer.group.consumer.brokersupport import require_support
from zkconsumer.group.consumer.consumerreactions import consumer_group_error, consumer_reaction
from zkconsumer.group.consumer.heartbeatmessages import (
    HeartbeatAnswer,
    HeartbeatSettings,
    consumer_heartbeat,
    leave_beat,
)
from zkconsumer.group.consumer.rules.membership import LEAVING, Beat, ConsumerMembership
from zkconsumer.group.consumer.sharedmembership import SharedConsumerMembership
from zkconsumer.group.kafka.coordinatorcontact import CoordinatorContact
from zkconsumer.group.kafka.groupreactions import REMOVED, Reaction, pause_s
from zkconsumer.group.kafka.leasewatch import LeaseWatch
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.group.rules.subscribedtopics import read_subscribed
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Topic
from zkconsumer.offsets.rules.commitidentity import CommitIdentity
from zkconsumer.process.boottime import boot_seconds
from zkconsumer.process.threads import start_thread
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import group_settings
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.findcoordinator import COORDINATOR_GONE, CoordinatorLocation

_log: Final = logging.getLogger(__name__)
_events: Final = logging.getLogger("zkconsumer.events")

_IDLE_S: Final = 3600.0
_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
_SESSION_VALID_S: Final = 60.0
"""How often the session timeout is read, which an operator may change while the group is running."""


class ConsumerSession:
    """The membership of one consumer, and the thread that keeps it.

    Args:
        config: the consumer's properties.
        consumer_id: id of the consumer, for names of threads.
        cluster: where brokers and topics are read from; opened and closed by the session.
        changed: called on any thread when there is something to do for the rebalance thread; never blocks.
        clock: see :class:`~zkconsumer.group.kafka.sharedmember.SharedMember`.

    Attributes:
        membership: what the rebalance thread may use.
        topic_ids: returns the ids of topics by name, for commits.
        location: where the coordinator is, for every client of this member.
        views: assignments received so far; written by the session thread.
        failure: why the last attempt to join failed, None after a success; written by the session thread.
        streams: topic to number of consumer threads, for the subscribed topics; replaced, never changed.
        topics: descriptions of these topics; replaced, never changed.
    """

    cooperative: Final = True

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
        self._settings = HeartbeatSettings(self._group, config.max_poll_interval_ms, config.group_remote_assignor)
        session_s, self._rebalance_s = config.session_timeout_ms / 1000, config.max_poll_interval_ms / 1000
        self.membership = SharedConsumerMembership(
            ConsumerMembership(str(uuid.uuid4()), config.group_instance_id),
            BrokerLease(session_s, self._rebalance_s),
            changed,
            clock,
        )
        self.topic_ids = self.membership.topic_ids
        self.location = CoordinatorLocation()
        self._contact = CoordinatorContact(config, cluster, self.location, self.membership, changed)
        self._thread = threading.Thread(target=self._run, name=f"{consumer_id}-group", daemon=True)
        self._subscription: Subscription | None = None  # written by the rebalance thread before the first join
        timeout = f"the session timeout ({_SESSION_TIMEOUT})"
        self._lease = LeaseWatch(self._group, consumer_id, self.membership, timeout)
        # Written by the session thread:
        self._due = self._session_due = float("-inf")  # of the next heartbeat; of the next reading of the timeout
        self._unreadable = ""
        self.views = 0
        self.failure: ZkConsumerError | None = None
        self.streams: Mapping[str, int] = {}
        self.topics: Mapping[str, Topic] = {}

    # -- on any thread ----------------------------------------------------------------------------------------------

    def open(self, lease_changed: Callable[[], None]) -> None:
        """Check that a broker answers and has the protocol, and start the thread; to be called once.

        Raises:
            BrokerUnavailable: no broker answers.
            ConfigError: the brokers do not have the protocol.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
        """
        self._contact.open(lambda brokers: require_support(brokers, self._settings))
        self._lease.open(lease_changed)
        self._cluster.open(self.membership.note_topics)
        start_thread(self._thread)

    def close(self) -> None:
        """Leave the group at once, for a while if the member is a static one, and end the thread. Idempotent."""
        self.membership.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(self._contact.end_s)
        self._contact.close()
        self._lease.close()
        self._cluster.close()

    def begin(self, subscription: Subscription) -> None:
        """Become a member; returns at once, and the assignment comes later.

        Raises:
            InstanceIdInUse: another consumer uses the same ``group.instance.id``.
        """
        self._subscription = subscription
        self.membership.begin()

    @property
    def connected(self) -> bool:
        """False while the coordinator does not answer the heartbeats of a member."""
        return self._contact.answers or not self.membership.in_group

    @property
    def lease_lapses(self) -> int:
        """How often the lease has lapsed."""
        return self._lease.lapses

    # -- the session thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while self.membership.await_turn(self._due - self.membership.clock()):
            try:
                self._work()
            except ZkConsumerError as error:
                self._report(error)
            except Exception as error:  # noqa: BLE001 - without this thread the lease would lapse for ever
                _log.exception("group %s: unexpected error of a heartbeat", self._group)
                self._report(BrokerUnavailable(f"unexpected error: {error!r}"))
            else:
                failures = 0
                continue
            failures += 1
            self.membership.unanswered()
            self._due = self.membership.clock()  # after the pause
            self.membership.sleep(pause_s(failures))
        if self.membership.leaving is not None:
            self._leave(self.membership.leaving)

    def _work(self) -> None:
        membership = self.membership
        if not membership.takes_part():
            self._due = membership.clock() + _IDLE_S
            return
        topics_changed = membership.take_topics_change() and self._read_topics()
        if topics_changed or membership.is_urgent() or membership.clock() >= self._due:
            if membership.clock() >= self._session_due:
                self._read_session_timeout()
            self._beat()

    def _read_topics(self) -> bool:
        """Read which topics the subscription selects; True if they have changed.

        Raises:
            ZkConsumerError: no broker describes the topics.
        """
        subscription = self._subscription
        assert subscription is not None
        exclude_internal = self._config.exclude_internal_topics
        try:
            found = read_subscribed(self._cluster, subscription, exclude_internal=exclude_internal)
        except BaseException:
            self.membership.note_topics()
            raise
        before, described = self.streams.keys(), self.topics
        self.topics, self.streams = found
        ids = {name: one.identity.topic_id for name, one in self.topics.items()}
        # After the topics: the rebalance thread must not use a topic whose identity it cannot compare.
        self.membership.name_topics({name: topic_id for name, topic_id in ids.items() if topic_id is not None})
        if self.topics != described:
            self._changed()
        return self.streams.keys() != before

    def _beat(self) -> None:
        membership = self.membership
        beat, sent, answer = self._ask()
        if answer.code:
            self._refused(answer, beat)
            self._contact.heard()
            return
        self._contact.heard()
        self._due = sent + answer.interval_ms / 1000
        if membership.answered(beat, answer.epoch, answer.assignment, sent):
            self.views += answer.assignment is not None
        self.failure = None

    def _ask(self) -> tuple[Beat, float, HeartbeatAnswer]:
        """Send a heartbeat; returns it, when it was sent, and its answer.

        Raises:
            ZkConsumerError: there is no answer.
        """
        topics = tuple(sorted(self.streams))
        last: list[tuple[Beat, float]] = []

        def question(connection: BrokerConnection) -> HeartbeatAnswer:
            if last:  # the connection broke: the coordinator may have processed the heartbeat, and advanced the epoch
                self.membership.unanswered()
            beat = self.membership.beat(topics)
            if beat is None:
                raise RebalanceAwaited(f"group {self._group}: the membership has ended")
            last[:] = [(beat, self.membership.clock())]
            return _heartbeat(connection, self._settings, beat)

        answer = self._contact.ask(question)
        return *last[0], answer

    def _refused(self, answer: HeartbeatAnswer, beat: Beat) -> None:
        """React to an error code.

        Raises:
            ZkConsumerError: the member has to pause before the next heartbeat.
        """
        in_group = beat.member.generation > 0
        reaction = consumer_reaction(answer.code, in_group=in_group)
        error = consumer_group_error(
            answer.code, answer.message, self._group, self._settings.assignor, self._contact.security
        )
        is_known = reaction is Reaction.LOSE_PARTITIONS or answer.code == ErrorCode.UNRELEASED_INSTANCE_ID
        if is_known and not in_group:
            # The coordinator may have this member still: its former membership has ended here only, or the answer by
            # which it joined was lost. Before 4.2 it refuses epoch 0 then, of a static member in every release. The
            # member holds nothing, so it can leave; another one with its group.instance.id is not affected.
            self._leave(CommitIdentity(beat.member.member_id, LEAVING, beat.member.instance_id))
            raise error
        if reaction not in REMOVED:
            raise error
        _events.warning(
            "group %s: the coordinator has removed member %s: %s: %s",
            self._group,
            beat.member.member_id,
            error_name(answer.code),
            reaction.value,
        )
        self.membership.fence(
            keeps_id=answer.code == ErrorCode.FENCED_MEMBER_EPOCH,
            stopped=error if reaction is Reaction.STAY_OUT else None,
        )

    def _read_session_timeout(self) -> None:
        """Read the session timeout, which heartbeats do not report; unreadable, it is ``session.timeout.ms``.

        Raises:
            BrokerUnavailable, CoordinatorMoved: it was never read, so the member must not join yet.
        """
        self._session_due = self.membership.clock() + _SESSION_VALID_S
        timeout_ms = self._config.session_timeout_ms
        try:
            found = self._contact.ask(lambda one: group_settings(one, self._group, [_SESSION_TIMEOUT]))
            timeout_ms = int(found[_SESSION_TIMEOUT] or "")
        except (BrokerUnavailable, CoordinatorMoved) as error:
            if not self.membership.in_group:
                self._session_due = float("-inf")
                raise
            _log.info("group %s: the session timeout was not read again: %s", self._group, error)
            return  # heartbeats must not wait for it
        except (ProtocolError, KeyError, ValueError) as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                _log.warning(
                    "group %s: the coordinator's session timeout cannot be read: %s; session.timeout.ms is used, which "
                    "must not be longer than the brokers' group.consumer.session.timeout.ms",
                    self._group,
                    error,
                )
        self.membership.set_timeouts(timeout_ms / 1000, self._rebalance_s)

    def _report(self, error: ZkConsumerError) -> None:
        self._contact.failed(error)
        self.failure = error
        if not self.membership.in_group:  # the rebalance thread waits for the outcome
            self._changed()

    def _leave(self, member: CommitIdentity) -> None:
        self._contact.leave(lambda connection: _heartbeat(connection, self._settings, leave_beat(member)).code)


def _heartbeat(connection: BrokerConnection, settings: HeartbeatSettings, beat: Beat) -> HeartbeatAnswer:
    answer = consumer_heartbeat(connection, settings, beat)
    if answer.code in COORDINATOR_GONE:
        raise CoordinatorMoved(f"heartbeat of group {settings.group}: {error_name(answer.code)}")
    return answer
