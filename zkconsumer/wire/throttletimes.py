"""ThrottleTimes: for how long quotas have muted connections of this process, by client id, since quotas are by that."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from zkconsumer.process.forks import call_in_child


class ThrottleTimes:
    """Any thread calls its methods."""

    def __init__(self) -> None:
        self._reset()
        call_in_child(self._reset)  # another thread may hold the lock

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._milliseconds: Counter[str] = Counter()

    def add(self, client_id: str, milliseconds: int) -> None:
        """A broker mutes a connection of this client id for so long."""
        with self._lock:
            self._milliseconds[client_id] += milliseconds

    def seconds(self, client_id: str) -> float:
        """The sum over all connections of this client id since the process began."""
        with self._lock:
            return self._milliseconds[client_id] / 1000


THROTTLE_TIMES: Final = ThrottleTimes()
"""Of this process."""
