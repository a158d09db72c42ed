"""Membership: registers this consumer's id in its group and removes it (SPEC 1.2)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from zkconsumer.core.subscription import Subscription
from zkconsumer.core.znodes import ConsumerIdNode, GroupPaths, SessionNode
from zkconsumer.errors import ConsumerIdInUse, SessionExpired, ZooKeeperUnavailable
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.transaction import Operation

_log = logging.getLogger(__name__)


class Membership:
    """This consumer's registration: the ``ids`` node and, in the same transaction, the session node.

    Args:
        session: an open session.
        group: consumer group.
        consumer_id: fixed for the life of the connector, also across session expiries.
        assignor: name of its assignor, written into the session node.
        wall_clock_ms: current time in ms since the epoch.
    """

    def __init__(
        self, session: ZkSession, group: str, consumer_id: str, assignor: str, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._session = session
        self._paths = GroupPaths(group)
        self._consumer_id = consumer_id
        self._assignor = assignor
        self._now_ms = wall_clock_ms
        self._registered_session = 0

    @property
    def fence(self) -> str:
        """Path of the session node: the check of it fences every claim, release and commit (DESIGN 4.5).

        Raises:
            SessionExpired: there is none, since this consumer is not registered; so nothing may be written.
        """
        if not self.is_registered:
            raise SessionExpired(f"{self._consumer_id} is not registered in group {self._paths.group} just now")
        return self._paths.session(self._consumer_id, self._registered_session)

    @property
    def registered_session(self) -> int:
        """Id of the session that the registration was made in, 0 without one."""
        return self._registered_session

    @property
    def is_registered(self) -> bool:
        """True from a registration until :meth:`session_lost` or :meth:`deregister`."""
        return self._registered_session != 0

    def is_current_or_unknown(self) -> bool:
        """False if the connection has another session than the one that the registration was made in."""
        return self._session.session_id in (0, self._registered_session)

    def register(self, subscription: Subscription, on_change: Watch, wait: Callable[[float], bool]) -> None:
        """Make this consumer a member of its group in the current session.

        Another node of the same id can be our own of an earlier session that the servers have not expired yet, or a
        second live consumer with the same ``consumer.id``: it is waited for, one and a half session timeouts, then it
        is an error.

        Args:
            subscription: what to register.
            on_change: watches the node of the same id while it is waited for.
            wait: waits, at most so many seconds, for a reason to look again, such as a call of ``on_change``; False if
                there was none, and at once if this consumer is leaving.

        Raises:
            ConsumerIdInUse: the id is still registered by another session.
            ZooKeeperUnavailable, SessionExpired: try again.
        """
        session_id = self._session.session_id
        if session_id == 0:
            raise ZooKeeperUnavailable("not connected to ZooKeeper; the registration is tried again")
        self._session.ensure_path(self._paths.ids, b"", open_to_all=True)
        self._session.ensure_path(self._paths.members, b"", open_to_all=True)
        path = self._paths.consumer_id(self._consumer_id)
        nodes = [
            (path, ConsumerIdNode.encode(subscription.to_registration(self._now_ms()))),
            (self._paths.session(self._consumer_id, session_id), SessionNode.encode(self._assignor)),
        ]
        if not self._session.create_ephemerals(nodes):
            self._resolve_conflict(path, nodes, session_id, on_change, wait)
        if self._session.session_id != session_id:
            raise SessionExpired("the ZooKeeper session changed during registration")
        self._registered_session = session_id
        _log.info("group %s consumer %s registered", self._paths.group, self._consumer_id)

    def _resolve_conflict(
        self,
        path: str,
        nodes: list[tuple[str, bytes]],
        session_id: int,
        on_change: Watch,
        wait: Callable[[float], bool],
    ) -> None:
        deadline = time.monotonic() + 1.5 * self._session.negotiated_timeout
        while (holder := self._session.exists(path, on_change)) is not None:
            if holder.owner_session == session_id:
                self._complete(nodes)
                return
            _log.warning("%s belongs to session 0x%x; waiting for it to go", path, holder.owner_session)
            if not wait(max(0.0, deadline - time.monotonic())):
                break
        if not self._session.create_ephemerals(nodes):
            raise ConsumerIdInUse(
                f"{path} is registered by another live session; give each consumer its own consumer.id, or wait for "
                "the session of a consumer that was killed to expire"
            )

    def _complete(self, nodes: list[tuple[str, bytes]]) -> None:
        """Make good a registration of this very session, of which something may be missing.

        An earlier try did arrive although its answer was lost; perhaps in this session and not in the one that it was
        meant for, so that the session node has the name of that. Or somebody deleted the session node.
        """
        for path, data in nodes:
            if not self._session.create_ephemerals([(path, data)]):
                self._session.transact("/", [Operation("set", path, data)])

    def nudge(self) -> None:
        """Make every member of the group rebalance: a member without topics comes and goes, in one transaction.

        In two it could stay: 1. it is created; 2. the connection breaks; 3. no transaction deletes it, and for as long
        as this session lives the members count it.

        Raises:
            ZooKeeperUnavailable, SessionExpired, ZooKeeperRefused: not done, or unknown.
        """
        path = self._paths.consumer_id(f"{self._consumer_id}-nudge")
        without_topics = Subscription.static({}).to_registration(self._now_ms())
        self._session.flash(self.fence, path, ConsumerIdNode.encode(without_topics))

    def deregister(self) -> None:
        """Remove what is left of a registration whose ``ids`` node another client deleted or overwrote.

        The ``ids`` node goes, too: only when it is created again do the other members read it.

        Raises:
            ZooKeeperUnavailable: not done.
        """
        path = self._paths.consumer_id(self._consumer_id)
        node = self._session.exists(path)
        ours = [path] if node is not None and node.owner_session == self._registered_session else []
        try:
            self._session.transact(self.fence, [Operation("delete", one) for one in (*ours, self.fence)])
        except SessionExpired:
            _log.info("group %s: the session node of %s is gone as well", self._paths.group, self._consumer_id)
        self.session_lost()

    def session_lost(self) -> None:
        """The session is gone, and the nodes with it."""
        self._registered_session = 0
