"""SharedMember: the state and the lease of one member of a group of brokers, which its threads share under one lock.

The lock is never held across I/O or user code. This class has what the member's rebalance thread and any other thread
use. Its subclasses, one for each protocol, have what the threads use that talk to the coordinator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, Protocol, TypeVar

from zkconsumer.errors import ZkConsumerError
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.group.kafka.rules.membership import MembershipState
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitidentity import CommitIdentity
from zkconsumer.process.boottime import boot_seconds

_LONGEST_WAIT_S: Final = 1.0
"""A wait does not count the time while the machine sleeps, which the lease does."""


class MemberMachine(Protocol):
    """The state machine of one member; see :class:`~zkconsumer.group.kafka.rules.membership.BrokerMembership`."""

    state: MembershipState
    held: Mapping[TopicPartition, ConsumerThreadId]

    @property
    def generation(self) -> int:
        """Generation or member epoch; -1 outside of the group."""

    @property
    def identity(self) -> CommitIdentity:
        """What commits name."""

    @property
    def in_group(self) -> bool:
        """True if the coordinator has this member, as far as known."""

    def begin(self) -> None:
        """The member wants to join."""

    def lose(self) -> None:
        """The rebalance thread has stopped using everything."""

    def leave(self) -> CommitIdentity | None:
        """The member leaves; returns whom its last request names."""

    def release(self, partitions: Collection[TopicPartition]) -> bool:
        """The rebalance thread does not use these any more; returns True if it holds nothing now."""

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """Hold exactly this share; False if it is not this member's any more."""

    def usable(self) -> frozenset[TopicPartition] | None:
        """What this member may own now; None while it has to wait for an assignment."""

    def must_release(self) -> bool:
        """True if everything has to be released before the member may join."""


M = TypeVar("M", bound=MemberMachine)


class SharedMember(Generic[M]):
    """One member's state; every method may be called on any thread.

    Args:
        membership: the state of a member that has not joined.
        lease: a lease that was not confirmed.
        changed: called after a change that the rebalance thread has to react to, without the lock; never blocks.
        clock: seconds, see :func:`~zkconsumer.process.boottime.boot_seconds`.

    Attributes:
        leaving: whom the last request has to name after :meth:`close`; None if there is nothing to leave.
    """

    def __init__(
        self,
        membership: M,
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
        """See :meth:`MemberMachine.lose`."""
        with self._condition:
            self._membership.lose()
            self._lease = self._lease.ended()
            self._condition.notify_all()

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """See :meth:`MemberMachine.acquire`."""
        with self._condition:
            done = self._membership.acquire(share)
            self._condition.notify_all()
        return done

    def release(self, partitions: Collection[TopicPartition]) -> bool:
        """See :meth:`MemberMachine.release`."""
        with self._condition:
            empty = self._membership.release(partitions)
            self._condition.notify_all()
        return empty

    def usable(self) -> frozenset[TopicPartition] | None:
        """See :meth:`MemberMachine.usable`."""
        with self._condition:
            return self._membership.usable()

    def must_release(self) -> bool:
        """See :meth:`MemberMachine.must_release`."""
        with self._condition:
            return self._membership.must_release()

    def await_renewed(self, outdated: CommitIdentity, seconds: float) -> bool:
        """Wait until commits name another identity than this one, or so long; False if the member is not in the group.

        See :class:`~zkconsumer.offsets.offsetcoordinator.CommitMembership`.
        """
        with self._condition:
            self._condition.wait_for(
                lambda: self._closed or not self._membership.in_group or self._membership.identity != outdated, seconds
            )
            return not self._closed and self._membership.in_group

    # -- for the thread that watches the lease ----------------------------------------------------------------------

    def await_lease(self, *, holds: bool) -> bool:
        """Wait until the lease holds, or until it has lapsed; False when this is closed.

        Args:
            holds: what to wait for.
        """
        with self._condition:
            while not self._closed and self.holds() != holds:
                remaining = self.remaining() or _LONGEST_WAIT_S
                self._condition.wait(min(remaining, _LONGEST_WAIT_S) if not holds else None)
            return not self._closed

    # -- for any thread ---------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Wait, at most until this is closed."""
        with self._condition:
            self._wait_for(lambda: self._closed, seconds)

    def _wait_for(self, reached: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition, at most so many seconds, or until they have passed on the clock; under the lock."""
        until = self.clock() + seconds
        self._condition.wait_for(lambda: reached() or self.clock() >= until, max(0.0, seconds))

    def _end(self, fence: Callable[[], None], stopped: ZkConsumerError | None) -> None:
        """The group has removed this member: nothing may be delivered any more.

        Args:
            fence: changes the state of the membership; called under the lock.
            stopped: why the member must not join again; None if it may.
        """
        with self._condition:
            self._stopped = self._stopped or stopped
            fence()
            self._lease = self._lease.ended()
            self._condition.notify_all()
        self._changed()

    def note_topics(self) -> None:
        """The brokers have reported a change of topics."""
        with self._condition:
            self._topics_changed = True
            self._condition.notify_all()

    def take_topics_change(self) -> bool:
        """True if the topics have to be read: they may have changed since the last call."""
        with self._condition:
            changed, self._topics_changed = self._topics_changed, False
            return changed

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
        """See :attr:`MemberMachine.in_group`."""
        return self._membership.in_group

    def identity(self) -> CommitIdentity:
        """Whom commits name."""
        with self._condition:
            return self._membership.identity

    def holds(self) -> bool:
        """True while no other member can own what this one holds."""
        membership = self._membership
        has_joined = membership.generation >= 0 and (
            membership.state is not MembershipState.REBALANCING or self._lease.is_confirmed
        )
        if membership.state is MembershipState.UNJOINED or not (has_joined or membership.held):
            return True
        return membership.in_group and self.clock() < self._lease.deadline

    def remaining(self) -> float:
        """Seconds until the lease lapses if the coordinator remains silent; 0 if it has lapsed."""
        return max(0.0, self._lease.deadline - self.clock())
