"""SessionLease: probes ZooKeeper and says whether this member may still hand out records (DESIGN 4.5).

The thread that probes also notices when nothing will ever answer, and has the client start over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from zkconsumer.core.leasetimes import lease_deadline, probe_interval, silence_report_is_due
from zkconsumer.core.rebalance import retry_seconds
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger("zkconsumer.events")

# CLOCK_BOOTTIME goes on while the machine sleeps, as the servers' clocks do; CLOCK_MONOTONIC does not.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_REVIVAL_BACKOFF_MS = 1000
"""Pause after the first revival, doubled with each that did not help."""


def boot_seconds() -> float:
    """Seconds on a clock that never jumps back and counts suspended time where the system has one."""
    return time.clock_gettime(_CLOCK)


class SessionLease:
    """A thread that probes, and a deadline that any thread may ask for.

    Args:
        session: an open session.
        registered_session: gives the id of the session that the member is registered in, 0 while it is in none. A
            session that came after it says nothing about what the member owned in that one.
        on_change: called on the probing thread when the lease lapsed and when it holds again.
        owner: group and consumer, for the log.
    """

    def __init__(
        self,
        session: ZkSession,
        registered_session: Callable[[], int],
        on_change: Callable[[], None],
        owner: str,
    ) -> None:
        self._owner = owner
        self._last_answer = 0.0
        self._reported = 0.0  # written by the probing thread
        self._session = session
        self._registered_session = registered_session
        self._alive_session = 0
        self._on_change = on_change
        self._deadline = 0.0
        self.lapses = 0  # written by the probing thread
        self._revivals = 0
        self._next_revival = 0.0
        self._outstanding = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="session-lease", daemon=True)

    def start(self, asked_for_session: float) -> None:
        """Begin to probe.

        Args:
            asked_for_session: reading of :func:`boot_seconds` before the session was asked for; the first probe.
        """
        self._alive_session = self._session.session_id
        self._last_answer = asked_for_session
        self._deadline = lease_deadline(asked_for_session, self._session.negotiated_timeout)
        self._thread.start()

    def stop(self) -> None:
        """Stop probing; the lease lapses by itself."""
        self._stopped.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def holds(self) -> bool:
        """True while the session that the member is registered in cannot have expired on the servers."""
        return boot_seconds() < self._deadline and self._registered_session() in (0, self._alive_session)

    def remaining(self) -> float:
        """Seconds until the lease lapses if ZooKeeper remains silent; 0 or less if it has lapsed."""
        return self._deadline - boot_seconds()

    def _run(self) -> None:
        held = True
        while not self._stopped.is_set():
            self._revive()
            self._probe()
            timeout = self._session.negotiated_timeout
            # Wake at the next probe, or exactly when the lease lapses, whichever comes first.
            remaining = self._deadline - boot_seconds()
            interval = probe_interval(timeout)
            self._stopped.wait(min(interval, remaining) if remaining > 0 else interval)
            if self.holds() != held:
                held = not held
                self.lapses += not held
                self._on_change()
            self._report(held=held)

    def _report(self, *, held: bool) -> None:
        """Log the loss of ZooKeeper, at growing intervals, and its end."""
        silent = boot_seconds() - self._last_answer
        if held:
            if self._reported:
                _log.info("%s: ZooKeeper %s answers again", self._owner, self._session.address)
            self._reported = 0.0
        elif boot_seconds() >= self._deadline and silence_report_is_due(silent, self._reported):
            self._reported = silent
            stopped = (
                "; no record is delivered and no offset committed until then" if self._registered_session() else ""
            )
            _log.warning(
                "%s: no ZooKeeper server of %s has answered for %.0f s%s%s; check that the servers run, have a quorum "
                "and can be reached",
                self._owner,
                self._session.address,
                silent,
                stopped,
                self._session.last_failure,
            )

    def _revive(self) -> None:
        if self.holds():
            self._revivals = 0
        elif boot_seconds() >= self._next_revival and self._session.revive():
            self._next_revival = boot_seconds() + retry_seconds(_REVIVAL_BACKOFF_MS, self._revivals + 1)
            self._revivals += 1

    def _probe(self) -> None:
        # One at a time: kazoo finds out that a connection is dead only while we send nothing (its ping waits for idle
        # time), so a probe every second into a frozen connection would keep it from ever reconnecting.
        if self._outstanding.is_set():
            return
        sent = boot_seconds()

        def answered(session_id: int | None) -> None:
            # On kazoo's thread. There is one probe at a time, so the deadline only moves forward.
            if session_id is not None:
                self._alive_session = session_id
                self._last_answer = sent
                self._deadline = lease_deadline(sent, self._session.negotiated_timeout)
            self._outstanding.clear()

        self._outstanding.set()
        if not self._session.probe(answered):
            self._outstanding.clear()
