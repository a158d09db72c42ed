"""SessionGroup: what the group protocols over ZooKeeper share: the session, registration, ownership and the lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from zkconsumer.cluster.brokerznodes import BrokerZnodes
from zkconsumer.cluster.rules.clustercatalog import ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import RegistrationLost, SessionExpired, ZooKeeperUnavailable
from zkconsumer.group.groupprotocol import ChangeSignal
from zkconsumer.group.rules.assignors import assignor_name
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.membership import Membership
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.group.zookeeper.sessionlease import SessionLease
from zkconsumer.group.zookeeper.topicrecords import TopicRecords
from zkconsumer.model import ConsumerThreadId, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.topicorigins import TopicOrigin
from zkconsumer.process.boottime import boot_seconds
from zkconsumer.zookeeper.session import ZkSession

_ALWAYS_THERE: Final = "/"

MakeLease = Callable[[ZkSession, Callable[[], int], Callable[[], str], Callable[[], None], str], SessionLease]
"""Makes the lease; the arguments are those of :class:`~zkconsumer.group.zookeeper.sessionlease.SessionLease`."""


class SessionGroup:
    """The part of a :class:`~zkconsumer.group.groupprotocol.GroupProtocol` that does not know how shares are agreed on.

    Args:
        config: the consumer's properties.
        consumer_id: id of the member.
        signal: raised by watches and by the loss of the session.
        zk: the session; None makes the one that ``config`` describes.
        make_lease: see :data:`MakeLease`.
        clock: a monotonic clock, in seconds.
        cluster: where brokers and topics are read from; None for ZooKeeper.

    Attributes:
        name: ``group.protocol``.
        zk: the session; opened by :meth:`open`.
    """

    name: str
    awaits_expiry: Final = True

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        signal: ChangeSignal,
        *,
        zk: ZkSession | None,
        make_lease: MakeLease,
        clock: Callable[[], float] = time.monotonic,
        cluster: ClusterSource | None = None,
    ) -> None:
        self._group = config.group_id
        self._offsets_are_elsewhere = config.offsets_storage == "kafka" and not config.dual_commit_enabled
        self._consumer_id = consumer_id
        self._signal = signal
        self._stays_out = False  # written by the rebalance thread
        self._make_lease = make_lease
        self._cluster = cluster
        self.zk = ZkSession.from_config(config, self.connection_changed) if zk is None else zk
        self._membership = Membership(
            self.zk,
            config.group_id,
            consumer_id,
            assignor_name(config.partition_assignment_strategy, config.roundrobin_hash_era),
            lambda: time.time_ns() // 1_000_000,
            clock,
            self.name,
            shares=config.group_share,
        )
        self._ownership = PartitionOwnership(self.zk, config.group_id, self.fence, self._registered, signal.wake)
        self._lease: SessionLease | None = None
        self._topic_znodes = BrokerZnodes(self.zk, config.security_protocol, None)
        self._topic_records = TopicRecords(self.zk, config.group_id, self.fence)
        self._consumed: dict[str, TopicIdentity] = {}  # the topics whose records were fetched last
        self._begun: dict[str, TopicIdentity] = {}  # those that are to be fetched when the attempt succeeds
        self._noticed = False  # a topic is not the one that was fetched; the next attempt looks at all

    def fence(self) -> str:
        """Path of the node whose absence stops every write; without a membership the root, which always exists."""
        return _ALWAYS_THERE if self._stays_out else self._membership.fence

    # -- life -------------------------------------------------------------------------------------------------------

    def open(self, lease_changed: Callable[[], None]) -> None:
        """See :meth:`GroupProtocol.open <zkconsumer.group.groupprotocol.GroupProtocol.open>`."""
        owner = f"group {self._group} consumer {self._consumer_id}"
        lease = self._make_lease(self.zk, self._registered, self._probed, lease_changed, owner)
        asked_for_session = boot_seconds()
        self.zk.open()
        self._lease = lease
        lease.start(asked_for_session)
        if self._cluster is not None:
            self._cluster.open(self.cluster_changed)

    def connection_changed(self) -> None:
        """Called on kazoo's thread when the connection came back or the session was lost; never blocks."""
        self._signal.raise_flag()

    def cluster_changed(self) -> None:
        """Called on any thread when brokers have reported a change of the cluster; never blocks."""
        self._signal.raise_flag()

    def close(self) -> None:
        """Close the session, which removes the registration and the owners at once."""
        if self._lease is not None:
            self._lease.stop()
        if self._cluster is not None:
            self._cluster.close()
        self.zk.close()

    @property
    def connected(self) -> bool:
        """True while there is a connection to ZooKeeper."""
        return self.zk.connected

    @property
    def can_commit(self) -> bool:
        """False without a connection, unless neither owners nor offsets are in ZooKeeper."""
        return self.connected or (self._stays_out and self._offsets_are_elsewhere)

    def unreachable(self) -> ZooKeeperUnavailable:
        """See :meth:`GroupProtocol.unreachable <zkconsumer.group.groupprotocol.GroupProtocol.unreachable>`."""
        return ZooKeeperUnavailable("no connection to ZooKeeper; check that its servers run and can be reached")

    @property
    def session(self) -> int:
        """Id of the ZooKeeper session, 0 without a connection."""
        return self.zk.session_id

    def _registered(self) -> int:
        return self._membership.registered_session

    def _probed(self) -> str:
        """The node that the lease depends on; called on the lease's thread."""
        try:
            return self._membership.fence
        except SessionExpired:  # not registered: nothing is owned, and only the session counts
            return _ALWAYS_THERE

    def _require_session_node(self) -> None:
        """Read the session node if the lease has found it missing.

        Raises:
            RegistrationLost: another client deleted it: nothing can be claimed or committed without it.
            ZooKeeperUnavailable, SessionExpired: it cannot be read.
        """
        fence = self._membership.fence
        # The probe may have been answered before this member registered again, under the same name.
        if self._lease is not None and self._lease.misses(fence) and self.zk.exists(fence) is None:
            raise RegistrationLost(f"another client deleted {fence}; registering again")

    # -- membership -------------------------------------------------------------------------------------------------

    def is_joined(self) -> bool:
        """True from a registration to :meth:`lose` or :meth:`rejoin`."""
        return self._membership.is_registered

    def is_lost(self) -> bool:
        """True if the session of the registration is gone; a disconnect alone changes nothing."""
        stale = self.zk.lost or not self._membership.is_current_or_unknown()
        return stale and self._membership.is_registered

    def join(self, subscription: Subscription) -> None:
        """See :meth:`GroupProtocol.join <zkconsumer.group.groupprotocol.GroupProtocol.join>`."""
        if not self.zk.connected:
            raise ZooKeeperUnavailable("no connection to ZooKeeper; check that its servers run and can be reached")
        self._membership.register(subscription, self._signal.raise_flag, self._wait_for_signal)

    def _wait_for_signal(self, seconds: float) -> bool:
        return not self._signal.closed and self._signal.wait(seconds)

    def lose(self) -> None:
        """Record that the session has ended, and with it everything that it owned."""
        self._ownership.lose_all()
        self._membership.session_lost()

    def rejoin(self) -> None:
        """Delete what is left of the registration."""
        self._membership.deregister()

    def stay_out(self) -> None:
        """Commit without a registration, so without a fence."""
        self._stays_out = True

    # -- ownership --------------------------------------------------------------------------------------------------

    @property
    def held(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """Partitions whose owner znodes are this session's."""
        return self._ownership.held

    @property
    def releases(self) -> int:
        """How often everything that was held has been given up or lost."""
        return self._ownership.releases

    def verify(self) -> list[TopicPartition]:
        """Read the owner znodes; see :meth:`PartitionOwnership.lose_taken`."""
        return self._ownership.lose_taken()

    # -- topics that are deleted and created again --------------------------------------------------------------------

    def recreated(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """See :meth:`GroupProtocol.recreated <zkconsumer.group.groupprotocol.GroupProtocol.recreated>`.

        Also partitions of topics that do not exist.
        """
        consumed = {p.topic: self._consumed[p.topic] for p in partitions if p.topic in self._consumed}
        now = self._identities(consumed)
        gone = {topic for topic, identity in now.items() if identity is None} | self._other_topics(now)
        self._noticed |= bool(gone)
        return frozenset(partition for partition in partitions if partition.topic in gone)

    def consume(self, topics: Collection[str]) -> dict[str, TopicOrigin]:
        """See :meth:`GroupProtocol.consume <zkconsumer.group.groupprotocol.GroupProtocol.consume>`."""
        now = self._identities(topics)
        self._begun = {topic: identity for topic, identity in now.items() if identity is not None}
        return self._topic_records.consume(self._begun)

    def settled(self) -> None:
        """See :meth:`GroupProtocol.settled <zkconsumer.group.groupprotocol.GroupProtocol.settled>`."""
        self._consumed.update(self._begun)
        self._begun, self._noticed = {}, False

    def _other_topics(self, now: Mapping[str, TopicIdentity | None]) -> set[str]:
        """Those that exist and are not the ones that were fetched under these names."""
        return {
            topic
            for topic, identity in now.items()
            if identity is not None and topic in self._consumed and not identity.is_same_topic(self._consumed[topic])
        }

    def _identities(self, topics: Iterable[str]) -> dict[str, TopicIdentity | None]:
        """The present identity of each topic, None if it does not exist; without those of which nothing is known."""
        names = sorted(set(topics))
        if not names:
            return {}
        if self._cluster is None:
            described = self._topic_znodes.describe_unwatched(names)
        else:
            snapshot = self._cluster.read(names)
            if not (snapshot.brokers and snapshot.covers(names)):
                return {}
            described = snapshot.describe_topics(names)
        return {name: described[name].identity if name in described else None for name in names}

    def awaited_release(self, partitions: Collection[TopicPartition]) -> Callable[[], bool]:
        """See :meth:`PartitionOwnership.awaited_release`."""
        return self._ownership.awaited_release(partitions)

    # -- the lease --------------------------------------------------------------------------------------------------

    def may_deliver(self) -> bool:
        """True while the session cannot have expired; always for a consumer that does not join, which owns nothing."""
        return self._stays_out or (self._lease is not None and self._lease.holds())

    @property
    def lease_s(self) -> float:
        """Seconds until the lease lapses if ZooKeeper remains silent."""
        return 0.0 if self._lease is None else self._lease.remaining()

    @property
    def lease_lapses(self) -> int:
        """How often the lease has lapsed."""
        return 0 if self._lease is None else self._lease.lapses
