"""GroupRefusals: decides when a member reports that its group may not be used: what only its operator can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zkconsumer.errors import NEEDS_AN_OPERATOR, ZkConsumerError
from zkconsumer.group.usercode import origin
from zkconsumer.wire.rules.denials import PATIENCE

OnRefusal = Callable[[Exception | None], None]

_ATTEMPTS: Final = "attempts"
_COMMITS: Final = "commits"
_PATIENCE: Final = {_ATTEMPTS: PATIENCE, _COMMITS: 2}
"""Fewer for commits: PATIENCE is for attempts a backoff apart. Two commits are ``auto.commit.interval.ms`` apart, a
minute by default, so a permission that was granted has reached all brokers by the second one."""


class GroupRefusals:
    """Counts refusals in a row of attempts to rebalance, and of commits by timer; on one thread.

    Args:
        report: called with the error at each refusal from the fourth attempt, or the second commit, in a row on; and
            with None when those that were reported have ended.
    """

    def __init__(self, report: OnRefusal) -> None:
        self._report = report
        self._in_a_row: dict[str, int] = {}
        self._reported: set[str] = set()

    def attempted(self, failure: Exception | None) -> None:
        """Note the end of an attempt.

        What a listener raises counts as a refusal, unless it is an error of this package; other failures change
        nothing, since refusals stay unknown.
        """
        self._ended(_ATTEMPTS, None if failure is None else origin(failure))

    def committed(self, failure: Exception | None) -> None:
        """Note the end of a commit by timer, in the same way."""
        self._ended(_COMMITS, failure)

    def _ended(self, kind: str, failure: Exception | None) -> None:
        if failure is None:
            self._in_a_row.pop(kind, None)
            if kind in self._reported:
                self._reported.remove(kind)
                if not self._reported:
                    self._report(None)
        elif isinstance(failure, NEEDS_AN_OPERATOR) or not isinstance(failure, ZkConsumerError):
            self._in_a_row[kind] = self._in_a_row.get(kind, 0) + 1
            if self._in_a_row[kind] >= _PATIENCE[kind]:
                self._reported.add(kind)
                self._report(failure)
