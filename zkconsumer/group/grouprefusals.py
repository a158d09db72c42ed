"""GroupRefusals: decides when a member reports that it lacks a permission on its group (offsets stored in Kafka)."""

from __future__ import annotations

from collections.abc import Callable

from zkconsumer.core.denials import PATIENCE
from zkconsumer.errors import GroupAuthorizationFailed

OnRefusal = Callable[[GroupAuthorizationFailed | None], None]


class GroupRefusals:
    """Counts outcomes in a row of one kind of attempt, on one thread.

    Args:
        report: called with the error at each refusal from the ``patience``-th in a row on, and with None when an
            attempt succeeds after one was refused.
        patience: how many refusals are tolerated, plus one.
    """

    def __init__(self, report: OnRefusal, patience: int = PATIENCE) -> None:
        self._report = report
        self._patience = patience
        self._in_a_row = 0

    def attempted(self, failure: Exception | None) -> None:
        """An attempt ended; other failures than refusals change nothing, since they say nothing of permissions."""
        if failure is None:
            if self._in_a_row:
                self._report(None)
            self._in_a_row = 0
        elif isinstance(failure, GroupAuthorizationFailed):
            self._in_a_row += 1
            if self._in_a_row >= self._patience:
                self._report(failure)
