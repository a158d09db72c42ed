"""Denials: which of the refusals that a stream meets it raises; and how soon what was refused is requested again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Final

PATIENCE: Final = 4
"""At which refusal in a row the stream raises: permissions reach all brokers some time after they were granted."""

_LONGEST_PAUSE_S: Final = 5.0


def pause_s(refusals: int, backoff_s: float) -> float:
    """Seconds until the next attempt: the backoff, doubled with each refusal, at most five seconds.

    Args:
        refusals: in a row, at least 1.
        backoff_s: pause after the first, in seconds; a longer one than five seconds stays as it is.

    >>> [pause_s(n, 0.2) for n in (1, 2, 3, 5, 6, 100)], pause_s(3, 30)
    ([0.2, 0.4, 0.8, 3.2, 5.0, 5.0], 30)
    """
    return max(backoff_s, min(_LONGEST_PAUSE_S, backoff_s * (1 << min(refusals - 1, 30))))


class Denials:
    """What one stream cannot read although it should: each subject, and the parts of it that are refused.

    A subject is raised once, when :meth:`take` returns its error, and again only after it was cured in between: all its
    refused parts were served. Used under the lock of its queue.
    """

    def __init__(self) -> None:
        self._refused: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
        self._pending: dict[Hashable, Exception] = {}
        self._raised: set[Hashable] = set()

    def deny(self, subject: Hashable, part: Hashable, error: Exception) -> bool:
        """A part was refused often enough; True if that is news, so that the error waits to be raised.

        Args:
            subject: what is raised once, such as a topic.
            part: of it, such as a partition.
            error: to raise.
        """
        self._refused[subject].add(part)
        if subject in self._raised or subject in self._pending:
            return False
        self._pending[subject] = error
        return True

    def allow(self, subject: Hashable, part: Hashable) -> bool:
        """A part was served; True if with that the subject is cured of a refusal that was news."""
        refused = self._refused.get(subject, set())
        refused.discard(part)
        if refused:
            return False
        self._refused.pop(subject, None)
        known = subject in self._raised or subject in self._pending
        self._raised.discard(subject)
        self._pending.pop(subject, None)
        return known

    def take(self) -> Exception | None:
        """The error to raise now, which counts as raised from now on; None if there is none."""
        if not self._pending:
            return None
        subject, error = next(iter(self._pending.items()))
        self._raised.add(subject)
        del self._pending[subject]
        return error

    def forget_part(self, subject: Hashable, part: Hashable) -> None:
        """The stream loses a part: what waits to be raised for it alone is forgotten; what was raised stays known."""
        refused = self._refused.get(subject)
        if refused is not None:
            refused.discard(part)
            if not refused:
                del self._refused[subject]
                self._pending.pop(subject, None)

    def forget_parts(self) -> None:
        """The stream gets other partitions: nothing is refused or waits to be raised; what was raised stays known."""
        self._refused.clear()
        self._pending.clear()
