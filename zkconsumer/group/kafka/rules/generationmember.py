"""GenerationMember: the state of one member of a group whose members assign, and what it may do in it.

A pure state machine. Three threads report events to it: the rebalance thread acquires and releases partitions, the
session thread joins and synchronises, the heartbeat thread learns that the lease is extended, that a rebalance has
begun, or that the group has removed the member.

Two rules keep two members from owning a partition:

- A member joins only when it holds nothing that it would have to give up: nothing at all if it is *eager*; if it is
  *cooperative*, nothing that the last assignment does not contain. Until then it may still commit those positions.
- After a JoinGroup request the leader assigns by what the member declared to own. So the member acquires nothing else
  until the next assignment has arrived, also if the attempt fails: 1. the leader gives a partition that the member has
  not acquired yet to another member; 2. the answer to SyncGroup is lost; 3. the member acquires the partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import NamedTuple

from zkconsumer.errors import AssignorFailed, ZkConsumerError
from zkconsumer.group.kafka.rules.groupmembership import GroupMembership, MembershipState
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitfence import CommitIdentity


class JoinStep(Enum):
    """Which request of the session thread is not answered, in whatever state the membership is meanwhile."""

    NONE = "none"
    """None. A member that is rebalancing joins as soon as it holds nothing that it has to give up."""
    JOIN_GROUP = "JoinGroup"
    """The coordinator waits for the other members; the partitions that were declared are kept."""
    SYNC_GROUP = "SyncGroup"
    """The member has joined a new generation, and waits until the leader has assigned its partitions."""
    FORMER = "of a former membership"
    """A JoinGroup or SyncGroup that was sent before the member was removed: it joins again after this answer, which
    means nothing to the present membership."""


class Assigned(NamedTuple):
    """The assignment of one generation.

    Attributes:
        generation: of the group.
        partitions: assigned to this member.
    """

    generation: int
    partitions: frozenset[TopicPartition]


class Beat(NamedTuple):
    """What a heartbeat names, and what the session thread waits for meanwhile.

    Attributes:
        member: member id, generation and ``group.instance.id``.
        step: see :class:`JoinStep`; if the member was joining then, the rebalance that it is told of is its own.
    """

    member: CommitIdentity
    step: JoinStep


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
class GenerationMember(GroupMembership):
    """One member's state; for the other attributes see :class:`GroupMembership`.

    Attributes:
        cooperative: True if partitions that stay are kept over a rebalance.
        generation: the newest generation that this member has joined; -1 before.
        assigned: what may be owned of the newest assignment; None before the first, and, for an eager member, from a
            JoinGroup request to the next assignment.
        assigned_at: reading of the clock when the newest assignment arrived; minus infinity if there was none.
        step: see :class:`JoinStep`.
    """

    cooperative: bool
    generation: int = -1
    assigned: Assigned | None = None
    assigned_at: float = -inf
    step: JoinStep = JoinStep.NONE
    _declared: frozenset[TopicPartition] = frozenset()
    _to_revoke: frozenset[TopicPartition] = frozenset()
    _previous: frozenset[TopicPartition] = frozenset()
    _rejoin: bool = False

    # -- the rebalance thread ---------------------------------------------------------------------------------------

    def lose(self) -> None:
        """The rebalance thread has stopped using everything: join again, as a new member unless the id is kept."""
        super().lose()
        self.member_id = self.member_id if self._is_known else ""
        self.generation, self.assigned, self._is_known = -1, None, False
        self._to_revoke = self._previous = frozenset()
        self.step = JoinStep.FORMER if self.is_joining else JoinStep.NONE

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """Hold exactly this share; False if it is not this member's any more."""
        if not self._may_hold(share):
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

    def is_urgent(self) -> bool:
        """See :meth:`may_join`: no other request of the session thread has to be sent at once."""
        return self.may_join()

    def join(self) -> JoinIntent | None:
        """The member begins to join: what its JoinGroup request has to declare; None if it may not join any more."""
        if not self.may_join():
            return None
        self.step, self._rejoin = JoinStep.JOIN_GROUP, False
        self._declared = frozenset(self.held)
        self._to_revoke = frozenset()  # none of it is held any more, so this request offers it to others
        if self.assigned is not None:
            self.assigned = self.assigned._replace(partitions=self._declared) if self.cooperative else None
        return JoinIntent(self.member_id, self.generation, self._declared, self._previous)

    def join_sent(self) -> None:
        """JoinGroup is sent: what failed before is over, and the coordinator may take a rebalance timeout to answer.

        Not that the application's assignor has failed, which the answer to SyncGroup shows.
        """
        if not isinstance(self.failure, AssignorFailed):
            self.failure = None

    def id_given(self, member_id: str) -> None:
        """The coordinator has answered MEMBER_ID_REQUIRED."""
        self.member_id = member_id

    def joined(self, member_id: str, generation: int, rebalance_s: float) -> bool:
        """JoinGroup was answered without error; False if the member was removed, or has left, meanwhile.

        Args:
            member_id: the member's id.
            generation: of the group.
            rebalance_s: how long the coordinator waits for this member in a rebalance, in seconds.
        """
        if not self._is_awaited():
            return False
        self.member_id, self.generation, self.step = member_id, generation, JoinStep.SYNC_GROUP
        self.lease = replace(self.lease, rebalance_s=rebalance_s)
        return True

    def synchronised(self, assigned: Assigned, sent: float, now: float) -> bool:
        """SyncGroup was answered without error; False as :meth:`joined`.

        1. It is answered, and the coordinator removes the member; 2. a heartbeat is answered with that, and the member
        begins as a new one; 3. the answer to SyncGroup arrives: it assigns partitions to a member that is gone.

        Args:
            assigned: the assignment.
            sent: reading of the clock when the request was sent.
            now: reading of the clock.
        """
        if not self._is_awaited():
            return False
        self.step, self.failure = JoinStep.NONE, None
        self.assigned, self.state, self._previous = assigned, MembershipState.STABLE, assigned.partitions
        self._to_revoke = self._declared - assigned.partitions if self.cooperative else frozenset()
        if self.held.keys() == assigned.partitions:  # otherwise acquire() follows
            self._join_after_revocation()
        if self._rejoin:
            self.state = MembershipState.REBALANCING
        self.lease, self.assigned_at = self.lease.confirmed(sent), now
        self.views += 1
        self.has_news = True
        return True

    def refused(self, *, keeps_id: bool, stopped: ZkConsumerError | None = None) -> None:
        """JoinGroup or SyncGroup was answered with an error by which the coordinator has removed the member.

        Args:
            keeps_id: see :meth:`fence`.
            stopped: as above.
        """
        self._end(keeps_id=keeps_id, stopped=stopped, is_present=self.step is not JoinStep.FORMER)

    def _is_awaited(self) -> bool:
        """True if the answer that has arrived is one to a request of the present membership."""
        return self.state is MembershipState.REBALANCING and self.step is not JoinStep.FORMER

    def join_ended(self) -> None:
        """The attempt to join has ended; if it failed, the member has to join still."""
        self.step = JoinStep.NONE

    def failed(self, error: ZkConsumerError) -> None:
        """An attempt to join has failed: the rebalance thread waits for it, and the next one reads the topics again."""
        super().failed(error)
        self.topics_changed = self.has_news = True

    def _join_after_revocation(self) -> None:
        """Join again so that the leader can assign what this member has given up."""
        if self._to_revoke and not self._to_revoke & self.held.keys():
            self._to_revoke = frozenset()
            self._wish_to_join()

    def join_again(self) -> None:
        """This member wants a new assignment, since its topics have changed."""
        self._wish_to_join()
        self.has_news = True

    def _wish_to_join(self) -> None:
        self._rejoin = self.is_joining
        if self.state is MembershipState.STABLE:
            self.state = MembershipState.REBALANCING

    # -- the heartbeat thread ---------------------------------------------------------------------------------------

    def beat(self) -> Beat | None:
        """A heartbeat is about to be sent; None outside of the group."""
        return Beat(self.identity, self.step) if self.in_group else None

    def confirmed(self, beat: Beat, sent: float) -> None:
        """A heartbeat was answered without error.

        Args:
            beat: the heartbeat; an answer about an earlier generation means nothing.
            sent: reading of the clock when it was sent.
        """
        if beat.member == self.identity:
            self.lease = self.lease.confirmed(sent)

    def rebalance_begun(self, beat: Beat, sent: float) -> None:
        """A heartbeat was answered with REBALANCE_IN_PROGRESS; for the arguments see :meth:`confirmed`."""
        if beat.member != self.identity:
            return
        if beat.step is not JoinStep.SYNC_GROUP:  # see BrokerLease.in_rebalance
            self.lease = self.lease.in_rebalance(sent)
        if beat.step is JoinStep.NONE and self.state is MembershipState.STABLE:
            self.state = MembershipState.REBALANCING
            self.has_news = True

    def beat_refused(self, beat: Beat, *, keeps_id: bool, stopped: ZkConsumerError | None = None) -> bool:
        """A heartbeat was answered with an error by which the coordinator has removed the member; False if it has not.

        While the member is joining, the group may have begun a generation whose number the member does not know yet.

        Args:
            beat: the heartbeat; an answer about an earlier generation means nothing.
            keeps_id: see :meth:`fence`.
            stopped: as above.
        """
        is_joining = beat.step is not JoinStep.NONE or self.is_joining
        is_present = beat.member == self.identity and not (keeps_id and is_joining)
        return self._end(keeps_id=keeps_id, stopped=stopped, is_present=is_present)

    # -- any thread -------------------------------------------------------------------------------------------------

    def usable(self) -> frozenset[TopicPartition] | None:
        """What this member may own now; None while it has to wait for an assignment."""
        if self.assigned is None or (not self.cooperative and self.state is MembershipState.REBALANCING):
            return None
        return self.assigned.partitions

    def _last_identity(self) -> CommitIdentity | None:
        """See :meth:`GroupMembership._last_identity`.

        A static member stays in the group until its session times out, so that it can come back. A member that lost its
        partitions may be in the group still: others would wait for its session timeout.
        """
        known = self.state is not MembershipState.FENCED or self._is_known  # which only fence() tells
        return self.identity if known and self.member_id and self.instance_id is None else None

    @property
    def is_joining(self) -> bool:
        """True while a JoinGroup or SyncGroup request is not answered."""
        return self.step is not JoinStep.NONE

    @property
    def identity(self) -> CommitIdentity:
        """What heartbeats and commits name."""
        return CommitIdentity(self.member_id, self.generation, self.instance_id)
