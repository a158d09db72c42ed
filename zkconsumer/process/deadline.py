"""Deadline: when an operation has to end, for all that it calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple, Self


class Deadline(NamedTuple):
    """A time on a clock. Without arguments there is none.

    Attributes:
        at: reading of the clock in seconds; infinite if the operation may take any time.
        clock: seconds of a monotonic clock.
    """

    at: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Self:
        """The deadline of an operation that begins now."""
        return cls(clock() + seconds, clock)

    @property
    def exists(self) -> bool:
        """False if the operation may take any time."""
        return self.at < math.inf

    @property
    def passed(self) -> bool:
        """True if nothing may be begun any more."""
        return self.exists and self.clock() >= self.at

    def left(self) -> float:
        """Seconds until then; 0 if it has passed."""
        return max(0.0, self.at - self.clock()) if self.exists else math.inf

    def limit(self, seconds: float) -> float:
        """How long to wait for something that may take so many seconds by itself."""
        return min(seconds, self.left())


NO_DEADLINE = Deadline()
