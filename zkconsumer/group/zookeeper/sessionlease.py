"""SessionLease: probes ZooKeeper and determines whether this member may still hand out records (architecture.md#lease).

The thread that watches the lease (``group/leasewatch.py``) also probes, and restarts a client that has stopped
reconnecting.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Protocol

from zkconsumer.group.leasewatch import LeaseWatch
from zkconsumer.group.rules.leasetimes import lease_deadline, probe_interval
from zkconsumer.group.rules.rebalancetimes import retry_seconds
from zkconsumer.process.boottime import boot_seconds
from zkconsumer.wire.rules.outage import Outage
from zkconsumer.zookeeper.session import ProbeAnswer, ZkSession

_log = logging.getLogger("zkconsumer.events")

_REVIVAL_BACKOFF_MS = 1000
"""Pause after the first restart of the client, doubled after each that did not help."""


class Registered(Protocol):
    """The registration that a lease is for."""

    @property
    def registered_session(self) -> int:
        """Id of the session that the member is registered in, 0 while it is in none."""

    @property
    def session_timeout(self) -> float:
        """For how long, in seconds, the servers and the group let it live without a sign of life."""


class SessionLease:
    """Probes on a thread, and a deadline that any thread may check.

    Args:
        session: an open session.
        registration: the session that the member is registered in, and its timeout. A later session does not prove that
            the member still owns what it owned in that one.
        probed: returns the path of the node that has to exist: the session node of a registered member. Without it
            nothing can be claimed or committed, and a coordinator that deleted it waits for the end of this lease.
        on_change: called on the probing thread when the lease lapsed, when it holds again, and when the node of the
            registration is found missing.
        owner: group and consumer, for the log.
        clock: returns seconds, see :func:`~zkconsumer.process.boottime.boot_seconds`.

    Attributes:
        watch: the probing thread, which notices when the lease lapsed.
    """

    def __init__(
        self,
        session: ZkSession,
        registration: Registered,
        probed: Callable[[], str],
        on_change: Callable[[], None],
        owner: str,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._owner = owner
        self._clock = clock
        self._last_answer = 0.0
        self._outage = Outage()  # used by the probing thread
        self._session = session
        self._registration = registration
        self._probed = probed
        self._missing = ""  # written by kazoo's thread: the path that the last answered probe did not find
        self._alive_session = 0
        self._on_change = on_change
        self._proven = -math.inf  # when the newest probe was sent that was answered, and found the node
        self._deadline = -math.inf
        self._stands_alone = False
        self._revivals = 0
        self._next_revival = 0.0
        self._outstanding = threading.Event()
        self.watch = LeaseWatch("session-lease", self, lambda _: on_change(), self._round)

    def start(self, asked_for_session: float) -> None:
        """Grant the lease, and begin to probe.

        Args:
            asked_for_session: see :meth:`grant`.
        """
        self.grant(asked_for_session)
        # The answer that made the session counts as the first probe.
        self.watch.open(probe_interval(self._registration.session_timeout))

    def grant(self, asked_for_session: float) -> None:
        """Extend the lease as after an answered probe.

        Args:
            asked_for_session: reading of the clock before the session was requested, which counts as the first probe.
        """
        self._alive_session = self._session.session_id
        self._last_answer = self._proven = asked_for_session
        self._deadline = lease_deadline(self._proven, self._registration.session_timeout)

    def connected(self) -> None:
        """Shorten the lease if the server of a new connection has granted less; on kazoo's thread.

        1. A probe is answered by a server that grants 40 s; 2. the next server grants 6 s, and is cut off before it has
        answered a probe; 3. the session expires after these 6 s. A server that grants more does not extend the lease.
        """
        self._deadline = min(self._deadline, lease_deadline(self._proven, self._registration.session_timeout))
        self.watch.look()

    def misses(self, path: str) -> bool:
        """True if the last answered probe asked for this path, and there was no such node; for any thread."""
        return self._missing == path

    def stop(self) -> None:
        """Stop probing; the lease lapses by itself."""
        self.watch.close()

    def stand_alone(self) -> None:
        """The consumer never joins: it owns nothing that it could lose, so the lease holds from now on."""
        self._stands_alone = True

    def holds(self) -> bool:
        """True while the session that the member is registered in cannot have expired on the servers."""
        return self._stands_alone or self._is_alive()

    def _is_alive(self) -> bool:
        return self._clock() < self._deadline and self._registration.registered_session in (0, self._alive_session)

    def remaining(self) -> float:
        """Seconds until the lease lapses if ZooKeeper remains silent; 0 or less if it has lapsed."""
        left = self._deadline - self._clock()
        return left if self._is_alive() else min(0.0, left)

    @property
    def lapses(self) -> int:
        """How often it has lapsed."""
        return self.watch.lapses

    def _round(self) -> float:
        """Report what the lease's thread has just found, and probe; returns the seconds until the next probe."""
        if self._missing and self._missing == self._probed():
            self._on_change()
        self._report(alive=self._is_alive())
        self._revive()
        self._probe()
        return probe_interval(self._registration.session_timeout)

    def _report(self, *, alive: bool) -> None:
        """Log the loss of ZooKeeper, at growing intervals, and its end."""
        now = self._clock()
        if alive:
            if self._outage.end(now) is not None:
                _log.info("%s: ZooKeeper %s answers again", self._owner, self._session.address)
        elif now >= self._deadline and self._outage.is_news(self._missing, now):
            if self._missing:
                _log.warning(
                    "%s: no record is delivered and no offset committed, since %s was deleted; this member registers "
                    "again when its rebalance thread continues: check whether a rebalance listener hangs",
                    self._owner,
                    self._missing,
                )
                return
            stopped = (
                "; no record is delivered and no offset committed until one does"
                if self._registration.registered_session
                else ""
            )
            _log.warning(
                "%s: no ZooKeeper server of %s has answered for %.0f s%s%s; check that the servers run, have a quorum "
                "and can be reached",
                self._owner,
                self._session.address,
                now - self._last_answer,
                stopped,
                self._session.last_failure,
            )

    def _revive(self) -> None:
        if self._is_alive():
            self._revivals = 0
        elif self._clock() >= self._next_revival and self._session.revive():
            self._next_revival = self._clock() + retry_seconds(_REVIVAL_BACKOFF_MS, self._revivals + 1)
            self._revivals += 1

    def _probe(self) -> None:
        # One at a time: kazoo finds out that a connection is dead only while we send nothing (its ping waits for idle
        # time), so a probe every second into a frozen connection would keep it from ever reconnecting.
        if self._outstanding.is_set():
            return
        sent, path = self._clock(), self._probed()

        def answered(answer: ProbeAnswer | None) -> None:
            # On kazoo's thread. There is one probe at a time.
            former_deadline, former_session = self._deadline, self._alive_session
            if answer is not None:
                self._alive_session = answer.session_id
                self._missing = "" if answer.exists else path
                self._last_answer = sent
                if answer.exists:
                    self._proven = sent
                    self._deadline = lease_deadline(sent, self._registration.session_timeout)
            self._outstanding.clear()
            if self.holds() and (self._clock() >= former_deadline or self._alive_session != former_session):
                self.watch.look(was_lapsed=True)

        self._outstanding.set()
        if not self._session.probe(path, answered):
            self._outstanding.clear()
