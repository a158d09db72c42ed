"""RebalanceSignal: all watches of a member raise one flag, "a rebalance is requested"."""

from __future__ import annotations

import time

from zkconsumer.process.wakeup import WakeUp


class RebalanceSignal:
    """A flag that any thread may raise, and the wake-up of the one thread that reacts to it, the rebalance thread.

    Bursts coalesce: raising a raised flag changes nothing. One raised while a rebalance runs causes another after it,
    since only :meth:`wait` consumes a wake-up, and reading the flag does not.
    """

    def __init__(self) -> None:
        self._wake = WakeUp()
        self._latest = object()
        self._requested = False
        self._closed = False

    def raise_flag(self) -> None:
        """Request a rebalance; never blocks, so it can be a watch callback."""
        self._latest = object()
        self._requested = True
        self._wake.set()

    def wake(self) -> None:
        """End a :meth:`wait` for another reason than a rebalance."""
        self._wake.set()

    def close(self) -> None:
        """End every :meth:`wait` from now on at once."""
        self._closed = True
        self._wake.set()

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._closed

    @property
    def latest(self) -> object:
        """A token that is replaced at each :meth:`raise_flag`.

        Data that was read after the token, with watches on all of it, is valid for as long as the token is the same.
        """
        return self._latest

    @property
    def raised(self) -> bool:
        """True if the flag is raised; reading it does not lower it."""
        return self._requested

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a wake-up since the last wait, at most ``seconds``; False after the timeout."""
        woken = self._wake.wait(seconds)
        self._stay_awake_if_closed()
        return woken

    def wait_raised(self, seconds: float) -> bool:
        """Wait until the flag is raised or this is closed, at most ``seconds``; True if it is.

        For the thread that calls :meth:`wait`, in the middle of something else: that call still finds every wake-up.
        """
        deadline = time.monotonic() + seconds
        try:
            while not (self._requested or self._closed):
                if not self._wake.wait(max(0.0, deadline - time.monotonic())):
                    break
        finally:
            self._wake.set()
        return self._requested or self._closed

    def take(self) -> bool:
        """Lower the flag, True if it was raised; to be called *before* reading what the request is about."""
        requested, self._requested = self._requested, False
        return requested

    def discard(self) -> None:
        """Clear flag and wake-up: the caller is about to read everything again, so only later changes matter to it."""
        self._requested = False
        self._wake.clear()
        self._stay_awake_if_closed()

    def _stay_awake_if_closed(self) -> None:
        if self._closed:  # close() set it, perhaps just before it was cleared here
            self._wake.set()
