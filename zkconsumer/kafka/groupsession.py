"""GroupSession: the membership of one consumer in a group that brokers coordinate, and the two threads that keep it.

Threads, and what each of them writes under the session's lock, which is never held across I/O:

- The *session thread* joins and synchronises, on a connection of its own: the answer to JoinGroup comes when all
  members have joined, which may take the rebalance timeout.
- The *heartbeat thread* sends heartbeats on another connection, also meanwhile. It extends the lease, learns that a
  rebalance has begun or that the group has removed the member, and sends LeaveGroup at the end.
- The member's rebalance thread acquires and releases partitions, see :class:`BrokerMembership`.

Commits have a third connection, that of the offset store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.brokerlease import BrokerLease
from zkconsumer.core.brokermembership import Assigned, BrokerMembership, CommitIdentity, MembershipState
from zkconsumer.core.clustercatalog import ClusterSource, read_known
from zkconsumer.core.groupstrategies import configured_strategies
from zkconsumer.core.groupview import Topic
from zkconsumer.core.outage import Outage
from zkconsumer.core.subscription import Subscription
from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, ZkConsumerError
from zkconsumer.kafka.client import BrokerClient
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.consumerprotocol import decode_assignment
from zkconsumer.kafka.errorcodes import error_name
from zkconsumer.kafka.findcoordinator import COORDINATOR_GONE, CoordinatorClient
from zkconsumer.kafka.groupconversation import GroupConversation
from zkconsumer.kafka.groupmessages import JoinSettings, heartbeat, leave_group
from zkconsumer.kafka.groupreactions import Reaction, group_error, reaction_to
from zkconsumer.model import ConsumerThreadId, TopicPartition

_log: Final = logging.getLogger(__name__)
_events: Final = logging.getLogger("zkconsumer.events")

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_END_S: Final = 2.0
_LEAST_TIMEOUT_MS: Final = 1000
_TIMEOUTS_PER_SESSION: Final = 10
"""A heartbeat is repeated on a new connection after this part of the session timeout, so several fit into the lease."""

_REMOVED: Final = frozenset({Reaction.START_AGAIN, Reaction.LOSE_PARTITIONS, Reaction.STAY_OUT})
"""Reactions of a member that the group has removed."""

# CLOCK_BOOTTIME advances while the machine sleeps, as the brokers' clocks do; CLOCK_MONOTONIC does not.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds on a clock that never jumps back and counts suspended time where the system has one."""
    return time.clock_gettime(_CLOCK)


