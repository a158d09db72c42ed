"""Patience: repeats what a tool asks for while its servers are away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from zkconsumer.errors import TRANSIENT

T = TypeVar("T")

_RECONNECT_S: Final = 10.0
_PAUSE_S: Final = 0.2


class Patience:
    """How long servers may be away, from the first failure on; several questions may share it.

    Args:
        seconds: after which a failure is raised.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline: float | None = None

    def ask(
        self,
        question: Callable[[], T],
        errors: tuple[type[Exception], ...] = TRANSIENT,
        failed: Callable[[], None] = lambda: None,
    ) -> T:
        """The answer to a question, which is repeated after a failure that waiting may cure.

        Args:
            question: may be repeated although an earlier one was answered, and the answer lost.
            errors: the failures after which it is repeated; each other one is raised at once.
            failed: called after each of these failures.
        """
        while True:
            try:
                return question()
            except errors:
                failed()
                now = time.monotonic()
                if self._deadline is None:
                    self._deadline = now + self._seconds
                if now >= self._deadline:
                    raise
                time.sleep(_PAUSE_S)  # kazoo reconnects by itself; brokers do not announce a new leader


def until_reconnected() -> Patience:
    """For a group that is held: as long as kazoo takes to reconnect to another server, or to get a new session."""
    return Patience(_RECONNECT_S)
