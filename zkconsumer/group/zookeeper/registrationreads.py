"""RegistrationReads: reads the registrations of a group, those of zkconsumer members once in each session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from zkconsumer.zookeeper.reads import Reads, Znode
from zkconsumer.zookeeper.rules.znodes import SessionNode
from zkconsumer.zookeeper.session import ZkSession


class _Read(NamedTuple):
    """A node that was read, and the names of the session nodes of its member that were listed before."""

    sessions: frozenset[str]
    node: Znode


class RegistrationReads:
    """What was read of the registrations and session nodes of one group. Used by one thread.

    A member writes its session node once in a session, and the name of that node has the session. It writes its
    registration again, and in the same transaction perhaps its session node, only if it subscribes to other topics:
    the number of changes of the list of registrations shows that, and everything is read again. Apart from this
    they are read again only where a session node with another name is listed: 1. C registers again in another session;
    2. its former session node is listed, and the data of the new registration is read; 3. the next listing has the new
    session node, and the data is read once more. The data is never older than the listing. JVM consumers have no
    session node, and their registrations are read each time.

    Args:
        session: an open session.
    """

    def __init__(self, session: ZkSession) -> None:
        self._session = session
        self._known: dict[str, _Read] = {}
        self._listed: tuple[frozenset[str], int] = frozenset(), 0

    def forget(self) -> None:
        """Read all of them the next time."""
        self._known = {}

    def read(
        self, registrations: Collection[str], cversion: int, session_nodes: Collection[str], always: Collection[str]
    ) -> Reads:
        """All of these nodes; see :meth:`ZkSession.read_many`. What is not named is forgotten.

        Args:
            registrations: paths of registrations.
            cversion: of the node that they are children of, when they were listed.
            session_nodes: paths of session nodes, listed after the registrations and before this call.
            always: paths that are read each time.

        Raises:
            ZooKeeperUnavailable, SessionExpired: no answer.
        """
        listed = defaultdict[str, set[str]](set)
        for path in session_nodes:
            name = path.rpartition("/")[2]
            listed[SessionNode.consumer_id(name)].add(name)
        sessions = {path: frozenset(listed[path.rpartition("/")[2]]) for path in registrations}
        sessions.update((path, frozenset([path])) for path in session_nodes)
        self._forget_if_replaced(frozenset(registrations), cversion, sessions)
        known = {
            path: self._known[path]
            for path, names in sessions.items()
            if names and path in self._known and self._known[path].sessions == names
        }
        reads = self._session.read_many([*(path for path in sessions if path not in known), *always])
        for path, names in sessions.items():
            node = reads.nodes.get(path)
            if names and node is not None:
                known[path] = _Read(names, node)
        self._known = known
        return Reads({**reads.nodes, **{path: known_read.node for path, known_read in known.items()}}, reads.refused)

    def _forget_if_replaced(
        self, registrations: frozenset[str], cversion: int, sessions: Mapping[str, frozenset[str]]
    ) -> None:
        """Read all of them again if one may have been replaced in its session since the last list.

        1. C changes its subscription: its registration is deleted and created in one transaction, so the list is the
        same, and its ``cversion`` is two higher. Whatever else came and went in between, the version has moved further
        then than the names that differ show, and the members that are registered in another session.
        """
        before, version = self._listed
        again = sum(
            1 for path in registrations & before if path in self._known and sessions[path] != self._known[path].sessions
        )
        if cversion - version != len(registrations ^ before) + 2 * again:
            self.forget()
        self._listed = registrations, cversion
