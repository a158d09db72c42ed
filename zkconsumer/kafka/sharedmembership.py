"""SharedMembership: the membership and the lease of one consumer, which three threads share under one lock.

The lock is never held across I/O or user code. The session thread and the heartbeat thread report the coordinator's
answers; the member's rebalance thread acquires and releases partitions. What each event does is in
:class:`~zkconsumer.core.brokermembership.BrokerMembership`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from zkconsumer.core.brokerlease import BrokerLease
from zkconsumer.core.brokermembership import (
    Assigned,
    BrokerMembership,
    CommitIdentity,
    JoinIntent,
    MembershipState,
)
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import ConsumerThreadId, TopicPartition

# CLOCK_BOOTTIME advances while the machine sleeps, as the brokers' clocks do; CLOCK_MONOTONIC does not.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds on a clock that never jumps back and counts suspended time where the system has one."""
    return time.clock_gettime(_CLOCK)


class SharedMembership:
    """One member's state; every method may be called on any thread.

    Args:
        membership: the state of a member that has not joined.
        lease: a lease that was not confirmed.
        changed: called after a change that the rebalance thread has to react to, without the lock; never blocks.
        clock: seconds, see :func:`boot_seconds`.

    Attributes:
        leaving: whom LeaveGroup has to name after :meth:`close`; None if there is nothing to leave.
    """

    def __init__(
        self,
        membership: BrokerMembership,
        lease: BrokerLease,
        changed: Callable[[], None],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._changed = changed
        self.clock = clock
        self._condition = threading.Condition(threading.Lock())
        # Guarded by the condition:
        self._membership = membership
        self._lease = lease
        self._stopped: ZkConsumerError | None = None
        self._topics_changed = False
        self._lease_to_check = False
        self._assigned_at = float("-inf")
        self._closed = False
        self.leaving: CommitIdentity | None = None

    # -- for the rebalance thread -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """The member wants to join.

        Raises:
            InstanceIdInUse: another consumer uses the same ``group.instance.id``.
        """
        with self._condition:
            if self._stopped is not None:
                raise self._stopped
            self._membership.begin()
            self._condition.notify_all()

    def lose(self) -> None:
        """See :meth:`BrokerMembership.lose`."""
        with self._condition:
            self._membership.lose()
            self._lease = self._lease.ended()

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """See :meth:`BrokerMembership.acquire`."""
        with self._condition:
            done = self._membership.acquire(share)
            self._condition.notify_all()
        return done

    def release(self, partitions: Collection[TopicPartition]) -> bool:
        """See :meth:`BrokerMembership.release`."""
        with self._condition:
            empty = self._membership.release(partitions)
            self._condition.notify_all()
        return empty

    def usable(self) -> frozenset[TopicPartition] | None:
        """See :meth:`BrokerMembership.usable`."""
        with self._condition:
            return self._membership.usable()

    def must_release(self) -> bool:
        """See :meth:`BrokerMembership.must_release`."""
        with self._condition:
            return self._membership.must_release()

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
            self._topics_changed = False  # joining reads the topics, too
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

    def joined(self, member_id: str, generation: int) -> None:
        """See :meth:`BrokerMembership.joined`."""
        with self._condition:
            self._membership.joined(member_id, generation)

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
            self._lease_to_check = True
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

    def sleep(self, seconds: float) -> None:
        """Wait, at most until this is closed."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed, seconds)

    # -- for the heartbeat thread -----------------------------------------------------------------------------------

    def await_beat(self, seconds: float) -> bool:
        """Wait, at most until the lease may have changed, as by an assignment; False when this is closed."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._lease_to_check, max(0.0, seconds))
            self._lease_to_check = False
            return not self._closed

    def since_assignment(self) -> float:
        """Seconds since the newest assignment has arrived; infinite if there was none."""
        return self.clock() - self._assigned_at

    def beat(self) -> tuple[CommitIdentity, bool, bool] | None:
        """Whom a heartbeat names, and whether the member is joining, and synchronising; None outside of the group."""
        with self._condition:
            one = self._membership
            return (one.identity, one.joining, one.synchronising) if one.in_group else None

    def confirmed(self, asked: CommitIdentity, sent: float) -> None:
        """A heartbeat was answered without error."""
        with self._condition:
            if asked == self._membership.identity:
                self._lease = self._lease.confirmed(sent)

    def in_rebalance(self, asked: CommitIdentity, sent: float, *, was_joining: bool, was_synchronising: bool) -> None:
        """A heartbeat was answered with REBALANCE_IN_PROGRESS.

        Args:
            asked: whom it named.
            sent: reading of the clock when it was sent.
            was_joining: True if the member was joining then: the rebalance is its own.
            was_synchronising: see :meth:`BrokerLease.in_rebalance`.
        """
        with self._condition:
            if asked != self._membership.identity:
                return
            if not was_synchronising:
                self._lease = self._lease.in_rebalance(sent)
            begun = not was_joining and self._membership.rebalance_begun(asked)
            self._condition.notify_all()
        if begun:
            self._changed()

    def is_joining(self) -> bool:
        """True while a JoinGroup or SyncGroup request is not answered."""
        return self._membership.joining

    # -- for any thread ---------------------------------------------------------------------------------------------

    def fence(self, *, keeps_id: bool, stopped: ZkConsumerError | None = None) -> None:
        """The group has removed this member: nothing may be delivered any more.

        Args:
            keeps_id: see :meth:`BrokerMembership.fence`.
            stopped: why the member must not join again; None if it may.
        """
        with self._condition:
            self._stopped = self._stopped or stopped
            self._membership.fence(keeps_id=keeps_id)
            self._lease = self._lease.ended()
            self._lease_to_check = True
            self._condition.notify_all()
        self._changed()

    def note_topics(self) -> None:
        """The brokers have reported a change of topics."""
        with self._condition:
            self._topics_changed = True
            self._condition.notify_all()

    def close(self) -> None:
        """End all waits. Idempotent."""
        with self._condition:
            if not self._closed:
                self.leaving = self._membership.leave()
            self._closed = True
            self._condition.notify_all()

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._closed

    @property
    def held(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """What the rebalance thread holds."""
        return self._membership.held

    @property
    def state(self) -> MembershipState:
        """The state of the membership."""
        return self._membership.state

    @property
    def in_group(self) -> bool:
        """See :attr:`BrokerMembership.in_group`."""
        return self._membership.in_group

    def identity(self) -> CommitIdentity:
        """Whom commits name."""
        with self._condition:
            return self._membership.identity

    def holds(self) -> bool:
        """True while no other member can own what this one holds."""
        membership = self._membership
        if membership.state is MembershipState.UNJOINED or (membership.generation < 0 and not membership.held):
            return True
        return membership.in_group and self.clock() < self._lease.deadline

    def remaining(self) -> float:
        """Seconds until the lease lapses if the coordinator remains silent; 0 if it has lapsed."""
        return max(0.0, self._lease.deadline - self.clock())
