"""WakeUp and Latch: threads wait, others wake them, and both stay usable if any of them is interrupted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

# A wait of the main thread looks for signals so often.
SIGNALS_S = 1.0


def _acquire(lock: threading.Lock, timeout: float | None) -> bool:
    """Acquire a lock; False after the timeout, in seconds. On the main thread, handlers of signals run meanwhile.

    A signal interrupts the wait for a lock only if the kernel delivers it to this thread, during the wait. One that is
    not handled at once: 1. the process is stopped (SIGSTOP, a frozen container); 2. SIGTERM comes; 3. it continues, and
    the kernel delivers the signal to any thread. Or: 1. the interpreter looks for signals; 2. SIGTERM comes; 3. the
    wait begins. So no single wait is long.
    """
    if timeout is not None and timeout <= SIGNALS_S:  # each request for a chunk looks at a flag, with a timeout of 0
        return lock.acquire(timeout=max(0.0, timeout))
    deadline = None if timeout is None else time.monotonic() + timeout
    while deadline is None or deadline - time.monotonic() > SIGNALS_S:
        if lock.acquire(timeout=SIGNALS_S):
            return True
    return lock.acquire(timeout=max(0.0, deadline - time.monotonic()))


class WakeUp:
    """A flag that one thread waits for. A flag that was raised before is not missed, and raised twice counts once.

    Why not ``threading.Event`` or ``Condition``: they are written in Python. An exception that is raised asynchronously
    in the thread that calls them (KeyboardInterrupt in a signal handler, for example) can come after they acquired
    their lock and before the block that releases it; then no thread releases it, and every other thread waits forever.
    A lock of the module ``threading`` is written in C: its methods take effect entirely or not at all.
    """

    def __init__(self) -> None:
        self._lowered = threading.Lock()
        self._lowered.acquire()

    def set(self) -> None:
        """Raise the flag; from any thread."""
        with contextlib.suppress(RuntimeError):  # it is raised already
            self._lowered.release()

    def clear(self) -> None:
        """Lower the flag; by the thread that waits."""
        self._lowered.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is raised, and lower it; False after the timeout.

        Args:
            timeout: seconds after which to return in any case; None waits without limit.
        """
        return _acquire(self._lowered, timeout)


class Notifier(WakeUp):
    """A flag that also calls back when it is raised, for an event loop, which must not wait for a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._callback: Callable[[], None] | None = None

    def set(self) -> None:
        """Raise the flag, then call back; from any thread, which may hold a lock."""
        super().set()
        callback = self._callback
        if callback is not None:
            callback()

    def call_back(self, callback: Callable[[], None] | None) -> None:
        """Set what is called whenever the flag is raised from now on, perhaps more than once; None for nothing.

        It must neither block nor raise. A flag that was raised before is found by :meth:`wait`.
        """
        self._callback = callback


class Latch:
    """A flag that stays raised, for any number of threads; in place of ``threading.Event``, for the same reason.

    A thread of the user may raise it and look at it, and does not wait for it.
    """

    def __init__(self) -> None:
        self._lowered = threading.Lock()
        self._lowered.acquire()
        self._is_set = False

    def is_set(self) -> bool:
        """True after :meth:`set`."""
        return self._is_set

    def set(self) -> None:
        """Raise the flag; from any thread."""
        self._is_set = True
        with contextlib.suppress(RuntimeError):  # the lock is free already
            self._lowered.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is raised; False after the timeout, which is in seconds."""
        if not self._is_set and _acquire(self._lowered, timeout):
            with contextlib.suppress(RuntimeError):  # raised twice
                self._lowered.release()
        return self._is_set
