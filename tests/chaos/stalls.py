"""StallWatch: notices that this process was not run for a while, since such a machine adds faults to every schedule."""

from __future__ import annotations

import time
from typing import Final

from zkconsumer.testing.ledger import Stalled
from zkconsumer.testing.ledgerfile import LedgerFile

LOOK_S: Final = 0.02
"""How often to look, in seconds."""
_NOTICED_S: Final = 0.25


class StallWatch:
    """Records each stall in a ledger; used by one thread.

    Args:
        owner: consumer id of the member whose process this is, or empty.
        ledger: gets the records.
    """

    def __init__(self, owner: str, ledger: LedgerFile) -> None:
        self._owner = owner
        self._ledger = ledger
        self._last = time.monotonic()

    def look(self) -> None:
        """Record a stall if the former look was long ago; to be called every :data:`LOOK_S`."""
        now = time.monotonic()
        if now - self._last >= _NOTICED_S:
            self._ledger.append(Stalled(self._owner, self._last, now))
        self._last = now
