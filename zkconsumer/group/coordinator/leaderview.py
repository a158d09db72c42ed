"""LeaderView: a group as its leader sees it in one epoch: its members, their commands, and the owners (adr/0017)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from zkconsumer.cluster.rules.clustercatalog import ClusterSource, read_known
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import AssignorFailed, BrokerUnavailable, MalformedZnode, name_some
from zkconsumer.group.coordinator.commands import CommandNodes
from zkconsumer.group.coordinator.evictions import Evictions
from zkconsumer.group.coordinator.ownernodes import OwnerNodes
from zkconsumer.group.coordinator.rules.coordinatorplan import (
    Awaited,
    NextTurn,
    Owners,
    Roles,
    Shares,
    awaited_since,
    earliest,
    overdue,
    plan,
    previous,
    refusals,
    roles,
    target,
    undecided,
)
from zkconsumer.group.coordinator.rules.coordinatorznodes import STICKY, PolicyNode, Status, consumer_id_of
from zkconsumer.group.coordinator.unclaimedcommands import UnclaimedCommands
from zkconsumer.group.rules.assignors import SHARED_WITH_JVM, Assignment, assignor_name
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.rebalancetimes import given_up, held_by_others, retry_window_seconds
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.group.zookeeper.orphanwatch import OrphanWatch
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.group.zookeeper.registrationreads import RegistrationReads
from zkconsumer.group.zookeeper.rules.clusterchanges import ClusterChanges
from zkconsumer.group.zookeeper.topicrecords import TopicRecords
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads

_log: Final = logging.getLogger(__name__)

_NO_MEMBER: Final[Mapping[str, int | None]] = MappingProxyType({})


class _Members(NamedTuple):
    """Who is in the group, as it was last read.

    Attributes:
        view: subscriptions and topics.
        roles: who obeys commands, and who does not.
        damaged: consumer ids whose registration is gone although their command exists.
        version: ``cversion`` of ``ids`` before the rest was read.
    """

    view: GroupView
    roles: Roles
    damaged: frozenset[str]
    version: int


class _Basis(NamedTuple):
    """What an assignment was computed from, apart from the former one."""

    members: _Members
    policy: str
    refused: frozenset[str]


class LeaderView:
    """Plans, and writes what is planned. Used by the coordinator's thread only.

    Args:
        config: the properties of the member that leads.
        session: an open session.
        membership: its registration.
        epoch: that it leads in.
        group_changed: called on kazoo's thread when members, topics or partitions may have changed.
        released: called on kazoo's thread when a partition may have become free.
        clock: a monotonic clock, in seconds.
        cluster: where brokers and topics are read from; None for ZooKeeper.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        session: ZkSession,
        membership: MemberRegistration,
        epoch: int,
        group_changed: Watch,
        released: Watch,
        clock: Callable[[], float] = time.monotonic,
        cluster: ClusterSource | None = None,
    ) -> None:
        self._config = config
        self._membership = membership
        self._session = session
        self._paths = GroupPaths(config.group_id)
        self._commands_path = CoordinatorPaths(config.group_id).commands
        own, strategy = membership.own, config.partition_assignment_strategy
        self._assignor = assignor_name(strategy, config.roundrobin_hash_era) if own is None else own.name
        self._epoch = epoch
        self._group_changed = group_changed
        self._watched = WatchedReads(session, self.note_change)
        self._policy_reads = WatchedReads(session, self.note_change)  # of its own: a call forgets what others have read
        self._registrations = RegistrationReads(session)
        self._group_reader = GroupReader(
            session,
            config.security_protocol,
            self._watched,
            read_cluster=None if cluster is None else partial(read_known, cluster),
            reads=self._registrations,
        )
        self._changes = None if cluster is None else ClusterChanges(inherits=True)
        self._commands = CommandNodes(
            session, config.group_id, lambda: membership.fence, epoch, config.security_protocol
        )
        self._owners = OwnerNodes(session, config.group_id, released)
        self._topic_records = TopicRecords(session, config.group_id, lambda: membership.fence)
        self._evictions = Evictions(config, membership.consumer_id, self._commands, clock)
        self._grants = UnclaimedCommands(session, config.group_id, clock)
        self._changed = True
        self._connections = -1
        self._members = _Members(GroupView({}, {}), Roles(frozenset(), frozenset()), frozenset(), 0)
        self._intended: Assignment = {}
        self._basis: _Basis | None = None
        self._planned: GroupView | None = None
        self._restarting: set[TopicPartition] = set()
        self._awaited: Mapping[TopicPartition, Awaited] = {}
        self._reported: frozenset[TopicPartition] = frozenset()
        self._clock = clock
        self._epoch_of_clock = time.time() - clock()
        self._refusal: str | None = None
        self._refused: dict[str, str] = {}
        self._policy = STICKY
        self._others: set[str] = set()
        window_s = retry_window_seconds(config.rebalance_max_retries, config.rebalance_backoff_ms)
        self._orphans = OrphanWatch(config.group_id, window_s, self, membership, clock)

    def advance(self) -> NextTurn:
        """Plan once, and write what can be commanded now; returns when this is to be called again.

        Raises:
            EpochEnded: this member does not lead any more.
            SessionExpired, ZooKeeperUnavailable, ZooKeeperRefused: see :meth:`CommandNodes.write`.
            AssignorFailed: the application's assignor failed; all commands stay as they are.
        """
        view, members, damaged, version = self._read_members()
        self._announce_changes(members)
        if self._is_refused(view, members):
            self._publish(version, frozenset())
            return NextTurn(at_once=False)
        commanded = self._commands.commanded(members.followers)
        refused = self._refuse(view, members)
        try:
            aim = self._intended = self._aim(commanded, frozenset(refused))
        except AssignorFailed as error:
            self._refusal = str(error)
            self._publish(version, frozenset())
            raise
        self._restart_recreated(view, aim, commanded)
        now = {partition: thread for partition, thread in aim.items() if partition not in self._restarting}
        owners = self._owners.read({*undecided(now, commanded), *self._restarting})
        planned = plan(now, commanded, owners)
        self._owners.ensure_parents({partition.topic for share in planned.shares.values() for partition in share})
        if self._commands.write(members.followers, planned.shares, damaged, refused, view.brokers):
            return NextTurn(at_once=True)
        # Of what is still in a command the withdrawal was refused.
        commands = self._restarting and {partition for share in commanded.values() for partition in share}
        restarted = {partition for partition in self._restarting - commands if owners[partition] is None}
        self._restarting -= restarted
        if restarted:
            return NextTurn(at_once=True)
        unclaimed = self._grants.unclaimed(commanded, self._commands.nodes)
        self._await(planned.awaited | self._restarting, owners, unclaimed.partitions)
        evictions = NextTurn(at_once=False) if members.foreign else self._evict(view, owners)
        if evictions.at_once:
            return evictions
        self._publish(version, frozenset(self._awaited), self._waits_for(may_evict=not members.foreign))
        return NextTurn(at_once=False, due_at=earliest([unclaimed.due_at, evictions.due_at]))

    def _evict(self, view: GroupView, owners: Owners) -> NextTurn:
        """Take partitions from members that do not obey. Not while there are foreign members.

        These would still compute shares for an evicted one, and JVM consumers delete owner znodes that are not theirs.
        """
        return self._evictions.advance(self._awaited, owners, view.session_ms, self._session.negotiated_timeout)

    def raise_refusal(self) -> None:
        """To be called when nothing more can be commanded at once.

        Raises:
            ZooKeeperRefused: a command may not be written; all others were. To be tried again after a while.
        """
        self._commands.raise_refusal()

    def _aim(self, commanded: Shares, refused: frozenset[str]) -> Assignment:
        """The partitions of all members; computed again only if members, topics or the policy have changed.

        Between two changes the commands only approach what was computed.
        """
        basis = _Basis(self._members, self._policy, refused)
        if self._basis is not None and self._basis.members is basis.members and self._basis[1:] == basis[1:]:
            return self._intended
        self._warn_of_others()
        aim = target(
            self._members.view,
            self._members.roles,
            self._assignor,
            previous(commanded, self._intended),
            exclude_internal=self._config.exclude_internal_topics,
            policy=self._policy,
            refused=refused,
            own=self._membership.own,
        )
        self._basis = basis
        return aim

    def _warn_of_others(self) -> None:
        """Log which members have another assignor, if this one's is the application's: whoever leads decides."""
        clients, followers = self._members.view.our_clients, self._members.roles.followers
        others = {f"{name} ({clients[name]})" for name in clients.keys() & followers if clients[name] != self._assignor}
        if self._membership.own is not None and others - self._others:
            _log.warning(
                "group %s: partitions are assigned by %s of the member that leads, and other members name another "
                "assignor, by which they would assign: %s; give all members the same partition.assignment.strategy",
                self._config.group_id,
                self._assignor,
                name_some(sorted(others)),
            )
        self._others = others

    def _refuse(self, view: GroupView, members: Roles) -> dict[str, str]:
        """Members that must not own anything, and why; logged when that changes."""
        refused = refusals(view, members.followers, self._config.coordinator_min_session_ms)
        refused.update((n, why) for n, why in self._evictions.refusals().items() if n in members.followers)
        for name in sorted(refused):
            if self._refused.get(name) != refused[name]:
                _log.error("group %s: member %s is refused: %s", self._config.group_id, name, refused[name])
        self._refused = refused
        return refused

    def _await(
        self, to_release: Collection[TopicPartition], owners: Owners, to_claim: Mapping[TopicPartition, str]
    ) -> None:
        """Note what is awaited, and log what is late, once each; all other moves are finished without it."""
        now = self._clock()
        holders = {partition: PartitionOwnerNode.consumer_of(owners.get(partition)) for partition in to_release}
        self._awaited = awaited_since(self._awaited, holders, to_claim, now)
        late = overdue(self._awaited, now, self._session.negotiated_timeout)
        for is_granted, action in (False, "released"), (True, "claimed"):
            new = [p for p, awaited in late.items() if awaited.is_granted == is_granted and p not in self._reported]
            if new:
                _log.warning(
                    "group %s: not %s in time: %s; check whether the rebalance listener or before_commit of these "
                    "members hangs",
                    self._config.group_id,
                    action,
                    name_some([f"{p} ({'member' if is_granted else 'owner'} {late[p].by})" for p in new]),
                )
        self._reported = frozenset(late)

    def _restart_recreated(self, view: GroupView, aim: Assignment, commanded: Shares) -> None:
        """Note the partitions of topics that were deleted and created again between two looks.

        They are withdrawn until no member owns them, as if the two had been seen apart: otherwise their owners would
        continue at the positions of the former topic. Only what followers have and keep: foreign members obey nothing,
        and zkconsumer members among them never release what they retain; the rest is on its way without this.

        A leader that was just elected compares with what the members have recorded (adr/0025).
        """
        commands = [partition for share in commanded.values() for partition in share]
        if self._planned is not None:
            recreated = view.recreated_since(self._planned, view.partitions)
        else:
            consumed = {partition.topic for partition in commands} & view.identities.keys()
            recreated = self._topic_records.replaced({topic: view.identities[topic] for topic in consumed})
        if recreated:
            self._restarting |= {partition for partition in commands if partition.topic in recreated}
        self._restarting = {p for p in self._restarting if p in aim and aim[p].consumer_id in commanded}
        self._planned = view

    def _waits_for(self, *, may_evict: bool) -> dict[str, int | None]:
        """Members that have to act, and until when, in ms since the epoch; None for those that are not evicted."""
        session_ms, timeout = self._members.view.session_ms, self._session.negotiated_timeout
        ends = self._evictions.times(self._awaited, session_ms, timeout) if may_evict else {}
        return {
            awaited.by: None if (end := ends.get(awaited.by)) is None else round((end + self._epoch_of_clock) * 1000)
            for awaited in self._awaited.values()
            if awaited.by is not None
        }

    def _publish(
        self, version: int, awaited: frozenset[TopicPartition], waits_for: Mapping[str, int | None] = _NO_MEMBER
    ) -> None:
        """Report to candidates and operators that nothing more can be commanded now."""
        generation, refused = self._commands.generation, self._refusal or ""
        self._commands.publish(Status(self._epoch, generation, version, awaited, refused, waits_for))

    def note_change(self) -> None:
        """Read the group again at the next plan; from any thread."""
        self._changed = True
        self._group_changed()

    def _announce_changes(self, members: Roles) -> None:
        """Nudge members that compute their share, if no event of the group made them read changed topics."""
        if self._changes is None or not self._changes.unannounced:
            return
        if members.foreign:
            self._membership.announce_change()
        self._changes.announced()

    def _read_members(self) -> _Members:
        """The members and topics, which are read again only after a change: releases are more frequent."""
        connections = self._session.connections  # before reading: what breaks meanwhile makes it outdated
        if self._changed or connections != self._connections or not self._commands.is_complete:
            self._changed, self._connections = False, -1
            version = self.members_version()
            foreign_before = self.has_foreign_members
            if foreign_before:
                self._registrations.forget()
            self._members = self._read_view_and_roles(version)
            if self.has_foreign_members and not foreign_before:
                # They read all registrations each time, and the leader has to compute what they compute: also if
                # another client has written a registration that was read before.
                self._registrations.forget()
                self._members = self._read_view_and_roles(version)
            self._policy = self._read_policy()
            self._connections = connections
        return self._members

    def _read_view_and_roles(self, version: int) -> _Members:
        view = self._read_view(version)
        return _Members(view, *self._roles(view), version)

    def members_version(self) -> int:
        """How often a member has come or gone: ``cversion`` of ``ids``. Costs less than to list them.

        Raises:
            ZooKeeperUnavailable, SessionExpired, ZooKeeperRefused: it cannot be read.
        """
        ids = self._session.exists(self._paths.ids)
        return 0 if ids is None else ids.cversion

    @property
    def has_planned(self) -> bool:
        """True if the members have been read, so that :attr:`has_foreign_members` is known."""
        return self._planned is not None

    @property
    def has_foreign_members(self) -> bool:
        """True if there are members that obey no commands."""
        return bool(self._members.roles.foreign)

    def _read_policy(self) -> str:
        """The assignor of members that all obey; a watch remains, also where there is no policy."""
        path = CoordinatorPaths(self._config.group_id).policy
        reads = self._policy_reads.nodes([path])
        for reason in reads.refused.values():
            raise reason
        node = reads.nodes[path]
        policy = self._policy
        try:
            policy = STICKY if node is None else PolicyNode.decode(path, node.data)
        except MalformedZnode as error:
            _log.error("group %s: the former policy %s stays: %s", self._config.group_id, policy, error)
        if policy != self._policy:
            _log.info("group %s: partitions are assigned by %s", self._config.group_id, policy)
        return policy

    def _read_view(self, version: int) -> GroupView:
        group = self._config.group_id
        events = self._group_reader.group_events(group)
        try:
            view = self._group_reader.view(group)
        except BrokerUnavailable as error:
            # Without topics the plan would withdraw every partition. Candidates see that this leader is not stuck.
            self._refusal = str(error)
            self._publish(version, frozenset())
            raise
        if self._changes is not None:
            self._changes.read(view, events)
        return view

    # -- JVM members that gave up -----------------------------------------------------------------------------------

    @property
    def has_jvm_members(self) -> bool:
        """True if :meth:`tend` is to be called."""
        return bool(self._members.view.jvm_members)

    def tend(self) -> None:
        """Nudge JVM members that gave up; to be called now and then while there are any."""
        self._orphans.look()

    def nudges(self) -> bool:
        """True unless the member that nudges obeys no commands; see :attr:`.GroupView.nudger`."""
        return self._members.view.nudger not in self._members.roles.foreign

    def orphans(self) -> tuple[list[TopicPartition], bool]:
        """Partitions without an owner that JVM members should own; and whether others hold any of theirs.

        Raises:
            ZooKeeperUnavailable, SessionExpired: the owners cannot be read.
        """
        aim, jvm = self._intended, self._members.view.jvm_members
        of_jvm = [partition for partition, thread in aim.items() if thread.consumer_id in jvm]
        owners = self._group_reader.owner_threads(self._config.group_id, of_jvm)
        return given_up(aim, owners, jvm), held_by_others(aim, owners, jvm)

    # -- what a plan needs ------------------------------------------------------------------------------------------

    def _roles(self, view: GroupView) -> tuple[Roles, frozenset[str]]:
        """The members' roles, and consumer ids whose registration is gone although their command exists."""
        registered = view.members.keys() | view.unreadable.keys()
        after: Collection[str] = registered
        self._commands.refresh(self._watched.children(self._commands_path))
        if self._commands.nodes.keys() != registered:
            # What was listed before may be outdated: its watch fires later than the answers to other reads arrive.
            self._commands.refresh(self._list(self._commands_path))
            after = self._list(self._paths.ids)
        known = self._commands.nodes.keys()
        members = roles(registered, known, after, view.obeying)
        if members.foreign:  # one that left and came back between the two listings is none
            returned = {consumer_id_of(name) for name in self._list(self._commands_path)}
            members = members._replace(foreign=members.foreign - returned)
        return members, frozenset(known) - registered - frozenset(after)

    def _list(self, path: str) -> list[str]:
        return self._session.children(path) or []

    def _is_refused(self, view: GroupView, members: Roles) -> bool:
        """True if no assignment can be computed that the foreign members agree with; logged when it changes."""
        foreign = GroupView(
            members={name: subscription for name, subscription in view.members.items() if name in members.foreign},
            partitions={},
            unreadable={name: why for name, why in view.unreadable.items() if name in members.foreign},
            our_clients={name: assignor for name, assignor in view.our_clients.items() if name in members.foreign},
        )
        refusal = foreign.disagreement(self._assignor, shared_with_jvm=self._assignor in SHARED_WITH_JVM)
        if refusal is not None and refusal != self._refusal:
            _log.error("group %s: no member is commanded: %s", self._config.group_id, refusal)
        self._refusal = refusal
        return refusal is not None
