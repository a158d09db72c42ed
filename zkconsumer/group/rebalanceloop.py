"""RebalanceLoop: joins a group and attempts rebalances until one succeeds.

What one attempt does is in ``group/rebalancer.py``, and how long a member waits before the next one is decided by its
group protocol. Everything here runs on the member's rebalance thread, which alone writes the attributes.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    NEEDS_AN_OPERATOR,
    ConsumerClosed,
    ConsumerIdInUse,
    CoordinatorUnknown,
    GroupMigrated,
    InstanceIdInUse,
    MemberRefused,
    MembershipLost,
    OwnershipConflict,
    RebalanceAwaited,
    RebalanceFailed,
    RegistrationLost,
    ShareChanged,
    StrategyConflict,
    UsageError,
    ZkConsumerError,
)
from zkconsumer.group.controlthread import ControlThread
from zkconsumer.group.groupprotocol import GroupProtocol
from zkconsumer.group.memberstats import RebalanceCounts
from zkconsumer.group.rebalancer import Outcome, Rebalancer
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.memberstate import MemberState, step_name
from zkconsumer.group.rules.rebalancetimes import RebalanceCause, retry_window_seconds
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.usercode import origin

_log = logging.getLogger(__name__)

_FINAL = (InstanceIdInUse, GroupMigrated)
"""Errors after which a member must not try again."""


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
        attempted: called after each attempt of a member that has joined, with the error that stopped it or None.
        replaced: called when others continue in this member's place, with the error; there is no next attempt.
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
        self.attempted: Callable[[Exception | None], None] = lambda _: None
        self.replaced: Callable[[ZkConsumerError], None] = lambda _: None

    def join(self, subscription: Subscription) -> None:
        """Try as often as ``rebalance.max.retries`` specifies, and as long as the JVM would.

        The JVM makes its attempts a backoff apart; ours come sooner, so both their number and the time are minimums.

        Raises:
            RebalanceFailed: no attempt succeeded, or brokers refuse the member's strategies.
            NEEDS_AN_OPERATOR: the same, and the last one failed for this reason, other than MemberRefused.
            ConsumerIdInUse: the consumer id belongs to a live consumer.
            InstanceIdInUse: another consumer has taken the ``group.instance.id`` meanwhile.
            GroupMigrated: the group's consumers continue elsewhere.
            ConsumerClosed: the member is leaving.
        """
        retries = self._config.rebalance_max_retries
        story: deque[str] = deque(maxlen=max(1, retries))
        deadline = self._clock() + retry_window_seconds(retries, self._config.rebalance_backoff_ms)
        self._subscription = subscription
        began = self._clock()
        self._count(self._try_to_join(retries, deadline, story), began)

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription of a member that has joined, or is joining; the next attempt carries it out.

        Raises:
            UsageError: it has not joined.
        """
        if self._subscription is None:
            raise UsageError("only a consumer that has joined its group can subscribe to other topics; create streams")
        if subscription.key != self._subscription.key:
            self._subscription = subscription
            self._signal.raise_flag()

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
            cause, failure, _ = self._attempt(starting=True)
            if failure is None:
                return cause
            # The brokers wait for other members here, at most a rebalance timeout, so that is no failed attempt.
            attempts += not isinstance(failure, RebalanceAwaited)
            if isinstance(failure, (ConsumerIdInUse, *_FINAL)):
                raise failure
            story.append(f"{failure}{self._protocol.describe().excluded}")
            if self._is_refused(failure):
                break
            self._protocol.pause(failure, starting=True)
        if isinstance(failure, NEEDS_AN_OPERATOR) and not isinstance(failure, MemberRefused):
            raise failure  # it says what to change; who refuses a member, and why, is in the story of all attempts
        in_zookeeper = not self._config.brokers_coordinate
        raise RebalanceFailed(self._config.group_id, self._consumer_id, tuple(story), in_zookeeper=in_zookeeper)

    def _is_refused(self, failure: Exception) -> bool:
        """True if brokers refuse a member that joins, and will as long as the other members are there.

        In ZooKeeper members that disagree are seen by each other alone, and the older ones may be about to leave.
        """
        return self._config.brokers_coordinate and isinstance(failure, StrategyConflict)

    def _rebalance_until_done(self) -> RebalanceCause | None:
        self._protocol.pause()
        while not self._thread.closing.is_set():
            cause, failure, _ = self._attempt()
            self.attempted(failure)
            if failure is None:
                return cause
            if isinstance(failure, _FINAL):
                self.replaced(failure)
                return None
            self._protocol.pause(failure)
        return None

    # -- the thread, as the group protocol uses it --------------------------------------------------------------------

    def enter_state(self, state: MemberState) -> None:
        """See :meth:`.PausingThread.enter_state`."""
        self._enter(state)

    def begin_quiet(self) -> None:
        """See :meth:`.PausingThread.begin_quiet`."""
        self._signal.discard()
        self._thread.serve()

    def stayed_quiet(self, seconds: float) -> bool:
        """See :meth:`.PausingThread.stayed_quiet`."""
        return self._thread.closing.wait(seconds) or not self._signal.raised

    def wait(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """See :meth:`.PausingThread.wait`."""
        self._thread.wait(seconds, until=until)

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        """See :meth:`.PausingThread.call_after`."""
        self._thread.call_after(seconds, action)

    # -- one attempt ------------------------------------------------------------------------------------------------

    def _attempt(self, *, starting: bool = False) -> Outcome:
        """One attempt; handles a lost membership or registration that it found, and logs a failure.

        Of a member that is ``starting``, one that is raised at once is not logged.
        """
        # Before the attempt, never after it: what changes from here on must end the next wait.
        self.begin_quiet()
        outcome = self._join_and_rebalance()
        if isinstance(outcome.error, MembershipLost):
            self._membership_lost()
        elif isinstance(outcome.error, RegistrationLost):
            self._enter(MemberState.SESSION_LOST)
        if outcome.error is not None and not (starting and self._is_refused(outcome.error)):
            self._report_failure(outcome.error, outcome.step)
        return outcome

    def _join_and_rebalance(self) -> Outcome:
        subscription = self._subscription
        assert subscription is not None
        try:
            try:
                self._protocol.join(subscription)
            except MembershipLost as error:
                _log.info("group %s consumer %s joins again: %s", self._config.group_id, self._consumer_id, error)
                self._membership_lost()
                self._protocol.join(subscription)
        except Exception as error:  # noqa: BLE001 - every failure is tried again
            return Outcome(error=error)
        outcome = self._rebalancer.rebalance()
        if self._subscription is not subscription:
            # It was changed while the protocol waited, and the flag of that was lowered for this attempt.
            self._signal.raise_flag()
        return outcome

    def _membership_lost(self) -> None:
        self._enter(MemberState.SESSION_LOST)
        self._rebalancer.membership_lost()

    def _report_failure(self, error: Exception, step: MemberState | None) -> None:
        if isinstance(error, RebalanceAwaited):
            _log.debug("group %s consumer %s waits: %s", self._config.group_id, self._consumer_id, error)
            return
        self.counts = self.counts.failed(step)
        raised = origin(error)
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
            exc_info=None if isinstance(raised, ZkConsumerError) else raised,
        )
