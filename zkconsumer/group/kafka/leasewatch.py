"""LeaseWatch: the thread that notices on time that a member's lease has lapsed, or holds again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from zkconsumer.group.kafka.sharedmember import SharedMember
from zkconsumer.process.threads import start_thread

_events: Final = logging.getLogger("zkconsumer.events")

_END_S: Final = 2.0


class LeaseWatch:
    """A thread that does no I/O: those that talk to the coordinator may wait for brokers longer than the lease lasts.

    Args:
        group: consumer group.
        owner: the consumer, as part of the name of the thread.
        membership: the member's state.
        timeout: name of the property or setting that the lease depends on, for messages.

    Attributes:
        lapses: how often the lease has lapsed; written by the thread.
    """

    def __init__(self, group: str, owner: str, membership: SharedMember[Any], timeout: str) -> None:
        self._group, self._membership, self._timeout = group, membership, timeout
        self.lapses = 0
        self._changed: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=f"{owner}-lease", daemon=True)

    def open(self, changed: Callable[[], None]) -> None:
        """Start the thread; to be called once.

        Args:
            changed: called on the thread when the lease has lapsed, and when it holds again.
        """
        self._changed = changed
        start_thread(self._thread)

    def close(self) -> None:
        """Wait for the thread, which ends when the membership is closed. Idempotent."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def _run(self) -> None:
        held = True
        while self._membership.await_lease(holds=not held):
            held = not held
            self.lapses += not held
            if not held and self._membership.in_group:
                _events.warning(
                    "group %s: no record is delivered and no offset committed, since the group's coordinator has not "
                    "confirmed the membership for most of %s; check the brokers",
                    self._group,
                    self._timeout,
                )
            self._changed()
