"""RebalanceLoop: registers a member and attempts rebalances until one succeeds, with the waits around the attempts.

What one attempt does is in ``group/rebalancer.py``. Everything here runs on the member's rebalance thread, which
alone writes the attributes.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    ConsumerClosed,
    ConsumerIdInUse,
    CoordinatorUnknown,
    GroupAuthorizationFailed,
    InstanceIdInUse,
    OwnershipConflict,
    RebalanceAwaited,
    RebalanceFailed,
    RegistrationLost,
    SessionExpired,
    ShareChanged,
    ZkConsumerError,
)
from zkconsumer.group.controlthread import ControlThread
from zkconsumer.group.groupprotocol import GroupProtocol
from zkconsumer.group.memberstats import RebalanceCounts
from zkconsumer.group.rebalancer import Outcome, Rebalancer
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.attempts import (
    RebalanceCause,
    longest_settling_seconds,
    orphan_delay_seconds,
    outages_in_a_row,
    retry_seconds,
    settle_seconds,
    total_wait_covers_session,
)
from zkconsumer.group.rules.memberstate import MemberState, step_name
from zkconsumer.group.rules.subscription import Subscription

_log = logging.getLogger(__name__)


class RebalanceLoop:
    """Brings a member into its group and keeps it there.

    Args:
        config: the consumer's properties.
        consumer_id: id of the member.
        protocol: the group protocol.
        rebalancer: makes the attempts.
        thread: the rebalance thread; it serves requests and timers while this waits.
        signal: raised when something changed.
        clock: a monotonic clock, in seconds.

    Attributes:
        counts: rebalances so far; replaced, never changed.
        expiries: sessions lost so far while registered.
        attempted: called after each attempt of a member that has joined, with the error that stopped it or None.
        replaced: called when another consumer has taken this member's place, with the error; there is no next attempt.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        protocol: GroupProtocol,
        rebalancer: Rebalancer,
        thread: ControlThread,
        signal: RebalanceSignal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._config = config
        self._consumer_id = consumer_id
        self._protocol = protocol
        self._rebalancer = rebalancer
        self._thread = thread
        self._signal = signal
        self._enter = rebalancer.enter_state
        self._subscription: Subscription | None = None
        self.counts = RebalanceCounts()
        self.expiries = 0
        self.attempted: Callable[[Exception | None], None] = lambda _: None
        self.replaced: Callable[[InstanceIdInUse], None] = lambda _: None

    def join(self, subscription: Subscription) -> None:
        """Try as often as ``rebalance.max.retries`` specifies, and as long as the JVM would.

        The JVM makes its attempts a backoff apart; ours come sooner, so both their number and the time are minimums.

        Raises:
            RebalanceFailed: no attempt succeeded.
            GroupAuthorizationFailed: the same, and the last one failed for a missing permission.
            ConsumerIdInUse: the consumer id belongs to a live consumer.
            InstanceIdInUse: another consumer has taken the ``group.instance.id`` meanwhile.
            ConsumerClosed: the member is leaving.
        """
        self._warn_of_short_retries()
        retries, backoff_ms = self._config.rebalance_max_retries, self._config.rebalance_backoff_ms
        story: deque[str] = deque(maxlen=max(1, retries))
        deadline = self._clock() + retries * backoff_ms / 1000
        self._subscription = subscription
        began = self._clock()
        self._count(self._try_to_join(retries, deadline, story), began)

    def react(self) -> None:
        """Something changed: let events settle, then try until an attempt succeeds; a joined member never gives up."""
        if self._subscription is None:
            return  # not joined yet, or reading without a group
        began = self._clock()
        self._count(self._rebalance_until_done(), began)

    def _count(self, cause: RebalanceCause | None, began: float) -> None:
        """Count a series of attempts; ``cause`` is None if the last one failed or found nothing to do."""
        if cause is not None and not self._thread.closing.is_set():
            self.counts = self.counts.finished(cause, self._clock() - began, time.time())

    def _try_to_join(self, retries: int, deadline: float, story: deque[str]) -> RebalanceCause | None:
        attempts, failure = 0, None
        while attempts < retries or self._clock() < deadline:
            if self._thread.closing.is_set():
                raise ConsumerClosed("shut down while joining the group")
            cause, failure, _ = self._attempt()
            if failure is None:
                return cause
            # The brokers wait for other members here, at most a rebalance timeout, so that is no failed attempt.
            attempts += not isinstance(failure, RebalanceAwaited)
            if isinstance(failure, (ConsumerIdInUse, InstanceIdInUse)):
                raise failure
            story.append(f"{failure}{self._protocol.excluded}")
            self._wait_before_retry(failure, 0)
        if isinstance(failure, GroupAuthorizationFailed):
            raise failure
        raise RebalanceFailed(self._config.group_id, self._consumer_id, list(story))

    def _rebalance_until_done(self) -> RebalanceCause | None:
        outages = 0
        self._settle()
        while not self._thread.closing.is_set():
            cause, failure, _ = self._attempt()
            self.attempted(failure)
            if failure is None:
                return cause
            if isinstance(failure, InstanceIdInUse):
                self.replaced(failure)
                return None
            outages = outages_in_a_row(outages, failure)
            self._wait_before_retry(failure, outages)
        return None

    def _settle(self, *, unless_alone: bool = False) -> None:
        """Wait until members have stopped joining and leaving, or for the longest time allowed (adr/0005).

        Args:
            unless_alone: do not wait where this is the group's only member.
        """
        self._enter(MemberState.SETTLING)
        if not self._protocol.settles:
            return
        backoff_ms = self._config.rebalance_backoff_ms
        deadline = self._clock() + longest_settling_seconds(backoff_ms)
        while True:
            self._signal.discard()
            self._thread.serve()
            if self._clock() >= deadline or not self._protocol.connected:
                return  # without a connection the next call would block, and requests with it
            try:
                has_others = self._protocol.has_others()
            except ZkConsumerError:
                return  # the attempt that follows reports it
            if unless_alone and not has_others:
                return
            if self._thread.closing.wait(settle_seconds(backoff_ms)) or not self._signal.raised:
                return

    # -- one attempt ------------------------------------------------------------------------------------------------

    def _attempt(self) -> Outcome:
        """One attempt; handles a lost session or registration that it found, and logs a failure."""
        # Before the attempt, never after it: what changes from here on must end the next wait.
        self._signal.discard()
        self._thread.serve()
        outcome = self._join_and_rebalance()
        if isinstance(outcome.error, SessionExpired):
            self._session_lost()
        elif isinstance(outcome.error, RegistrationLost):
            self._enter(MemberState.SESSION_LOST)
            self._deregister()
        if outcome.error is None:
            self._tend_later()
        else:
            self._report_failure(outcome.error, outcome.step)
        return outcome

    def _join_and_rebalance(self) -> Outcome:
        try:
            self._ensure_joined()
        except Exception as error:  # noqa: BLE001 - every failure is tried again
            return Outcome(error=error)
        return self._rebalancer.rebalance()

    def _deregister(self) -> None:
        try:
            self._protocol.rejoin()
        except ZkConsumerError as error:  # the next attempt finds the registration missing again
            _log.info(
                "group %s: could not remove the rest of a damaged registration, will be retried: %s",
                self._config.group_id,
                error,
            )

    def _tend_later(self) -> None:
        self._thread.call_after(orphan_delay_seconds(self._config.rebalance_backoff_ms), self._tend)

    def _tend(self) -> None:
        if self._protocol.tend():
            self._tend_later()

    def _report_failure(self, error: Exception, step: MemberState | None) -> None:
        if isinstance(error, RebalanceAwaited):
            _log.debug("group %s consumer %s waits: %s", self._config.group_id, self._consumer_id, error)
            return
        self.counts = self.counts.failed(step)
        # INFO: at every join some former owners have not released yet, or the coordinator has not planned yet.
        _log.log(
            logging.INFO
            if isinstance(error, (OwnershipConflict, CoordinatorUnknown, ShareChanged))
            else logging.WARNING,
            "group %s consumer %s: rebalance attempt failed in step %s: %s",
            self._config.group_id,
            self._consumer_id,
            step_name(step),
            error,
            exc_info=None if isinstance(error, ZkConsumerError) else error,
        )

    def _ensure_joined(self) -> None:
        """Join again if the session is a new one; a disconnect alone changes nothing."""
        if self._protocol.is_lost():
            self._session_lost()
        if not self._protocol.connected:
            raise self._protocol.unreachable()
        if not self._protocol.is_joined():
            assert self._subscription is not None
            self._enter(MemberState.REGISTERING)
            self._protocol.join(self._subscription)
            # Members that have to release partitions for us let events settle, too; others may join at the same time.
            self._settle(unless_alone=True)

    def _session_lost(self) -> None:
        self._enter(MemberState.SESSION_LOST)
        self.expiries += self._protocol.is_joined()
        self._rebalancer.session_lost()

    # -- between attempts -------------------------------------------------------------------------------------------

    def _wait_before_retry(self, failure: Exception, outages: int) -> None:
        """Wait until former owners have released the missing partitions, something changes, or the backoff is over.

        Args:
            failure: the error that stopped the attempt.
            outages: attempts in a row, up to this one, that could not reach ZooKeeper.
        """
        seconds = retry_seconds(self._config.rebalance_backoff_ms, outages)
        if isinstance(failure, RegistrationLost):
            return
        self._enter(MemberState.WAITING_TO_RETRY)
        if isinstance(failure, OwnershipConflict) and self._protocol.connected:
            try:
                self._thread.wait(seconds, until=self._protocol.awaited_release(failure.holders))
            except ZkConsumerError as error:
                _log.info(
                    "group %s: cannot wait for former owners to release, trying again now: %s",
                    self._config.group_id,
                    error,
                )
        else:
            self._thread.wait(seconds)

    def _warn_of_short_retries(self) -> None:
        config = self._config
        if self._protocol.awaits_expiry and not total_wait_covers_session(
            config.rebalance_max_retries, config.rebalance_backoff_ms, config.zookeeper_session_timeout_ms
        ):
            _log.warning(
                "group %s: rebalance.max.retries x rebalance.backoff.ms does not exceed zookeeper.session.timeout.ms: "
                "starting right after another member crashed will fail; raise one of the two",
                config.group_id,
            )
