"""ShareComputer: reads a group from ZooKeeper and computes from it what this member should own.

See jvm-consumer.md#assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from typing import Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import StrategyConflict
from zkconsumer.group.groupprotocol import ChangeSignal, Target
from zkconsumer.group.rules.assignors import ASSIGNORS, SHARED_WITH_JVM, TOPIC_BY_TOPIC, Assignment, assignor_name
from zkconsumer.group.rules.groupview import GroupView, describe_changes
from zkconsumer.group.rules.rebalancetimes import (
    RebalanceCause,
    given_up,
    held_by_others,
    my_share,
    view_change,
)
from zkconsumer.group.rules.reconcile import Share
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.group.zookeeper.rules.clusterchanges import ClusterChanges
from zkconsumer.model import ConsumerThreadId, TopicPartition

_log: Final = logging.getLogger(__name__)


class ShareComputer:
    """The group as this member last read it, and the resulting share. Used by the rebalance thread only.

    Args:
        config: the consumer's properties.
        consumer_id: id of this member.
        group_reader: reads the group, with watches.
        signal: raised by those watches; its token shows whether a view is outdated.
        changes: notes each reading, where members do not get watch events for changes of topics and partitions.

    Attributes:
        views: number of views of the group read so far.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        group_reader: GroupReader,
        signal: ChangeSignal,
        changes: ClusterChanges | None = None,
    ) -> None:
        self._config = config
        self._consumer_id = consumer_id
        self._group_reader = group_reader
        self._signal = signal
        self._changes = changes
        self._assignor_name = assignor_name(config.partition_assignment_strategy, config.roundrobin_hash_era)
        # Other topics cannot change what this member gets by range, so they are neither read nor watched.
        self._topics_of = consumer_id if self._assignor_name in TOPIC_BY_TOPIC else None
        self.views = 0
        self._view_at_last_success: GroupView | None = None
        self._latest_view: GroupView | None = None
        self._latest_view_token: object = None
        self._assigned_view: GroupView | None = None
        self._group_assignment: Assignment = {}
        self._unreadable: Mapping[str, str] = {}
        self._missing_topics: Set[str] = frozenset()

    def view(self) -> GroupView:
        """The present view of the group. Every read arms watches, so data that has not changed is not read again.

        Raises:
            ZooKeeperUnavailable, SessionExpired: the group cannot be read.
        """
        latest = self._signal.latest  # before reading: what changes meanwhile makes the view outdated
        if self._latest_view is not None and self._latest_view_token is latest:
            return self._latest_view
        view = self._read()
        self._latest_view, self._latest_view_token = view, latest
        self.views += 1
        for consumer_id, reason in view.unreadable.items():
            if self._unreadable.get(consumer_id) != reason:
                _log.error("group %s: a member is excluded from the assignment: %s", self._config.group_id, reason)
        self._unreadable = view.unreadable
        self._report_missing_topics(view)
        return view

    def _read(self) -> GroupView:
        group = self._config.group_id
        if self._changes is None:
            return self._group_reader.view(group, self._topics_of)
        events = self._group_reader.group_events(group)
        view = self._group_reader.view(group, self._topics_of)
        self._changes.read(view, events)
        return view

    def forget_view(self) -> None:
        """Read the group again the next time, also if no watch has fired."""
        self._latest_view = None

    def assign(self, view: GroupView) -> dict[TopicPartition, ConsumerThreadId]:
        """This member's share of a view.

        Raises:
            StrategyConflict: the members do not agree on how to assign.
        """
        reason = view.disagreement(self._assignor_name, shared_with_jvm=self._assignor_name in SHARED_WITH_JVM)
        if reason is not None:
            raise StrategyConflict(f"group {self._config.group_id}: {reason}")
        if view is not self._assigned_view:
            threads = view.threads_by_topic(exclude_internal=self._config.exclude_internal_topics)
            self._group_assignment = ASSIGNORS[self._assignor_name](threads, view.partitions)
            self._assigned_view = view
        return my_share(self._group_assignment, self._consumer_id)

    def change(self, view: GroupView) -> tuple[RebalanceCause, str]:
        """What has changed since :meth:`settled`, also as text for the log."""
        before = self._view_at_last_success
        return view_change(before, view), describe_changes(before, view)

    def assigned(self, view: GroupView) -> Share:
        """This member's share of a view, if it was computed; empty otherwise."""
        return my_share(self._group_assignment, self._consumer_id) if self._assigned_view is view else {}

    def target(self, view: GroupView) -> Target:
        """What this member should own, according to a view.

        Raises:
            StrategyConflict: see :meth:`assign`.
        """
        share = self.assign(view)
        topics = view.subscribed_topics(self._consumer_id, exclude_internal=self._config.exclude_internal_topics)
        return Target(share, self._group_assignment, topics)

    def settled(self) -> None:
        """Compare later views with the one that the last share was computed from."""
        self._view_at_last_success = self._assigned_view

    @property
    def excluded(self) -> str:
        """See :attr:`.Standing.excluded`.

        They may hold partitions that this member should own: a JVM member can use a regex that we cannot.
        """
        return "".join(f"; excluded from the assignment: {reason}" for reason in self._unreadable.values())

    # -- JVM members that gave up -----------------------------------------------------------------------------------

    def nudges(self) -> bool:
        """True if this member is the one that nudges; see :attr:`.GroupView.nudger`.

        Also if its last view is outdated: then a rebalance follows, after which this is called again.
        """
        view = self._assigned_view
        return view is not None and view.nudger == self._consumer_id

    def orphans(self) -> tuple[list[TopicPartition], bool]:
        """Partitions without an owner that JVM members should own, by the last view; and whether others hold any.

        Raises:
            ZooKeeperUnavailable, SessionExpired: the group cannot be read.
        """
        jvm = frozenset() if self._assigned_view is None else self._assigned_view.jvm_members
        if not jvm:
            return [], False
        assignment = self._of_all_topics()
        of_jvm = [p for p, thread in assignment.items() if thread.consumer_id in jvm]
        owners = self._group_reader.owner_threads(self._config.group_id, of_jvm)
        return given_up(assignment, owners, jvm), held_by_others(assignment, owners, jvm)

    def _of_all_topics(self) -> Assignment:
        """The assignment of all members, also of topics that this member does not subscribe to."""
        view = self._assigned_view
        if view is None or self._topics_of is None:
            return self._group_assignment
        threads = view.threads_by_topic(exclude_internal=self._config.exclude_internal_topics)
        further = self._group_reader.partitions(sorted(threads.keys() - view.partitions.keys()))
        return ASSIGNORS[self._assignor_name](threads, {**view.partitions, **further})

    def _report_missing_topics(self, view: GroupView) -> None:
        """Log topics that are not found: a member waits for them, so a mistyped name would go unnoticed.

        See jvm-consumer.md#subscriptions.
        """
        subscription = view.members.get(self._consumer_id)
        missing = set() if subscription is None else subscription.topics.keys() - view.partitions.keys()
        for topic in sorted(missing - self._missing_topics):
            _log.warning(
                "group %s: topic %s is not found; waiting for it to be created (check its name, and %s)",
                self._config.group_id,
                topic,
                "the chroot of zookeeper.connect"
                if self._config.bootstrap_servers is None
                else "bootstrap.servers, and that the group may describe it",
            )
        self._missing_topics = missing