class GroupSession:
    """Keeps one member in its group.

    Args:
        config: the consumer's properties.
        consumer_id: id of the consumer, for names of threads.
        cluster: where brokers and topics are read from; opened and closed by the session.
        changed: called on any thread when there is something to do for the rebalance thread; never blocks.
        clock: seconds, see :func:`boot_seconds`.

    Attributes:
        views: assignments received so far; written by the session thread.
        lease_lapses: how often the lease has lapsed; written by the heartbeat thread.
        failure: why the last attempt to join failed, None after a success; written by the session thread.
        streams: topic to number of consumer threads, for the topics of the last JoinGroup; replaced, never changed.
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
        self._clock = clock
        self._strategies = configured_strategies(config.partition_assignment_strategy)
        session_ms, rebalance_ms = config.session_timeout_ms, config.max_poll_interval_ms
        settings = JoinSettings(self._group, session_ms, rebalance_ms, config.group_instance_id)
        self._conversation = GroupConversation(config, settings, self._strategies, cluster)
        timeout_ms = max(_LEAST_TIMEOUT_MS, session_ms // _TIMEOUTS_PER_SESSION)
        client = BrokerClient.from_config(cluster.live_brokers, config, timeout_ms=timeout_ms)
        self._heartbeats = CoordinatorClient(client, self._group)
        self._interval_s = config.heartbeat_interval_ms / 1000
        self._leave_s = _END_S + 2 * timeout_ms / 1000
        self._session_thread = threading.Thread(target=self._run, name=f"{consumer_id}-group", daemon=True)
        self._heartbeat_thread = threading.Thread(target=self._beat, name=f"{consumer_id}-heartbeat", daemon=True)
        self._lease_changed: Callable[[], None] = lambda: None
        self._outage, self._join_outage = Outage(), Outage()
        self._joins: str = "joins the group"
        self.views = self.lease_lapses = 0
        self._answers = True  # written by the heartbeat thread
        self.failure: ZkConsumerError | None = None
        self.streams: Mapping[str, int] = {}
        self.topics: Mapping[str, Topic] = {}
        self._held_lease = True  # written by the heartbeat thread
        self._condition = threading.Condition(threading.Lock())
        # Guarded by the condition:
        self._membership = BrokerMembership(self.cooperative, config.group_instance_id)
        self._lease = BrokerLease(session_ms / 1000, rebalance_ms / 1000)
        self._subscription: Subscription | None = None
        self._stopped: ZkConsumerError | None = None
        self._topics_changed = False
        self._lease_to_check = False
        self._closed = False
        self._leaving: CommitIdentity | None = None

    @property
    def cooperative(self) -> bool:
        """True if partitions that stay are kept over a rebalance: all configured strategies have to allow it."""
        return all(strategy.cooperative for strategy in self._strategies)

    # -- life, on any thread ----------------------------------------------------------------------------------------

    def open(self, lease_changed: Callable[[], None]) -> None:
        """Check that a broker answers, and start the threads; to be called once.

        Raises:
            BrokerUnavailable: no broker answers.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
        """
        self._lease_changed = lease_changed
        try:
            self._heartbeats.find()
        except CoordinatorMoved as error:  # a new cluster creates the topic of offsets at the first request
            _log.info("group %s: %s; it will be asked for again", self._group, error)
        except BaseException:
            self._heartbeats.close()
            raise
        self._cluster.open(self._note_topics)
        self._session_thread.start()
        self._heartbeat_thread.start()

    def close(self) -> None:
        """Leave the group at once, unless the member is a static one, and end the threads. Idempotent."""
        with self._condition:
            if not self._closed:
                self._leaving = self._membership.leave()
            self._closed = True
            self._condition.notify_all()
        self._conversation.close()
        _join(self._heartbeat_thread, self._leave_s)
        self._heartbeats.close()
        self._cluster.close()
        _join(self._session_thread, _END_S)

    def _note_topics(self) -> None:
        with self._condition:
            self._topics_changed = True
            self._condition.notify_all()

    # -- on the rebalance thread ------------------------------------------------------------------------------------

    def begin(self, subscription: Subscription) -> None:
        """Become a member; returns at once, and the assignment comes later.

        Raises:
            MemberRefused: another consumer uses the same ``group.instance.id``.
        """
        with self._condition:
            if self._stopped is not None:
                raise self._stopped
            self._subscription = subscription
            self._membership.begin()
            self._condition.notify_all()

    def lose(self) -> None:
        """Nothing is used any more that the group has taken away."""
        with self._condition:
            self._membership.lose()
            self._lease = self._lease.ended()

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """See :meth:`BrokerMembership.acquire`."""
        with self._condition:
            done = self._membership.acquire(share)
            self._condition.notify_all()
        return done

    def release(self, partitions: Collection[TopicPartition]) -> bool:
        """See :meth:`BrokerMembership.release`."""
        with self._condition:
            empty = self._membership.release(partitions)
            self._condition.notify_all()
        return empty

    def usable(self) -> frozenset[TopicPartition] | None:
        """See :meth:`BrokerMembership.usable`."""
        with self._condition:
            return self._membership.usable()

    def must_release(self) -> bool:
        """See :meth:`BrokerMembership.must_release`."""
        with self._condition:
            return self._membership.must_release()

    # -- on any thread ----------------------------------------------------------------------------------------------

    @property
    def held(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """What the rebalance thread holds."""
        return self._membership.held

    @property
    def state(self) -> MembershipState:
        """The state of the membership."""
        return self._membership.state

    @property
    def connected(self) -> bool:
        """False while the coordinator does not answer the heartbeats of a member."""
        return self._answers or not self._membership.in_group

    def identity(self) -> CommitIdentity:
        """Whom commits name."""
        with self._condition:
            return self._membership.identity

    def holds(self) -> bool:
        """True while no other member can own what this one holds."""
        membership = self._membership
        if membership.state is MembershipState.UNJOINED or (membership.generation < 0 and not membership.held):
            return True
        return membership.in_group and self._clock() < self._lease.deadline

    def remaining(self) -> float:
        """Seconds until the lease lapses if the coordinator remains silent; 0 or less if it has lapsed."""
        return max(0.0, self._lease.deadline - self._clock())

    # -- the session thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while self._await_work():
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
            self._changed()
            self._pause(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures, 10)))

    def _await_work(self) -> bool:
        """Wait until the member has to join or to look at topics; False when this is closed."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._closed or self._membership.may_join() or self._has_to_look_at_topics()
            )
            return not self._closed

    def _has_to_look_at_topics(self) -> bool:
        return self._topics_changed and self._membership.state is MembershipState.STABLE

    def _pause(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._closed, seconds)

    def _work(self) -> None:
        with self._condition:
            joins, self._topics_changed = self._membership.may_join(), False
        if joins:
            self._join()
        elif self._topics_differ():
            with self._condition:
                self._membership.join_again()
                self._joins = "its topics have changed"
            self._changed()

    def _topics_differ(self) -> bool:
        """True if this member's topics have changed, or if it leads, those of the group."""
        before = self.streams
        self._read_topics()
        return self.streams.keys() != before.keys() or self._conversation.led_topics_differ()

    def _read_topics(self) -> None:
        """Read which topics the subscription selects."""
        subscription = self._subscription
        assert subscription is not None
        names = None if subscription.topic_filter is not None else frozenset(subscription.topics)
        snapshot = read_known(self._cluster, names)
        streams = subscription.expand(snapshot.topics(), exclude_internal=self._config.exclude_internal_topics)
        self.topics, self.streams = snapshot.describe_topics(streams), streams

    def _join(self) -> None:
        self._read_topics()
        with self._condition:
            if not self._membership.may_join():
                return
            intent, reason = self._membership.join(), self._joins
            self._joins = "the group rebalances"
        try:
            answer = self._conversation.join(intent, sorted(self.streams), self._id_given, reason)
            if answer.code:
                self._refused(answer.code)
                return
            with self._condition:
                self._membership.joined(answer.member_id, answer.generation)
            sent = self._clock()
            result = self._conversation.synchronise(answer)
            if result.code:
                self._refused(result.code)
                return
            self._publish(Assigned(answer.generation, decode_assignment(result.assignment)), sent)
        finally:
            self._end_join()

    def _id_given(self, member_id: str) -> None:
        with self._condition:
            self._membership.id_given(member_id)

    def _end_join(self) -> None:
        with self._condition:
            self._membership.join_ended()

    def _publish(self, assigned: Assigned, sent: float) -> None:
        with self._condition:
            if not self._membership.synchronised(assigned):
                return
            self._lease = self._lease.confirmed(sent)
            self._lease_to_check = True
            self._condition.notify_all()
        self.failure = None
        self.views += 1
        lasted = self._join_outage.end(time.monotonic())
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
        if reaction in _REMOVED:
            self._fence(code)
        elif reaction is not Reaction.JOIN_AGAIN:
            raise self._error(code)

    def _error(self, code: int) -> ZkConsumerError:
        return group_error(code, self._group, self._config.partition_assignment_strategy, self._heartbeats.security)

    def _fence(self, code: int) -> None:
        """The group has removed this member: nothing may be delivered any more."""
        reaction = reaction_to(code)
        with self._condition:
            self._stopped = self._error(code) if reaction is Reaction.STAY_OUT else None
            self._membership.fence(keeps_id=reaction is Reaction.LOSE_PARTITIONS)
            self._lease = self._lease.ended()
            self._lease_to_check = True
            self._condition.notify_all()
        self._changed()

    def _report(self, error: ZkConsumerError) -> None:
        self.failure = error
        if not self._closed and self._join_outage.is_news(str(error), time.monotonic()):
            _log.warning("group %s: cannot join, trying again: %s", self._group, error)

    # -- the heartbeat thread ---------------------------------------------------------------------------------------

    def _beat(self) -> None:
        due = self._clock()
        while self._await_beat(due):
            if self._clock() >= due:
                due = self._clock() + self._interval_s
                self._send_heartbeat()
            self._check_lease()
        if self._leaving is not None:
            self._leave(self._leaving)

    def _await_beat(self, due: float) -> bool:
        """Wait until a heartbeat is due or the lease may have changed; False when this is closed."""
        wait_s = due - self._clock()
        if self._held_lease and self.remaining() > 0:
            wait_s = min(wait_s, self.remaining())
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._lease_to_check, max(0.0, wait_s))
            self._lease_to_check = False
            return not self._closed

    def _send_heartbeat(self) -> None:
        with self._condition:
            membership = self._membership
            asked = membership.identity if membership.in_group else None
            joining, synchronising = membership.joining, membership.synchronising
        if asked is None:
            return
        sent = self._clock()
        try:
            code = self._heartbeats.ask(lambda connection: _heartbeat(connection, self._group, asked))
        except ZkConsumerError as error:
            self._silent(error)
            return
        except Exception as error:  # noqa: BLE001 - without this thread the lease would lapse for ever
            _log.exception("group %s: unexpected error of a heartbeat", self._group)
            self._silent(BrokerUnavailable(f"unexpected error: {error!r}"))
            return
        self._answered(code, asked, sent, joining=joining, synchronising=synchronising)

    def _answered(self, code: int, asked: CommitIdentity, sent: float, *, joining: bool, synchronising: bool) -> None:
        self._heard()
        reaction = reaction_to(code)
        with self._condition:
            if asked != self._membership.identity:
                return  # about an earlier generation
            joining = joining or self._membership.joining
            if reaction is Reaction.PROCEED:
                self._lease = self._lease.confirmed(sent)
            elif reaction is Reaction.JOIN_AGAIN and not synchronising:
                self._lease = self._lease.in_rebalance(sent)
            begun = reaction is Reaction.JOIN_AGAIN and not joining and self._membership.rebalance_begun(asked)
            self._condition.notify_all()
        if begun:
            self._changed()
        elif reaction in _REMOVED and not (reaction is Reaction.LOSE_PARTITIONS and joining):
            _events.warning(
                "group %s: the coordinator has removed member %s: %s: %s",
                self._group,
                asked.member_id,
                error_name(code),
                reaction.value,
            )
            self._fence(code)
        elif reaction is Reaction.REPORT:
            _log.warning("group %s: a heartbeat was answered with %s", self._group, error_name(code))

    def _heard(self) -> None:
        self._answers = True
        lasted = self._outage.end(time.monotonic())
        if lasted is not None:
            _log.info("group %s: the coordinator answers again after %.1f s", self._group, lasted)
            self._changed()

    def _silent(self, error: ZkConsumerError) -> None:
        self._answers = isinstance(error, CoordinatorMoved)
        if not self._closed and self._outage.is_news(str(error), time.monotonic()):
            _log.warning("group %s: a heartbeat was not answered: %s", self._group, error)
        with self._condition:
            parked = self._membership.joining
        if parked:  # the broker that the session thread waits for may be gone as well
            self._conversation.interrupt()

    def _check_lease(self) -> None:
        if self.holds() != self._held_lease:
            self._held_lease = not self._held_lease
            self.lease_lapses += not self._held_lease
            if not self._held_lease and self._membership.in_group:
                _events.warning(
                    "group %s: no record is delivered and no offset committed, since the group's coordinator has not "
                    "confirmed the membership for most of session.timeout.ms; check the brokers",
                    self._group,
                )
            self._lease_changed()

    def _leave(self, member: CommitIdentity) -> None:
        try:
            code = self._heartbeats.ask(lambda connection: leave_group(connection, self._group, member))
        except ZkConsumerError as error:
            _log.info("group %s: not left, the session will time out: %s", self._group, error)
        else:
            if code:
                _log.info("group %s: leaving was answered with %s", self._group, error_name(code))


def _heartbeat(connection: BrokerConnection, group: str, member: CommitIdentity) -> int:
    code = heartbeat(connection, group, member)
    if code in COORDINATOR_GONE:
        raise CoordinatorMoved(f"heartbeat of group {group}: {error_name(code)}")
    return code


def _join(thread: threading.Thread, seconds: float) -> None:
    if thread.is_alive() and threading.current_thread() is not thread:
        thread.join(seconds)
