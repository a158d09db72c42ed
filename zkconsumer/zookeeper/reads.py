"""ZnodeReads: reads znodes one by one, or many in few requests, and arms watches on what it reads; for `ZkSession`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kazoo.exceptions import KazooException, NoNodeError, UnimplementedError, ZookeeperError

from zkconsumer.errors import ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.zookeeper.kazooadapter import Watch, as_kazoo_watch, translated_errors
from zkconsumer.zookeeper.multiread import ArmWatches, MultiChildren, MultiRead, in_requests, supports_multi_read

_log = logging.getLogger(__name__)

_PIPELINE: Final = 1000
"""Most reads that are sent before the first answer is awaited."""

_WORTH_MULTI_READ: Final = 20
"""Fewer reads are pipelined while the server's version is unknown: asking for it costs a connection."""


class Znode(NamedTuple):
    """Data and owner of a znode that was read.

    ``data`` is None for null data; ``owner_session`` is the id of the session that an ephemeral node lives with, 0 for
    a persistent one; ``modified_ms`` is the time of the last write in ms since the epoch; ``version`` counts the writes
    since the node was created; ``czxid`` and ``mzxid`` are the transactions of the ensemble that created the node and
    that wrote its data last; ``cversion`` counts the children that were created and deleted, ``pzxid`` is the
    transaction that did that last, or that created the node.
    """

    data: bytes | None
    owner_session: int
    modified_ms: int
    version: int
    czxid: int
    mzxid: int
    cversion: int = 0
    pzxid: int = 0


class Reads(NamedTuple):
    """The result of reading many nodes.

    Attributes:
        nodes: by path; None if there is no such node. A node that may not be read is absent.
        refused: by path, why the servers do not allow reading the node.
    """

    nodes: dict[str, Znode | None]
    refused: dict[str, ZooKeeperRefused]


class Children(NamedTuple):
    """The children of a node, and its ``cversion`` at that moment, see :class:`Znode`."""

    names: list[str]
    cversion: int


class ChildrenReads(NamedTuple):
    """The children of many nodes.

    Attributes:
        names: by path; None where there is no such node. A node whose children may not be read is absent.
        refused: by path, why the servers do not allow to read its children.
    """

    names: dict[str, list[str] | None]
    refused: dict[str, ZooKeeperRefused]

    def existing(self) -> dict[str, list[str]]:
        """The children of the nodes that exist.

        Raises:
            ZooKeeperRefused: the children of one may not be read.
        """
        for refused in self.refused.values():
            raise refused
        return {path: names for path, names in self.names.items() if names is not None}


