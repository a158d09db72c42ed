"""ZooKeeperGroup: the group protocol of the JVM consumer: each member computes and claims its share.

See jvm-consumer.md#zookeeper-layout, jvm-consumer.md#rebalance.

A :class:`~zkconsumer.group.groupprotocol.GroupProtocol`, made of the session and its users: registration, watched
reads, owner znodes, the lease, and the nudging of JVM members that gave up.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final, Unpack

from zkconsumer.cluster.rules.clustercatalog import read_if_any
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import OwnershipConflict, RegistrationLost, ZkConsumerError
from zkconsumer.group.groupprotocol import ChangeSignal, NextAssignment, NoNeed, Target
from zkconsumer.group.rules.rebalancetimes import (
    longest_settling_seconds,
    orphan_delay_seconds,
    retry_window_seconds,
    settle_seconds,
)
from zkconsumer.group.rules.reconcile import Share
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.group.zookeeper.orphanwatch import OrphanWatch
from zkconsumer.group.zookeeper.ownership import NOTHING
from zkconsumer.group.zookeeper.rules.clusterchanges import ClusterChanges
from zkconsumer.group.zookeeper.sharecomputer import ShareComputer
from zkconsumer.group.zookeeper.zookeeperbase import SessionParts, ZooKeeperBase
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.fencedtransaction import lost_fence
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.watchedreads import WatchedReads


class ZooKeeperGroup(ZooKeeperBase):
    """One member's registration, claims and lease; for the arguments see :class:`ZooKeeperBase`.

    Threads and errors are those of the protocol.
    """

    name: Final = "zookeeper"

    def __init__(
        self, config: ConsumerConfig, consumer_id: str, signal: ChangeSignal, **parts: Unpack[SessionParts]
    ) -> None:
        super().__init__(config, consumer_id, signal, **parts)
        cluster = self._cluster
        self._changes = None if cluster is None else ClusterChanges()
        self._group_reader = GroupReader(
            self.zk,
            config.security_protocol,
            WatchedReads(self.zk, signal.raise_flag),
            read_cluster=None if cluster is None else partial(read_if_any, cluster),
        )
        self._shares = ShareComputer(config, consumer_id, self._group_reader, signal, self._changes)
        self._orphans = OrphanWatch(
            config.group_id,
            retry_window_seconds(config.rebalance_max_retries, config.rebalance_backoff_ms),
            self._shares,
            self._membership,
            self._clock,
        )

    # -- membership -------------------------------------------------------------------------------------------------

    def _has_others(self) -> bool:
        """True if another consumer is registered; the watch that this leaves raises the signal."""
        return len(self._group_reader.member_ids(self._group)) > 1

    def pause(self, failure: Exception | None = None, *, starting: bool = False) -> None:
        """As of :class:`ZooKeeperBase`; after a conflict the view is valid: only former owners have to release."""
        if not isinstance(failure, OwnershipConflict):
            self._shares.forget_view()
        super().pause(failure, starting=starting)

    def _change(self, subscription: Subscription) -> None:
        """As of :class:`ZooKeeperBase`; the view has the former registration."""
        self._shares.forget_view()
        super()._change(subscription)

    def _settle(self, *, unless_alone: bool = False) -> None:
        """As of :class:`ZooKeeperBase`, at most for the longest time allowed (adr/0005)."""
        super()._settle(unless_alone=unless_alone)
        backoff_ms = self._config.rebalance_backoff_ms
        deadline = self._clock() + longest_settling_seconds(backoff_ms)
        while True:
            self._thread.begin_quiet()
            if self._clock() >= deadline or not self.zk.connected:
                return  # without a connection the next call would block, and requests with it
            try:
                has_others = self._has_others()
            except ZkConsumerError:
                return  # the attempt that follows reports it
            if (unless_alone and not has_others) or self._thread.stayed_quiet(settle_seconds(backoff_ms)):
                return

    # -- the assignment ---------------------------------------------------------------------------------------------

    def next_assignment(self, *, fetching: bool, renew: bool = False) -> NextAssignment | NoNeed:
        """See :meth:`.GroupProtocol.next_assignment`; all that is held is given up, as the JVM's members do."""
        view = self._shares.view()
        if self._consumer_id not in view.our_clients:
            raise lost_fence(self.fence())
        registered, written = view.members.get(self._consumer_id), self._subscription.to_registration(0)
        if registered is None or registered.key != Subscription.from_registration(written).key:
            path = GroupPaths(self._group).consumer_id(self._consumer_id)
            raise RegistrationLost(f"another client deleted or changed znode {path}; registering again")
        if not view.brokers and self._has_no_brokers():
            # jvm-consumer.md#attempt: without brokers nothing is changed; the watch just armed causes an attempt when
            # one registers.
            self._look_later()
            return NoNeed.NO_BROKERS
        self._announce_changes()
        changed, held = self._topics.others(view.identities), self._ownership.held
        is_fetched = changed.isdisjoint(partition.topic for partition in held)
        if fetching and not renew and self._shares.assign(view) == held and is_fetched:
            self._look_later()
            return NoNeed.UNCHANGED
        change, changes = self._shares.change(view)
        recreated = {TopicPartition(topic, number) for topic in changed for number in view.partitions[topic]}
        share = self._shares.assigned(view)
        return NextAssignment.of(held, share, change, changes, recreated, incremental=False)

    def _has_no_brokers(self) -> bool:
        """Look once more, with a watch; a polled cluster raises the signal by itself when a broker answers."""
        return self._cluster is not None or not self._group_reader.live_brokers(self._signal.raise_flag)

    def _announce_changes(self) -> None:
        """Nudge the group if this member may be the only one that knows of new topics or partitions.

        Also if its own share stays the same: others may have to claim the new partitions.
        """
        if self._changes is None or not self._changes.unannounced:
            return
        if self._has_others():
            self._membership.announce_change()
        self._changes.announced()

    def reassign(self, *, with_topics: bool) -> Target:  # noqa: ARG002 - the view has them
        """This member's share of the present view."""
        return self._shares.target(self._shares.view())

    def fetched(self) -> None:
        """Compare later views with the one that the share was computed from."""
        super().fetched()
        self._shares.settled()
        self._look_later()

    @property
    def excluded(self) -> str:
        """See :attr:`.Standing.excluded`."""
        return self._shares.excluded

    @property
    def views(self) -> int:
        """How often the group was read."""
        return self._shares.views

    # -- ownership --------------------------------------------------------------------------------------------------

    def claim(self, share: Share) -> None:
        """Create the owner znodes of the share, all or none."""
        self._ownership.claim(share)

    def release(
        self,
        partitions: Collection[TopicPartition],  # noqa: ARG002 - all that is held; the JVM's members give up all
        retain: Share | None = None,
    ) -> None:
        """Delete the owner znodes, except those that are retained."""
        self._ownership.release(retain=NOTHING if retain is None else retain)

    # -- JVM members that gave up -----------------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._thread.call_after(orphan_delay_seconds(self._config.rebalance_backoff_ms), self._look)

    def _look(self) -> None:
        """Nudge JVM members that gave up."""
        if self._orphans.look():
            self._look_later()
