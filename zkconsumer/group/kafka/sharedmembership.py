"""SharedMembership: the membership of one consumer in a group whose members assign, which three threads share.

The session thread and the heartbeat thread report the coordinator's answers; the member's rebalance thread acquires and
releases partitions. What each event does is in :class:`~zkconsumer.group.kafka.rules.membership.BrokerMembership`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from zkconsumer.errors import ZkConsumerError
from zkconsumer.group.kafka.rules.membership import Assigned, BrokerMembership, JoinIntent, JoinStep, MembershipState
from zkconsumer.group.kafka.sharedmember import SharedMember
from zkconsumer.offsets.rules.commitidentity import CommitIdentity


class SharedMembership(SharedMember[BrokerMembership]):
    """One member's state; every method may be called on any thread. For the arguments see :class:`SharedMember`."""

    # Guarded by the condition:
    _assigned_at = float("-inf")
    _was_assigned = False

    # -- for the session thread -------------------------------------------------------------------------------------

    def await_work(self) -> bool:
        """Wait until the member may join, or has to look at topics; False when this is closed."""
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._closed
                    or self._membership.may_join()
                    or (self._topics_changed and self._membership.state is MembershipState.STABLE)
                )
            )
            return not self._closed

    def may_join(self) -> bool:
        """See :meth:`BrokerMembership.may_join`."""
        with self._condition:
            return self._membership.may_join()

    def join(self) -> JoinIntent | None:
        """See :meth:`BrokerMembership.join`; None if the member may not join any more."""
        with self._condition:
            return self._membership.join() if self._membership.may_join() else None

    def id_given(self, member_id: str) -> None:
        """See :meth:`BrokerMembership.id_given`."""
        with self._condition:
            self._membership.id_given(member_id)

    def joined(self, member_id: str, generation: int, rebalance_s: float) -> None:
        """See :meth:`BrokerMembership.joined`.

        Args:
            member_id: the member's id.
            generation: of the group.
            rebalance_s: how long the coordinator waits for this member in a rebalance, in seconds.
        """
        with self._condition:
            self._membership.joined(member_id, generation)
            self._lease = replace(self._lease, rebalance_s=rebalance_s)
            self._condition.notify_all()

    def synchronised(self, assigned: Assigned, sent: float) -> bool:
        """See :meth:`BrokerMembership.synchronised`.

        Args:
            assigned: the assignment.
            sent: reading of the clock when the SyncGroup request was sent.
        """
        with self._condition:
            if not self._membership.synchronised(assigned):
                return False
            self._lease = self._lease.confirmed(sent)
            self._was_assigned = True
            self._assigned_at = self.clock()
            self._condition.notify_all()
        return True

    def join_ended(self) -> None:
        """See :meth:`BrokerMembership.join_ended`."""
        with self._condition:
            self._membership.join_ended()

    def join_again(self) -> None:
        """See :meth:`BrokerMembership.join_again`."""
        with self._condition:
            self._membership.join_again()
        self._changed()

    # -- for the heartbeat thread -----------------------------------------------------------------------------------

    def await_beat(self, seconds: float) -> bool:
        """Wait, at most until an assignment arrives; False when this is closed."""
        with self._condition:
            self._wait_for(lambda: self._closed or self._was_assigned, seconds)
            self._was_assigned = False
            return not self._closed

    def since_assignment(self) -> float:
        """Seconds since the newest assignment has arrived; infinite if there was none."""
        return self.clock() - self._assigned_at

    def beat(self) -> tuple[CommitIdentity, JoinStep] | None:
        """Whom a heartbeat names, and what the member waits for to join; None outside of the group."""
        with self._condition:
            one = self._membership
            return (one.identity, one.step) if one.in_group else None

    def confirmed(self, asked: CommitIdentity, sent: float) -> None:
        """A heartbeat was answered without error."""
        with self._condition:
            if asked == self._membership.identity:
                self._lease = self._lease.confirmed(sent)
                self._condition.notify_all()

    def in_rebalance(self, asked: CommitIdentity, sent: float, step: JoinStep) -> None:
        """A heartbeat was answered with REBALANCE_IN_PROGRESS.

        Args:
            asked: whom it named.
            sent: reading of the clock when it was sent.
            step: of the member then. If it was joining, the rebalance is its own; for SyncGroup see
                :meth:`BrokerLease.in_rebalance`.
        """
        with self._condition:
            if asked != self._membership.identity:
                return
            if step is not JoinStep.SYNC_GROUP:
                self._lease = self._lease.in_rebalance(sent)
            begun = step is JoinStep.NONE and self._membership.rebalance_begun(asked)
            self._condition.notify_all()
        if begun:
            self._changed()

    def is_joining(self) -> bool:
        """True while a JoinGroup or SyncGroup request is not answered."""
        return self._membership.is_joining

    # -- for any thread ---------------------------------------------------------------------------------------------

    def fence(self, *, keeps_id: bool, stopped: ZkConsumerError | None = None) -> None:
        """The group has removed this member: nothing may be delivered any more.

        Args:
            keeps_id: see :meth:`BrokerMembership.fence`.
            stopped: why the member must not join again; None if it may.
        """
        self._end(partial(self._membership.fence, keeps_id=keeps_id), stopped)
