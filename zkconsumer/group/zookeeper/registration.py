"""MemberRegistration: registers this consumer in its group and removes the registration (jvm-consumer.md#conflicts)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress

from zkconsumer.errors import (
    ConsumerIdInUse,
    GroupMigrated,
    MalformedZnode,
    SessionExpired,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from zkconsumer.group.rules.partitionassignor import PartitionAssignor
from zkconsumer.group.rules.rebalancetimes import killed_member_seconds
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.nudge import nudge_members
from zkconsumer.zookeeper.fencedtransaction import NO_FENCE, Operation
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import ConsumerIdNode, MigratedNode, SessionNode, describe_mark
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)


class MemberRegistration:
    """This consumer's registration: the ``ids`` node and, in the same transaction, the session node.

    With ``group.protocol=coordinator`` also the node of its command (adr/0017).

    Args:
        session: an open session.
        group: consumer group.
        consumer_id: fixed for the life of the connector, also across session expiries.
        assignor: name of its assignor, written into the session node.
        wall_clock_ms: current time in ms since the epoch.
        clock: a monotonic clock, in seconds.
        protocol: ``group.protocol``.
        shares: ``group.share``.

    Attributes:
        assignor: as above.
        own: the application's assignor; None without one.
        user_data: what an assignor of the application has written for this member.
        obeying: number of members with a command right after this one registered, itself included; None if unknown.

    The last two are written by the thread that registers.
    """

    def __init__(
        self,
        session: ZkSession,
        group: str,
        consumer_id: str,
        assignor: str,
        wall_clock_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        protocol: str = "zookeeper",
        *,
        shares: bool = True,
    ) -> None:
        self._session = session
        self._paths = GroupPaths(group)
        self._consumer_id = consumer_id
        self.assignor = assignor
        self._now_ms = wall_clock_ms
        self._clock = clock
        self._registered_session = 0
        self._registered_timeout = math.inf
        self._shares = shares
        self._protocol = None if protocol == "zookeeper" else protocol
        self._coordinator = CoordinatorPaths(group)
        self._ended = 0
        self.own: PartitionAssignor | None = None
        self.user_data = self._written_data = b""
        self.obeying: int | None = None

    @property
    def fence(self) -> str:
        """Path of the session node: the check of it fences every claim, release and commit (architecture.md#fencing).

        Raises:
            SessionExpired: this consumer is not registered, so there is none and nothing may be written.
        """
        if not self.is_registered:
            raise SessionExpired(f"{self._consumer_id} is not registered in group {self._paths.group} at the moment")
        return self._paths.session(self._consumer_id, self._registered_session)

    @property
    def command(self) -> str:
        """Path of the node in which the leader writes this member's command; the session node has to exist, too."""
        return self._coordinator.command(self._consumer_id, self._registered_session, self._ended)

    @property
    def consumer_id(self) -> str:
        """The consumer id, whether it is registered or not."""
        return self._consumer_id

    @property
    def registered_session(self) -> int:
        """Id of the session that the registration was made in, 0 without one."""
        return self._registered_session

    @property
    def session_timeout(self) -> float:
        """In seconds, the shorter of what the server has negotiated now and what the session node says.

        A server negotiates at each connection: 1. a member registers with 6 s; 2. it connects to a server that grants
        40 s at least; 3. the coordinator still takes its partitions after the 6 s of its session node.
        """
        return min(self._session.negotiated_timeout, self._registered_timeout)

    @property
    def is_registered(self) -> bool:
        """True from a registration until :meth:`session_lost` or :meth:`deregister`."""
        return self._registered_session != 0

    def is_current_or_unknown(self) -> bool:
        """False if the connection has another session than the one that the registration was made in."""
        return self._session.session_id in (0, self._registered_session)

    def register(self, subscription: Subscription, on_change: Watch, wait: Callable[[float], bool]) -> None:
        """Make this consumer a member of its group in the current session.

        An existing node of the same id may be our own of an earlier session that the servers have not expired yet, or
        that of a second live consumer with the same ``consumer.id``. This method waits for it to disappear, one and a
        half session timeouts, the longer one of its own and of this member's, and then raises.

        Args:
            subscription: what to register.
            on_change: watch on the existing node of the same id.
            wait: waits, at most so many seconds, for a reason to check again, such as a call of ``on_change``; returns
                False if there was none, and at once if this consumer is leaving.

        Raises:
            ConsumerIdInUse: the id is still registered by another session.
            GroupMigrated: the group's consumers continue elsewhere.
            ZooKeeperUnavailable, SessionExpired: try again.
        """
        session_id = self._session.session_id
        if session_id == 0:
            raise ZooKeeperUnavailable("not connected to ZooKeeper; the registration will be retried")
        path = self._paths.consumer_id(self._consumer_id)
        timeout = self._session.negotiated_timeout
        nodes = [
            (path, ConsumerIdNode.encode(subscription.to_registration(self._now_ms()))),
            (self._paths.session(self._consumer_id, session_id), self._session_node(timeout)),
        ]
        if self._protocol is not None:
            nodes.append((self._coordinator.command(self._consumer_id, session_id, self._ended), b""))
        counted = "" if self._protocol is None else self._coordinator.commands
        created = self._session.create_ephemerals(nodes, self._parents, counted, self._paths.migrated)
        if created is None:
            self._refuse_migrated()
            self._resolve_conflict(path, nodes, session_id, on_change, wait)
        self.obeying = None if created is None else created.children
        if self._session.session_id != session_id:
            raise SessionExpired("the ZooKeeper session changed during the registration, which will be retried")
        self._registered_session, self._registered_timeout = session_id, timeout
        self._written_data = self.user_data
        _log.info("group %s consumer %s registered", self._paths.group, self._consumer_id)

    def change(self, subscription: Subscription) -> None:
        """Register another subscription; ids, session node and owner znodes stay.

        The registration is deleted and created in one transaction: other members watch which registrations there are,
        and not their data (jvm-consumer.md#triggers), so they would not learn of data that is set. A registration that
        another client has deleted or replaced is left alone; whoever reads the group next finds that.

        Args:
            subscription: what to register. Repeated after a lost answer, it is registered once more.

        Raises:
            ZooKeeperUnavailable, SessionExpired: try again, if the membership still exists.
            ZooKeeperRefused: the servers do not allow it.
        """
        path = self._paths.consumer_id(self._consumer_id)
        node = self._session.exists(path)
        if node is None or node.owner_session != self._registered_session:
            return
        data = ConsumerIdNode.encode(subscription.to_registration(self._now_ms()))
        others = []
        if self.user_data != self._written_data:
            others.append(Operation("set", self.fence, self._session_node(self._registered_timeout)))
        self._session.replace_ephemeral(self.fence, path, data, others)
        self._written_data = self.user_data
        _log.info("group %s consumer %s registered another subscription", self._paths.group, self._consumer_id)

    @property
    def _parents(self) -> list[str]:
        """What the nodes of a registration are created in, each after its own parent."""
        parents = [self._paths.root, self._paths.ids, self._paths.ours, self._paths.members]
        return parents if self._protocol is None else [*parents, self._coordinator.root, self._coordinator.commands]

    def _session_node(self, timeout: float) -> bytes:
        return SessionNode.encode(
            self.assignor, self._protocol, round(timeout * 1000), shares=self._shares, user_data=self.user_data
        )

    def _resolve_conflict(
        self,
        path: str,
        nodes: list[tuple[str, bytes]],
        session_id: int,
        on_change: Watch,
        wait: Callable[[float], bool],
    ) -> None:
        began, session_ms = self._clock(), self._session.negotiated_timeout * 1000
        while (holder := self._session.exists(path, on_change)) is not None:
            if holder.owner_session == session_id:
                self._complete(nodes)
                return
            _log.warning("%s belongs to session 0x%x; waiting until that session ends", path, holder.owner_session)
            session_ms = max(session_ms, self._written_session_ms(holder.owner_session))
            if not wait(max(0.0, began + killed_member_seconds([session_ms]) - self._clock())):
                break
        if not self._session.create_ephemerals(nodes, self._parents, absent=self._paths.migrated):
            self._refuse_migrated()
            raise ConsumerIdInUse(
                f"{path} is registered by another live session; give each consumer its own consumer.id, or wait for "
                "the session of a consumer that was killed to expire"
            )

    def _written_session_ms(self, session_id: int) -> int:
        """What a member of this id wrote of its session, which other servers may have granted; 0 if it is unknown."""
        path = self._paths.session(self._consumer_id, session_id)
        node = self._session.get(path)
        with suppress(MalformedZnode):
            return 0 if node is None else SessionNode.session_ms(path, node.data) or 0
        return 0

    def _refuse_migrated(self) -> None:
        node = self._session.get(self._paths.migrated)
        if node is not None:
            raise GroupMigrated(describe_mark(self._paths.group, MigratedNode.decode(self._paths.migrated, node.data)))

    def _complete(self, nodes: list[tuple[str, bytes]]) -> None:
        """Complete a registration of this session of which a node may be missing.

        An earlier request succeeded although its answer was lost; perhaps in this session instead of the one that it
        was meant for, so that the session node is named after that one. Or another client deleted the session node.
        """
        for path, data in nodes:
            # A command that the leader has written already stays.
            if not self._session.create_ephemerals([(path, data)], self._parents) and data:
                self._session.transact(NO_FENCE, [Operation("set", path, data)])

    def nudge(self) -> None:
        """Make every member of the group rebalance; see :func:`.nudge_members` for the errors."""
        nudge_members(self._session, self._paths, self.fence, self._consumer_id, self._now_ms())

    def announce_change(self) -> None:
        """Nudge the members, since this one may be the only one that knows of new topics or partitions.

        Raises:
            ZooKeeperUnavailable, SessionExpired: see :meth:`nudge`. A missing permission is logged.
        """
        _log.info("group %s: topics or partitions have changed; nudging the other members", self._paths.group)
        try:
            self.nudge()
        except ZooKeeperRefused as error:
            _log.warning(
                "group %s: the other members notice changed topics at their next request for metadata, since they "
                "cannot be nudged: %s",
                self._paths.group,
                error,
            )

    def deregister(self) -> None:
        """Remove what is left of a registration whose ``ids`` node another client deleted or overwrote.

        The ``ids`` node is deleted, too: the other members only read it when it is created again.

        Raises:
            ZooKeeperUnavailable: not done.
        """
        path = self._paths.consumer_id(self._consumer_id)
        node = self._session.exists(path)
        paths = [path] if node is not None and node.owner_session == self._registered_session else []
        paths += [] if self._protocol is None else [self.command]
        try:
            self._session.transact(self.fence, [Operation("delete", own_path) for own_path in (*paths, self.fence)])
        except SessionExpired:
            _log.info("group %s: the session node of %s is gone as well", self._paths.group, self._consumer_id)
        self.session_lost()

    def session_lost(self) -> None:
        """Record that the session has ended, and its nodes with it; or its session node, which another client deleted.

        Then the node of its command may still exist, so the next one has another name.
        """
        self._registered_session, self._registered_timeout = 0, math.inf
        self._ended += 1
