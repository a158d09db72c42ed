"""GroupMembership: what the state of a member is in both protocols in which a broker coordinates the group.

A pure state machine: threads report events to it under the lock of ``group/kafka/sharedmembership.py``. The rebalance
thread acquires and releases partitions; the threads of the session report what the coordinator has answered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from zkconsumer.errors import ZkConsumerError
from zkconsumer.group.kafka.rules.brokerlease import ENDED, NOTHING_TO_LOSE, BrokerLease, LeaseTerm
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitfence import CommitIdentity


class MembershipState(Enum):
    """Where a member is in the protocol."""

    UNJOINED = "unjoined"
    """It has not joined, or the group has removed it and the rebalance thread knows."""
    REBALANCING = "rebalancing"
    """It has to join, or is joining; partitions that it still holds are its own."""
    STABLE = "stable"
    """It has the assignment of the present generation."""
    LEAVING = "leaving"
    """It leaves, or has left."""
    FENCED = "fenced"
    """The group has removed it, or another client uses its ``group.instance.id``; it owns nothing any more."""


@dataclass(kw_only=True)
class GroupMembership(ABC):
    """One member's state. Not thread-safe by itself.

    Attributes:
        lease: what the coordinator's answers prove; not confirmed before the first one.
        member_id: its id in the group; empty before it has one.
        instance_id: ``group.instance.id``, None for a dynamic member.
        state: see :class:`MembershipState`.
        held: what the rebalance thread holds; replaced, never changed.
        views: assignments received so far.
        failure: why the last attempt to join failed; None if the next one has got further.
        stopped: why the member must not join again; None if it may.
        topics_changed: True if the topics have to be read.
        leaving: whom the last request has to name after :meth:`leave`; None if there is nothing to leave.
        has_news: True if the rebalance thread has to be told; for the lock's owner, who resets it.
    """

    lease: BrokerLease
    member_id: str = ""
    instance_id: str | None = None
    state: MembershipState = MembershipState.UNJOINED
    held: Mapping[TopicPartition, ConsumerThreadId] = field(default_factory=dict)
    views: int = 0
    failure: ZkConsumerError | None = None
    stopped: ZkConsumerError | None = None
    topics_changed: bool = False
    leaving: CommitIdentity | None = None
    has_news: bool = False
    _is_known: bool = False  # whether the coordinator may know the member id, as of the last event that tells

    # -- the rebalance thread ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The member wants to join.

        Raises:
            InstanceIdInUse: another consumer uses the same ``group.instance.id``.
        """
        if self.stopped is not None:
            raise self.stopped
        self.topics_changed = True
        if self.state is MembershipState.UNJOINED:
            self.state = MembershipState.REBALANCING

    def lose(self) -> None:
        """The rebalance thread has stopped using everything."""
        self.held = {}
        self.lease = self.lease.ended()
        if self.state is not MembershipState.LEAVING:
            self.state = MembershipState.UNJOINED

    def release(self, partitions: Collection[TopicPartition]) -> bool:
        """The rebalance thread does not use these any more; returns True if it holds nothing now."""
        gone = frozenset(partitions)
        self.held = {partition: thread for partition, thread in self.held.items() if partition not in gone}
        return not self.held

    @abstractmethod
    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """Hold exactly this share; False if it is not this member's any more."""

    def _may_hold(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """True if the newest assignment gives this member the share."""
        usable = self.usable()
        return usable is not None and self.state is not MembershipState.FENCED and share.keys() <= usable

    @abstractmethod
    def usable(self) -> frozenset[TopicPartition] | None:
        """What this member may own now; None while it has to wait for an assignment."""

    @abstractmethod
    def must_release(self) -> bool:
        """True if everything has to be released before the member may join."""

    # -- the session thread -----------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """True if the session thread has something to do at once: see :meth:`is_urgent`, or topics have changed."""
        return self.is_urgent() or (self.topics_changed and self.state is MembershipState.STABLE)

    @abstractmethod
    def is_urgent(self) -> bool:
        """True if a request has to be sent at once."""

    def take_topics_change(self) -> bool:
        """True if the topics have to be read: they may have changed since the last call."""
        changed, self.topics_changed = self.topics_changed, False
        return changed

    def failed(self, error: ZkConsumerError) -> None:
        """An attempt to join, or a heartbeat of the session thread, has failed; it is repeated after a pause."""
        self.failure = error

    # -- any thread -------------------------------------------------------------------------------------------------

    def fence(self, *, keeps_id: bool = False, stopped: ZkConsumerError | None = None) -> None:
        """The group has removed the member, or has continued without it: nothing may be delivered any more.

        Args:
            keeps_id: the coordinator still knows the member id.
            stopped: why the member must not join again; None if it may.
        """
        self.stopped = self.stopped or stopped
        self.lease = self.lease.ended()
        if self.takes_part:
            self.state, self._is_known = MembershipState.FENCED, keeps_id
        self.has_news = True

    def removed(self, member: CommitIdentity, *, keeps_id: bool, stopped: ZkConsumerError | None = None) -> bool:
        """A request that named this member was answered with an error by which the coordinator has removed it.

        Args:
            member: whom the request named.
            keeps_id: see :meth:`fence`.
            stopped: as above.

        Returns:
            False if it is about an earlier membership, and means nothing.
        """
        return self._end(keeps_id=keeps_id, stopped=stopped, is_present=member == self.identity and self.in_group)

    def _end(self, *, keeps_id: bool, stopped: ZkConsumerError | None, is_present: bool) -> bool:
        """The coordinator has ended a membership; returns False if that was an earlier one, and means nothing.

        That another client has the ``group.instance.id`` (``stopped``) concerns every membership: a new one would
        remove that client.
        """
        if not is_present and stopped is None:
            return False
        self.fence(keeps_id=keeps_id, stopped=stopped)
        return True

    def leave(self) -> None:
        """The member leaves for good; sets :attr:`leaving`. Idempotent."""
        if not self.has_left:
            self.leaving = self._last_identity()
            self.state = MembershipState.LEAVING

    @abstractmethod
    def _last_identity(self) -> CommitIdentity | None:
        """Whom the request names by which the member leaves; None if the coordinator cannot know it."""

    @property
    def has_left(self) -> bool:
        """True after :meth:`leave`."""
        return self.state is MembershipState.LEAVING

    @property
    def takes_part(self) -> bool:
        """True if the member is in the group, or wants to join."""
        return self.state in (MembershipState.REBALANCING, MembershipState.STABLE)

    @property
    def in_group(self) -> bool:
        """True if the coordinator has this member in a generation, as far as known."""
        return self.identity.generation >= 0 and self.takes_part

    @property
    @abstractmethod
    def identity(self) -> CommitIdentity:
        """What commits name."""

    @property
    def term(self) -> LeaseTerm:
        """Until when no other member can own what this one holds."""
        has_joined = self.identity.generation >= 0 and (
            self.state is not MembershipState.REBALANCING or self.lease.is_confirmed
        )
        if self.state is MembershipState.UNJOINED or not (has_joined or self.held):
            return NOTHING_TO_LOSE
        return LeaseTerm(self.lease.deadline) if self.in_group else ENDED
