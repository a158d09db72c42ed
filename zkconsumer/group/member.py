"""GroupMember: one member of one consumer group, for any use of its partitions.

A member is a session with its group, a registration, and one thread, the *rebalance thread*, that does everything which
changes them: joining, rebalancing, committing, leaving. Other threads post requests to it, so commits and rebalances
never overlap and there is nothing to lock. Watches and connection events only raise the member's signal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ConsumerClosed, MembershipLost, UsageError, ZkConsumerError
from zkconsumer.fetch.rules.fetchcontrol import FetchControl, StreamPartitions
from zkconsumer.group.committer import OffsetCommitter, describe_uncommitted
from zkconsumer.group.controlthread import ControlThread
from zkconsumer.group.groupprotocol import BrokerSource, GroupProtocol
from zkconsumer.group.grouprefusals import GroupRefusals, OnRefusal
from zkconsumer.group.memberdescription import MemberDescription
from zkconsumer.group.memberstats import MemberStats, coarse_state
from zkconsumer.group.rebalancelistener import CalledOutListener, ConsumerRebalanceListener
from zkconsumer.group.rebalanceloop import RebalanceLoop
from zkconsumer.group.rebalancer import Rebalancer
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.memberstate import MemberState, StateHistory
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Broker, ConsumerThreadId, Stamp, TopicPartition
from zkconsumer.offsets.offsetstore import OffsetStore
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.process.wakeup import Latch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemberParts:
    """The parts of a member.

    Attributes:
        protocol: the group protocol.
        brokers: returns the live brokers.
        store: where offsets are kept; fenced by the protocol.
        signal: raised by the protocol.
        closing: set when the member begins to leave; ends waits of the store.
        stamp: see :class:`~zkconsumer.group.committer.OffsetCommitter`; None if offsets have no stamps.
    """

    protocol: GroupProtocol
    brokers: BrokerSource
    store: OffsetStore
    signal: RebalanceSignal
    closing: Latch
    stamp: Callable[[], Stamp | None] | None = None


class GroupMember:
    """Joins a consumer group, keeps its share of partitions, and commits their offsets.

    Args:
        config: the consumer's properties.
        consumer_id: identifies the member in its group, see :func:`~zkconsumer.group.consumerid.new_consumer_id`.
        fetch: does the fetching; called on the rebalance thread.
        parts: its parts, from ``assembly/memberassembly.py``.
        on_failure: called on the rebalance thread if an unexpected error ends that thread, or another consumer has
            taken this member's ``group.instance.id``.
        before_commit: called before offsets are committed, on the rebalance thread or its stand-in; makes durable what
            they cover.
        on_refusal: called on the rebalance thread when Kafka or ZooKeeper keeps refusing, since a permission is
            missing, or the group's coordinator does not let this member own partitions; and with None when that has
            ended. The member keeps trying.
        without_last_commit: the consequence of an incomplete last commit, as text for the log.

    Attributes:
        uncommitted: for each partition that the last commit did not cover, the stored offset (None if there is none)
            and the position; written by the rebalance thread when it ends.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        fetch: FetchControl,
        parts: MemberParts,
        *,
        on_failure: Callable[[BaseException], None] = lambda _: None,
        before_commit: Callable[[], None] | None = None,
        on_refusal: OnRefusal = lambda _: None,
        without_last_commit: str = "the next owner of these partitions reads the records again",
    ) -> None:
        self.consumer_id = consumer_id
        self.uncommitted: Mapping[TopicPartition, tuple[int | None, int]] = {}
        self._config = config
        self._fetch = fetch
        self._protocol, self._brokers, self._signal = parts.protocol, parts.brokers, parts.signal
        self._on_failure = on_failure
        self._without_last_commit = without_last_commit
        self._thread = ControlThread(
            f"{consumer_id}_rebalance",
            self._signal,
            react=self._react,
            finish=self._commit_and_leave,
            abandon=self._stop_and_close,
            on_failure=self._abort,
            patience_s=config.membership_timeout_ms / 1000,
            closing=parts.closing,
        )
        self._commit_interval = config.auto_commit_interval_ms / 1000
        self._refusals = GroupRefusals(on_refusal)
        self._without_group = False  # written by the rebalance thread
        self._states = StateHistory(time.monotonic())
        self._begun = self._started = False  # without its thread, a member that has left counts as begun
        self._starting = threading.Lock()  # guards both
        self._committer = OffsetCommitter(
            config,
            self.consumer_id,
            self._protocol,
            fetch,
            parts.store,
            self._signal,
            self._thread.as_callout(before_commit),
            parts.stamp,
        )
        self._rebalancer = Rebalancer(config, self.consumer_id, self._protocol, self._committer, fetch, self._enter)
        self._loop = RebalanceLoop(
            config, self.consumer_id, self._protocol, self._rebalancer, self._thread, self._signal
        )
        self._loop.attempted = self._refusals.attempted
        self._loop.replaced = self._end_replaced

    def open(self) -> None:
        """Connect; to be called once, before joining.

        Raises:
            ZooKeeperUnavailable: no server answered within ``zookeeper.connection.timeout.ms``.
            ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
            ThreadLimit: not all its threads could be started.
        """
        try:
            self._protocol.open(self._loop, self._lease_changed)
        except Exception:  # after an interrupt closing could wait for a server that does not answer
            self._close()  # some of its threads may run
            raise

    # -- for any thread ---------------------------------------------------------------------------------------------

    def join(self, subscription: Subscription) -> None:
        """Register and rebalance; returns when this member owns its share, or when there is no broker yet.

        Raises:
            RebalanceFailed: after ``rebalance.max.retries`` attempts; the member has left the group again. It may be
                one of :data:`~zkconsumer.errors.NEEDS_AN_OPERATOR` instead.
            ConsumerIdInUse: the configured ``consumer.id`` belongs to a live consumer.
            InstanceIdInUse: another consumer has taken the ``group.instance.id`` meanwhile.
            UsageError: joined before.
        """
        self._begin(partial(self._join, subscription))

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription; returns when that is noted, and the next rebalance carries it out.

        Raises:
            UsageError: not joined.
            ConsumerClosed: the member has left, or has not joined.
        """
        self._thread.do(partial(self._loop.subscribe, subscription))

    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Fetch given partitions without joining the group: nothing is registered, nothing is owned.

        Args:
            partitions: where to start each; None starts at the group's committed offset.

        Raises:
            UsageError: joined or assigned before.
            ZooKeeperUnavailable: the committed offsets cannot be read.
        """
        self._begin(partial(self._assign, partitions))

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        force: bool = False,
        generation: int | None = None,
        only: Callable[[], StreamPartitions] | None = None,
    ) -> None:
        """Commit offsets now.

        Args:
            offsets: next offset to consume by partition; None commits everything that was handed out, or with
                ``commit.on=done`` that is done.
            only: without ``offsets``, returns what to commit; called on the rebalance thread.
            force: also commit partitions that this member does not own.
            generation: number of the assignment in which ``offsets`` were read; None if they belong to no assignment.

        Raises:
            NotOwner: see :meth:`OffsetCommitter.commit <zkconsumer.group.committer.OffsetCommitter.commit>`.
            GenerationEnded: see :meth:`Rebalancer.require_generation
                <zkconsumer.group.rebalancer.Rebalancer.require_generation>`; nothing is committed.
            RetriableError, MembershipLost: not committed.
            ConsumerClosed: the member has left, or has not joined.
        """
        copy = None if offsets is None else dict(offsets)
        by_listener = self._thread.is_current()

        def commit() -> None:
            if generation is not None:
                self._rebalancer.require_generation(generation, copy or ())
            self._committer.commit(copy, force=force, by_listener=by_listener, only=None if only is None else only())

        self._thread.do(commit)

    def stored(self, partitions: Collection[TopicPartition], generation: int) -> dict[TopicPartition, StoredOffset]:
        """The stored offset of each partition with its mark, as this member last read or wrote it; None if unknown.

        Raises:
            GenerationEnded: as of :meth:`commit`.
            RetriableError, MembershipLost: a mark has to be looked up, and the store does not answer.
            ConsumerClosed: the member has left, or has not joined.
        """
        stored: dict[TopicPartition, StoredOffset] = {}

        def look_up() -> None:
            self._rebalancer.require_generation(generation, partitions)
            stored.update(self._committer.store.stored(partitions))

        self._thread.do(look_up)
        return stored

    def leave(self) -> None:
        """Stop fetching, commit, and leave the group at once; idempotent.

        Called by a listener or by ``before_commit`` it returns at once, and the member leaves when they have returned.
        If they do not return within the session timeout, because they wait for the caller of this, the member leaves
        without its last commit.
        """
        with self._starting:
            self._begun = True
        if not self._started and self._states.current is not MemberState.CLOSED:  # again if it was interrupted
            self._close()
        self._thread.close()

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
        """True while no other member can own our partitions; called at every hand-over, so it is fast.

        See architecture.md#lease.
        """
        return self._protocol.lease.holds()

    @property
    def release_s(self) -> float:
        """How long :meth:`FetchControl.release` may wait for work in progress, in seconds."""
        return self._protocol.release_s

    def ownership(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """The partitions that this member owns, or reads without a group; an immutable snapshot."""
        return self._committer.without_group or self._protocol.held.partitions

    def live_brokers(self) -> tuple[Broker, ...]:
        """The live brokers of the cluster."""
        return self._brokers.live_brokers()

    def stats(self) -> MemberStats:
        """The counters of this member."""
        standing = self._protocol.describe()
        return MemberStats(
            state=coarse_state(self._states.current),
            rebalances=self._loop.counts,
            owned=Counter(partition.topic for partition in self.ownership()),
            commits=self._committer.store.commits(),
            lease_lapses=standing.lapses,
            session_expiries=standing.removals,
            lost_partitions=self._committer.lost,
            connected=standing.connected,
            delivering=self.may_deliver(),
        )

    def describe(self) -> MemberDescription:
        """The present state of this member, for operators and tests."""
        counts, standing = self._loop.counts, self._protocol.describe()
        return MemberDescription(
            group=self._config.group_id,
            consumer_id=self.consumer_id,
            protocol="none" if self._without_group else self._protocol.name,
            states=self._states.entered,
            generation=self._rebalancer.assignment.generation,
            attempts=self._rebalancer.attempts,
            views=standing.views,
            last_cause=counts.last_cause,
            last_seconds=counts.last_seconds,
            last_finished=counts.last_finished,
            owned=self.ownership(),
            session=standing.session,
            connected=standing.connected,
            lease_s=self._protocol.lease.remaining(),
            delivering=self.may_deliver(),
            **standing.role._asdict(),
        )

    def last_committed(self, partition: TopicPartition) -> int | None:
        """The offset that this member last read from or wrote to the store."""
        return self._committer.last_known(partition)

    def set_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the rebalance listener; to be done before joining.

        Raises:
            UsageError: joined already.
        """
        if self._begun:
            raise UsageError("set the rebalance listener before creating streams")
        self._rebalancer.listener = CalledOutListener(listener, self._thread)

    def _lease_changed(self) -> None:
        """On the lease's thread: when it has lapsed, take back what streams hold.

        When it holds again, streams continue, and the group is read.
        """
        if self.may_deliver():
            self._fetch.deliver()
            self._signal.raise_flag()
        else:
            self._fetch.withhold()

    def require_latent(self) -> None:
        """Refuse a second start.

        Raises:
            UsageError: joined or assigned before.
        """
        if self._begun:
            raise UsageError("streams can be created only once; create a new connector for another subscription")

    def _begin(self, request: Callable[[], None]) -> None:
        with self._starting:
            self.require_latent()
            self._thread.start()
            self._started = self._begun = True
        try:
            self._thread.do(request)
        except BaseException:
            self.leave()
            raise

    # -- on the rebalance thread ------------------------------------------------------------------------------------

    def _enter(self, state: MemberState) -> None:
        self._states.enter(state, time.monotonic())

    def _react(self) -> None:
        self._loop.react()

    def _assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self._without_group = True
        self._protocol.stand_alone()
        self._enter(MemberState.STARTING)
        self._rebalancer.start_without_group(partitions)
        self._thread.call_after(self._commit_interval, self._commit_by_timer)

    def _join(self, subscription: Subscription) -> None:
        self._thread.call_after(self._commit_interval, self._commit_by_timer)
        self._loop.join(subscription)

    def _commit_by_timer(self) -> None:
        self._thread.call_after(self._commit_interval, self._commit_by_timer)
        if not self._protocol.can_commit:  # the protocol logs it
            return
        try:
            automatic = self._config.auto_commit_enable
            all_ours = self._committer.commit_automatically() if automatic else self._committer.verify_ownership()
            if not all_ours or self._rebalancer.with_unreadable_offset():
                self._signal.raise_flag()
            self._refusals.committed(None)
        except ConsumerClosed:  # in before_commit: this thread ends
            raise
        except ZkConsumerError as error:
            self._refusals.committed(error)
            _log.warning("group %s: automatic commit failed, will be retried: %s", self._config.group_id, error)
            if isinstance(error, MembershipLost):
                self._signal.raise_flag()

    def _commit_and_leave(self) -> None:
        """Stop, commit, close the session, which removes the registration and the owner znodes at once."""
        self._enter(MemberState.LEAVING)
        self._fetch.stop()
        if self._config.auto_commit_enable:
            self._commit_last()
        self._close()

    def _commit_last(self) -> None:
        """Make the last commit."""
        reason = "another member may own them already"
        try:
            if self._protocol.can_commit:
                with self._committer.releasing():
                    self._committer.commit_automatically()
            else:
                reason = "the group cannot be reached; check that the servers of ZooKeeper, or the brokers, run"
        except ZkConsumerError as error:
            reason = str(error)
        self._report_uncommitted(reason)

    def _report_uncommitted(self, reason: str) -> None:
        """Note and log what the last commit did not store."""
        self.uncommitted = self._committer.uncommitted()
        if self.uncommitted:
            _log.warning(
                "group %s: the last commit of %s did not store %s: %s; %s",
                self._config.group_id,
                self.consumer_id,
                describe_uncommitted(self.uncommitted),
                reason,
                self._without_last_commit,
            )

    def _end_replaced(self, error: ZkConsumerError) -> None:
        """Others continue in this member's place: streams raise, and the rebalance thread ends after this."""
        _log.error("%s; the streams of %s raise", error, self.consumer_id)
        self._on_failure(error)
        self._thread.close()

    def _abort(self, error: BaseException) -> None:
        """The rebalance thread failed: stop handing out records first, then leave the group."""
        try:
            self._stop_and_close()
        finally:
            self._on_failure(error)

    def _stop_and_close(self) -> None:
        self._fetch.stop(drain=False)
        if self._config.auto_commit_enable:
            self._report_uncommitted("there was none; see the messages before this one")
        self._close()

    def _close(self) -> None:
        """Close the store and leave the group without a commit. Idempotent."""
        self._committer.store.close()
        self._protocol.leave()
        self._enter(MemberState.CLOSED)
