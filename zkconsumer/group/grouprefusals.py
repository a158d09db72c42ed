"""GroupRefusals: decides when a member reports that its group may not be used: what only its operator can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zkconsumer.errors import GroupAuthorizationFailed, MemberRefused, ZkConsumerError, ZooKeeperRefused
from zkconsumer.wire.rules.denials import PATIENCE

OnRefusal = Callable[[ZkConsumerError | None], None]

_REFUSALS: Final = (GroupAuthorizationFailed, MemberRefused, ZooKeeperRefused)
"""Errors that end when an operator has changed permissions or properties, and not by waiting."""


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
        elif isinstance(failure, _REFUSALS):
            self._in_a_row += 1
            if self._in_a_row >= self._patience:
                self._report(failure)
