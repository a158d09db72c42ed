"""BrokerMembership: the state of one member of a group that brokers coordinate, and what it may do in it.

A pure state machine. Three threads report events to it, under the lock of ``group/kafka/sharedmembership.py``: the
rebalance thread acquires and releases partitions, the session thread joins and synchronises, the heartbeat thread
learns that a rebalance has begun or that the group has removed the member.

Two rules keep two members from owning a partition:

- A member joins only when it holds nothing that it would have to give up: nothing at all if it is *eager*; if it is
  *cooperative*, nothing that the last assignment does not contain. Until then it may still commit those positions.
- After a JoinGroup request the leader assigns by what the member declared to own. So the member acquires nothing else
  until the next assignment has arrived, also if the attempt fails: 1. the leader gives a partition that the member has
  not acquired yet to another member; 2. the answer to SyncGroup is lost; 3. the member acquires the partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitidentity import CommitIdentity


class MembershipState(Enum):
    """Where a member is in the protocol."""

    UNJOINED = "unjoined"
    """It has not joined, or the group has removed it and the rebalance thread knows."""
    REBALANCING = "rebalancing"
    """It has to join, or is joining, see :class:`JoinStep`; partitions that it still holds are its own."""
    STABLE = "stable"
    """It has the assignment of the present generation."""
    LEAVING = "leaving"
    """It leaves, or has left."""
    FENCED = "fenced"
    """The group has removed it, or another client uses its ``group.instance.id``; it owns nothing any more."""


class JoinStep(Enum):
    """Which request of the session thread is not answered, in whatever state the membership is meanwhile."""

    NONE = "none"
    """None. A member that is rebalancing joins as soon as it holds nothing that it has to give up."""
    JOIN_GROUP = "JoinGroup"
    """The coordinator waits for the other members; the partitions that were declared are kept."""
    SYNC_GROUP = "SyncGroup"
    """The member has joined a new generation, and waits until the leader has assigned its partitions."""


class Assigned(NamedTuple):
    """The assignment of one generation.

    Attributes:
        generation: of the group.
        partitions: assigned to this member.
    """

    generation: int
    partitions: frozenset[TopicPartition]


class JoinIntent(NamedTuple):
    """What a JoinGroup request declares.

    Attributes:
        member_id: the member's id; empty if it has none yet.
        generation: the newest one that it has joined; -1 if there is none.
        owned: the partitions that it owns.
        previous: the partitions of its last assignment.
    """

    member_id: str
    generation: int
    owned: frozenset[TopicPartition]
    previous: frozenset[TopicPartition]


@dataclass
class BrokerMembership:
    """One member's state. Not thread-safe by itself.

    Attributes:
        cooperative: True if partitions that stay are kept over a rebalance.
        instance_id: ``group.instance.id``, None for a dynamic member.
        state: see :class:`MembershipState`.
        member_id: assigned by the coordinator; empty before.
        generation: the newest generation that this member has joined; -1 before.
        assigned: what may be owned of the newest assignment; None before the first, and, for an eager member, from a
            JoinGroup request to the next assignment.
        held: what the rebalance thread holds; replaced, never changed.
        step: see :class:`JoinStep`.
    """

    cooperative: bool
    instance_id: str | None = None
    state: MembershipState = MembershipState.UNJOINED
    member_id: str = ""
    generation: int = -1
    assigned: Assigned | None = None
    held: Mapping[TopicPartition, ConsumerThreadId] = field(default_factory=dict)
    step: JoinStep = JoinStep.NONE
    _declared: frozenset[TopicPartition] = frozenset()
    _to_revoke: frozenset[TopicPartition] = frozenset()
    _previous: frozenset[TopicPartition] = frozenset()
    _rejoin: bool = False
    _keeps_id: bool = False

    # -- the rebalance thread ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The member wants to join."""
        if self.state is MembershipState.UNJOINED:
            self.state = MembershipState.REBALANCING

    def lose(self) -> None:
        """The rebalance thread has stopped using everything: join again, as a new member unless the id is kept."""
        self.held = {}
        self.member_id = self.member_id if self._keeps_id else ""
        self.generation, self.assigned, self._keeps_id = -1, None, False
        self._to_revoke = self._previous = frozenset()
        if self.state is not MembershipState.LEAVING:
            self.state = MembershipState.UNJOINED

    def leave(self) -> CommitIdentity | None:
        """The member leaves; returns what to name in LeaveGroup, None if there is nothing to leave.

        A static member stays in the group until its session times out, so that it can come back. A member that lost its
        partitions may be in the group still: others would wait for its session timeout.
        """
        known = self.state is not MembershipState.LEAVING and (
            self.state is not MembershipState.FENCED or self._keeps_id
        )
        self.state = MembershipState.LEAVING
        return self.identity if known and self.member_id and self.instance_id is None else None

    def release(self, partitions: Collection[TopicPartition]) -> bool:
        """The rebalance thread does not use these any more; returns True if it holds nothing now."""
        gone = frozenset(partitions)
        self.held = {partition: thread for partition, thread in self.held.items() if partition not in gone}
        return not self.held

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """Hold exactly this share; False if it is not this member's any more."""
        usable = self.usable()
        if usable is None or self.state is MembershipState.FENCED or not share.keys() <= usable:
            return False
        self.held = dict(share)
        self._join_after_revocation()
        return True

    # -- the session thread -----------------------------------------------------------------------------------------

    def may_join(self) -> bool:
        """True if the member has to join, and holds nothing that it has to give up first."""
        if self.state is not MembershipState.REBALANCING or self.is_joining:
            return False
        if not self.cooperative:
            return not self.held
        return self.assigned is None or self.held.keys() <= self.assigned.partitions

    def must_release(self) -> bool:
        """True if an eager member has to release everything before it may join."""
        return not self.cooperative and self.state is MembershipState.REBALANCING and bool(self.held)

    def join(self) -> JoinIntent:
        """A JoinGroup request is about to be sent; returns what it has to declare."""
        self.step, self._rejoin = JoinStep.JOIN_GROUP, False
        self._declared = frozenset(self.held)
        self._to_revoke = frozenset()  # none of it is held any more, so this request offers it to others
        if self.assigned is not None:
            self.assigned = self.assigned._replace(partitions=self._declared) if self.cooperative else None
        return JoinIntent(self.member_id, self.generation, self._declared, self._previous)

    def id_given(self, member_id: str) -> None:
        """The coordinator has answered MEMBER_ID_REQUIRED."""
        self.member_id = member_id

    def joined(self, member_id: str, generation: int) -> None:
        """JoinGroup was answered without error."""
        if self.state is MembershipState.REBALANCING:
            self.member_id, self.generation, self.step = member_id, generation, JoinStep.SYNC_GROUP

    def synchronised(self, assigned: Assigned) -> bool:
        """SyncGroup was answered without error; False if the member is gone by now."""
        self.step = JoinStep.NONE
        if self.state is not MembershipState.REBALANCING:
            return False
        self.assigned, self.state, self._previous = assigned, MembershipState.STABLE, assigned.partitions
        self._to_revoke = self._declared - assigned.partitions if self.cooperative else frozenset()
        if self.held.keys() == assigned.partitions:  # otherwise acquire() follows
            self._join_after_revocation()
        if self._rejoin:
            self.state = MembershipState.REBALANCING
        return True

    def join_ended(self) -> None:
        """The attempt to join has ended; if it failed, the member has to join still."""
        self.step = JoinStep.NONE

    def _join_after_revocation(self) -> None:
        """Join again so that the leader can assign what this member has given up."""
        if self._to_revoke and not self._to_revoke & self.held.keys():
            self._to_revoke = frozenset()
            self.join_again()

    def join_again(self) -> None:
        """This member wants a new assignment: its topics have changed, or it has revoked partitions."""
        self._rejoin = self.is_joining
        if self.state is MembershipState.STABLE:
            self.state = MembershipState.REBALANCING

    # -- the heartbeat thread ---------------------------------------------------------------------------------------

    def rebalance_begun(self, asked: CommitIdentity) -> bool:
        """A heartbeat was answered with REBALANCE_IN_PROGRESS; True if that is news.

        Args:
            asked: whom the heartbeat named; an answer about an earlier generation means nothing.
        """
        if self.state is not MembershipState.STABLE or asked != self.identity:
            return False
        self.state = MembershipState.REBALANCING
        return True

    # -- any thread -------------------------------------------------------------------------------------------------

    def usable(self) -> frozenset[TopicPartition] | None:
        """What this member may own now; None while it has to wait for an assignment."""
        if self.assigned is None or (not self.cooperative and self.state is MembershipState.REBALANCING):
            return None
        return self.assigned.partitions

    def fence(self, *, keeps_id: bool = False) -> None:
        """The group has removed the member, or has continued without it.

        Args:
            keeps_id: the coordinator still knows the member id.
        """
        if self.state in (MembershipState.REBALANCING, MembershipState.STABLE):
            self.state, self._keeps_id = MembershipState.FENCED, keeps_id

    @property
    def is_joining(self) -> bool:
        """True while a JoinGroup or SyncGroup request is not answered."""
        return self.step is not JoinStep.NONE

    @property
    def identity(self) -> CommitIdentity:
        """What heartbeats and commits name."""
        return CommitIdentity(self.member_id, self.generation, self.instance_id)

    @property
    def in_group(self) -> bool:
        """True if the coordinator has this member in a generation, as far as known."""
        return self.generation >= 0 and self.state in (MembershipState.REBALANCING, MembershipState.STABLE)
