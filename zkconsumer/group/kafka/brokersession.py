"""BrokerSession: keeps one consumer in a group of brokers; what the sessions of both protocols have in common.

The *session thread* does what the state of the member requires, and tries again after a failure. What it learns it
reports to the membership (``group/kafka/sharedmembership.py``), which the member's rebalance thread asks for what it
may use. Commits are sent by the offset store.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from zkconsumer.cluster.rules.clustercatalog import ClusterSource, read_identities
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, ZkConsumerError
from zkconsumer.group.kafka.coordinatorcontact import CoordinatorContact
from zkconsumer.group.kafka.rules.groupmembership import GroupMembership
from zkconsumer.group.kafka.sharedmembership import SharedMembership
from zkconsumer.group.leasewatch import LeaseWatch
from zkconsumer.group.rules.subscribedtopics import read_subscribed
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Topic, TopicIdentity
from zkconsumer.offsets.membershipanswers import MembershipAnswer, membership_answer
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.process.boottime import boot_seconds
from zkconsumer.process.threads import start_thread
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.findcoordinator import CoordinatorLocation
from zkconsumer.wire.rules.denials import pause_s

_log: Final = logging.getLogger(__name__)
_events: Final = logging.getLogger("zkconsumer.events")

_END_S: Final = 2.0
_PAUSE_S: Final = 0.2
"""Until a member tries again after its first failure."""

M = TypeVar("M", bound=GroupMembership)


class BrokerSessionParts(NamedTuple):
    """What a session is made of.

    Attributes:
        config: the consumer's properties.
        consumer_id: id of the consumer, for names of threads.
        cluster: where brokers and topics are read from; opened and closed by the session.
        changed: called on any thread when there is something to do for the rebalance thread; never blocks.
        clock: see :class:`~zkconsumer.group.kafka.sharedmembership.SharedMembership`.
        pool: connections that the member's clients share.
    """

    config: ConsumerConfig
    consumer_id: str
    cluster: ClusterSource
    changed: Callable[[], None]
    clock: Callable[[], float] = boot_seconds
    pool: ConnectionPool | None = None


class BrokerSession(ABC, Generic[M]):
    """The membership of one consumer, and the threads that keep it; the rebalance thread of the member uses it.

    Args:
        parts: see :class:`BrokerSessionParts`.
        member: the state of a member that has not joined.

    Attributes:
        membership: what the rebalance thread may use.
        location: where the coordinator is, for every client of this member.
        streams: topic to number of consumer threads, for the subscribed topics; replaced, never changed.
        topics: descriptions of these topics; replaced, never changed.
        cooperative: True if partitions that stay are kept over a rebalance.
        topic_ids: returns the ids of topics by name, for commits; None in a group without member epochs.
        strategy: by which the last assignment was made; "" if unknown.
        leads: True if this member has made it.
    """

    cooperative: bool = True
    topic_ids: Callable[[], Mapping[str, str]] | None = None
    _timeout: str
    """Name of the property or setting that the lease depends on."""
    _task: str
    """What the session thread does, for the log."""

    def __init__(self, parts: BrokerSessionParts, member: M) -> None:
        config, consumer_id, cluster, changed, clock, pool = parts
        self._config = config
        self._group = config.group_id
        self._cluster = cluster
        self._changed = changed
        self.location = CoordinatorLocation()
        self.membership: Final = SharedMembership(member, changed, clock)
        self._contact = CoordinatorContact(config, cluster, self.location, self.membership, changed, pool)
        self._watch = LeaseWatch(f"{consumer_id}-lease", self.membership, self._lapsed_or_holds)
        self.membership.look = self._watch.look
        self._lease_changed: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=f"{consumer_id}-group", daemon=True)
        self._leaver = self._thread  # the thread that sends heartbeats, and leaves the group at the end
        self._subscription: Subscription | None = None  # written by the rebalance thread
        # Written by the session thread:
        self._due = inf  # reading of the clock when it has work also if the member's state requires none
        self.streams: Mapping[str, int] = {}
        self.topics: Mapping[str, Topic] = {}
        self.strategy = ""
        self.leads = False

    # -- on any thread ----------------------------------------------------------------------------------------------

    def open(self, lease_changed: Callable[[], None]) -> None:
        """Check that a broker answers, and start the threads; to be called once.

        Args:
            lease_changed: called on a thread of its own when the lease has lapsed, and when it holds again.

        Raises:
            BrokerUnavailable: no broker answers.
            ConfigError: the brokers do not have the protocol.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
        """
        self._contact.open(self._check)
        self._lease_changed = lease_changed
        self._watch.open()
        self._cluster.open(self.note_topics)
        for thread in dict.fromkeys((self._leaver, self._thread)):
            start_thread(thread)

    def close(self) -> None:
        """Leave the group at once, unless a static member stays in it, and end the threads. Idempotent."""
        self._watch.close()  # the lease of a member that leaves does not lapse
        with self.membership.changing() as member:
            member.leave()  # ends all waits
        self._interrupt()
        _join(self._leaver, self._contact.end_s)
        self._contact.close()
        self._cluster.close()
        _join(self._thread, _END_S)

    def begin(self, subscription: Subscription) -> None:
        """Become a member, or one with another subscription; returns at once, and the assignment comes later.

        Raises:
            InstanceIdInUse: another consumer uses the same ``group.instance.id``.
        """
        self._subscription = subscription
        with self.membership.changing() as member:
            member.begin()

    def note_topics(self) -> None:
        """The brokers have reported a change of topics; never blocks."""
        with self.membership.changing() as member:
            member.topics_changed = True

    def await_renewed(self, outdated: CommitIdentity, seconds: float) -> bool:
        """Wait until commits name another identity than this one, or so long; False if the member is not in the group.

        See :class:`~zkconsumer.offsets.offsetcoordinator.CommitMembership`.
        """
        self.membership.wait(lambda member: not member.in_group or member.identity != outdated, seconds)
        return self.membership.read(lambda member: member.in_group)

    def refused(self, member: CommitIdentity, code: int) -> None:
        """A commit of this member was answered with this error code, and is the first to learn that it was removed."""
        with self.membership.changing() as state:
            removed = state.removed(member, keeps_id=membership_answer(code).keeps_id, stopped=self._why_stopped(code))
        if removed:
            self._contact.removed(member, code)

    def _why_stopped(self, code: int) -> ZkConsumerError | None:
        """Why a member must not join again whose membership has ended with this error code; None if it may."""
        return self._error(code) if membership_answer(code) is MembershipAnswer.REPLACED else None

    @property
    def connected(self) -> bool:
        """False while the coordinator does not answer the heartbeats of a member."""
        return self._contact.answers or not self.membership.read(lambda member: member.in_group)

    @property
    def lease_lapses(self) -> int:
        """How often the lease has lapsed."""
        return self._watch.lapses

    # -- the thread that watches the lease, which does no I/O: the others may wait for brokers longer than it lasts ----

    def _lapsed_or_holds(self, holds: bool) -> None:
        if not holds and self.membership.read(lambda member: member.in_group):
            _events.warning(
                "group %s: no record is delivered and no offset committed, since the group's coordinator has not "
                "confirmed the membership for most of %s; check the brokers",
                self._group,
                self._timeout,
            )
        self._lease_changed()

    # -- the session thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while self.membership.wait(lambda member: member.has_work(), self._due - self.membership.clock()):
            try:
                self._work()
            except ZkConsumerError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - without this thread the member would never join again
                _log.exception("group %s: unexpected error %s", self._group, self._task)
                self._failed(BrokerUnavailable(f"unexpected error: {error!r}"))
            else:
                failures = 0
                continue
            failures += 1
            self.membership.wait(lambda _: False, pause_s(failures, _PAUSE_S))
        if self._leaver is self._thread:
            self._leave()

    def _leave(self) -> None:
        """The last work of the thread that sends heartbeats."""
        leaving = self.membership.read(lambda member: member.leaving)
        if leaving is not None:
            self._contact.leave(lambda connection: self._ask_to_leave(connection, leaving))

    def _failed(self, error: ZkConsumerError) -> None:
        self._report(error)
        with self.membership.changing() as member:
            member.failed(error)

    def _read_topics(self) -> bool:
        """Read which topics the subscription selects; True if they are others than before.

        Raises:
            ZkConsumerError: no broker describes the topics, which have to be read again.
        """
        subscription = self._subscription
        assert subscription is not None
        exclude_internal = self._config.exclude_internal_topics
        try:
            read = read_subscribed(self._cluster, subscription, exclude_internal=exclude_internal)
        except BaseException:
            self.note_topics()
            raise
        before, described = self.streams.keys(), self.topics
        self.topics, self.streams = read
        if self.topics != described:
            self._changed()  # a topic may have been deleted and created again, which a leader does not notice
        return self.streams.keys() != before

    def read_identities(self, topics: Collection[str], *, required: bool) -> dict[str, TopicIdentity | None]:
        """See :func:`~zkconsumer.cluster.rules.clustercatalog.read_identities`; of a member that joins no group."""
        return read_identities(self._cluster, topics, required=required)

    # -- what each protocol does in its own way ---------------------------------------------------------------------

    @abstractmethod
    def _check(self, brokers: BrokerClient) -> None:
        """Check that the brokers have the protocol; raises as :meth:`open`."""

    @abstractmethod
    def _work(self) -> None:
        """Do what the state of the member requires, or what is due; on the session thread.

        Raises:
            ZkConsumerError: it has to be tried again after a pause.
        """

    @abstractmethod
    def _report(self, error: ZkConsumerError) -> None:
        """Log why :meth:`_work` has failed, if that is news; on the session thread."""

    @abstractmethod
    def _error(self, code: int) -> ZkConsumerError:
        """The exception for an error code."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End requests in progress that may take longer than a heartbeat, and refuse later ones; on any thread."""

    @abstractmethod
    def _ask_to_leave(self, connection: BrokerConnection, member: CommitIdentity) -> int:
        """Send the request by which this member leaves; returns the error code of the answer."""


def _join(thread: threading.Thread, seconds: float) -> None:
    if thread.is_alive() and threading.current_thread() is not thread:
        thread.join(seconds)
