"""LeaseWatch: the thread that notices on time that a member's lease has lapsed, or holds again, in every protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from zkconsumer.group.groupprotocol import Lease
from zkconsumer.process.threads import start_thread

_LONGEST_WAIT_S: Final = 1.0
"""A wait does not count the time while the machine sleeps, which a lease does."""


class LeaseWatch:
    """A thread that looks at a lease exactly when it lapses, at fixed intervals, and when another thread asks for it.

    Args:
        name: of the thread.
        lease: what it watches.
        lapsed_or_holds: called on the thread, with False when the lease has lapsed, and with True when it holds again.
        work: what else the thread does, after each look; returns the seconds until the next look. Without it the thread
            does no I/O, so nothing makes it late.

    Attributes:
        held: whether the lease held at the last look; written by the thread.
        lapses: how often the lease has lapsed; written by the thread.
    """

    def __init__(
        self,
        name: str,
        lease: Lease,
        lapsed_or_holds: Callable[[bool], None],
        work: Callable[[], float] = lambda: _LONGEST_WAIT_S,
    ) -> None:
        self._lease, self._lapsed_or_holds, self._work = lease, lapsed_or_holds, work
        self.held = True
        self.lapses = 0
        self._closing = self._was_lapsed = False
        self._wake = threading.Event()
        self._seconds = 0.0  # until the next look
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def open(self, seconds: float = 0.0) -> None:
        """Start the thread; to be called once.

        Args:
            seconds: until its first look.
        """
        self._seconds = seconds
        start_thread(self._thread)

    def look(self, was_lapsed: bool = False) -> None:
        """Let the thread look now, since the lease may hold again, or may have ended; never blocks, from any thread.

        Args:
            was_lapsed: True if the lease had lapsed when it was extended, as seen after it was extended. Then the
                thread reports that it holds, even if it has not noticed the lapse: 1. the lease lapses; 2. a stream
                asks whether it holds, and waits; 3. the lease is extended; 4. the thread looks for the first time.
        """
        if was_lapsed:
            self._was_lapsed = True
        self._wake.set()

    def close(self) -> None:
        """End the thread, and wait for it: nothing is noticed any more. Idempotent, from any thread."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._seconds)
            self._wake.clear()  # before the look: what is asked for during a look leads to another one
            if self._closing:
                return
            self._seconds = self.turn()

    def turn(self) -> float:
        """Look, and do the other work; on the thread. Returns the seconds until the next turn."""
        was_lapsed = self._was_lapsed
        if was_lapsed:
            self._was_lapsed = False  # before the look: what is extended from now on leads to another report
        if self._lease.holds() != self.held:
            self.held = not self.held
            self.lapses += not self.held
            self._lapsed_or_holds(self.held)
        elif self.held and was_lapsed:
            self._lapsed_or_holds(True)
        seconds, remaining = self._work(), self._lease.remaining()
        return min(seconds, remaining) if remaining > 0 else seconds
