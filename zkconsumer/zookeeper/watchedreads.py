"""WatchedReads: a cache of what one member has read from ZooKeeper, invalidated by watches."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.reads import Reads, Znode
from zkconsumer.zookeeper.session import ZkSession


@dataclass(frozen=True, slots=True)
class _PathWatch:
    """The watch of one path. Equal for equal paths: kazoo keeps one, however often a read arms it before it fires."""

    note: Callable[[str], None]
    path: str

    def __call__(self) -> None:
        self.note(self.path)


class WatchedReads:
    """Znodes and lists of children; each is read again only when its watch has fired, or the connection has changed.

    A read arms the watch, so later changes are detected. Watches fire on kazoo's thread, which only records the path;
    the path is dropped from the cache before the next call returns. A watch that fires while the path is being read is
    recorded as well, and the path is read once more the next time. Used by one thread.

    Args:
        session: an open session.
        changed: called on kazoo's thread when something that was read has changed.
    """

    def __init__(self, session: ZkSession, changed: Watch) -> None:
        self._session = session
        self._changed = changed
        self._fired: deque[str] = deque()
        self._connections = -1
        self._nodes: dict[str, Znode | None] = {}
        self._children: dict[str, frozenset[str]] = {}
        self._cversions: dict[str, int] = {}
        self._events: Counter[str] = Counter()

    def nodes(self, paths: Iterable[str]) -> Reads:
        """These nodes, see :meth:`ZkSession.read_many`; nodes of earlier calls are forgotten.

        Raises:
            ZooKeeperUnavailable, SessionExpired: no answer.
        """
        self._drop_stale()
        wanted = dict.fromkeys(paths)
        known = {path: self._nodes[path] for path in wanted if path in self._nodes}
        self._nodes = known
        left = [path for path in wanted if path not in known]
        reads = self._session.read_many(left, self._watch_of) if left else Reads({}, {})
        known.update(reads.nodes)
        return Reads({path: known[path] for path in wanted if path in known}, reads.refused)

    def unchanged(self, paths: Iterable[str]) -> set[str]:
        """Those of the paths that :meth:`nodes` has read and whose watches have not fired."""
        self._drop_stale()
        return {path for path in paths if path in self._nodes}

    def children(self, path: str) -> frozenset[str]:
        """Names of a node's children, empty if there is no such node; the same object as long as it is not read again.

        Raises:
            ZooKeeperRefused, ZooKeeperUnavailable, SessionExpired: the children cannot be read.
        """
        self._drop_stale()
        if path not in self._children:
            listed = self._session.list_children(path, self._watch_of(path))
            self._children[path] = frozenset(() if listed is None else listed.names)
            self._cversions[path] = 0 if listed is None else listed.cversion
        return self._children[path]

    def cversion(self, path: str) -> int:
        """How many children had come and gone when :meth:`children` listed them; 0 if there was no such node."""
        return self._cversions.get(path, 0)

    def events(self, path: str) -> int:
        """How often the watch of a path has fired; an event that a broken connection hid is not counted."""
        self._drop_stale()
        return self._events[path]

    def _watch_of(self, path: str) -> Watch:
        return _PathWatch(self._note, path)

    def _note(self, path: str) -> None:
        # First the path, then the flag: the thread that sees the flag finds the path.
        self._fired.append(path)
        self._changed()

    def _drop_stale(self) -> None:
        # The counter is taken before reading: what is read while the connection breaks is dropped the next time.
        if self._connections != self._session.connections:
            self._connections = self._session.connections
            self._nodes, self._children = {}, {}
        while self._fired:
            path = self._fired.popleft()
            self._events[path] += 1
            self._nodes.pop(path, None)
            self._children.pop(path, None)
