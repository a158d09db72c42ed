"""RebalanceSignal: all watches of a member collapse into one flag, "a rebalance is requested"."""

from __future__ import annotations

import threading


class RebalanceSignal:
    """A flag that any thread may raise and one thread, the rebalance thread, waits for and lowers.

    Bursts coalesce: raising a raised flag changes nothing. One raised while a rebalance runs causes another after it.
    """

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._requested = False

    def raise_flag(self) -> None:
        """Request a rebalance; never blocks, so it can be a watch callback."""
        self._requested = True
        self._wake.set()

    def wake(self) -> None:
        """End a :meth:`wait` for another reason than a rebalance."""
        self._wake.set()

    def lower(self) -> bool:
        """Take the request, True if there was one; to be called *before* reading what the request is about."""
        self._wake.clear()
        # A request that arrives between these lines is taken now, and the wake-up that it sets finds nothing to do.
        requested, self._requested = self._requested, False
        return requested

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the flag is raised or :meth:`wake` is called, at most ``seconds``; False if the time was over."""
        return self._wake.wait(seconds)
