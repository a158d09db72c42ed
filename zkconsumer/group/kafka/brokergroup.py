"""BrokerGroup: the group protocols of Kafka's own consumer: a broker coordinates; a member, or the broker, assigns.

A :class:`~zkconsumer.group.groupprotocol.GroupProtocol`. The session joins, and keeps the membership, on threads of its
own; this class answers the rebalance thread from what the session has received, without a request, unless the member
joins no group. There is a session for ``group.protocol=kafka`` (adr/0019), and one for ``consumer`` (adr/0022).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import AssignorFailed, BrokerUnavailable, MembershipLost, RebalanceAwaited, ShareChanged
from zkconsumer.group.groupprotocol import (
    GroupRole,
    Held,
    Lease,
    NextAssignment,
    NoNeed,
    PausingThread,
    Standing,
    Target,
)
from zkconsumer.group.kafka.brokersession import BrokerSession
from zkconsumer.group.kafka.rules.groupmembership import GroupMembership, MembershipState
from zkconsumer.group.kafka.sharedmembership import SharedMembership
from zkconsumer.group.rules.fetchedtopics import FetchedTopics
from zkconsumer.group.rules.memberstate import MemberState
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.group.rules.reconcile import Share
from zkconsumer.group.rules.stickyassignor import divide
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.offsetcoordinator import CommitMembership
from zkconsumer.offsets.rules.commitfence import NO_MEMBER, CommitIdentity
from zkconsumer.offsets.rules.topicorigins import TopicOrigin


class BrokerGroup:
    """One member's side of the group. Threads and errors are those of the protocol.

    Args:
        config: the consumer's properties.
        consumer_id: id of the consumer; the coordinator gives the member another id.
        session: its membership, which it opens and closes; ``changed`` of the session raises the member's signal.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        session: BrokerSession[GroupMembership],
    ) -> None:
        self._group = config.group_id
        self._name = config.group_protocol
        self._consumer_id = consumer_id
        self._session = session
        self._membership: SharedMembership[GroupMembership] = self._session.membership
        self._backoff_s = config.rebalance_backoff_ms / 1000
        # Written by the rebalance thread:
        self._joined = False
        self._subscription: Subscription | None = None
        self._stands_alone = False
        self._share: Share | None = None
        self._fetched_topics = FetchedTopics()
        self._releases = self._removals = 0

    @property
    def name(self) -> str:
        """The value of ``group.protocol``: ``kafka`` or ``consumer``."""
        return self._name

    # -- life -------------------------------------------------------------------------------------------------------

    def open(self, thread: PausingThread, lease_changed: Callable[[], None]) -> None:
        """Start the session.

        Raises:
            BrokerUnavailable: no broker of ``bootstrap.servers`` answers.
            ConfigError: the brokers do not have ``group.protocol=consumer``.
            GroupAuthorizationFailed: the permission to find the group's coordinator is missing.
        """
        self._thread = thread
        self._session.open(lease_changed)

    def leave(self) -> None:
        """Leave the group, which gives the partitions to others at once; a static member stays in it."""
        self._session.close()

    def describe(self) -> Standing:
        """See :meth:`.GroupProtocol.describe`; there is no session in ZooKeeper.

        No member is excluded: one whose subscription cannot be read makes the leader's assignment fail.
        """
        views = self._membership.read(lambda member: member.views)
        session, broker = self._session, self._session.location.broker
        member_id = self._membership.read(lambda member: member.member_id)
        coordinator = "" if broker is None else f"{broker.host}:{broker.port} (id {broker.id})"
        role = GroupRole(member_id, session.strategy, coordinator, session.leads)
        return Standing(session.connected, 0, views, self._removals, session.lease_lapses, role=role)

    @property
    def can_commit(self) -> bool:
        """True, also if the last heartbeat was not answered: commits have their own connection, and the lease holds.

        1. A broker restarts, and a heartbeat fails; 2. the member is shut down before the next one, seconds later.
        """
        return True

    def identity(self) -> CommitIdentity:
        """Whom commits name: the coordinator refuses those of an earlier generation."""
        return NO_MEMBER if self._stands_alone else self._membership.read(lambda member: member.identity)

    @property
    def commit_membership(self) -> CommitMembership:
        """The membership as commits need it."""
        session = self._session
        return CommitMembership(session.await_renewed, session.topic_ids, session.location, session.refused)

    # -- membership -------------------------------------------------------------------------------------------------

    def join(self, subscription: Subscription) -> None:
        """Begin to join; :meth:`next_assignment` reports when there is an assignment."""
        if self._membership.read(lambda member: member.state) is MembershipState.FENCED:
            raise MembershipLost(f"the coordinator of group {self._group} has removed this member")
        if not self._session.connected:
            raise BrokerUnavailable(
                "the group's coordinator does not answer; check that brokers run and can be reached"
            )
        if self._joined and subscription is not self._subscription:
            self._session.begin(subscription)  # the session reads its topics, and joins again if they differ
            self._subscription = subscription
        if not self._joined:
            self._thread.enter_state(MemberState.REGISTERING)
            self._session.begin(subscription)
            self._joined, self._subscription = True, subscription
            self._thread.enter_state(MemberState.SETTLING)

    def lose(self) -> None:
        """Record that the group has given everything to others."""
        self._removals += self._joined
        self._joined = False
        with self._membership.changing() as member:
            member.lose()
        self._share = None
        self._releases += 1

    def stand_alone(self) -> None:
        """Commit without a membership, which coordinators accept while the group has no members.

        The lease holds: a member that has not joined has nothing to lose.
        """
        self._stands_alone = True

    def pause(self, failure: Exception | None = None, *, starting: bool = False) -> None:  # noqa: ARG002
        """Wait for an answer of the coordinator, at most the backoff; brokers wait for members, so nothing settles."""
        if failure is None:
            self._thread.enter_state(MemberState.SETTLING)
            return
        self._thread.enter_state(MemberState.WAITING_TO_RETRY)
        self._thread.wait(self._backoff_s)

    # -- the assignment ---------------------------------------------------------------------------------------------

    def next_assignment(self, *, fetching: bool, renew: bool = False) -> NextAssignment | NoNeed:
        """See :meth:`.GroupProtocol.next_assignment`.

        Raises:
            RebalanceAwaited: the assignment has not arrived yet.
            StrategyConflict, MemberRefused, GroupAuthorizationFailed, BrokerUnavailable, AssignorFailed: joining fails
                for this reason.
        """
        held = self._held()
        if self._membership.read(lambda member: member.must_release()):
            changes = "a rebalance has begun: everything is released before joining"
            recreated = self.recreated(held)
            return NextAssignment.of(held, {}, RebalanceCause.MEMBERS, changes, recreated, incremental=False)
        usable, failure = self._membership.read(lambda member: (member.usable(), member.failure))
        if isinstance(failure, AssignorFailed):  # a cooperative member continues with what it has
            raise failure
        if usable is None:
            if failure is not None:
                raise failure
            raise RebalanceAwaited(f"group {self._group} has not assigned partitions to this member yet")
        self._share = share = divide(self._consumer_id, usable, self._session.streams, held)
        recreated = self.recreated(share.keys() | held.keys())
        if fetching and not renew and share == held and not recreated:
            return NoNeed.UNCHANGED
        generation = self._membership.read(lambda member: member.identity).generation
        changes = f"assignment of generation {generation}: {len(share)} partitions"
        cooperative = self._session.cooperative
        return NextAssignment.of(held, share, RebalanceCause.MEMBERS, changes, recreated, incremental=cooperative)

    def recreated(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Those whose topic is not the one any more that this member has fetched, as it was last read.

        Not those of a topic that does not exist: the brokers refuse its offsets.
        """
        replaced = self._fetched_topics.replaced(self._identities({partition.topic for partition in partitions}))
        return frozenset(partition for partition in partitions if partition.topic in replaced)

    def consume(self, topics: Collection[str], recreated: Collection[str]) -> dict[str, TopicOrigin]:
        """The topics as they were last read; their coordinator deletes the offsets of deleted topics.

        Raises:
            BrokerUnavailable: the member joins no group, and no broker has described the topics.
        """
        begun = self._identities(topics, required=True)
        self._fetched_topics.begin(begun, recreated)
        return {topic: TopicOrigin(identity) for topic, identity in begun.items()}

    def _identities(self, topics: Collection[str], *, required: bool = False) -> dict[str, TopicIdentity]:
        """Of those that exist. The session reads the topics of a subscription; alone, a member reads them here."""
        if self._stands_alone:
            read = self._session.read_identities(topics, required=required)
            return {topic: identity for topic, identity in read.items() if identity is not None}
        return {name: topic.identity for name, topic in self._session.topics.items() if name in topics}

    def reassign(self, *, with_topics: bool) -> Target:  # noqa: ARG002 - they are at hand
        """The share of the last :meth:`next_assignment`, if it is still this member's.

        Raises:
            RebalanceAwaited: an eager member has released everything, and joins now.
        """
        share = self._share
        usable = self._membership.read(lambda member: member.usable())
        if share is None or usable is None:
            raise RebalanceAwaited(f"group {self._group} rebalances; everything has been released")
        return Target(share, dict(share), self._session.topics)

    def fetched(self) -> None:
        """The assignment is fetched."""
        self._fetched_topics.started()

    # -- ownership --------------------------------------------------------------------------------------------------

    @property
    def held(self) -> Held:
        """What this member uses; a part of its assignment."""
        return Held(self._held(), self._releases)

    def _held(self) -> Share:
        return self._membership.read(lambda member: member.held)

    def claim(self, share: Share) -> None:
        """Begin to use the share; no request is needed, since the assignment gives it to this member.

        Raises:
            ShareChanged: a newer assignment has arrived, or this member is joining again without these partitions.
        """
        with self._membership.changing() as member:
            is_ours = member.acquire(share)
        if not is_ours:
            raise ShareChanged(f"group {self._group} is rebalancing again")

    def release(
        self,
        partitions: Collection[TopicPartition],
        retain: Share | None = None,  # noqa: ARG002 - nothing is retained
    ) -> None:
        """Stop using partitions; the session joins when nothing is left that it has to give up."""
        with self._membership.changing() as member:
            is_empty = member.release(partitions)
        self._releases += is_empty

    def verify(self) -> list[TopicPartition]:
        """Nothing: the coordinator checks each commit, and heartbeats report the loss of everything."""
        return []

    # -- the lease --------------------------------------------------------------------------------------------------

    @property
    def release_s(self) -> float:
        """See :meth:`BrokerLease.release_s <zkconsumer.group.kafka.rules.brokerlease.BrokerLease.release_s>`."""
        return self._membership.read(lambda member: member.lease.release_s)

    @property
    def lease(self) -> Lease:
        """It holds while the coordinator cannot have given this member's partitions to others."""
        return self._membership
