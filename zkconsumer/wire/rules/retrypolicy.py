"""RetryPolicy: decides whether a coordinator is asked again after a failure, and what has to be waited for (adr/0034).

This is the only place of that rule for a member's operations on offsets: neither those that call an operation nor what
it calls repeats a request for one of these reasons. The plan of a Spark batch is no such operation: it begins again
after a rebalance, with the partitions of the next generation.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import CoordinatorMoved, LeaseLapsed, RebalanceAwaited, RetriableError

UNSETTLED_S: Final = 5.0
"""How long an attempt is repeated that the coordinator refuses since the group is between two generations: a leader
assigns within this time unless no broker describes the topics to it."""


class Next(Enum):
    """What follows a failure."""

    GIVE_UP = "the operation fails with the error"
    IF_MOVED = "the request is sent at once to another broker that has become the coordinator; there may be none"
    WHEN_RENEWED = "the request is sent again, as part of the same attempt, when it would name another generation"
    AFTER_PAUSE = "the next attempt follows after the pause"


class Course(NamedTuple):
    """How far an operation has come.

    Attributes:
        attempts: begun so far.
        has_followed: True if this attempt's last request went to a coordinator that was found at once.
        unsettled_since: when this attempt was first refused between two generations, in seconds; None if it was not.
    """

    attempts: int = 1
    has_followed: bool = False
    unsettled_since: float | None = None

    def after(self, step: Next, now: float) -> Course:
        """After a failure on which ``step`` was decided; ``now`` is a clock reading in seconds."""
        if step is Next.IF_MOVED:
            return self._replace(has_followed=True)
        if step is Next.WHEN_RENEWED:
            since = now if self.unsettled_since is None else self.unsettled_since
            return self._replace(has_followed=False, unsettled_since=since)
        return Course(self.attempts + 1)


class RetryPolicy(NamedTuple):
    """How often an operation is tried, and how long it may take.

    Attributes:
        attempts: how often; at least 1.
        pause_s: seconds between two attempts.
        attempt_s: seconds that each attempt adds to the time of the operation. They are no limit of an attempt, which
            may use what is left for all.
    """

    attempts: int
    pause_s: float
    attempt_s: float

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> RetryPolicy:
        """The policy of the consumer's properties, which mean what they mean to the JVM consumer.

        ``offsets.channel.socket.timeout.ms`` is a limit of connecting, and again of the answer, so an attempt takes
        twice as long (jvm-consumer.md#offsets-in-kafka).
        """
        return cls(
            attempts=1 + config.offsets_commit_max_retries,
            pause_s=config.offsets_channel_backoff_ms / 1000,
            attempt_s=max(2 * config.offsets_channel_socket_timeout_ms / 1000, UNSETTLED_S),
        )

    def once(self) -> RetryPolicy:
        """The policy where other members wait for the operation: one attempt."""
        return self._replace(attempts=1)

    @property
    def total_s(self) -> float:
        """Seconds from the beginning of an operation to its deadline."""
        return self.attempts * self.attempt_s + (self.attempts - 1) * self.pause_s

    def after(self, error: BaseException, course: Course, now: float, left_s: float, *, was_known: bool) -> Next:
        """What follows a failure.

        Args:
            error: why the last request failed.
            course: how far the operation has come.
            now: clock reading in seconds.
            left_s: seconds until the deadline of the operation.
            was_known: True if the coordinator was known before the request, so that it may have moved since.
        """
        if not isinstance(error, RetriableError) or isinstance(error, LeaseLapsed) or left_s <= 0:
            return Next.GIVE_UP
        if isinstance(error, RebalanceAwaited):
            since = course.unsettled_since
            if since is None or now - since < UNSETTLED_S:
                return Next.WHEN_RENEWED
        # Not after a silent broker: finding another one may take as long again.
        if was_known and not course.has_followed and is_answer(error):
            return Next.IF_MOVED
        return Next.AFTER_PAUSE if course.attempts < self.attempts and self.has_time(left_s) else Next.GIVE_UP

    def has_time(self, left_s: float) -> bool:
        """True if the pause would end before the deadline, until which there are so many seconds."""
        return self.pause_s < left_s


ONE_ATTEMPT: Final = RetryPolicy(1, 0.0, math.inf)
"""The policy of operations that are repeated by who calls them, such as those of tools."""


def is_answer(error: BaseException | None) -> bool:
    """True if the broker is not the coordinator by its answer, or its host has refused or closed the connection."""
    while error is not None and not isinstance(error, CoordinatorMoved | ConnectionError):
        error = error.__cause__
    return error is not None
