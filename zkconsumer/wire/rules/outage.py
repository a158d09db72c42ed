"""Outage: decides which of many equal failures in a row are logged."""

from __future__ import annotations

_FIRST_INTERVAL_S = 5.0
"""Seconds from the first report of an outage to the next one with nothing new; the interval doubles each time."""


class Outage:
    """The failures of one operation since it last succeeded; used by one thread."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._next_report_s = _FIRST_INTERVAL_S
        self._reasons: set[str] = set()

    def is_news(self, reason: str, now: float) -> bool:
        """Count a failure; True if it is to be logged: for a new reason, and at growing intervals.

        Args:
            reason: why it failed, as it would be logged.
            now: clock reading in seconds.
        """
        if self._began is None:
            self._began = now
        due = now - self._began >= self._next_report_s
        if due:
            self._next_report_s = 2 * (now - self._began)
        new = reason not in self._reasons
        self._reasons.add(reason)
        return due or new

    def end(self, now: float) -> float | None:
        """Note a success; returns how many seconds the outage lasted, None if there was none."""
        began = self._began
        self._began, self._next_report_s, self._reasons = None, _FIRST_INTERVAL_S, set()
        return None if began is None else now - began
