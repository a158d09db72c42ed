"""Coordinator: a member's part in leading its group: it stands for election, and plans while it leads (adr/0017)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from zkconsumer.cluster.rules.clustercatalog import ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import AssignorFailed, SessionExpired, ZkConsumerError, ZooKeeperRefused
from zkconsumer.group.coordinator.commands import EpochEnded
from zkconsumer.group.coordinator.election import Election
from zkconsumer.group.coordinator.leaderview import LeaderView
from zkconsumer.group.coordinator.rules.candidacy import look_interval
from zkconsumer.group.coordinator.rules.coordinatorplan import earliest, longest_wait_seconds
from zkconsumer.group.rules.rebalancetimes import orphan_delay_seconds, settle_seconds
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.process.threads import start_thread
from zkconsumer.process.wakeup import WakeUp
from zkconsumer.zookeeper.session import ZkSession

_log: Final = logging.getLogger(__name__)

_MOST_PLANS: Final = 20
"""Most plans before the election is looked at again."""


class Wake(Protocol):
    """What a coordinator waits for; see :class:`~zkconsumer.process.wakeup.WakeUp`."""

    def set(self) -> None:
        """End the wait."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most so many seconds."""


class Coordinator:
    """One thread of a member; in most members it looks once per session timeout, and sleeps.

    Watches only set flags and wake it. What it does is in :meth:`act`, which tests call in their own thread.

    Args:
        config: the member's properties.
        consumer_id: id of the member.
        session: the member's session.
        membership: its registration; written by the rebalance thread, only read here.
        cluster: where brokers and topics are read from; None for ZooKeeper.
        wake: ends the waits of this thread.
        closing: set when the member leaves.
        clock: a monotonic clock, in seconds.

    Attributes:
        assignor_changed: called on this thread when the application's assignor has failed, or works again.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        session: ZkSession,
        membership: MemberRegistration,
        cluster: ClusterSource | None = None,
        *,
        wake: Wake | None = None,
        closing: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._consumer_id = consumer_id
        self._session = session
        self._membership = membership
        self._cluster = cluster
        self.assignor_changed: Callable[[], None] = lambda: None
        self._assignor_failure: AssignorFailed | None = None
        self._wake = WakeUp() if wake is None else wake
        self._closing = threading.Event() if closing is None else closing
        self._clock = clock
        self._election = Election(
            session,
            config.group_id,
            consumer_id,
            lambda: membership.fence,
            lambda: membership.registered_session,
            self._wake.set,
            clock,
        )
        self._epoch: int | None = None
        self._led: LeaderView | None = None
        self._group_changed = False
        self._failed = False
        self._refusal = ""
        self._tend_at: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"{consumer_id}_coordinator", daemon=True)

    def start(self) -> None:
        """Start the thread; to be called once."""
        start_thread(self._thread)

    def look(self) -> None:
        """Look at once: the member has registered, or has a connection again; from any thread."""
        self._wake.set()

    def cluster_changed(self) -> None:
        """Plan again if this member leads: brokers have reported a change of topics; from any thread."""
        led = self._led
        if led is not None:
            led.note_change()

    def begin_close(self) -> None:
        """Let the thread end; to be called before the session is closed, which ends what it waits for. Idempotent."""
        self._closing.set()
        self._wake.set()

    def end_close(self) -> None:
        """Wait for the end of the thread, at most a session timeout; to be called after the session was closed."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(self._config.zookeeper_session_timeout_ms / 1000)

    @property
    def epoch(self) -> int | None:
        """The epoch in which this member leads, None if it does not; for any thread."""
        return self._epoch

    @property
    def has_failed(self) -> bool:
        """True if the last :meth:`act` ended with an error; for any thread."""
        return self._failed

    @property
    def refusal(self) -> str:
        """What the servers did not allow at the last look, as text; "" if nothing; for any thread."""
        return self._refusal

    @property
    def assignor_failure(self) -> AssignorFailed | None:
        """Why the application's assignor could not be used at the last plan; None if it could. For any thread."""
        return self._assignor_failure

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(self.act())

    def act(self) -> float:
        """Look, and plan if this member leads. An error is logged: the next look comes soon enough.

        Returns:
            Seconds to wait for a wake-up.
        """
        due_at = self._look_and_lead()
        if self._failed:
            return self._config.rebalance_backoff_ms / 1000
        interval = look_interval(self._consumer_id, self._session.negotiated_timeout)
        return interval if due_at is None else min(interval, max(0.0, due_at - self._clock()))

    def _look_and_lead(self) -> float | None:
        """Do what is due; returns the reading of the clock at which the leader has to act again, None if none is known.

        Each turn computes it: one that ends early waits for the next look, or for the registration or the connection,
        which wake this thread.
        """
        self._failed = False
        if not (self._membership.is_registered and self._session.connected):
            self._tend_at = None
            return None
        due_at = None
        try:
            self._follow(self._election.look())
            if self._led is not None:
                self._settle(self._led)
                due_at = earliest([self._plan(self._led), self._tend(self._led)])
                self._led.raise_refusal()
            self._refusal = ""
            self._note_assignor(None)
        except AssignorFailed as error:
            self._failed = True
            self._note_assignor(error)
        except EpochEnded as ended:
            _log.warning("group %s: %s", self._config.group_id, ended)
            self._follow(None)
            self._resign()
        except SessionExpired:
            self._follow(None)
        except ZooKeeperRefused as error:
            self._failed = True
            self._report(error)
        except ZkConsumerError as error:
            self._failed = True
            if not self._closing.is_set():
                _log.info("group %s: the coordinator will try again: %s", self._config.group_id, error)
        except Exception:  # noqa: BLE001 - a member that leads must not stop being one that follows
            _log.exception("group %s: the coordinator failed and will try again", self._config.group_id)
            self._failed = True
        return due_at

    def _report(self, refusal: ZooKeeperRefused) -> None:
        """Log what the servers do not allow, once: it is tried again for as long as this member runs."""
        if str(refusal) != self._refusal:
            _log.error(
                "group %s: %s cannot do its part in coordinating the group: %s",
                self._config.group_id,
                self._consumer_id,
                refusal,
            )
        self._refusal = str(refusal)

    def _note_assignor(self, failure: AssignorFailed | None) -> None:
        """Note how the application's assignor did, for the rebalance thread; a failure is logged once."""
        before, self._assignor_failure = self._assignor_failure, failure
        if failure is not None and str(failure) != str(before):
            _log.error("group %s: no member is commanded: %s", self._config.group_id, failure)
        if failure is not None or before is not None:
            self.assignor_changed()

    def _follow(self, epoch: int | None) -> None:
        """Forget what was known in another epoch."""
        if epoch != self._epoch:
            self._epoch, self._led, self._tend_at = epoch, None, None
        if epoch is not None and self._led is None:
            self._led = LeaderView(
                self._config,
                self._session,
                self._membership,
                epoch,
                self._note_change,
                self._wake.set,
                self._clock,
                self._cluster,
            )

    def _note_change(self) -> None:
        self._group_changed = True
        self._wake.set()

    def _settle(self, led: LeaderView) -> None:
        """Wait until members have stopped joining and leaving, or for the longest time allowed (adr/0005).

        The watch on ``ids`` fires once until they are listed again, so their version shows whether more have come.
        """
        if not self._group_changed and led.has_planned:
            return
        backoff_ms = self._config.rebalance_backoff_ms
        patient = led.has_planned and not led.has_foreign_members
        deadline = self._clock() + longest_wait_seconds(backoff_ms, self._session.negotiated_timeout, patient=patient)
        changed, version = True, led.members_version()
        while changed and self._clock() < deadline and not self._closing.is_set():
            self._group_changed = False
            self._closing.wait(settle_seconds(backoff_ms))
            before, version = version, led.members_version()
            changed = self._group_changed or version != before
        self._group_changed = False

    def _plan(self, led: LeaderView) -> float | None:
        """Command what can be commanded now; returns when the leader has to plan again in any case."""
        for number in range(_MOST_PLANS):
            if self._closing.is_set() or (self._group_changed and number):
                return None  # a change has set the wake-up, and its events settle first
            following = led.advance()
            if not following.at_once:
                return following.due_at
        self._wake.set()
        return None

    def _tend(self, led: LeaderView) -> float | None:
        """Look after JVM members that may have given up, as long as there are any; returns when to do so again."""
        if not led.has_jvm_members:
            self._tend_at = None
        elif self._tend_at is None or self._clock() >= self._tend_at:
            if self._tend_at is not None:
                led.tend()
            self._tend_at = self._clock() + orphan_delay_seconds(self._config.rebalance_backoff_ms)
        return self._tend_at

    def _resign(self) -> None:
        try:
            self._election.resign()
        except ZkConsumerError as error:
            _log.info("group %s: the leader's node is left to the next look: %s", self._config.group_id, error)
        self._wake.set()
