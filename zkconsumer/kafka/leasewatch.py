"""LeaseWatch: notices, on the thread that sends heartbeats, that a member's lease has lapsed or holds again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from zkconsumer.kafka.sharedmember import SharedMember

_events: Final = logging.getLogger("zkconsumer.events")


class LeaseWatch:
    """One thread uses it.

    Args:
        group: consumer group.
        membership: the member's state.
        timeout: name of the property or setting that the lease depends on, for messages.

    Attributes:
        lapses: how often the lease has lapsed.
        changed: called when the lease has lapsed, and when it holds again; set before the thread starts.
    """

    def __init__(self, group: str, membership: SharedMember[Any], timeout: str) -> None:
        self._group, self._membership, self._timeout = group, membership, timeout
        self._held = True
        self.lapses = 0
        self.changed: Callable[[], None] = lambda: None

    def seconds_until(self, due: float) -> float:
        """Until this reading of the clock or the end of the lease, whichever comes first."""
        wait_s, lease_s = due - self._membership.clock(), self._membership.remaining()
        return min(wait_s, lease_s) if self._held and lease_s > 0 else wait_s

    def check(self) -> None:
        """Report a change."""
        if self._membership.holds() == self._held:
            return
        self._held = not self._held
        self.lapses += not self._held
        if not self._held and self._membership.in_group:
            _events.warning(
                "group %s: no record is delivered and no offset committed, since the group's coordinator has not "
                "confirmed the membership for most of %s; check the brokers",
                self._group,
                self._timeout,
            )
        self.changed()
