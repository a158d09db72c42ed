"""How long an idle trigger lasts, during which brokers are not asked again (architecture.md#spark-source)."""

from __future__ import annotations

from typing import Final, NamedTuple

_LONGEST_S: Final = 0.5
_FIRST_SHARE: Final = 8


def longest_pause_s(fetch_wait_max_ms: int) -> float:
    """Time between two rounds of questions to the brokers while there is nothing to read, in seconds.

    That is ``fetch.wait.max.ms``, as an idle consumer sends one fetch request in that time. New records wait as long,
    so it has a limit: unlike a fetch request, the question does not wait at the broker for records.
    """
    return min(fetch_wait_max_ms / 1000, _LONGEST_S)


class IdlePauses(NamedTuple):
    """The pauses of consecutive idle triggers; a new value starts when there is something to read.

    The first idle trigger ends at once. The next ones pause longer and longer, so that records which follow a batch
    soon are not kept waiting. A trigger that comes as late as a pause would have lasted ends at once, too.

    Attributes:
        ended_at: time of the end of the last idle trigger, in seconds of any clock.
        pause_s: the last pause; 0 before the first one.
    """

    ended_at: float = float("-inf")
    pause_s: float = 0.0

    def next_pause_s(self, began_at: float, longest_s: float) -> float:
        """How long the idle trigger that began then has to pause, in seconds."""
        if began_at - self.ended_at >= longest_s:
            return 0.0
        return min(longest_s, 2 * self.pause_s if self.pause_s else longest_s / _FIRST_SHARE)
