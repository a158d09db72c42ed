"""CoordinatorGroup: the group protocol in which one elected member decides, and the others obey (adr/0017).

A :class:`~zkconsumer.group.groupprotocol.GroupProtocol`. Joining, owner znodes and the lease are those of
``group.protocol=zookeeper`` (:class:`~zkconsumer.group.zookeeper.zookeeperbase.ZooKeeperBase`); what this
member has to own is read from its command.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple, Unpack

from zkconsumer.cluster.rules.clustercatalog import ClusterSource, read_known
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    AssignorFailed,
    ConfigError,
    CoordinatorUnknown,
    MalformedZnode,
    MemberRefused,
    RegistrationLost,
    ShareChanged,
    name_some,
)
from zkconsumer.group.coordinator.coordinator import Coordinator
from zkconsumer.group.coordinator.rules.candidacy import looks_at_once
from zkconsumer.group.coordinator.rules.coordinatorznodes import Command, CommandNode, StatusNode
from zkconsumer.group.groupprotocol import ChangeSignal, NextAssignment, NoNeed, PausingThread, Target
from zkconsumer.group.rules.partitionassignor import PartitionAssignor, user_data_of
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.group.rules.reconcile import Share
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.group.zookeeper.zookeeperbase import SessionParts, ZooKeeperBase
from zkconsumer.model import Broker, Topic, TopicPartition
from zkconsumer.zookeeper.fencedtransaction import Operation
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads

_log = logging.getLogger(__name__)

_REGISTERED: Final = 16
"""Subscriptions of one member for which the leader may still write commands."""
_NAMED_S: Final = 3.0
"""How long the brokers that a new command names are used: a fetcher starts right after it."""

MakeCoordinator = Callable[[ConsumerConfig, str, ZkSession, MemberRegistration, ClusterSource | None], Coordinator]
"""Makes the member's part in leading; the arguments are those of :class:`Coordinator`."""


class _Received(NamedTuple):
    """A command, and the node that it was read from."""

    command: Command
    node: Operation


class _NamedBrokers(NamedTuple):
    """Brokers that a new command names, and the reading of the clock after which they are not used any more."""

    brokers: tuple[Broker, ...]
    until: float


