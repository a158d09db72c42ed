"""GroupMember: one member of one consumer group, whatever it does with its partitions.

A member is a ZooKeeper session, a registration, and one thread, the *rebalance thread*, that does everything which
changes them: joining, rebalancing, committing, leaving. Other threads post requests to it, so commits and rebalances
never overlap and there is nothing to lock. Watches and connection events only raise the member's signal.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from zkconsumer.config import ConsumerConfig
from zkconsumer.connector.committer import OffsetCommitter
from zkconsumer.connector.controlthread import ControlThread
from zkconsumer.connector.listener import CalledOutListener, ConsumerRebalanceListener
from zkconsumer.connector.memberstats import MemberStats, RebalanceCounts, step_name
from zkconsumer.connector.nudge import OrphanWatch
from zkconsumer.connector.rebalancer import Rebalancer
from zkconsumer.core.assignors import assignor_name
from zkconsumer.core.fetchcontrol import FetchControl
from zkconsumer.core.rebalance import (
    MemberState,
    longest_settling_seconds,
    orphan_delay_seconds,
    retry_seconds,
    settle_seconds,
    total_wait_covers_session,
)
from zkconsumer.core.subscription import Subscription
from zkconsumer.errors import (
    ConsumerClosed,
    ConsumerIdInUse,
    NotOwner,
    OwnershipConflict,
    RebalanceFailed,
    RegistrationLost,
    SessionExpired,
    UsageError,
    ZkConsumerError,
    ZooKeeperUnavailable,
)
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.offsets.store import OffsetStore
from zkconsumer.offsets.zookeeper import ZooKeeperOffsetStore
from zkconsumer.zookeeper.lease import SessionLease, boot_seconds
from zkconsumer.zookeeper.membership import Membership
from zkconsumer.zookeeper.ownership import PartitionOwnership
from zkconsumer.zookeeper.registry import Registry
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watches import RebalanceSignal

_log = logging.getLogger(__name__)

MakeStore = Callable[[ConsumerConfig, "GroupMember", OffsetStore], OffsetStore]


class GroupMember:
    """Joins a consumer group, keeps its share of partitions, and commits their offsets.

    Args:
        config: the consumer's properties.
        consumer_id: who this is in the group, see :func:`~zkconsumer.connector.identity.new_consumer_id`.
        fetch: what does the fetching; called on the rebalance thread.
        on_failure: told, on the rebalance thread, if that thread dies of an error that nobody foresaw.
        before_commit: called before offsets are committed, on the rebalance thread; makes durable what they cover.
        make_store: makes the offset store, given the one in ZooKeeper (``connector/storage.py``).

    Raises:
        ZooKeeperUnavailable: no server answered within ``zookeeper.connection.timeout.ms``.
        ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        fetch: FetchControl,
        on_failure: Callable[[BaseException], None] = lambda _: None,
        before_commit: Callable[[], None] | None = None,
        make_store: MakeStore = lambda _config, _member, zookeeper: zookeeper,
    ) -> None:
        self.consumer_id = consumer_id
        self._config = config
        self._fetch = fetch
        self._on_failure = on_failure
        self._signal = RebalanceSignal()
        self._thread = ControlThread(
            f"{consumer_id}_rebalance", self._signal, self._react, self._say_goodbye, self._abort
        )
        self._commit_interval = config.auto_commit_interval_ms / 1000
        self._state = MemberState.LATENT
        self._rebalancing = False
        self._counts = RebalanceCounts()
        self._expiries = 0
        self._subscription: Subscription | None = None
        self._session = ZkSession.from_config(config, self._signal.raise_flag)
        self._registry = Registry(self._session, config.security_protocol)
        self._membership = Membership(
            self._session,
            config.group_id,
            self.consumer_id,
            assignor_name(config.partition_assignment_strategy, config.roundrobin_hash_era),
            lambda: time.time_ns() // 1_000_000,
        )
        self._ownership = PartitionOwnership(self._session, config.group_id, self._fence, self._registered)
        zookeeper_store = ZooKeeperOffsetStore(self._session, config.group_id, self._fence)
        self._committer = OffsetCommitter(
            make_store(config, self, zookeeper_store), self._thread.as_callout(before_commit)
        )
        self._rebalancer = Rebalancer(
            config,
            self.consumer_id,
            self._registry,
            self._ownership,
            self._committer,
            fetch,
            self._signal,
        )
        self._orphans = OrphanWatch(config.group_id, self._rebalancer, self._membership, self._look_for_orphans_later)
        self._lease = SessionLease(self._session, self._registered, self._lease_changed)
        asked_for_session = boot_seconds()
        self._session.open()
        self._lease.start(asked_for_session)

    # -- for any thread ---------------------------------------------------------------------------------------------

    def join(self, subscription: Subscription) -> None:
        """Register and rebalance; returns when this member owns its share, or when there is no broker yet.

        Raises:
            RebalanceFailed: after ``rebalance.max.retries`` attempts; the member has left the group again.
            ConsumerIdInUse: the configured ``consumer.id`` belongs to a live consumer.
            UsageError: joined before.
        """
        self._warn_of_short_retries()
        self._begin(partial(self._join, subscription))

    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Fetch given partitions without being a member of the group: nothing is registered, nothing is owned.

        Args:
            partitions: where to start each; None starts at the group's committed offset.

        Raises:
            UsageError: joined or assigned before.
            ZooKeeperUnavailable: the committed offsets cannot be read.
        """
        self._begin(partial(self._assign, partitions))

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, force: bool = False) -> None:
        """Commit offsets now.

        Args:
            offsets: next offset to consume by partition; None commits everything that was handed out.
            force: also commit partitions that this member does not own.

        Raises:
            NotOwner: ``offsets`` names a partition that is not owned, without ``force``.
            ZooKeeperUnavailable, SessionExpired: not committed.
            ConsumerClosed: the member has left, or has not joined.
        """
        self._thread.do(partial(self._commit, None if offsets is None else dict(offsets), force=force))

    def leave(self) -> None:
        """Stop fetching, commit, and leave the group at once; harmless when called again."""
        self._thread.close()
        if not self._thread.is_current():  # a listener's call: the thread says goodbye itself when it gets there
            self._close()

    def repeat(self, seconds: float, action: Callable[[], None]) -> None:
        """Call ``action`` on the rebalance thread every so many seconds from now on.

        Raises:
            ConsumerClosed: the member has left, or has not joined.
        """

        def act() -> None:
            self._thread.call_after(seconds, act)
            action()

        self._thread.do(partial(self._thread.call_after, seconds, act))

    def may_deliver(self) -> bool:
        """True while nobody else can own our partitions; asked at every hand-over, so it is quick (DESIGN 4.5)."""
        return self._lease.holds()

    def pause(self, seconds: float) -> bool:
        """Wait; True, and at once, if this member is leaving."""
        return self._thread.closing.wait(seconds)

    def ownership(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """The partitions that this member owns; a snapshot that does not change."""
        return self._ownership.held

    def live_brokers(self) -> tuple[Broker, ...]:
        """Brokers that are registered in ZooKeeper now."""
        return self._registry.live_brokers()

    def stats(self) -> MemberStats:
        """What this member counted so far."""
        return MemberStats(
            state="rebalancing" if self._rebalancing else self._state.value,
            rebalances=self._counts,
            owned=Counter(partition.topic for partition in self._ownership.held),
            commits=self._committer.commits(),
            lease_lapses=self._lease.lapses,
            session_expiries=self._expiries,
            lost_partitions=self._rebalancer.lost,
        )

    def last_committed(self, partition: TopicPartition) -> int | None:
        """The offset that this member last read from or wrote to the store."""
        return self._committer.last_known(partition)

    def set_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the rebalance listener; to be done before joining.

        Raises:
            UsageError: joined already.
        """
        if self._state is not MemberState.LATENT:
            raise UsageError("set the rebalance listener before creating streams")
        self._rebalancer.listener = CalledOutListener(listener, self._thread)

    def _fence(self) -> str:
        return self._membership.fence

    def _registered(self) -> int:
        return self._membership.registered_session

    def _lease_changed(self) -> None:
        """On the lease's thread: take back what streams hold when it lapsed; look at the group when it holds again."""
        if self._lease.holds():
            self._signal.raise_flag()
        else:
            self._fetch.withhold()

    def require_latent(self) -> None:
        """Refuse a second start.

        Raises:
            UsageError: joined or assigned before.
        """
        if self._state is not MemberState.LATENT:
            raise UsageError("a consumer creates its streams once; make a new connector for another subscription")

    def _begin(self, request: Callable[[], None]) -> None:
        self.require_latent()
        self._state = MemberState.JOINED
        self._thread.start()
        try:
            self._thread.do(request)
        except BaseException:
            self.leave()
            raise

    # -- on the rebalance thread ------------------------------------------------------------------------------------

    def _assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self._rebalancer.start_without_group(partitions)
        self._thread.call_after(self._commit_interval, self._commit_by_timer)

    def _join(self, subscription: Subscription) -> None:
        """The JVM makes its attempts a backoff apart; ours are sooner, so the time counts as well as their number."""
        retries, backoff_ms = self._config.rebalance_max_retries, self._config.rebalance_backoff_ms
        story: deque[str] = deque(maxlen=max(1, retries))
        deadline = time.monotonic() + retries * backoff_ms / 1000
        self._subscription = subscription
        self._thread.call_after(self._commit_interval, self._commit_by_timer)
        with self._counted():
            self._try_to_join(retries, deadline, story)

    def _try_to_join(self, retries: int, deadline: float, story: deque[str]) -> None:
        attempts = 0
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
        raise RebalanceFailed(self._config.group_id, self.consumer_id, list(story))

    def _react(self) -> None:
        """Something changed: let events settle, then try until it is done; a member never stays without trying."""
        if self._subscription is None:
            return  # not joined yet, or reading without a group
        with self._counted():
            self._rebalance_until_done()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Around a whole loop of attempts; it counts if one of them did something and the last one succeeded."""
        began, attempts = time.monotonic(), self._rebalancer.attempts
        self._rebalancing = True
        try:
            yield
        finally:
            self._rebalancing = False
        if self._rebalancer.attempts > attempts and not self._thread.closing.is_set():
            self._counts = self._counts.finished(self._rebalancer.cause, time.monotonic() - began, time.time())

    def _rebalance_until_done(self) -> None:
        failures = 0
        self._settle()
        while not self._thread.closing.is_set():
            failure = self._attempt()
            if failure is None:
                return
            self._wait_before_retry(failure, failures)
            failures += 1

    def _settle(self, *, unless_alone: bool = False) -> None:
        """Wait until members have stopped coming and going, or have done so for too long (docs/adr/0005).

        Args:
            unless_alone: do not wait where this is the group's only member.
        """
        backoff_ms = self._config.rebalance_backoff_ms
        deadline = time.monotonic() + longest_settling_seconds(backoff_ms)
        while True:
            self._signal.discard()
            self._thread.serve()
            if time.monotonic() >= deadline:
                return
            try:
                members = self._registry.member_ids(self._config.group_id, self._signal.raise_flag)
            except ZkConsumerError:
                return  # the attempt that follows tells
            if unless_alone and len(members) <= 1:
                return
            if self._thread.closing.wait(settle_seconds(backoff_ms)) or not self._signal.raised:
                return

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
            self._forget_session()
            return self._failed(error)
        except RegistrationLost as error:
            self._withdraw()
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - a listener may raise anything; the attempt has failed then
            return self._failed(error)
        return None

    def _withdraw(self) -> None:
        try:
            self._membership.withdraw()
        except ZkConsumerError as error:  # the next attempt finds the registration missing again
            _log.info("group %s: could not withdraw what is left of a registration: %s", self._config.group_id, error)

    def _look_for_orphans_later(self) -> None:
        self._thread.call_after(orphan_delay_seconds(self._config.rebalance_backoff_ms), self._orphans.look)

    def _failed(self, error: Exception) -> Exception:
        self._counts = self._counts.failed(self._rebalancer.step)
        # Former owners that have not let go yet are a part of every join.
        _log.log(
            logging.INFO if isinstance(error, OwnershipConflict) else logging.WARNING,
            "group %s consumer %s: rebalance attempt failed in step %s: %s",
            self._config.group_id,
            self.consumer_id,
            step_name(self._rebalancer.step),
            error,
            exc_info=not isinstance(error, ZkConsumerError),
        )
        return error

    def _ensure_registered(self) -> None:
        """Register again if the session is a new one; while merely disconnected, everything goes on as it was."""
        stale = self._session.lost or not self._membership.is_current_or_unknown()
        if stale and self._membership.is_registered:
            self._forget_session()
        if not self._session.connected:
            raise ZooKeeperUnavailable("no connection to ZooKeeper")
        if not self._membership.is_registered:
            assert self._subscription is not None
            self._membership.register(self._subscription, self._signal)
            # Those who have to let go for us let events settle, too; and others may come along with us.
            self._settle(unless_alone=True)

    def _forget_session(self) -> None:
        self._expiries += self._membership.is_registered
        self._rebalancer.session_lost()
        self._membership.forget()

    def _wait_before_retry(self, failure: Exception, failures: int) -> None:
        """Wait until former owners let go, something changes, a request comes, or the backoff is over."""
        seconds = retry_seconds(self._config.rebalance_backoff_ms, failures)
        if isinstance(failure, RegistrationLost):
            return
        if isinstance(failure, OwnershipConflict) and self._session.connected:
            try:
                self._ownership.wait_for_release(failure.holders, seconds, self._signal)
            except ZkConsumerError as error:
                _log.info("waiting for owners was interrupted: %s", error)
            self._thread.serve()
        else:
            self._thread.wait(seconds)

    def _commit(self, offsets: Mapping[TopicPartition, int] | None, *, force: bool) -> None:
        if offsets is None:
            positions = self._rebalancer.owned_positions(handed_out=True)
            missing = self._rebalancer.uncommittable()
            self._commit_vouched(positions)
            if missing:
                raise ZooKeeperUnavailable(
                    f"not committed, since they are not ours just now: {', '.join(map(str, missing))}; try again when "
                    "the rebalance under way is done"
                )
            return
        foreign = sorted(offsets.keys() - self._rebalancer.committable.keys())
        if foreign and not force:
            raise NotOwner(
                f"not owned by {self.consumer_id}: {', '.join(map(str, foreign))}; force=True commits anyway"
            )
        self._commit_vouched(offsets)

    def _commit_vouched(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committer.commit(offsets)
        self._rebalancer.vouch(offsets)

    def _commit_by_timer(self) -> None:
        self._thread.call_after(self._commit_interval, self._commit_by_timer)
        try:
            automatic = self._config.auto_commit_enable
            all_ours = self._rebalancer.commit_automatically() if automatic else self._rebalancer.verify_ownership()
            if not all_ours or self._rebalancer.unread():
                self._signal.raise_flag()
        except ZkConsumerError as error:
            _log.warning("group %s: automatic commit failed, tried again later: %s", self._config.group_id, error)
            if isinstance(error, SessionExpired):
                self._signal.raise_flag()

    def _say_goodbye(self) -> None:
        """Stop, commit, close the session, which removes the registration and the owners at once."""
        self._fetch.stop()
        if self._config.auto_commit_enable and self._session.connected:
            try:
                self._rebalancer.commit_automatically()
            except ZkConsumerError as error:
                _log.warning("group %s: the last commit failed: %s", self._config.group_id, error)
        self._close()

    def _abort(self, error: BaseException) -> None:
        """The rebalance thread dies: nothing may go on in its name. First of all nothing more is handed out."""
        try:
            self._fetch.stop()
            self._close()
        finally:
            self._on_failure(error)

    def _close(self) -> None:
        if self._state is not MemberState.CLOSED:
            self._state = MemberState.CLOSED
            self._lease.stop()
            self._committer.close()
            self._session.close()

    def _warn_of_short_retries(self) -> None:
        config = self._config
        if not total_wait_covers_session(
            config.rebalance_max_retries, config.rebalance_backoff_ms, config.zookeeper_session_timeout_ms
        ):
            _log.warning(
                "rebalance.max.retries x rebalance.backoff.ms does not exceed zookeeper.session.timeout.ms: "
                "starting right after another member crashed will fail"
            )
