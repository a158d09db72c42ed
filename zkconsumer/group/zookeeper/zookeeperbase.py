"""ZooKeeperBase: what the protocols over ZooKeeper share: the session, registration, ownership and the lease."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Final, TypedDict

from zkconsumer.cluster.brokerznodes import BrokerZnodes
from zkconsumer.cluster.rules.clustercatalog import ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    MembershipLost,
    OwnershipConflict,
    RegistrationLost,
    SessionExpired,
    ZkConsumerError,
    ZooKeeperUnavailable,
)
from zkconsumer.group.groupprotocol import ChangeSignal, GroupRole, Held, Lease, PausingThread, Standing
from zkconsumer.group.rules.assignors import assignor_name
from zkconsumer.group.rules.memberstate import MemberState
from zkconsumer.group.rules.partitionassignor import PartitionAssignor
from zkconsumer.group.rules.rebalancetimes import (
    release_seconds,
    retry_seconds,
    total_wait_covers_session,
)
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.consumedtopics import ConsumedTopics
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.group.zookeeper.sessionlease import Registered, SessionLease
from zkconsumer.group.zookeeper.topicrecords import TopicRecords
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.topicorigins import TopicOrigin
from zkconsumer.process.boottime import boot_seconds
from zkconsumer.zookeeper.fencedtransaction import NO_FENCE, lost_fence
from zkconsumer.zookeeper.session import ZkSession

_log: Final = logging.getLogger(__name__)

MakeLease = Callable[[ZkSession, Registered, Callable[[], str], Callable[[], None], str], SessionLease]
"""Makes the lease; the arguments are those of :class:`~zkconsumer.group.zookeeper.sessionlease.SessionLease`."""


class SessionParts(TypedDict, total=False):
    """The optional arguments of :class:`ZooKeeperBase`."""

    zk: ZkSession | None
    make_lease: MakeLease
    clock: Callable[[], float]
    cluster: ClusterSource | None
    assignor: PartitionAssignor | None


class ZooKeeperBase(ABC):
    """The part of a :class:`~zkconsumer.group.groupprotocol.GroupProtocol` that does not know how shares are agreed on.

    Args:
        config: the consumer's properties.
        consumer_id: id of the member.
        signal: raised by watches and by the loss of the session.
        zk: the session; None makes the one that ``config`` describes.
        make_lease: see :data:`MakeLease`.
        clock: a monotonic clock, in seconds.
        cluster: where brokers and topics are read from; None for ZooKeeper.
        assignor: the application's own; None without one.

    Attributes:
        name: ``group.protocol``.
        zk: the session; opened by :meth:`open`.
    """

    name: str

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        signal: ChangeSignal,
        *,
        zk: ZkSession | None = None,
        make_lease: MakeLease = SessionLease,
        clock: Callable[[], float] = time.monotonic,
        cluster: ClusterSource | None = None,
        assignor: PartitionAssignor | None = None,
    ) -> None:
        self._config = config
        self._group = config.group_id
        self._offsets_are_elsewhere = config.offsets_only_in_kafka
        self._consumer_id = consumer_id
        self._signal = signal
        self._clock = clock
        self._cluster = cluster
        self.zk = ZkSession.from_config(config, self.connection_changed) if zk is None else zk
        self._membership = MemberRegistration(
            self.zk,
            config.group_id,
            consumer_id,
            assignor_name(config.partition_assignment_strategy, config.roundrobin_hash_era)
            if assignor is None
            else assignor.name,
            lambda: time.time_ns() // 1_000_000,
            clock,
            self.name,
            shares=config.group_share,
        )
        self._membership.own = assignor
        self._ownership = PartitionOwnership(self.zk, config.group_id, self.fence, self._registered, signal.wake)
        self._topics = ConsumedTopics(
            BrokerZnodes(self.zk, config.security_protocol, None),
            TopicRecords(self.zk, config.group_id, self.fence),
            cluster,
        )
        self._lease_changed: Callable[[], None] = lambda: None
        owner = f"group {self._group} consumer {self._consumer_id}"
        self._lease = make_lease(self.zk, self._membership, self._probed, self._report_lease, owner)
        # Written by the rebalance thread:
        self._subscription = Subscription({})
        self._is_changing = False
        self._stands_alone = False
        self._has_joined = False
        self._outages = 0
        self._removals = 0

    def fence(self) -> str:
        """Path of the node whose absence stops every write; without a membership the root, which always exists."""
        return NO_FENCE if self._stands_alone else self._membership.fence

    # -- life -------------------------------------------------------------------------------------------------------

    def open(self, thread: PausingThread, lease_changed: Callable[[], None]) -> None:
        """See :meth:`.GroupProtocol.open`."""
        self._thread, self._lease_changed = thread, lease_changed
        asked_for_session = boot_seconds()
        self.zk.open()
        self._lease.start(asked_for_session)
        if self._cluster is not None:
            self._cluster.open(self.cluster_changed)

    def connection_changed(self) -> None:
        """Called on kazoo's thread when the connection came back or the session was lost; never blocks."""
        self._lease.connected()
        self._signal.raise_flag()

    def cluster_changed(self) -> None:
        """Called on any thread when brokers have reported a change of the cluster; never blocks."""
        self._signal.raise_flag()

    def leave(self) -> None:
        """Close the session, which removes the registration and the owners at once."""
        self._lease.stop()
        if self._cluster is not None:
            self._cluster.close()
        self.zk.close()

    @property
    def can_commit(self) -> bool:
        """False without a connection, unless neither owners nor offsets are in ZooKeeper."""
        return self.zk.connected or (self._stands_alone and self._offsets_are_elsewhere)

    @property
    def release_s(self) -> float:
        """See :func:`~zkconsumer.group.rules.rebalancetimes.release_seconds`."""
        return release_seconds(self._config.rebalance_max_retries, self._config.rebalance_backoff_ms)

    @property
    def lease(self) -> Lease:
        """That of the session."""
        return self._lease

    def describe(self) -> Standing:
        """See :meth:`.GroupProtocol.describe`."""
        zk, lapses = self.zk, self._lease.lapses
        role = GroupRole(self._consumer_id, self._membership.assignor, leads=self.leads)
        return Standing(zk.connected, zk.session_id, self.views, self._removals, lapses, self.excluded, role)

    @property
    def leads(self) -> bool:
        """False: each member computes its own share."""
        return False

    def _report_lease(self) -> None:
        """On the lease's thread: the lease has lapsed, or holds again, or the session node is missing.

        A member without its session node has to register again, and nothing else may tell it: 1. it is not scheduled
        until its lease has lapsed; 2. another client deletes its session node, and the watch that fires for that starts
        an attempt which has no connection; 3. no probe finds the node, so the lease never holds again.
        """
        self._lease_changed()
        if self.zk.connected and self._lease.misses(self._probed()):  # a new connection raises the flag by itself
            self._signal.raise_flag()

    def _registered(self) -> int:
        return self._membership.registered_session

    def _probed(self) -> str:
        """The node that the lease depends on; called on the lease's thread."""
        try:
            return self._membership.fence
        except SessionExpired:  # not registered: nothing is owned, and only the session counts
            return NO_FENCE

    def _require_session_node(self) -> None:
        """Read the session node if the lease has found it missing.

        Raises:
            SessionExpired: another client deleted it, or it cannot be read.
            ZooKeeperUnavailable: it cannot be read.
        """
        fence = self._membership.fence
        # The probe may have been answered before this member registered again, under the same name.
        if self._lease.misses(fence) and self.zk.exists(fence) is None:
            raise lost_fence(fence)

    # -- membership -------------------------------------------------------------------------------------------------

    def join(self, subscription: Subscription) -> None:
        """Register, and let events settle: members that have to release partitions for this one do so, too.

        A member that is registered with another subscription changes its registration, and keeps what it owns.
        """
        if self._is_removed():
            raise MembershipLost(f"group {self._group}: the session of the registration has ended")
        if not self.zk.connected:
            raise ZooKeeperUnavailable("no connection to ZooKeeper; check that its servers run and can be reached")
        if self.is_registered:
            if subscription is not self._subscription:
                self._change(subscription)
            return
        if not self._has_joined:
            self._warn_of_short_retries()
            self._has_joined = True
        self._thread.enter_state(MemberState.REGISTERING)
        self._register(subscription)
        self._settle(unless_alone=True)

    @property
    def is_registered(self) -> bool:
        """True from a registration to :meth:`lose` or :meth:`deregister`."""
        return self._membership.is_registered

    def _is_removed(self) -> bool:
        """True if the session of the registration is gone; a disconnect alone changes nothing."""
        stale = self.zk.lost or not self._membership.is_current_or_unknown()
        return stale and self.is_registered

    def _register(self, subscription: Subscription) -> None:
        self._subscription, self._is_changing = subscription, False
        self._membership.register(subscription, self._signal.raise_flag, self._wait_for_signal)

    def _change(self, subscription: Subscription) -> None:
        """Register another subscription; as for a new member, others may have to release partitions for this one."""
        if subscription.key != self._subscription.key or self._is_changing:
            self._is_changing = True  # if the answer is lost, either may be registered
            self._membership.change(subscription)
            self._is_changing = False
            self._settle(unless_alone=True)
        self._subscription = subscription

    def _wait_for_signal(self, seconds: float) -> bool:
        return not self._signal.closed and self._signal.wait(seconds)

    def lose(self) -> None:
        """Record that the session has ended, and with it everything that it owned."""
        self._removals += self._is_removed()  # not if another client deleted the session node
        self._ownership.lose_all()
        self._membership.session_lost()

    def deregister(self) -> None:
        """Delete what is left of a registration that another client has damaged; :meth:`join` registers again."""
        self._membership.deregister()

    def stand_alone(self) -> None:
        """Commit without a registration, so without a fence."""
        self._stands_alone = True
        self._lease.stand_alone()

    # -- between attempts -------------------------------------------------------------------------------------------

    def pause(self, failure: Exception | None = None, *, starting: bool = False) -> None:
        """Wait until former owners have released the missing partitions, something changes, or the backoff is over.

        Where something has changed since the last success, wait until that has settled; where another client has
        damaged the registration, remove the rest of it.
        """
        outage = isinstance(failure, ZooKeeperUnavailable) and not starting
        self._outages = self._outages + 1 if outage else 0
        if failure is None:
            self._settle()
            return
        if isinstance(failure, RegistrationLost):
            self._deregister_or_log()
            return
        if isinstance(failure, MembershipLost):
            return  # there is nothing to wait for: the member registers again, or finds that it has no connection
        self._thread.enter_state(MemberState.WAITING_TO_RETRY)
        seconds = retry_seconds(self._config.rebalance_backoff_ms, self._outages)
        if not (isinstance(failure, OwnershipConflict) and self.zk.connected):
            self._thread.wait(seconds)
            return
        try:
            self._thread.wait(seconds, until=self._ownership.awaited_release(failure.holders))
        except ZkConsumerError as error:
            _log.info("group %s: cannot wait for former owners to release, trying again now: %s", self._group, error)

    def _settle(self, *, unless_alone: bool = False) -> None:  # noqa: ARG002 - the coordinator has waited already
        """Wait until members have stopped joining and leaving, where no other member does that.

        Args:
            unless_alone: do not wait where this is the group's only member.
        """
        self._thread.enter_state(MemberState.SETTLING)

    def _deregister_or_log(self) -> None:
        try:
            self.deregister()
        except ZkConsumerError as error:  # the next attempt finds the registration missing again
            _log.info(
                "group %s: could not remove the rest of a damaged registration, will be retried: %s", self._group, error
            )

    def _warn_of_short_retries(self) -> None:
        config = self._config
        session_ms = round(self.zk.negotiated_timeout * 1000)
        if not total_wait_covers_session(config.rebalance_max_retries, config.rebalance_backoff_ms, session_ms):
            _log.warning(
                "group %s: rebalance.max.retries x rebalance.backoff.ms does not exceed the session timeout of %d ms "
                "(zookeeper.session.timeout.ms, within the server's limits): starting right after another member "
                "crashed will fail; raise one of the two, or lower zookeeper.session.timeout.ms",
                self._group,
                session_ms,
            )

    # -- ownership --------------------------------------------------------------------------------------------------

    @property
    def held(self) -> Held:
        """Partitions whose owner znodes are this session's."""
        return Held(self._ownership.held, self._ownership.releases)

    @property
    @abstractmethod
    def views(self) -> int:
        """How often the group was read."""

    @property
    def excluded(self) -> str:
        """See :attr:`.Standing.excluded`."""
        return ""

    def verify(self) -> list[TopicPartition]:
        """Read the owner znodes; see :meth:`PartitionOwnership.lose_taken`."""
        return self._ownership.lose_taken()

    def recreated(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """See :meth:`ConsumedTopics.recreated`."""
        return self._topics.recreated(partitions)

    def consume(self, topics: Collection[str], recreated: Collection[str]) -> dict[str, TopicOrigin]:
        """See :meth:`ConsumedTopics.consume`."""
        return self._topics.consume(topics, recreated)

    def fetched(self) -> None:
        """See :meth:`.GroupProtocol.fetched`."""
        self._topics.fetched()
