"""RebalanceLoop: registers a member and attempts rebalances until one succeeds, with the waits around the attempts.

What one attempt does is in ``group/rebalancer.py``. Everything here runs on the member's rebalance thread, which
alone writes the attributes.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.memberstate import MemberState
from zkconsumer.core.rebalance import (
    longest_settling_seconds,
    orphan_delay_seconds,
    outages_in_a_row,
    retry_seconds,
    retry_window_seconds,
    settle_seconds,
    total_wait_covers_session,
)
from zkconsumer.core.subscription import Subscription
from zkconsumer.errors import (
    ConsumerClosed,
    ConsumerIdInUse,
    GroupAuthorizationFailed,
    OwnershipConflict,
    RebalanceFailed,
    RegistrationLost,
    SessionExpired,
    ZkConsumerError,
    ZooKeeperUnavailable,
)
from zkconsumer.group.controlthread import ControlThread
from zkconsumer.group.memberstats import RebalanceCounts, step_name
from zkconsumer.group.orphanwatch import OrphanWatch
from zkconsumer.group.rebalancer import Rebalancer
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.zookeeper.membership import Membership
from zkconsumer.zookeeper.registry import Registry
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)


class RebalanceLoop:
    """Brings a member into its group and keeps it there.

    Args:
        config: of the member.
        consumer_id: of the member.
        session: the member's.
        registry: where the group's members are read.
        membership: the member's registration.
        rebalancer: makes the attempts.
        thread: the rebalance thread; goes on with requests and timers while this waits.
        signal: says that something changed.

    Attributes:
        counts: rebalances so far; replaced, never changed.
        expiries: sessions lost so far while registered.
        attempted: called after each attempt of a member that has joined, with what stopped it or None.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        session: ZkSession,
        registry: Registry,
        membership: Membership,
        rebalancer: Rebalancer,
        thread: ControlThread,
        signal: RebalanceSignal,
    ) -> None:
        self._config = config
        self._consumer_id = consumer_id
        self._session = session
        self._registry = registry
        self._membership = membership
        self._rebalancer = rebalancer
        self._thread = thread
        self._signal = signal
        self._enter = rebalancer.enter_state
        self._orphans = OrphanWatch(
            config.group_id,
            retry_window_seconds(config.rebalance_max_retries, config.rebalance_backoff_ms),
            rebalancer,
            membership,
            self._look_for_orphans_later,
        )
        self._subscription: Subscription | None = None
        self.counts = RebalanceCounts()
        self.expiries = 0
        self.attempted: Callable[[Exception | None], None] = lambda _: None

    def join(self, subscription: Subscription) -> None:
        """Try as often as ``rebalance.max.retries`` says, and as long as the JVM would.

        The JVM makes its attempts a backoff apart; ours are sooner, so the time counts as well as their number.

        Raises:
            RebalanceFailed: no attempt succeeded.
            GroupAuthorizationFailed: the same, and the last one failed for a missing permission.
            ConsumerIdInUse: the consumer id belongs to a live consumer.
            ConsumerClosed: the member is leaving.
        """
        self._warn_of_short_retries()
        retries, backoff_ms = self._config.rebalance_max_retries, self._config.rebalance_backoff_ms
        story: deque[str] = deque(maxlen=max(1, retries))
        deadline = time.monotonic() + retries * backoff_ms / 1000
        self._subscription = subscription
        with self._counted():
            self._try_to_join(retries, deadline, story)

    def react(self) -> None:
        """Something changed: let events settle, then try until it is done; a member never stays without trying."""
        if self._subscription is None:
            return  # not joined yet, or reading without a group
        with self._counted():
            self._rebalance_until_done()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Around a whole loop of attempts; it counts if one of them did something and the last one succeeded."""
        began, attempts = time.monotonic(), self._rebalancer.attempts
        yield
        if self._rebalancer.attempts > attempts and not self._thread.closing.is_set():
            self.counts = self.counts.finished(self._rebalancer.cause, time.monotonic() - began, time.time())

    def _try_to_join(self, retries: int, deadline: float, story: deque[str]) -> None:
        attempts, failure = 0, None
        while attempts < retries or time.monotonic() < deadline:
            if self._thread.closing.is_set():
                raise ConsumerClosed("shut down while joining the group")
            attempts += 1
            failure = self._attempt()
            if failure is None:
                return
            if isinstance(failure, ConsumerIdInUse):
                raise failure
            story.append(f"{failure}{self._rebalancer.left_out()}")
            self._wait_before_retry(failure, 0)
        if isinstance(failure, GroupAuthorizationFailed):
            raise failure
        raise RebalanceFailed(self._config.group_id, self._consumer_id, list(story))

    def _rebalance_until_done(self) -> None:
        outages = 0
        self._settle()
        while not self._thread.closing.is_set():
            failure = self._attempt()
            self.attempted(failure)
            if failure is None:
                return
            outages = outages_in_a_row(outages, failure)
            self._wait_before_retry(failure, outages)

    def _settle(self, *, unless_alone: bool = False) -> None:
        """Wait until members have stopped coming and going, or have done so for too long (docs/adr/0005).

        Args:
            unless_alone: do not wait where this is the group's only member.
        """
        self._enter(MemberState.SETTLING)
        backoff_ms = self._config.rebalance_backoff_ms
        deadline = time.monotonic() + longest_settling_seconds(backoff_ms)
        while True:
            self._signal.discard()
            self._thread.serve()
            if time.monotonic() >= deadline or not self._session.connected:
                return  # without a connection the question would wait for it, and requests with it
            try:
                members = self._registry.member_ids(self._config.group_id)
            except ZkConsumerError:
                return  # the attempt that follows tells
            if unless_alone and len(members) <= 1:
                return
            if self._thread.closing.wait(settle_seconds(backoff_ms)) or not self._signal.raised:
                return

    # -- one attempt ------------------------------------------------------------------------------------------------

    def _attempt(self) -> Exception | None:
        """One attempt; returns what stopped it, None if nothing did."""
        # Before the attempt, never after it: what changes from here on must end the next wait.
        self._signal.discard()
        self._thread.serve()
        self._rebalancer.step = None
        try:
            self._ensure_registered()
            self._rebalancer.rebalance()
            self._look_for_orphans_later()
        except SessionExpired as error:
            self._session_lost()
            return self._failed(error)
        except RegistrationLost as error:
            self._enter(MemberState.SESSION_LOST)
            self._deregister()
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - a listener may raise anything; the attempt has failed then
            return self._failed(error)
        return None

    def _deregister(self) -> None:
        try:
            self._membership.deregister()
        except ZkConsumerError as error:  # the next attempt finds the registration missing again
            _log.info("group %s: could not remove what is left of a registration: %s", self._config.group_id, error)

    def _look_for_orphans_later(self) -> None:
        self._thread.call_after(orphan_delay_seconds(self._config.rebalance_backoff_ms), self._orphans.look)

    def _failed(self, error: Exception) -> Exception:
        self.counts = self.counts.failed(self._rebalancer.step)
        # Former owners that have not let go yet are a part of every join.
        _log.log(
            logging.INFO if isinstance(error, OwnershipConflict) else logging.WARNING,
            "group %s consumer %s: rebalance attempt failed in step %s: %s",
            self._config.group_id,
            self._consumer_id,
            step_name(self._rebalancer.step),
            error,
            exc_info=not isinstance(error, ZkConsumerError),
        )
        return error

    def _ensure_registered(self) -> None:
        """Register again if the session is a new one; while merely disconnected, everything goes on as it was."""
        stale = self._session.lost or not self._membership.is_current_or_unknown()
        if stale and self._membership.is_registered:
            self._session_lost()
        if not self._session.connected:
            raise ZooKeeperUnavailable("no connection to ZooKeeper")
        if not self._membership.is_registered:
            assert self._subscription is not None
            self._enter(MemberState.REGISTERING)
            self._membership.register(self._subscription, self._signal.raise_flag, self._wait_for_signal)
            # Those who have to let go for us let events settle, too; and others may come along with us.
            self._settle(unless_alone=True)

    def _session_lost(self) -> None:
        self._enter(MemberState.SESSION_LOST)
        self.expiries += self._membership.is_registered
        self._rebalancer.session_lost()
        self._membership.session_lost()

    def _wait_for_signal(self, seconds: float) -> bool:
        return not self._signal.closed and self._signal.wait(seconds)

    # -- between attempts -------------------------------------------------------------------------------------------

    def _wait_before_retry(self, failure: Exception, outages: int) -> None:
        """Wait until former owners have released what is missing, something changes, or the backoff is over.

        Args:
            failure: what stopped the attempt.
            outages: attempts in a row, up to this one, that could not reach ZooKeeper.
        """
        seconds = retry_seconds(self._config.rebalance_backoff_ms, outages)
        if isinstance(failure, RegistrationLost):
            return
        self._enter(MemberState.WAITING_TO_RETRY)
        if isinstance(failure, OwnershipConflict) and self._session.connected:
            try:
                self._thread.wait(seconds, until=self._rebalancer.awaited_release(failure.holders))
            except ZkConsumerError as error:
                _log.info("group %s: waiting for owners was interrupted: %s", self._config.group_id, error)
        else:
            self._thread.wait(seconds)

    def _warn_of_short_retries(self) -> None:
        config = self._config
        if not total_wait_covers_session(
            config.rebalance_max_retries, config.rebalance_backoff_ms, config.zookeeper_session_timeout_ms
        ):
            _log.warning(
                "rebalance.max.retries x rebalance.backoff.ms does not exceed zookeeper.session.timeout.ms: "
                "starting right after another member crashed will fail"
            )
