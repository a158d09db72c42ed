"""Ending: the end of a command that runs until SIGTERM, SIGHUP or Ctrl-C, or until another thread asks for it."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

LAST_WRITE_S: Final = 10.0
"""How long a command waits at its end for a thread that is still writing records, in seconds."""


class EndedEarly(BaseException):
    """A signal came before the command had started; raised in the main thread, wherever it is."""


class Ending:
    """Asks the main thread to end; a signal can ask, too.

    An event would not work: 1. the process is stopped (SIGSTOP, a debugger, a frozen container); 2. SIGTERM comes; 3.
    it continues, and the kernel delivers the signal to any thread; 4. Python runs handlers on the main thread only,
    which sleeps on the event's lock and is not woken. Or: 1. the main thread holds that lock, in ``wait()``; 2. SIGTERM
    comes; 3. the handler, on the same thread, waits for the lock in ``set()`` for ever. So the main thread sleeps on a
    socket, to which Python writes from any thread.
    """

    def __init__(self) -> None:
        self._asked = False
        self._raises = False
        self._report_asked = False
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    @contextlib.contextmanager
    def by_signals(self) -> Iterator[None]:
        """Inside, SIGTERM, SIGINT and SIGHUP ask for the end, and SIGUSR1 for a report; for the main thread, once."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # The SIGHUP that nohup makes a process ignore must stay ignored.
            if not (number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN):
                signal.signal(number, self._signalled)
        signal.signal(signal.SIGUSR1, self._ask_for_report)
        former = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(former)
            self._wake.close()
            self._woken.close()

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first signal raises :class:`EndedEarly`; for calls that may wait long for servers."""
        self._raises = not self._asked
        if self._asked:
            raise EndedEarly
        try:
            yield
        finally:
            self._raises = False

    def _signalled(self, *_: object) -> None:
        self.ask()
        if self._raises:
            self._raises = False
            raise EndedEarly

    def _ask_for_report(self, *_: object) -> None:
        self._report_asked = True

    def ask(self) -> None:
        """Make :meth:`wait` return, now and from now on."""
        self._asked = True
        with contextlib.suppress(OSError):  # full, so it will wake; or closed, since the command has ended
            self._wake.send(b"\0")

    def is_asked(self) -> bool:
        """True after :meth:`ask`."""
        return self._asked

    def sleep(self, seconds: float) -> bool:
        """Wait for so many seconds, or until the end is asked for; returns True if it was."""
        deadline = time.monotonic() + seconds
        while not self._asked and (left := deadline - time.monotonic()) > 0:
            if select.select([self._woken], [], [], left)[0]:
                self._woken.recv(1)
        return self._asked

    def wait(self, report: Callable[[], None]) -> None:
        """Wait until the end is asked for.

        Args:
            report: called on this thread for SIGUSR1, also if that came before this call.
        """
        while not self._asked:
            if self._report_asked:
                self._report_asked = False
                report()
            self._woken.recv(1)
