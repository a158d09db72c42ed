"""Denials: decides which refusals a stream raises, and how soon a refused request is repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Final

PATIENCE: Final = 4
"""Number of refusals in a row at which a stream raises: a granted permission takes some time to reach all brokers."""

_LONGEST_PAUSE_S: Final = 5.0


def pause_s(refusals: int, backoff_s: float) -> float:
    """Seconds until the next attempt: the backoff, doubled with each refusal, at most five seconds.

    Args:
        refusals: number of refusals in a row, at least 1.
        backoff_s: pause after the first refusal, in seconds; if it is longer than five seconds, every pause is.

    >>> [pause_s(n, 0.2) for n in (1, 2, 3, 5, 6, 100)], pause_s(3, 30)
    ([0.2, 0.4, 0.8, 3.2, 5.0, 5.0], 30)
    """
    return max(backoff_s, min(_LONGEST_PAUSE_S, backoff_s * (1 << min(refusals - 1, 30))))


class Denials:
    """Subjects that one stream should read and cannot, each with its refused parts.

    A subject is raised once, when :meth:`take` returns its error, and again only after it recovered in between: all its
    refused parts were served. Used under the lock of its queue.
    """

    def __init__(self) -> None:
        self._refused: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
        self._pending: dict[Hashable, Exception] = {}
        self._raised: set[Hashable] = set()

    def deny(self, subject: Hashable, part: Hashable, error: Exception) -> bool:
        """Note that a part was refused often enough; True if its subject was not refused before: it is to be raised.

        Args:
            subject: what is raised once, such as a topic.
            part: a part of the subject, such as a partition.
            error: the error to raise.
        """
        self._refused[subject].add(part)
        if subject in self._raised or subject in self._pending:
            return False
        self._pending[subject] = error
        return True

    def allow(self, subject: Hashable, part: Hashable) -> bool:
        """Note that a part was served; True if the subject has now recovered from a refusal that was to be raised."""
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
        """The error to raise now, None if there is none; from now on it counts as raised."""
        if not self._pending:
            return None
        subject, error = next(iter(self._pending.items()))
        self._raised.add(subject)
        del self._pending[subject]
        return error

    def forget_part(self, subject: Hashable, part: Hashable) -> None:
        """The stream loses a part: an error that waits to be raised for it alone is dropped; raised ones stay known."""
        refused = self._refused.get(subject)
        if refused is not None:
            refused.discard(part)
            if not refused:
                del self._refused[subject]
                self._pending.pop(subject, None)

    def forget_parts(self) -> None:
        """The stream gets other partitions: refusals and waiting errors are dropped; raised subjects stay known."""
        self._refused.clear()
        self._pending.clear()
