"""GroupProtocol: how the members of a group agree on who owns which partition. The control plane knows only this.

There are three implementations. In :class:`~zkconsumer.group.zookeeper.zookeepergroup.ZooKeeperGroup` every member
computes the assignment by itself and claims its share; in
:class:`~zkconsumer.group.coordinator.coordinatorgroup.CoordinatorGroup` an elected member computes it for all; in
:class:`~zkconsumer.group.kafka.brokergroup.BrokerGroup`, Kafka's own protocols, a broker passes on what the leader
computed, or computes it.

Which event calls what, on the rebalance thread unless noted otherwise:

- A consumer is constructed: nothing. It connects: :meth:`GroupProtocol.open`, on the caller's thread.
- It joins, and again before each attempt: :meth:`~GroupProtocol.is_lost`, then :meth:`~GroupProtocol.lose` if so; then
  :meth:`~GroupProtocol.join` unless it is a member, and :meth:`~GroupProtocol.has_others` while events settle.
- Something changed (a watch, a command, a heartbeat's answer): the implementation raises the member's flag. The
  rebalance thread asks whether there is a :meth:`~GroupProtocol.need`, computes what to give up
  (:func:`~zkconsumer.group.rules.reconcile.reconcile`), stops fetching that, commits it, calls
  :meth:`~GroupProtocol.release`, asks for the :meth:`~GroupProtocol.target`, which may have changed meanwhile, and
  calls :meth:`~GroupProtocol.acquire`. If other members have to release first, it asks
  :meth:`~GroupProtocol.awaited_release` whether they have. When fetching has started, :meth:`~GroupProtocol.settled`.
- A commit: :meth:`~GroupProtocol.verify` before, and :meth:`~GroupProtocol.may_deliver` right before each request that
  the implementation's offset store cannot fence. The implementation and its offset store, which are created together,
  agree on what a commit has to carry (the path of a fencing node, or generation and member id).
- A record or a batch is handed out: :meth:`~GroupProtocol.may_deliver`, on the stream's thread.
- Some time after a rebalance: :meth:`~GroupProtocol.tend`.
- The consumer leaves, or fails: :meth:`~GroupProtocol.close`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from zkconsumer.errors import RetriableError
from zkconsumer.group.rules.assignors import Assignment
from zkconsumer.group.rules.attempts import RebalanceCause
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Broker, ConsumerThreadId, Topic, TopicPartition
from zkconsumer.offsets.rules.topicorigins import TopicOrigin


@dataclass(frozen=True, slots=True)
class Need:
    """Why a member has to rebalance.

    Attributes:
        cause: the kind of change.
        changes: what changed, as text for the log.
        share: what it will probably own afterwards, as far as that is known before anything is given up.
        recreated: partitions of topics that were deleted and created again since this member consumed them: their
            positions mean nothing any more, so they are not committed, and fetching starts again.
    """

    cause: RebalanceCause
    changes: str
    share: Mapping[TopicPartition, ConsumerThreadId]
    recreated: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    """What a member should own.

    Attributes:
        share: its partitions and their consumer threads.
        assignment: the partitions of all members, as far as this one knows them.
        topics: the topics that this member subscribes to, owned partitions or not; may be empty if not asked for.
    """

    share: Mapping[TopicPartition, ConsumerThreadId]
    assignment: Assignment
    topics: Mapping[str, Topic]


class NoNeed(Enum):
    """Why a member does not have to rebalance."""

    UNCHANGED = "unchanged"
    """The member owns what it should own."""
    NO_BROKERS = "no brokers"
    """No broker is known that this consumer can use; members keep what they own."""


class ChangeSignal(Protocol):
    """The part of the member's rebalance signal that a protocol uses; see ``group/rebalancesignal.py``."""

    def raise_flag(self) -> None:
        """Request a rebalance; never blocks, so it can be a watch callback."""

    def wake(self) -> None:
        """End a wait of the rebalance thread for another reason than a rebalance."""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait on the rebalance thread for either of the two; False after the timeout."""

    @property
    def closed(self) -> bool:
        """True once the member is leaving."""

    @property
    def latest(self) -> object:
        """A token that is replaced at each :meth:`raise_flag`."""


class BrokerSource(Protocol):
    """Where the brokers of the cluster come from."""

    def live_brokers(self) -> tuple[Broker, ...]:
        """Brokers to send requests to; any thread may call it.

        Raises:
            ZkConsumerError: the brokers are unknown.
        """


class GroupProtocol(Protocol):
    """The protocol as one member uses it. The module's docstring lists which event calls what."""

    @property
    def name(self) -> str:
        """The value of ``group.protocol``."""

    @property
    def incremental(self) -> bool:
        """True if partitions that stay are kept over a rebalance; False if all are given up each time."""

    @property
    def settles(self) -> bool:
        """True if the member waits until others have stopped joining and leaving before it rebalances.

        False where another member has waited already.
        """

    @property
    def awaits_expiry(self) -> bool:
        """True if attempts to own what a crashed member held fail until its session has expired.

        False where the group gives a member nothing that it has to wait for.
        """

    # -- life -------------------------------------------------------------------------------------------------------

    def open(self, lease_changed: Callable[[], None]) -> None:
        """Connect, and maintain the lease from now on.

        Args:
            lease_changed: called on a thread of the protocol when :meth:`may_deliver` changed.

        Raises:
            ZooKeeperUnavailable, BrokerUnavailable: no server answered in time.
            ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
        """

    def close(self) -> None:
        """Leave the group at once, and disconnect. Idempotent; from any thread."""

    @property
    def connected(self) -> bool:
        """True while the group can be reached, as far as known."""

    @property
    def can_commit(self) -> bool:
        """True if a commit may succeed at once, also where the group is not :attr:`connected`.

        Otherwise commits by timer, and the last one, are not tried: they would occupy the rebalance thread while they
        wait for a connection.
        """

    def unreachable(self) -> RetriableError:
        """The error of an attempt that is not made, since the group is not :attr:`connected`."""

    @property
    def session(self) -> int:
        """Id of the session, for descriptions; 0 without one."""

    # -- membership -------------------------------------------------------------------------------------------------

    def is_joined(self) -> bool:
        """True from :meth:`join` to :meth:`lose`."""

    def is_lost(self) -> bool:
        """True if the group has removed the member: it owns nothing any more, whatever it has recorded."""

    def join(self, subscription: Subscription) -> None:
        """Become a member. May be called again after a failure, also if only the answer to the first call was lost.

        Raises:
            ConsumerIdInUse: a live consumer has this id.
            InstanceIdInUse: another consumer has taken this one's place for good.
            ZooKeeperUnavailable, SessionExpired: try again.
        """

    def lose(self) -> None:
        """Record that this member owns nothing and has left, without a request: the group has removed it already."""

    def rejoin(self) -> None:
        """Remove what is left of a membership that another client has damaged, so that :meth:`join` can follow.

        Called when all partitions have been released.

        Raises:
            ZooKeeperUnavailable: not done.
        """

    def stay_out(self) -> None:
        """This consumer will never join; it only stores offsets of partitions that were assigned to it explicitly."""

    def has_others(self) -> bool:
        """True if the group has other members.

        Raises:
            ZkConsumerError: the members are unknown.
        """

    # -- the share --------------------------------------------------------------------------------------------------

    def need(self, *, fetching: bool, renew: bool = False) -> Need | NoNeed:
        """Whether this member has to rebalance, and why.

        Args:
            fetching: the member fetches what it owns; otherwise it has to start, so it is never unchanged.
            renew: rebalance also if nothing has changed.

        Raises:
            RegistrationLost: another client has damaged the membership: release everything, and :meth:`rejoin`.
            StrategyConflict: the members do not agree on how to assign.
            ZooKeeperUnavailable, SessionExpired: the group cannot be read.
        """

    def target(self, *, with_topics: bool) -> Target:
        """What this member should own now: the group is read again if it may have changed.

        An :attr:`incremental` protocol returns the share of the last :meth:`need`, since nothing that is kept was
        committed for a release; a newer share has raised the signal.

        Args:
            with_topics: False if :attr:`Target.topics` may be empty, where that saves a read.

        Raises:
            StrategyConflict, ZooKeeperUnavailable, SessionExpired: as :meth:`need`.
        """

    def settled(self) -> None:
        """The last target is owned and fetched: later ones are compared with it."""

    def forget_group(self) -> None:
        """Read the group again at the next :meth:`need`, also if nothing is known to have changed."""

    @property
    def excluded(self) -> str:
        """Text about members that get no partitions, since their registrations are not valid; "" if there are none."""

    @property
    def views(self) -> int:
        """How often the group was read."""

    # -- ownership --------------------------------------------------------------------------------------------------

    @property
    def held(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """The owned partitions; replaced, never changed, so any thread may read it."""

    @property
    def releases(self) -> int:
        """How often everything that was held has been given up or lost."""

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Claim exactly these partitions, all or none.

        Args:
            share: of an :attr:`incremental` protocol with all that is held; what is held stays held if this fails.

        Raises:
            OwnershipConflict: former owners have to release first.
            ShareChanged: the share is not this member's any more; ask for the need again.
            ZooKeeperUnavailable, SessionExpired: not done; the next release undoes a partial claim.
        """

    def release(
        self,
        partitions: Collection[TopicPartition],
        retain: Mapping[TopicPartition, ConsumerThreadId] | None = None,
    ) -> None:
        """Give up partitions whose last offsets are committed.

        Args:
            partitions: all that is held, unless the protocol is :attr:`incremental`.
            retain: what the next :meth:`acquire` is likely to want.

        Raises:
            SessionExpired: nothing is held any more.
            ZooKeeperUnavailable: nothing may be committed any more; try again.
        """

    def verify(self) -> list[TopicPartition]:
        """Partitions that this member recorded as held and that belong to another member; it drops them.

        Raises:
            ZooKeeperUnavailable, SessionExpired: the owners cannot be read.
        """

    def recreated(self, partitions: Collection[TopicPartition]) -> Set[TopicPartition]:
        """Those whose topic is not the one any more that this member has fetched, as far as that can be found out now.

        Their positions must not be committed. The next :meth:`need` notices this, too.

        Raises:
            ZooKeeperUnavailable, SessionExpired: topics cannot be read.
        """

    def consume(self, topics: Collection[str]) -> Mapping[str, TopicOrigin]:
        """Begin to consume acquired partitions of these topics; to be called before their stored offsets are used.

        Returns:
            What shows whether an offset belongs to the topic; topics of which nothing is known are absent.

        Raises:
            ZooKeeperUnavailable, SessionExpired: topics cannot be read.
        """

    def awaited_release(self, partitions: Collection[TopicPartition]) -> Callable[[], bool]:
        """A function to call at each wake-up of the signal: True when none of these partitions has an owner."""

    # -- the lease --------------------------------------------------------------------------------------------------

    def may_deliver(self) -> bool:
        """True while no other member can own our partitions; any thread may call it, at every hand-over."""

    @property
    def lease_s(self) -> float:
        """Seconds until :meth:`may_deliver` becomes False if the group remains silent."""

    @property
    def lease_lapses(self) -> int:
        """How often the lease has lapsed."""

    # -- the others -------------------------------------------------------------------------------------------------

    def tend(self) -> bool:
        """Help members that have given up to try again; True if it should be called again later."""
