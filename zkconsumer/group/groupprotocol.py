"""GroupProtocol: how the members of a group agree on who owns which partition. The control plane knows only this.

A protocol joins, gives the next assignment, is informed of what was released and of what is fetched, determines until
when records may be handed out, fences commits, leaves, and describes itself. There are three implementations. In
:class:`~zkconsumer.group.zookeeper.zookeepergroup.ZooKeeperGroup` every member computes the assignment by itself and
claims its share; in :class:`~zkconsumer.group.coordinator.coordinatorgroup.CoordinatorGroup` an elected member computes
it for all; in :class:`~zkconsumer.group.kafka.brokergroup.BrokerGroup`, Kafka's own protocols, a broker passes on what
the leader computed, or computes it. One that is composed of others gives the intersection of their shares, and its
lease is the shorter one (``tests/fixtures/composedprotocol.py``).

Which event calls what, on the rebalance thread unless noted otherwise:

- A consumer is constructed: nothing. It connects: :meth:`GroupProtocol.open`, on the caller's thread.
- Before each attempt: :meth:`~GroupProtocol.join` with the newest subscription, and :meth:`~GroupProtocol.lose` if
  that, or anything later, finds that the group has removed the member.
- Something changed (a watch, a command, a heartbeat's answer): the implementation raises the member's flag. The
  rebalance thread lets it :meth:`~GroupProtocol.pause`, asks for the :meth:`~GroupProtocol.next_assignment`, stops
  fetching what that takes away, commits it, calls :meth:`~GroupProtocol.release`, then
  :meth:`~GroupProtocol.reassign`, since the share may have changed meanwhile, and :meth:`~GroupProtocol.claim`. When
  fetching has started, :meth:`~GroupProtocol.fetched`. After an attempt that failed, :meth:`~GroupProtocol.pause`.
- A commit: :meth:`~GroupProtocol.verify` before, and the lease is checked right before each request that the
  implementation's offset store cannot fence. The implementation and its offset store, which are created together,
  agree on what a commit has to carry (the path of a fencing node, or generation and member id).
- A record or a batch is handed out: the lease is checked, on the stream's thread.
- The consumer leaves, or fails: :meth:`~GroupProtocol.leave`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from zkconsumer.errors import name_some
from zkconsumer.group.rules.assignors import Assignment
from zkconsumer.group.rules.memberstate import MemberState
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.group.rules.reconcile import Share, reconcile
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Broker, Topic, TopicPartition
from zkconsumer.offsets.rules.topicorigins import TopicOrigin


class NextAssignment(NamedTuple):
    """What a member should own next, and why that is a rebalance.

    Attributes:
        change: what has changed in the group since the last :meth:`GroupProtocol.fetched`.
        changes: what changed, as text for the log.
        share: what it will probably own afterwards, as far as that is known before anything is given up.
        revoked: what it holds and has to give up first.
        kept: what it holds and keeps, under the same consumer threads.
        recreated: partitions of topics that were deleted and created again since this member consumed them: their
            positions mean nothing any more, so they are not committed, and fetching starts again.
    """

    change: RebalanceCause
    changes: str
    share: Share
    revoked: frozenset[TopicPartition]
    kept: frozenset[TopicPartition]
    recreated: frozenset[TopicPartition] = frozenset()

    @classmethod
    def of(
        cls,
        held: Share,
        share: Share,
        change: RebalanceCause,
        changes: str,
        recreated: Collection[TopicPartition] = (),
        *,
        incremental: bool,
    ) -> NextAssignment:
        """What a member that holds partitions has to give up and keep to own its share; see :func:`.reconcile`."""
        plan = reconcile(held, share, incremental=incremental, renewed=recreated)
        if recreated:
            changes += f"; deleted and created again: {name_some(sorted({p.topic for p in recreated}))}"
        return cls(change, changes, share, plan.revoked, plan.kept, frozenset(recreated))


@dataclass(frozen=True, slots=True)
class Target:
    """What a member should own, when it has released what it had to.

    Attributes:
        share: its partitions and their consumer threads.
        assignment: the partitions of all members, as far as this one knows them.
        topics: the topics that this member subscribes to, owned partitions or not; may be empty if not asked for.
    """

    share: Share
    assignment: Assignment
    topics: Mapping[str, Topic]


class NoNeed(Enum):
    """Why a member does not have to rebalance."""

    UNCHANGED = "unchanged"
    """The member owns what it should own."""
    NO_BROKERS = "no brokers"
    """No broker is known that this consumer can use; members keep what they own."""


class Held(NamedTuple):
    """What a member owns.

    Attributes:
        partitions: the owned partitions and their consumer threads; replaced, never changed.
        releases: how often everything that was held has been given up or lost.
    """

    partitions: Share
    releases: int


class GroupRole(NamedTuple):
    """Whom the group knows this member as, for descriptions.

    Attributes:
        member_id: its id; that of a group of brokers is the coordinator's or its own choice, "" before it has joined.
        strategy: by which partitions are assigned; "" if unknown.
        coordinator: the broker that coordinates the group, as ``host:port (id 3)``; "" without one, or if unknown.
        leads: True if it assigns the partitions of all members, as far as it knows.
    """

    member_id: str = ""
    strategy: str = ""
    coordinator: str = ""
    leads: bool = False


class Standing(NamedTuple):
    """How a member stands in its group, for descriptions and metrics.

    Attributes:
        connected: whether the group can be reached, as far as known.
        session: id of the session in ZooKeeper; 0 without one.
        views: how often the group, or an assignment, was read.
        removals: how often the group has removed the member.
        lapses: how often its lease has lapsed.
        excluded: text about members that get no partitions, since their registrations are not valid; "" if none.
        role: see :class:`GroupRole`.
    """

    connected: bool
    session: int
    views: int
    removals: int
    lapses: int
    excluded: str = ""
    role: GroupRole = GroupRole()


class Lease(Protocol):
    """Until when records may be handed out, and commits sent (architecture.md#lease); any thread may ask."""

    def holds(self) -> bool:
        """True while no other member can own our partitions; called at every hand-over."""

    def remaining(self) -> float:
        """Seconds until it lapses if the group remains silent; 0 or less if it has lapsed, or cannot lapse."""


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


class PausingThread(Protocol):
    """The rebalance thread, as a protocol uses it on that thread; meanwhile the member serves what others request."""

    def enter_state(self, state: MemberState) -> None:
        """Record the state that the member is in now."""

    def begin_quiet(self) -> None:
        """Lower the flag and serve requests: the caller is about to read what the flag was raised for."""

    def stayed_quiet(self, seconds: float) -> bool:
        """Wait; True if the flag was not raised since :meth:`begin_quiet`, or if the member is leaving."""

    def wait(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until the flag is raised or the member leaves, at most so long.

        Args:
            seconds: longest wait.
            until: called at each wake-up of the signal; True ends the wait.
        """

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call ``action`` on this thread in ``seconds``; replaces an earlier time for it."""


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
    def lease(self) -> Lease:
        """Until when records may be handed out."""

    @property
    def held(self) -> Held:
        """What is owned now; any thread may read it."""

    @property
    def release_s(self) -> float:
        """How long a release may wait for work in progress, in seconds; any thread may read it."""

    def describe(self) -> Standing:
        """How the member stands; any thread may call it."""

    # -- life -------------------------------------------------------------------------------------------------------

    def open(self, thread: PausingThread, lease_changed: Callable[[], None]) -> None:
        """Connect, and maintain the lease from now on.

        Args:
            thread: the rebalance thread.
            lease_changed: called on a thread of the protocol when the lease has lapsed, or holds again.

        Raises:
            ZooKeeperUnavailable, BrokerUnavailable: no server answered in time.
            ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
        """

    def leave(self) -> None:
        """Leave the group at once, and disconnect. Idempotent; from any thread."""

    def join(self, subscription: Subscription) -> None:
        """Be a member with this subscription: nothing happens if it is one.

        May be called again, also if only an answer was lost. A member with another subscription changes it, and keeps
        what it holds: what follows is the next assignment, as after any change of the group.

        Raises:
            MembershipLost: the group has removed the member. Stop handing out, call :meth:`lose`, and join again.
            ConsumerIdInUse: a live consumer has this id.
            InstanceIdInUse: another consumer has taken this one's place for good.
            RetriableError: try again after :meth:`pause`.
        """

    def stand_alone(self) -> None:
        """This consumer will never join; it only stores offsets of partitions that were assigned to it explicitly."""

    def lose(self) -> None:
        """The group has removed this member, and nothing is handed out any more: it owns nothing and has left."""

    def pause(self, failure: Exception | None = None, *, starting: bool = False) -> None:
        """Wait before the next attempt, while the member serves what others request.

        Args:
            failure: what stopped the last attempt; None if something has changed since one that succeeded.
            starting: the member has not finished a rebalance yet; its join may give up.
        """

    # -- the assignment ---------------------------------------------------------------------------------------------

    def next_assignment(self, *, fetching: bool, renew: bool = False) -> NextAssignment | NoNeed:
        """Whether this member has to rebalance, why, and what it gives up for it.

        Args:
            fetching: the member fetches what it owns, and nothing else; otherwise it has to start or to stop something,
                so it is never unchanged.
            renew: rebalance also if nothing has changed.

        Raises:
            RegistrationLost: another client has damaged the membership: release everything, and :meth:`pause`, which
                removes what is left of it.
            StrategyConflict: the members do not agree on how to assign.
            MembershipLost: as :meth:`join`.
            RetriableError: the group cannot be read, or has not assigned anything yet.
        """

    def release(self, partitions: Collection[TopicPartition], retain: Share | None = None) -> None:
        """Give up partitions whose last offsets are committed.

        Args:
            partitions: which ones: those that the next assignment revokes, or more.
            retain: what the next :meth:`claim` is likely to want.

        Raises:
            MembershipLost: nothing is held any more.
            RetriableError: nothing of them may be committed any more; try again.
        """

    def reassign(self, *, with_topics: bool) -> Target:
        """What this member should own now that it has released: the group is read again if it may have changed.

        Where partitions are kept, this is the share of the last :meth:`next_assignment`, since nothing that is kept was
        committed for a release; a newer share has raised the signal.

        Args:
            with_topics: False if :attr:`Target.topics` may be empty, where that saves a read.

        Raises:
            StrategyConflict, MembershipLost, RetriableError: as :meth:`next_assignment`.
        """

    def claim(self, share: Share) -> None:
        """Own exactly these partitions, all or none; what is held stays held if this fails.

        Raises:
            OwnershipConflict: former owners have to release first.
            ShareChanged: the share is not this member's any more; ask for the next assignment again.
            MembershipLost, RetriableError: not done; the next release undoes a partial claim.
        """

    def fetched(self) -> None:
        """The last target is owned and fetched: later ones are compared with it."""

    # -- commits ----------------------------------------------------------------------------------------------------

    @property
    def can_commit(self) -> bool:
        """True if a commit may succeed at once.

        Otherwise commits by timer, and the last one, are not tried: they would occupy the rebalance thread while they
        wait for a connection.
        """

    def verify(self) -> list[TopicPartition]:
        """Partitions that this member recorded as held and that belong to another member; it drops them.

        Raises:
            MembershipLost, RetriableError: the owners cannot be read.
        """

    def recreated(self, partitions: Collection[TopicPartition]) -> Set[TopicPartition]:
        """Those whose topic is not the one any more that this member has fetched, as far as that can be found out now.

        Their positions must not be committed. The next :meth:`next_assignment` notices this, too.

        Raises:
            MembershipLost, RetriableError: topics cannot be read.
        """

    def consume(self, topics: Collection[str], recreated: Collection[str]) -> Mapping[str, TopicOrigin]:
        """Begin to consume claimed partitions of these topics; to be called before their stored offsets are used.

        Args:
            topics: their names.
            recreated: those that :meth:`next_assignment` has reported as created again.

        Returns:
            What shows whether an offset belongs to the topic; topics of which nothing is known are absent.

        Raises:
            ShareChanged: another topic was created again since; ask for the next assignment again.
            MembershipLost, RetriableError: topics cannot be read.
        """