class CoordinatorGroup(ZooKeeperBase):
    """One member's registration, command, claims and lease. Threads and errors are those of the protocol.

    Args:
        config, consumer_id, signal, parts: see :class:`ZooKeeperBase`.
        make_coordinator: makes the member's part in leading the group.

    Attributes:
        coordinator: the member's part in leading the group.
    """

    name: Final = "coordinator"

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        signal: ChangeSignal,
        *,
        make_coordinator: MakeCoordinator = Coordinator,
        **parts: Unpack[SessionParts],
    ) -> None:
        super().__init__(config, consumer_id, signal, **parts)
        cluster = self._cluster
        self._exclude_internal = config.exclude_internal_topics
        self._security_protocol = config.security_protocol
        self._group_reader = GroupReader(
            self.zk,
            config.security_protocol,
            read_cluster=None if cluster is None else partial(read_known, cluster),
        )
        self._reads = WatchedReads(self.zk, signal.raise_flag)
        self._received: _Received | None = None
        self._settled: Command | None = None
        # What was registered, the newest last: a command may have been written for one that was changed meanwhile.
        self._subscriptions = deque[Subscription](maxlen=_REGISTERED)
        self._uncommanded = ""  # path of the command that was found empty
        self._named: _NamedBrokers | None = None  # replaced by the rebalance thread
        self._views = 0
        self._has_registered = False
        self.coordinator = make_coordinator(config, consumer_id, self.zk, self._membership, cluster)
        self.coordinator.assignor_changed = signal.raise_flag

    # -- life -------------------------------------------------------------------------------------------------------

    def connection_changed(self) -> None:
        """Called on kazoo's thread: watches are lost, so both threads read again."""
        super().connection_changed()
        self.coordinator.look()

    def cluster_changed(self) -> None:
        """Called on any thread: only a leader follows topics; the others learn of new partitions by a command."""
        self.coordinator.cluster_changed()

    def open(self, thread: PausingThread, lease_changed: Callable[[], None]) -> None:
        """See :meth:`.GroupProtocol.open`."""
        super().open(thread, lease_changed)
        self.coordinator.start()

    def leave(self) -> None:
        """Close the session, which removes the registration, the command and the owners at once."""
        self.coordinator.begin_close()
        super().leave()
        self.coordinator.end_close()

    # -- membership -------------------------------------------------------------------------------------------------

    def _register(self, subscription: Subscription) -> None:
        if self._membership.own is not None:
            self._prepare(self._membership.own, subscription)
        super()._register(subscription)
        self._note(subscription)
        if looks_at_once(self.obeying):
            self.coordinator.look()

    def _prepare(self, own: PartitionAssignor, subscription: Subscription) -> None:
        """Let the application's assignor write for this member, which joins no group that cannot be assigned by it.

        Raises:
            ConfigError: there are members that obey no commands. When one comes later, the leader commands no member.
            AssignorFailed: the assignor failed.
        """
        view = self._group_reader.view(self._group)
        foreign = sorted((view.members.keys() | view.unreadable.keys()) - view.obeying - {self._consumer_id})
        if foreign and not self._has_registered:
            raise ConfigError(
                f"partition.assignment.strategy {self._config.partition_assignment_strategy} cannot be used in group "
                f"{self._group} while members are in it that assign by themselves: {name_some(foreign)}; use range or "
                "roundrobin until all members have group.protocol=coordinator"
            )
        self._write_user_data(own, subscription)
        self._has_registered = True

    def _write_user_data(self, own: PartitionAssignor, subscription: Subscription) -> None:
        known = self._group_reader.topics() if subscription.topic_filter is not None else ()
        topics = subscription.expand(known, exclude_internal=self._exclude_internal)
        self._membership.user_data = user_data_of(own, topics)

    def _change(self, subscription: Subscription) -> None:
        """As of :class:`ZooKeeperBase`; also if the answer is lost, a leader may have read either registration."""
        if self._membership.own is not None:
            try:
                self._write_user_data(self._membership.own, subscription)
            except AssignorFailed as error:  # the member would be evicted if it carried out no commands
                _log.error("group %s: what the assignor has written before stays: %s", self._group, error)
        self._note(subscription)
        super()._change(subscription)

    def _note(self, subscription: Subscription) -> None:
        if not self._subscriptions or self._subscriptions[-1] is not subscription:  # a repetition displaces no other
            self._subscriptions.append(subscription)

    @property
    def obeying(self) -> int | None:
        """See :attr:`MemberRegistration.obeying`."""
        return self._membership.obeying

    # -- the assignment ---------------------------------------------------------------------------------------------

    def next_assignment(self, *, fetching: bool, renew: bool = False) -> NextAssignment | NoNeed:
        """See :meth:`.GroupProtocol.next_assignment`.

        Raises:
            CoordinatorUnknown: no command has been written for this member yet.
            AssignorFailed: this member leads, and the application's assignor failed.
            MemberRefused: this member must not own anything, and does not.
            RegistrationLost: also if the command is malformed, or has partitions that no stream of this member reads:
                the leader reads it only once, and does not repair it.
        """
        self._received = received = self._receive()
        share, held = received.command.share, self._ownership.held
        if received.command.refused and not held:  # otherwise everything is released first
            raise MemberRefused(f"the coordinator of group {self._group} refuses it: {received.command.refused}")
        changed = self._topics.changed(share.keys() - held.keys(), share.keys())
        if fetching and not renew and share == held and self._ownership.is_certain and not changed:
            self._raise_failure()
            return NoNeed.UNCHANGED
        command = received.command
        changes = f"command of epoch {command.epoch}, generation {command.generation}: {len(share)} partitions"
        recreated = [partition for partition in share if partition.topic in changed]
        change = RebalanceCause.OWNERSHIP if command == self._settled else RebalanceCause.MEMBERS
        return NextAssignment.of(held, share, change, changes, recreated, incremental=True)

    def _receive(self) -> _Received:
        self._require_session_node()
        path = self._membership.command
        reads = self._reads.nodes([path])
        for reason in reads.refused.values():
            raise reason
        node = reads.nodes[path]
        if node is None:
            raise RegistrationLost(f"another client deleted {path}; registering again")
        self._views += 1
        try:
            command = CommandNode.decode(path, node.data)
        except MalformedZnode as error:
            raise RegistrationLost(str(error)) from error
        if command is None:
            self._raise_failure()
            raise CoordinatorUnknown(f"no coordinator of group {self._group} has written {path} yet{self._late(path)}")
        self._uncommanded = ""
        if self._received is None or self._received.command != command:
            self._require_streams(path, command)
            fits = command.security_protocol == self._security_protocol
            self._named = _NamedBrokers(command.brokers if fits else (), self._clock() + _NAMED_S)
        return _Received(command, Operation("check", path, version=node.version))

    def _require_streams(self, path: str, command: Command) -> None:
        """Refuse a command that no leader wrote for this member, or one that read a registration which was changed."""
        for partition, thread in command.share.items():
            if not any(each.has_stream(partition.topic, thread.number) for each in self._subscriptions):
                raise RegistrationLost(
                    f"another client changed znode {path}, or the registration: no stream {thread} of this consumer "
                    f"reads {partition}; registering again"
                )

    def _raise_failure(self) -> None:
        """Raise why the application's assignor has failed in this member, if it has."""
        if (failure := self.coordinator.assignor_failure) is not None:
            raise failure

    @property
    def leads(self) -> bool:
        """True if this member is the coordinator."""
        return self.coordinator.epoch is not None

    def live_brokers(self) -> tuple[Broker, ...]:
        """Brokers to send requests to; any thread may call it.

        Right after a command those that it names: the leader has just read them, and any broker can name the leaders of
        partitions. Later, or if none of them answers for so long, they are read from ZooKeeper.

        Raises:
            ZooKeeperUnavailable, SessionExpired, ZooKeeperRefused: they cannot be read.
        """
        named = self._named
        if named is not None and named.brokers and self._clock() < named.until:
            return named.brokers
        return self._group_reader.live_brokers()

    def _late(self, path: str) -> str:
        """Why a command is missing, as text for an error; empty at first, since the coordinator reacts to a join."""
        if self._uncommanded != path:
            self._uncommanded = path
            return ""
        # The leader and all candidates may have been killed: waiting for the next look could outlast the join.
        self.coordinator.look()
        return self._refusal()

    def _refusal(self) -> str:
        """Why the coordinator commands no member, as text for an error."""
        path = CoordinatorPaths(self._group).status
        node = self.zk.get(path)
        try:
            refused = "" if node is None else StatusNode.decode(path, node.data).refused
        except MalformedZnode as error:
            refused = str(error)
        refused = refused or self.coordinator.refusal
        return f": {refused}" if refused else "; if this remains, check the logs of its other members for errors"

    def reassign(self, *, with_topics: bool) -> Target:
        """The share of the command that :meth:`next_assignment` has read; a newer one has raised the signal."""
        if self._received is None:
            raise ShareChanged("no command has been read; reading it first")
        share = self._received.command.share
        return Target(share, dict(share), self._subscribed() if with_topics else {})

    def _subscribed(self) -> dict[str, Topic]:
        """The topics that this member subscribes to; read without watches, since the leader watches topics."""
        return self._group_reader.describe_subscribed(self._subscription, exclude_internal=self._exclude_internal)

    def fetched(self) -> None:
        """The command has been carried out."""
        super().fetched()
        self._settled = None if self._received is None else self._received.command
        if self._settled is not None and self._settled.refused:
            self._signal.raise_flag()  # all is released; the next attempt reports the refusal

    @property
    def views(self) -> int:
        """How often a command was read."""
        return self._views

    # -- ownership --------------------------------------------------------------------------------------------------

    def claim(self, share: Share) -> None:
        """Create the owner znodes of what the command adds, all or none, if it is still the newest command."""
        if self._received is None:
            raise ShareChanged("no command has been read; reading it first")
        self._ownership.claim_more(share, self._received.node)

    def release(
        self,
        partitions: Collection[TopicPartition],
        retain: Share | None = None,  # noqa: ARG002 - what is kept is not given up
    ) -> None:
        """Delete the owner znodes of these partitions."""
        self._ownership.release_some(partitions)
