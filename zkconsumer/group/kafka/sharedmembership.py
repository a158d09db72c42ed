"""SharedMembership: the state of one member of a group of brokers, which its threads share under one lock.

What an event does to a member is in the state machine, :class:`GroupMembership` and its two subclasses; this class has
no rules. The lock is never held across I/O or user code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Generic, TypeVar

from zkconsumer.group.kafka.rules.groupmembership import GroupMembership
from zkconsumer.process.boottime import boot_seconds

M_co = TypeVar("M_co", bound=GroupMembership, covariant=True)
T = TypeVar("T")


class SharedMembership(Generic[M_co]):
    """One member's state, and its :class:`~zkconsumer.group.leasewatch.Lease`; any thread may call every method.

    Args:
        member: the state of a member that has not joined.
        changed: called after a change that the rebalance thread has to react to, without the lock; never blocks.
        clock: seconds, see :func:`~zkconsumer.process.boottime.boot_seconds`.

    Attributes:
        clock: the same.
        look: called after every change, without the lock, since the lease may be another one; never blocks. The
            argument is True if the one before has lapsed. To be set before threads share this object.
    """

    def __init__(self, member: M_co, changed: Callable[[], None], clock: Callable[[], float] = boot_seconds) -> None:
        self._changed = changed
        self.clock = clock
        self.look: Callable[[bool], None] = lambda _: None
        # Threads of the user take the lock itself, see WakeUp.
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._member = member  # guarded by the lock
        # Replaced under the condition, and read without it: every hand-over of records asks whether the lease holds.
        self._term = member.term

    @contextmanager
    def changing(self) -> Iterator[M_co]:
        """Change the member's state, under the lock; then all that wait look at it, also if the change has failed."""
        news = False
        before = self._term
        try:
            with self._lock:
                before = self._term
                try:
                    yield self._member
                finally:
                    self._term = self._member.term
                    news, self._member.has_news = self._member.has_news, False
                    self._condition.notify_all()
        finally:
            self.look(not before.holds(self.clock()))
            if news:
                self._changed()

    def read(self, question: Callable[[M_co], T]) -> T:
        """The answer to a question about the member's state, which changes nothing.

        Args:
            question: called under the lock; never blocks.
        """
        with self._lock:
            return question(self._member)

    def wait(self, reached: Callable[[M_co], bool], seconds: float = inf) -> bool:
        """Wait for a state, at most so many seconds, or until they have passed on the clock; False if the member left.

        Args:
            reached: called under the lock after each change; never blocks.
            seconds: may be negative.
        """
        until = self.clock() + seconds
        with self._lock:
            self._condition.wait_for(
                lambda: self._member.has_left or reached(self._member) or self.clock() >= until,
                None if seconds == inf else max(0.0, seconds),
            )
            return not self._member.has_left

    # -- the lease, without the lock --------------------------------------------------------------------------------

    def holds(self) -> bool:
        """True while no other member can own what this one holds."""
        return self._term.holds(self.clock())

    def remaining(self) -> float:
        """Seconds until the lease lapses if the coordinator remains silent; 0 if it has lapsed, or cannot lapse."""
        return self._term.remaining(self.clock())