class ZnodeReads:
    """Reads through one client; any thread may use it.

    Args:
        client: kazoo's client.
        timeout: how long to wait for each answer, in seconds.
    """

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self.multi_read_known: bool | None = None
        self._multi_read_refused = False

    def forget_server(self) -> None:
        """Forget the server's release, since another may differ; on kazoo's thread, when the connection changes."""
        self.multi_read_known = None

    def exists(self, path: str, watch: Watch | None = None, *, timeout: float | None = None) -> Znode | None:
        """The node without its data, or None; a watch on a missing node fires when it is created.

        ``timeout``, in seconds, is for the first request of all; later ones may take as long as any other operation.
        """
        with translated_errors(f"exists {path}"):
            answer = self._client.exists_async(path, watch=as_kazoo_watch(watch))
            stat = answer.get(timeout=self._timeout if timeout is None else timeout)
        return None if stat is None else _znode(None, stat)

    def get_many(self, paths: Iterable[str], watch: Watch | None = None) -> dict[str, Znode | None]:
        """Many nodes in few requests; None for one that is missing. A watch also covers nodes that do not exist yet.

        Raises:
            ZooKeeperRefused: one of them may not be read.
            ZooKeeperUnavailable, SessionExpired: no answer.
        """
        reads = self.read_many(paths, None if watch is None else lambda _: watch)
        for reason in reads.refused.values():
            raise reason
        return reads.nodes

    def read_many(self, paths: Iterable[str], watch_of: Callable[[str], Watch] | None = None) -> Reads:
        """As :meth:`get_many`; nodes that may not be read are reported, and the others are read.

        Args:
            paths: paths of the nodes.
            watch_of: returns the watch for a path; None arms no watches.

        Raises:
            ZooKeeperUnavailable, SessionExpired: no answer.
        """
        wanted = list(dict.fromkeys(paths))
        worth = 2 if self.multi_read_known else _WORTH_MULTI_READ
        if len(wanted) < worth or not self._has_multi_read():
            return self._read_one_by_one(wanted, watch_of)
        # All reads from now on include what the server had applied by then.
        zxid = self._client.last_zxid
        reads = self._multi_read(wanted)
        if watch_of is not None:
            self._arm_watches(zxid, wanted, reads, watch_of)
        return reads

    def _read_one_by_one(self, paths: Sequence[str], watch_of: Callable[[str], Watch] | None) -> Reads:
        reads = Reads({}, {})
        for start in range(0, len(paths), _PIPELINE):
            watches = {path: None if watch_of is None else watch_of(path) for path in paths[start : start + _PIPELINE]}
            pending = [
                (path, watch, self._client.get_async(path, watch=as_kazoo_watch(watch)))
                for path, watch in watches.items()
            ]
            for path, watch, answer in pending:
                try:
                    reads.nodes[path] = self._answered(path, answer, watch)
                except ZooKeeperRefused as reason:
                    reads.refused[path] = reason
        return reads

    def _multi_read(self, paths: Sequence[str]) -> Reads:
        reads = Reads({}, {})
        for path, answer in self._ask_many("get", MultiRead, paths):
            if isinstance(answer, ZooKeeperRefused):
                reads.refused[path] = answer
            else:
                reads.nodes[path] = answer and _znode(*answer)
        return reads

    def _ask_many(
        self, what: str, request: Callable[[Sequence[str]], Any], paths: Sequence[str]
    ) -> Iterator[tuple[str, Any | ZooKeeperRefused]]:
        """Send one request for many paths, or some where they do not fit into one; what each path has."""
        pending = []
        for part in in_requests(paths):
            answer = self._client.handler.async_result()
            self._client._call(request([self._client.chroot + path for path in part]), answer)
            pending.append((part, answer))
        for part, answer in pending:
            with translated_errors(f"a read of {len(part)} nodes from {part[0]} to {part[-1]}"):
                try:
                    results = answer.get(timeout=self._timeout)
                except UnimplementedError as error:
                    self._multi_read_refused = True
                    raise ZooKeeperUnavailable(
                        "the server does not support multiRead and closes the connection; from now on nodes are read "
                        "one by one"
                    ) from error
            for path, result in zip(part, results, strict=True):
                yield path, _refusal(f"{what} {path}", result) if isinstance(result, ZookeeperError) else result

    def _arm_watches(self, zxid: int, paths: Sequence[str], reads: Reads, watch_of: Callable[[str], Watch]) -> None:
        client, pending = self._client, []
        for part in in_requests(paths):
            full = {client.chroot + path: as_kazoo_watch(watch_of(path)) for path in part}
            missing = [client.chroot + path for path in part if path not in reads.refused and reads.nodes[path] is None]
            answer = client.handler.async_result()

            def register(watches: Mapping[str, object] = full) -> None:
                for path, watch in watches.items():
                    client._data_watchers[path].add(watch)

            client._call(ArmWatches(zxid, [*full.keys() - set(missing)], missing, register), answer)
            pending.append(answer)
        with translated_errors(f"arming {len(paths)} watches from {paths[0]} to {paths[-1]}"):
            for answer in pending:
                answer.get(timeout=self._timeout)

    def _has_multi_read(self) -> bool:
        """Ask the server's version, once for each connection: an ensemble may be in the middle of an upgrade.

        Behind a load balancer the answer may come from another server than the one that we are connected to. If that
        one then refuses the request, which costs a reconnect, it is not sent again.
        """
        if self._multi_read_refused:
            return False
        if self.multi_read_known is None:
            try:
                self.multi_read_known = supports_multi_read(self._client.command(b"srvr"))
            except (KazooException, OSError, AttributeError) as error:
                _log.info("cannot ask the ZooKeeper server for its version (%s); reading node by node", error)
                self.multi_read_known = False
        return self.multi_read_known

    def _answered(self, path: str, answer: Any, watch: Watch | None) -> Znode | None:
        with translated_errors(f"get {path}"):
            try:
                data, stat = answer.get(timeout=self._timeout)
            except NoNodeError:
                if watch is None or self.exists(path, watch) is None:
                    return None
                return self.get_many([path], watch)[path]  # created between the two reads
        return _znode(data, stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Names of the node's children, or None if there is no such node (then a watch fires when it is created)."""
        children = self.list_children(path, watch)
        return None if children is None else children.names

    def list_children(self, path: str, watch: Watch | None = None) -> Children | None:
        """As :meth:`children`, with the version of the list."""
        with translated_errors(f"children of {path}"):
            try:
                asked = self._client.get_children_async(path, watch=as_kazoo_watch(watch), include_data=True)
                names, stat = asked.get(timeout=self._timeout)
                return Children(list(names), stat.cversion)
            except NoNodeError:
                if watch is None or self.exists(path, watch) is None:
                    return None
        return self.list_children(path, watch)

    def children_of(self, paths: Iterable[str]) -> ChildrenReads:
        """The children of many nodes in few requests, without watches.

        Raises:
            ZooKeeperUnavailable, SessionExpired: no answer.
        """
        children = ChildrenReads({}, {})
        wanted = list(dict.fromkeys(paths))
        if len(wanted) >= (2 if self.multi_read_known else _WORTH_MULTI_READ) and self._has_multi_read():
            for path, names in self._ask_many("children of", MultiChildren, wanted):
                if isinstance(names, ZooKeeperRefused):
                    children.refused[path] = names
                else:
                    children.names[path] = names
            return children
        for start in range(0, len(wanted), _PIPELINE):
            part = wanted[start : start + _PIPELINE]
            for path, answer in [(path, self._client.get_children_async(path)) for path in part]:
                try:
                    with translated_errors(f"children of {path}"):
                        children.names[path] = list(answer.get(timeout=self._timeout))
                except NoNodeError:
                    children.names[path] = None
                except ZooKeeperRefused as reason:
                    children.refused[path] = reason
        return children


def _refusal(operation: str, error: ZookeeperError) -> ZooKeeperRefused:
    """Why the server does not allow one read of many; any other error is raised."""
    try:
        with translated_errors(operation):
            raise error
    except ZooKeeperRefused as reason:
        return reason


def _znode(data: bytes | None, stat: Any) -> Znode:
    owner_session = stat.ephemeralOwner & 0xFFFFFFFFFFFFFFFF
    return Znode(data, owner_session, stat.mtime, stat.version, stat.czxid, stat.mzxid, stat.cversion, stat.pzxid)
