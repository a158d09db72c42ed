"""BrokerGroup: the group protocols of Kafka's own consumer: a broker coordinates; a member, or the broker, assigns.

A :class:`~zkconsumer.group.groupprotocol.GroupProtocol`. The session joins, and keeps the membership, on threads of its
own; this class answers the rebalance thread from what the session has received, without a request. There is a session
for ``group.protocol=kafka`` (adr/0019), and one for ``consumer`` (adr/0022).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, RebalanceAwaited, ShareChanged, name_some
from zkconsumer.group.groupprotocol import Need, NoNeed, Target
from zkconsumer.group.kafka.brokersession import BrokerSession
from zkconsumer.group.kafka.rules.groupmembership import GroupMembership, MembershipState
from zkconsumer.group.kafka.rules.strategies import divide
from zkconsumer.group.kafka.sharedmembership import SharedMembership
from zkconsumer.group.rules.attempts import RebalanceCause
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import ConsumerThreadId, Topic, TopicPartition
from zkconsumer.offsets.offsetcoordinator import CommitMembership
from zkconsumer.offsets.rules.commitidentity import NO_MEMBER, CommitIdentity
from zkconsumer.offsets.rules.topicorigins import TopicOrigin


class BrokerGroup:
    """One member's side of the group. Threads and errors are those of the protocol.

    Args:
        config: the consumer's properties.
        consumer_id: id of the consumer; the coordinator gives the member another id.
        session: its membership, which it opens and closes; ``changed`` of the session raises the member's signal.
    """

    settles: Final = False
    awaits_expiry: Final = False

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        session: BrokerSession[Any],
    ) -> None:
        self._group = config.group_id
        self._name = config.group_protocol
        self._consumer_id = consumer_id
        self._session = session
        self._membership: SharedMembership[GroupMembership] = self._session.membership
        # Written by the rebalance thread:
        self._joined = self._stays_out = False
        self._share: Mapping[TopicPartition, ConsumerThreadId] | None = None
        self._has_settled = self._was_lost = False
        self._settled_topics: Mapping[str, Topic] = {}
        self._begun: Mapping[str, Topic] = {}  # the same, when the attempt succeeds
        self.releases = 0

    @property
    def name(self) -> str:
        """The value of ``group.protocol``: ``kafka`` or ``consumer``."""
        return self._name

    @property
    def incremental(self) -> bool:
        """True for a cooperative strategy, and where the broker assigns."""
        return self._session.cooperative

    # -- life -------------------------------------------------------------------------------------------------------

    def open(self, lease_changed: Callable[[], None]) -> None:
        """Start the session.

        Raises:
            BrokerUnavailable: no broker of ``bootstrap.servers`` answers.
            ConfigError: the brokers do not have ``group.protocol=consumer``.
            GroupAuthorizationFailed: the permission to find the group's coordinator is missing.
        """
        self._session.open(lease_changed)

    def close(self) -> None:
        """Leave the group, which gives the partitions to others at once; a static member stays in it."""
        self._session.close()

    @property
    def connected(self) -> bool:
        """False while the coordinator does not answer."""
        return self._session.connected

    @property
    def can_commit(self) -> bool:
        """True, also if the last heartbeat was not answered: commits have their own connection, and the lease holds.

        1. A broker restarts, and a heartbeat fails; 2. the member is shut down before the next one, seconds later.
        """
        return True

    def unreachable(self) -> BrokerUnavailable:
        """The coordinator does not answer."""
        return BrokerUnavailable("the group's coordinator does not answer; check that brokers run and can be reached")

    @property
    def session(self) -> int:
        """0: there is no session in ZooKeeper."""
        return 0

    def identity(self) -> CommitIdentity:
        """Whom commits name: the coordinator refuses those of an earlier generation."""
        return NO_MEMBER if self._stays_out else self._membership.read(lambda member: member.identity)

    @property
    def commit_membership(self) -> CommitMembership:
        """The membership as commits need it."""
        return CommitMembership(self._session.await_renewed, self._session.topic_ids, self._session.location)

    # -- membership -------------------------------------------------------------------------------------------------

    def is_joined(self) -> bool:
        """True from :meth:`join` to :meth:`lose`."""
        return self._joined

    def is_lost(self) -> bool:
        """True if the coordinator has removed this member."""
        return self._membership.read(lambda member: member.state) is MembershipState.FENCED

    def join(self, subscription: Subscription) -> None:
        """Begin to join; :meth:`need` reports when there is an assignment."""
        self._session.begin(subscription)
        self._joined = True

    def lose(self) -> None:
        """Record that the group has given everything to others."""
        self._joined, self._was_lost = False, True
        with self._membership.changing() as member:
            member.lose()
        self._share = None
        self.releases += 1

    def rejoin(self) -> None:
        """Begin again as a new member."""
        self.lose()

    def stay_out(self) -> None:
        """Commit without a membership, which coordinators accept while the group has no members."""
        self._stays_out = True

    def has_others(self) -> bool:
        """True: only the leader knows the members, and nothing depends on it, since the brokers wait for members."""
        return True

    # -- the share --------------------------------------------------------------------------------------------------

    def need(self, *, fetching: bool, renew: bool = False) -> Need | NoNeed:
        """See :meth:`GroupProtocol.need <zkconsumer.group.groupprotocol.GroupProtocol.need>`.

        Raises:
            RebalanceAwaited: the assignment has not arrived yet.
            StrategyConflict, MemberRefused, GroupAuthorizationFailed, BrokerUnavailable: joining fails for this reason.
        """
        if self._membership.read(lambda member: member.must_release()):
            changes = "a rebalance has begun: everything is released before joining"
            return Need(self._cause(), changes, {}, self.recreated(self.held))
        usable, failure = self._membership.read(lambda member: (member.usable(), member.failure))
        if usable is None:
            if failure is not None:
                raise failure
            raise RebalanceAwaited(f"group {self._group} has not assigned partitions to this member yet")
        held = self.held
        self._share = share = divide(self._consumer_id, usable, self._session.streams, held)
        recreated = self.recreated(share.keys() | held.keys())
        if fetching and not renew and share == held and not recreated:
            return NoNeed.UNCHANGED
        generation = self._membership.read(lambda member: member.identity).generation
        changes = f"assignment of generation {generation}: {len(share)} partitions"
        if recreated:
            names = name_some(sorted({partition.topic for partition in recreated}))
            return Need(RebalanceCause.TOPICS, f"{changes}; deleted and created again: {names}", share, recreated)
        return Need(self._cause(), changes, share)

    def recreated(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Those whose topic is not the one any more that this member has fetched, as the session last read it."""
        before, now = self._settled_topics, self._session.topics
        return frozenset(
            partition
            for partition in partitions
            if partition.topic in before
            and partition.topic in now
            and not now[partition.topic].identity.is_same_topic(before[partition.topic].identity)
        )

    def consume(self, topics: Collection[str]) -> dict[str, TopicOrigin]:
        """The topics as the session last read them; their coordinator deletes the offsets of deleted topics."""
        known = self._session.topics
        kept = {topic: one for topic, one in self._settled_topics.items() if topic not in topics}
        self._begun = {**known, **kept}
        return {topic: TopicOrigin(known[topic].identity) for topic in topics if topic in known}

    def _cause(self) -> RebalanceCause:
        if not self._has_settled:
            return RebalanceCause.START
        return RebalanceCause.SESSION if self._was_lost else RebalanceCause.MEMBERS

    def target(self, *, with_topics: bool) -> Target:  # noqa: ARG002 - they are at hand
        """The share of the last :meth:`need`, if it is still this member's.

        Raises:
            RebalanceAwaited: an eager member has released everything, and joins now.
        """
        share = self._share
        usable = self._membership.read(lambda member: member.usable())
        if share is None or usable is None:
            raise RebalanceAwaited(f"group {self._group} rebalances; everything has been released")
        return Target(share, dict(share), self._session.topics)

    def settled(self) -> None:
        """The assignment is fetched."""
        self._has_settled, self._was_lost = True, False
        self._settled_topics = self._begun

    def forget_group(self) -> None:
        """Nothing is to be forgotten: the session reports every change."""

    @property
    def excluded(self) -> str:
        """Nothing: a member whose subscription cannot be read makes the leader's assignment fail."""
        return ""

    @property
    def views(self) -> int:
        """How many assignments were received."""
        return self._membership.read(lambda member: member.views)

    # -- ownership --------------------------------------------------------------------------------------------------

    @property
    def held(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """What this member uses; a part of its assignment."""
        return self._membership.read(lambda member: member.held)

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
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
        retain: Mapping[TopicPartition, ConsumerThreadId] | None = None,  # noqa: ARG002 - nothing is retained
    ) -> None:
        """Stop using partitions; the session joins when nothing is left that it has to give up."""
        with self._membership.changing() as member:
            is_empty = member.release(partitions)
        self.releases += is_empty

    def verify(self) -> list[TopicPartition]:
        """Nothing: the coordinator checks each commit, and heartbeats report the loss of everything."""
        return []

    def awaited_release(self, partitions: Collection[TopicPartition]) -> Callable[[], bool]:  # noqa: ARG002
        """True at once: no assignment contains what another member still uses."""
        return lambda: True

    # -- the lease --------------------------------------------------------------------------------------------------

    def may_deliver(self) -> bool:
        """True while the coordinator cannot have given this member's partitions to others."""
        return self._stays_out or self._membership.holds()

    @property
    def lease_s(self) -> float:
        """Seconds until the lease lapses if the coordinator remains silent."""
        return self._membership.remaining()

    @property
    def lease_lapses(self) -> int:
        """How often the lease has lapsed."""
        return self._session.lease_lapses

    # -- the others -------------------------------------------------------------------------------------------------

    def tend(self) -> bool:
        """Nothing: the coordinator removes members that do not answer."""
        return False
