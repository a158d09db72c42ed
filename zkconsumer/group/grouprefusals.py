"""GroupRefusals: decides when a member reports that its group may not be used: what only its operator can change."""

from __future__ import annotations

from collections.abc import Callable

from zkconsumer.errors import NEEDS_AN_OPERATOR, ZkConsumerError
from zkconsumer.wire.rules.denials import PATIENCE

OnRefusal = Callable[[ZkConsumerError | None], None]


class GroupRefusals:
    """Counts outcomes in a row of one kind of attempt, on one thread.

    Args:
        report: called with the error at each refusal from the ``patience``-th in a row on, and with None when an
            attempt succeeds after a refused one.
        patience: number of refusals in a row at which the first is reported.
    """

    def __init__(self, report: OnRefusal, patience: int = PATIENCE) -> None:
        self._report = report
        self._patience = patience
        self._in_a_row = 0

    def attempted(self, failure: Exception | None) -> None:
        """Note the end of an attempt; failures other than refusals change nothing, since these stay unknown."""
        if failure is None:
            if self._in_a_row:
                self._report(None)
            self._in_a_row = 0
        elif isinstance(failure, NEEDS_AN_OPERATOR):
            self._in_a_row += 1
            if self._in_a_row >= self._patience:
                self._report(failure)
