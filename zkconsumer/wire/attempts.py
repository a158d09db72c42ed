"""Attempts: the attempts of one operation at a group's coordinator, and its one deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from zkconsumer.process.deadline import Deadline
from zkconsumer.wire.rules.retrypolicy import ONE_ATTEMPT, Course, Next, RetryPolicy

_log: Final = logging.getLogger(__name__)

_RENEWAL_S: Final = 0.1
"""Seconds after which a request is sent again in the same generation: the coordinator may accept it by now."""


class Attempts:
    """Created where an operation begins, and passed to what it calls. One thread uses it.

    Args:
        policy: how often and how long.
        wait_before_retry: waits for so many seconds; True if there should be no further attempt.
        clock: seconds of a monotonic clock.

    Attributes:
        deadline: when the operation ends in any case.
    """

    def __init__(
        self,
        policy: RetryPolicy = ONE_ATTEMPT,
        wait_before_retry: Callable[[float], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._wait_before_retry = wait_before_retry
        self._course = Course()
        self.deadline = Deadline.after(policy.total_s, clock)

    def next_step(self, error: Exception, *, was_known: bool, await_renewed: Callable[[float], bool]) -> Next:
        """Decide what follows a failed request, and wait for that; it is :attr:`Next.GIVE_UP` if the wait was in vain.

        Args:
            error: why it failed.
            was_known: see :meth:`.RetryPolicy.after`.
            await_renewed: waits until requests name another generation, at most so many seconds; False if the member is
                not in the group any more.
        """
        now = self.deadline.clock()
        step = self._policy.after(error, self._course, now, self.deadline.left(), was_known=was_known)
        self._course = self._course.after(step, now)
        if step is Next.WHEN_RENEWED:
            renewed = await_renewed(self.deadline.limit(_RENEWAL_S))
            if not renewed or self.deadline.passed:  # otherwise "no time is left" would take the place of the answer
                return Next.GIVE_UP
        if step is Next.AFTER_PAUSE:
            if not self._wait():
                return Next.GIVE_UP
            _log.info("offset coordinator: %s; trying again", error)
        return step

    def pause(self) -> bool:
        """Wait before a request is repeated that was answered; False if it must not be repeated."""
        return self._policy.has_time(self.deadline.left()) and self._wait()

    def _wait(self) -> bool:
        return not self._wait_before_retry(self._policy.pause_s)
