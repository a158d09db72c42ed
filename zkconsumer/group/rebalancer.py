"""Rebalancer: the five steps by which a member gets its share of the group's partitions (SPEC 4.4).

Everything here runs on the member's rebalance thread, which alone writes the attributes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import replace

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.assignors import ASSIGNORS, SHARED_WITH_JVM, TOPIC_BY_TOPIC, Assignment, assignor_name
from zkconsumer.core.fetchcontrol import FetchAssignment, FetchControl, Refused
from zkconsumer.core.groupview import GroupView, tell_changes, tell_partitions
from zkconsumer.core.memberstate import STATE_OF_STEP, MemberState
from zkconsumer.core.offsets import StoredOffset, start_offset
from zkconsumer.core.rebalance import (
    RebalanceCause,
    RebalanceStep,
    given_up,
    held_by_others,
    my_share,
    nudges,
    rebalance_cause,
)
from zkconsumer.core.znodes import GroupPaths
from zkconsumer.errors import (
    MalformedZnode,
    OwnershipConflict,
    RegistrationLost,
    SessionExpired,
    StrategyConflict,
    ZkConsumerError,
)
from zkconsumer.group.committer import OffsetCommitter
from zkconsumer.group.listener import ConsumerRebalanceListener
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.ownership import PartitionOwnership
from zkconsumer.zookeeper.registry import Registry

_log = logging.getLogger(__name__)
_events = logging.getLogger("zkconsumer.events")

NOTHING = FetchAssignment(generation=0, threads={}, offsets={})
"""The assignment of a member that owns nothing yet."""


class Rebalancer:
    """Runs rebalance attempts for one member.

    Args:
        config: of the member.
        consumer_id: of the member.
        registry: where the group is read.
        ownership: the member's owner znodes.
        committer: the member's offsets.
        fetch: the data plane.
        signal: raised by watches on all that the assignment was computed from; requests the next rebalance.
        enter_state: notes the state that the member is in now.

    Attributes:
        assignment: what is being fetched; replaced, never changed.
        step: where the running or last attempt is; None while the group is read before the first step.
        cause: why the last one that did something was necessary.
        views: views of the group read so far.
        attempts: attempts so far that did more than find themselves needless.
        listener: told of releases and starts.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        registry: Registry,
        ownership: PartitionOwnership,
        committer: OffsetCommitter,
        fetch: FetchControl,
        signal: RebalanceSignal,
        enter_state: Callable[[MemberState], None],
    ) -> None:
        self._config = config
        self._consumer_id = consumer_id
        self._registry = registry
        self._ownership = ownership
        self._committer = committer
        self._fetch = fetch
        self._signal = signal
        self.enter_state = enter_state
        self._assignor_name = assignor_name(config.partition_assignment_strategy, config.roundrobin_hash_era)
        # Other topics cannot change what this member gets by range, so they are neither read nor watched.
        self._topics_of = consumer_id if self._assignor_name in TOPIC_BY_TOPIC else None
        self.assignment = NOTHING
        self.step: RebalanceStep | None = None
        self.cause = RebalanceCause.START
        self.views = 0
        self.attempts = 0
        self.listener: ConsumerRebalanceListener | None = None
        self._fetching = False
        self._view_at_last_success: GroupView | None = None
        self._latest_view: GroupView | None = None
        self._latest_view_token: object = None
        self._registered_again = False
        self._assigned_view: GroupView | None = None
        self._group_assignment: Assignment = {}
        self._jvm_members: frozenset[str] = frozenset()
        self._reported: Mapping[str, str] = {}
        self._missing_topics: Set[str] = frozenset()

    def rebalance(self) -> None:
        """One attempt.

        Raises:
            OwnershipConflict: a former owner has not let go yet.
            Exception: any other failure, the listener's included; nothing is owned then, unless the session is down.
        """
        try:
            self._attempt()
        except OwnershipConflict:
            raise  # only former owners have to let go: the next attempt need not read the group again
        except BaseException:
            self._latest_view = None
            raise
        self._latest_view = None

    def _attempt(self) -> None:
        self.enter_state(MemberState.READING_GROUP)
        view = self._view()
        if not view.brokers and not self._registry.live_brokers(self._signal.raise_flag):
            # SPEC 4.4: without brokers nothing is touched; the watch just set brings us back when one registers.
            _log.warning(
                "group %s: no broker that this consumer can use is registered in ZooKeeper, waiting for one; check "
                "that brokers run, security.protocol, and the chroot of zookeeper.connect",
                self._config.group_id,
            )
            self.enter_state(MemberState.FETCHING if self._fetching else MemberState.WAITING_FOR_BROKERS)
            return
        if self._consumer_id not in view.members or self._consumer_id not in view.our_clients:
            self._rejoin()
        if self._is_needless(view):
            self.enter_state(MemberState.FETCHING)
            return
        self.attempts += 1
        self.cause = rebalance_cause(self._view_at_last_success, view, registered_again=self._registered_again)
        _log.info(
            "group %s consumer %s rebalance %d (%s): %s",
            self._config.group_id,
            self._consumer_id,
            self.attempts,
            self.cause.value,
            tell_changes(self._view_at_last_success, view),
        )
        with self._committer.releasing():
            self._stop_fetchers()  # 1
            self._release_ownership(view)  # 2
        group_assignment, share = self._reassign()  # 3
        self._claim_ownership(share)  # 4
        self._restart_fetchers(group_assignment, share)  # 5
        # The view that step 3 used, which may be newer than the one that made this attempt necessary.
        self._view_at_last_success, self._registered_again = self._assigned_view, False

    # -- the five steps ---------------------------------------------------------------------------------------------

    def _stop_fetchers(self) -> None:
        """Nothing more is handed out; then commit what was released, so that a new owner goes on there."""
        self._enter(RebalanceStep.STOP_FETCHERS)
        self._stop_handing_out(drain=True)
        if self._config.auto_commit_enable:
            try:
                self._committer.commit_automatically(retry=False)
            except SessionExpired:
                raise
            except ZkConsumerError as error:
                # Not a reason to keep the partitions: whoever gets them reads again what was not committed.
                _log.warning("group %s: releasing without a commit: %s", self._config.group_id, error)

    def _release_ownership(self, view: GroupView) -> None:
        """Call the listener, then give up everything; owner znodes of partitions that stay ours are retained."""
        self._enter(RebalanceStep.RELEASE_OWNERSHIP)
        if self.listener is not None:
            self.listener.before_releasing_partitions(frozenset(self._ownership.held))
        # Where the listener took its time, step 3 may find another share; step 4 deletes what is not in that one.
        stays = my_share(self._group_assignment, self._consumer_id) if self._assigned_view is view else {}
        self._ownership.release(retain=stays)

    def _reassign(self) -> tuple[Assignment, dict[TopicPartition, ConsumerThreadId]]:
        """Compute the partitions of all members and which are ours, from a view that nothing has outdated."""
        self._enter(RebalanceStep.REASSIGN)
        try:
            return self._assign(self._view())
        except Exception:
            self._ownership.release()  # also what was retained
            raise

    def _claim_ownership(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Create the owner znodes of our share, all or none."""
        self._enter(RebalanceStep.CLAIM_OWNERSHIP)
        self._ownership.claim(share)

    def _restart_fetchers(self, group_assignment: Assignment, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Read offsets, which only now are the former owners' last word, and start to fetch."""
        self._enter(RebalanceStep.RESTART_FETCHERS)
        try:
            marked = self._committer.fetch_marked(share.keys())
            stored = {partition: one.offset for partition, one in marked.items()}
            offsets = self._start_offsets(stored, group_assignment)
        except Exception:
            self._ownership.release()
            raise
        threads = {partition: thread for partition, thread in share.items() if partition in offsets}
        refused = {p: Refused(share[p], error) for p, error in self._committer.refused().items() if p in share}
        self.assignment = replace(self._next_assignment(threads, offsets, marked), refused=refused)
        self._committer.learn(stored, offsets)
        self._fetch.start(self.assignment)
        self._fetching = True
        self.enter_state(MemberState.FETCHING)
        _events.info(
            "group %s: %s %s, generation %d, owns %s",
            self._config.group_id,
            "joined as" if self.assignment.generation == 1 else "rebalanced:",
            self._consumer_id,
            self.assignment.generation,
            tell_partitions(share) or "nothing",
        )

    def start_without_group(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Fetch partitions that nobody shares; for a member that never joins."""
        thread = ConsumerThreadId(self._consumer_id, 0)
        marked = self._committer.fetch_marked(partitions.keys())
        stored = {partition: one.offset for partition, one in marked.items()}
        for partition, offset in partitions.items():
            if offset is None and partition in self._committer.refused():
                raise self._committer.refused()[partition]
            if offset is None and partition not in stored:
                raise MalformedZnode(
                    GroupPaths(self._config.group_id).offset(partition), "not an offset; mend it first"
                )
        offsets = {p: stored.get(p) if offset is None else offset for p, offset in partitions.items()}
        self._committer.learn(stored, offsets)
        threads = self._committer.without_group = dict.fromkeys(partitions, thread)
        self.assignment = self._next_assignment(threads, offsets, marked)
        self._fetch.start(self.assignment)
        self.enter_state(MemberState.FETCHING)

    # -- what the steps need ----------------------------------------------------------------------------------------

    def session_lost(self) -> None:
        """The session is gone and everything that it owned: stop handing out, own nothing, keep positions."""
        self._registered_again = True
        self._stop_handing_out(drain=False)
        self._ownership.lose_all()

    def _stop_handing_out(self, *, drain: bool) -> None:
        self._fetching = False
        self._fetch.stop(drain=drain)

    def _rejoin(self) -> None:
        """Somebody deleted a node of our registration: let go of all and register again.

        Without the ``ids`` node nobody counts us in; without the session node we can neither claim nor commit.

        Raises:
            RegistrationLost: when that is prepared.
            SessionExpired: the same, without the session node.
        """
        self._registered_again = True
        self._stop_handing_out(drain=False)
        self._ownership.release()
        raise RegistrationLost(f"the registration of {self._consumer_id} was deleted; registering again")

    def nudges(self) -> bool:
        """True if it is this member that gets JVM members to try again; see :func:`~zkconsumer.core.rebalance.nudges`.

        Also where its last view is outdated: then a rebalance follows, after which it is asked again.
        """
        view = self._assigned_view
        return view is not None and nudges(self._consumer_id, view.our_clients)

    def orphans(self) -> tuple[list[TopicPartition], bool]:
        """Partitions that JVM members should own, as of the last view, and nobody does; and whether others hold some.

        Raises:
            ZooKeeperUnavailable, SessionExpired: unknown.
        """
        if not self._jvm_members:
            return [], False
        group_assignment = self._of_all_topics()
        theirs = [p for p, thread in group_assignment.items() if thread.consumer_id in self._jvm_members]
        owners = self._registry.owner_threads(self._config.group_id, theirs)
        return given_up(group_assignment, owners, self._jvm_members), held_by_others(
            group_assignment, owners, self._jvm_members
        )

    def _of_all_topics(self) -> Assignment:
        """The partitions of all members, also of topics that do not concern this member otherwise."""
        view = self._assigned_view
        if view is None or self._topics_of is None:
            return self._group_assignment
        threads = view.threads_by_topic(exclude_internal=self._config.exclude_internal_topics)
        others = self._registry.partitions(sorted(threads.keys() - view.partitions.keys()))
        return ASSIGNORS[self._assignor_name](threads, {**view.partitions, **others})

    def awaited_release(self, partitions: Collection[TopicPartition]) -> Callable[[], bool]:
        """See :meth:`PartitionOwnership.awaited_release`."""
        return self._ownership.awaited_release(partitions)

    def left_out(self) -> str:
        """A sentence about members whose registration we cannot read, "" if there are none.

        They may well hold what we want: a JVM member can use a regex that we cannot.
        """
        return "".join(f"; left out of the assignment: {reason}" for reason in self._reported.values())

    def with_unreadable_offset(self) -> Set[TopicPartition]:
        """Partitions that we own and do not fetch, since their stored offset could not be read."""
        return self._ownership.held.keys() - self.assignment.threads.keys()

    def _view(self) -> GroupView:
        """The group as it is. Every read leaves watches on all that matters, so what they guard is not read again."""
        latest = self._signal.latest  # before reading: what changes meanwhile makes the view outdated
        if self._latest_view is not None and self._latest_view_token is latest:
            return self._latest_view
        view = self._registry.view(self._config.group_id, self._topics_of)
        self._latest_view, self._latest_view_token = view, latest
        self.views += 1
        for consumer_id, reason in view.unreadable.items():
            if self._reported.get(consumer_id) != reason:
                _log.error("group %s: a member is left out of the assignment: %s", self._config.group_id, reason)
        self._reported = view.unreadable
        self._report_missing_topics(view)
        return view

    def _report_missing_topics(self, view: GroupView) -> None:
        """Topics by name that do not exist are waited for (SPEC 3); a mistyped one would be waited for in silence."""
        mine = view.members.get(self._consumer_id)
        missing = set() if mine is None else mine.topics.keys() - view.partitions.keys()
        for topic in sorted(missing - self._missing_topics):
            _log.warning(
                "group %s: topic %s does not exist; waiting for it to be created (check its name, and the chroot of "
                "zookeeper.connect)",
                self._config.group_id,
                topic,
            )
        self._missing_topics = missing

    def _assign(self, view: GroupView) -> tuple[Assignment, dict[TopicPartition, ConsumerThreadId]]:
        reason = view.disagreement(self._assignor_name, shared_with_jvm=self._assignor_name in SHARED_WITH_JVM)
        if reason is not None:
            raise StrategyConflict(f"group {self._config.group_id}: {reason}")
        if view is self._assigned_view:
            return self._group_assignment, my_share(self._group_assignment, self._consumer_id)
        threads = view.threads_by_topic(exclude_internal=self._config.exclude_internal_topics)
        group_assignment = ASSIGNORS[self._assignor_name](threads, view.partitions)
        self._assigned_view = view
        self._group_assignment, self._jvm_members = (
            group_assignment,
            frozenset(view.members.keys() - view.our_clients.keys()),
        )
        return group_assignment, my_share(group_assignment, self._consumer_id)

    def _is_needless(self, view: GroupView) -> bool:
        """True if we fetch exactly our share already and ZooKeeper says that it is ours (DESIGN 4.12)."""
        if not self._fetching:
            return False
        _, share = self._assign(view)
        if share != self._ownership.held or not self._committer.verify_ownership():
            return False
        if self._view_at_last_success is not None and view.recreated_since(
            self._view_at_last_success, {p.topic for p in share}
        ):
            return False
        unreadable = self.with_unreadable_offset()
        return not (unreadable and self._committer.fetch(unreadable))  # an unreadable offset may have been repaired

    def _start_offsets(
        self, stored: Mapping[TopicPartition, int | None], group_assignment: Assignment
    ) -> dict[TopicPartition, int | None]:
        positions = self._fetch.positions(handed_out=True)
        offsets = {
            partition: start_offset(offset, self._committer.last_known(partition), positions.get(partition))
            for partition, offset in stored.items()
        }
        if self.listener is not None:
            chosen = self.listener.before_starting_fetchers(self._consumer_id, dict(group_assignment)) or {}
            offsets.update({partition: offset for partition, offset in chosen.items() if partition in offsets})
        return offsets

    def _next_assignment(
        self,
        threads: Mapping[TopicPartition, ConsumerThreadId],
        offsets: Mapping[TopicPartition, int | None],
        stored: Mapping[TopicPartition, StoredOffset],
    ) -> FetchAssignment:
        as_stored = (p for p, n in offsets.items() if n is not None and p in stored and stored[p].offset == n)
        origins = {partition: self._committer.location(partition) for partition in as_stored}
        view, internal = self._assigned_view, self._config.exclude_internal_topics
        topics = {} if view is None else view.subscribed_topics(self._consumer_id, exclude_internal=internal)
        return FetchAssignment(self.assignment.generation + 1, threads, offsets, origins, stored, topics)

    def _enter(self, step: RebalanceStep) -> None:
        self.step = step
        self.enter_state(STATE_OF_STEP[step])
        _log.info(
            "group %s consumer %s rebalance %d: step %s",
            self._config.group_id,
            self._consumer_id,
            self.attempts,
            step.value,
        )
