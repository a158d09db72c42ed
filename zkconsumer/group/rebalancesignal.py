"""RebalanceSignal: all watches of a member collapse into one flag, "a rebalance is requested"."""

from __future__ import annotations

from zkconsumer.wakeup import WakeUp


class RebalanceSignal:
    """A flag that any thread may raise, and the wake-up of the one thread that answers it, the rebalance thread.

    Bursts coalesce: raising a raised flag changes nothing. One raised while a rebalance runs causes another after it,
    since a wake-up is only spent by :meth:`wait`, never by looking at the flag.
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
        """A token that is another one after each :meth:`raise_flag`.

        What was read after looking at it, with watches on all of it, is good for as long as the token is the same.
        """
        return self._latest

    @property
    def raised(self) -> bool:
        """True if the flag is raised; looking does not lower it."""
        return self._requested

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a wake-up since the last wait, at most ``seconds``; False if the time was over."""
        woken = self._wake.wait(seconds)
        self._stay_awake_if_closed()
        return woken

    def take(self) -> bool:
        """Lower the flag, True if it was raised; to be called *before* reading what the request is about."""
        requested, self._requested = self._requested, False
        return requested

    def discard(self) -> None:
        """Forget flag and wake-up: the caller plans anew anyway, and only what comes from now on matters to it."""
        self._requested = False
        self._wake.clear()
        self._stay_awake_if_closed()

    def _stay_awake_if_closed(self) -> None:
        if self._closed:  # close() set it, perhaps just before it was cleared here
            self._wake.set()
