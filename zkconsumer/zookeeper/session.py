"""ZkSession: one ZooKeeper connection and session, with kazoo's errors translated and its pitfalls handled.

Facts about kazoo that shape this file: state listeners and watches run on kazoo's own threads and must not block; a
request that was made before the connection broke, or that waits for a connection, may run later, even in a later
session, so a write that must not happen then is sent in a transaction that checks a node of this session first
(:meth:`ZkSession.transact`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, KeeperState

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ChrootMissing, ThreadLimit, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.process.forks import Owner
from zkconsumer.process.threads import start_thread
from zkconsumer.zookeeper.kazooadapter import (
    LOGIN_FAILED,
    NegotiationLog,
    PollingHandler,
    Probe,
    ProbeSync,
    SessionClient,
    Watch,
    connection_loop_ended,
    start_client,
    translated_errors,
)
from zkconsumer.zookeeper.reads import Znode, ZnodeReads
from zkconsumer.zookeeper.zookeepersecurity import client_arguments, open_acl, owned_acl

if TYPE_CHECKING:  # what only reads needs no transactions
    from zkconsumer.zookeeper.access import Access
    from zkconsumer.zookeeper.ephemerals import Created
    from zkconsumer.zookeeper.fencedtransaction import Conflict, Operation
    from zkconsumer.zookeeper.partialtransactions import Outcomes

_log = logging.getLogger(__name__)

_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
"""How kazoo pauses between connection attempts, in seconds. By default it would double the pause up to an hour, and a
short outage would cost the session, since the reconnect would come too late."""


class ProbeAnswer(NamedTuple):
    """A server's answer: the id of the session that is alive, and whether the node exists."""

    session_id: int
    exists: bool


class ZkSession(ZnodeReads):
    """A connection to ZooKeeper that survives disconnects and gets a new session after an expiry.

    Args:
        connect: ``host:port,host:port/chroot``.
        session_timeout_ms: requested session timeout; also how long a single operation may take.
        connection_timeout_ms: how long :meth:`open` waits for a server, and as long again for the answer to its first
            request, if the session timeout is not longer.
        on_connection: called on kazoo's thread when the connection came back or the session was lost; sets a flag.
        authentication: further arguments of kazoo's client, see
            :func:`zkconsumer.zookeeper.zookeepersecurity.client_arguments`.
        client: makes kazoo's client.
        acl: ACL of nodes that :meth:`transact` and :meth:`ensure_path` create; None allows all clients everything.

    Attributes:
        connections: incremented when a connection, and with it all watches, is made or lost; written by kazoo's thread.
        is_absent: True where a command names no ZooKeeper; see :mod:`zkconsumer.zookeeper.absentzookeeper`.
    """

    is_absent = False

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        on_connection: Watch = lambda: None,
        authentication: Mapping[str, Any] | None = None,
        acl: Sequence[Any] | None = None,
        client: Callable[..., Any] = SessionClient,
    ) -> None:
        self._acl = open_acl() if acl is None else list(acl)
        self._owner = Owner()
        self._connect = connect
        self._connection_timeout = connection_timeout_ms / 1000
        self._on_connection = on_connection
        self._connected = threading.Event()
        self._lost = False
        self.connections = 0
        self._login_refused = False
        timeout = session_timeout_ms / 1000
        self._negotiation = NegotiationLog(timeout)
        made = client(
            hosts=connect,
            timeout=timeout,
            handler=PollingHandler(),
            logger=self._negotiation,
            connection_retry=_RECONNECT,
            **(authentication or {}),
        )
        super().__init__(made, timeout)
        self._client.add_listener(self._state_changed)

    @classmethod
    def from_config(
        cls, config: ConsumerConfig, on_connection: Watch = lambda: None, client: Callable[..., Any] = SessionClient
    ) -> Self:
        """A session as the properties ``zookeeper.*`` describe it, not open yet.

        Args:
            config: has the properties.
            on_connection: as of the class.
            client: as of the class.

        Raises:
            ConfigError: a package that they need is not installed, or ``zookeeper.connect`` is missing.
        """
        return cls(
            config.zookeeper_servers(),
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            on_connection=on_connection,
            authentication=client_arguments(config),
            acl=owned_acl(config),
            client=client,
        )

    # -- life -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect and check the chroot.

        Raises:
            ZooKeeperUnavailable: no server answered in time.
            ZooKeeperRefused: the servers refused the login.
            ChrootMissing: the chroot does not exist.
            ThreadLimit: kazoo's threads cannot be started.
                After each of them the connection is closed again; after an interrupt soon.
        """
        try:
            self._check_chroot(start_client(self._client))
        except BaseException as error:
            if not isinstance(error, Exception):
                # An interrupt: kazoo's thread may wait for a server that does not answer, and closing waits for it.
                with suppress(ThreadLimit):
                    start_thread(threading.Thread(target=self._close_later, name="zookeeper-close", daemon=True))
                raise
            self.close()
            if isinstance(error, ZooKeeperUnavailable) and self._login_refused:
                raise ZooKeeperRefused(f"ZooKeeper at {self._connect} refused this client: {LOGIN_FAILED}") from error
            raise

    def _check_chroot(self, established: Any) -> None:
        deadline = time.monotonic() + self._connection_timeout
        while True:
            if not established.wait(max(0.0, deadline - time.monotonic())):
                raise ZooKeeperUnavailable(
                    f"no ZooKeeper server of {self._connect} answered within {self._connection_timeout:g} s"
                    f"{self.last_failure}; check zookeeper.connect, that the servers run and have a quorum, "
                    "and that zookeeper.ssl.client.enable fits the port"
                )
            # Also without a chroot, since kazoo reports a refused login only by the first request. Not always by that:
            # 1. the connection is up, and this thread is woken; 2. the server refuses the login, and kazoo's thread
            # fails the waiting requests for that reason; 3. it closes the connection; 4. this thread sends its request,
            # and learns only that the connection is closed. The answer has more time than later ones: the login may be
            # in progress, and the server may just have started.
            try:
                root = self.exists("/", timeout=max(self._timeout, self._connection_timeout))
                break
            except ZooKeeperUnavailable:
                if self._login_refused or time.monotonic() >= deadline:
                    raise  # otherwise kazoo closed a connection that did not answer, and may make another
        if root is None:
            raise self._chroot_missing()

    def _chroot_missing(self) -> ChrootMissing:
        return ChrootMissing(
            f"chroot {self._client.chroot} of {self._connect} does not exist; check the path after the slash of "
            "zookeeper.connect, and create it if it is right"
        )

    def _close_later(self) -> None:
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - kazoo: its thread still waits for the server
            _log.debug("ZooKeeper %s: the connection is not closed: %s", self._connect, error)

    def close(self) -> None:
        """End the session, which removes its ephemeral znodes at once. Idempotent; does nothing in a forked child."""
        if self._owner.spares(f"ZooKeeper session 0x{self.session_id:x}"):
            return
        self._client.remove_listener(self._state_changed)
        self._client.stop()
        self._client.close()
        self._connected.clear()

    @property
    def address(self) -> str:
        """The servers, as ``zookeeper.connect`` names them."""
        return self._connect

    @property
    def last_failure(self) -> str:
        """Why the last connection attempt failed, to be appended to a message; empty if none has failed."""
        failure = self._negotiation.last_failure
        return f" (last failure: {failure})" if failure else ""

    @property
    def session_id(self) -> int:
        """Id of the current session as an unsigned number; 0 before the first connection."""
        identity = self._client.client_id
        return 0 if identity is None else int(identity[0]) & 0xFFFFFFFFFFFFFFFF

    def takeover(self) -> tuple[str, tuple[int, bytes] | None]:
        """Servers, and id and password of the session, with which another client can take it over; None without one."""
        identity: tuple[int, bytes] | None = self._client.client_id
        return ",".join(f"{host}:{port}" for host, port in self._client.hosts), identity

    @property
    def connected(self) -> bool:
        """True while the connection is up."""
        return self._connected.is_set()

    @property
    def lost(self) -> bool:
        """True from the notification that the session expired until there is a new one."""
        return self._lost

    @property
    def negotiated_timeout(self) -> float:
        """The session timeout in seconds that the server granted, which may differ from the requested one."""
        return self._negotiation.timeout

    def probe(self, path: str, answered: Callable[[ProbeAnswer | None], None]) -> bool:
        """Ask for a node, as the leader has it, without waiting (adr/0024).

        Args:
            path: of the node.
            answered: called on kazoo's thread, with the answer if a server answered in the same session.

        Returns:
            False if nothing was sent since there is no connection.
        """
        session_id = self.session_id

        def done(result: Any) -> None:
            proven = synced.successful() and result.successful()
            alive = proven and session_id != 0 and self.session_id == session_id
            answered(ProbeAnswer(session_id, result.value is not None) if alive else None)

        if not self.connected:
            return False
        synced, answer = self._client.handler.async_result(), self._client.handler.async_result()
        answer.rawlink(done)
        root = self._client.chroot
        self._client._call(ProbeSync(root or "/"), synced)  # the server answers it first
        self._client._call(Probe((root + path).rstrip("/") or "/", None), answer)
        return True

    def revive(self) -> bool:
        """Restart the client, with a new session, if it has stopped reconnecting; True if it had.

        kazoo reconnects forever, except after a refused login and after an unexpected error in its connection loop. To
        be called by one thread, and not by a thread of kazoo's.
        """
        if not connection_loop_ended(self._client):
            return False
        reason = (
            "the login was refused; check zookeeper.digest and zookeeper.sasl.* against the servers"
            if self._login_refused
            else "kazoo's connection loop has ended; check its last lines in the log for the reason"
        )
        _log.error("ZooKeeper %s: %s. Connecting again", self._connect, reason)
        try:
            start_client(self._client)
        except ThreadLimit as error:  # the lease's thread, which calls this, must live on to try again
            _log.error("ZooKeeper %s: cannot connect again yet: %s", self._connect, error)
        return True

    def _state_changed(self, state: str) -> None:
        # Runs on kazoo's connection thread: a request from here would wait for itself.
        self.forget_server()
        self.connections += 1
        if state == KazooState.CONNECTED:
            self._lost = False
            self._connected.set()
        else:
            self._connected.clear()
            self._lost = state == KazooState.LOST
            self._login_refused = self._client.client_state == KeeperState.AUTH_FAILED
        _log.info("ZooKeeper %s: %s (session 0x%x)", self._connect, state, self.session_id)
        if state != KazooState.SUSPENDED:
            self._on_connection()

    # -- further reads --------------------------------------------------------------------------------------------

    def get(self, path: str) -> Znode | None:
        """The node, or None if there is none."""
        return self.get_many([path])[path]

    def get_many_synced(self, paths: Iterable[str]) -> dict[str, Znode | None]:
        """As :meth:`get_many`, as the leader has the nodes: a server that has lost its leader does not answer."""
        synced = self._client.sync_async("/")
        nodes = self.get_many(paths)
        with translated_errors("sync"):
            synced.get(timeout=self._timeout)
        return nodes

    def access(self, paths: Iterable[str], *, masked: bool = False) -> dict[str, Access]:
        """See :func:`~zkconsumer.zookeeper.access.read_access`."""
        from zkconsumer.zookeeper.access import read_access

        return read_access(self._client, paths, self._timeout, masked=masked)

    # -- writes ---------------------------------------------------------------------------------------------------

    def ensure_path(self, path: str, data: bytes | None, *, open_to_all: bool = False) -> None:
        """Create a persistent node unless it exists; its missing parents get the same data and ACL.

        Raises:
            ChrootMissing: the chroot, which is never created, was deleted since the session was opened.
            ZooKeeperRefused, ZooKeeperUnavailable: see there.
        """
        with translated_errors(f"create {path}"):
            try:
                acl = open_acl() if open_to_all else self._acl
                self._client.create_async(path, data, acl=acl).get(timeout=self._timeout)
            except NodeExistsError:
                return
            except NoNodeError:
                parent = path.rpartition("/")[0]
                if not parent:
                    raise self._chroot_missing() from None
                self.ensure_path(parent, data, open_to_all=open_to_all)
                self.ensure_path(path, data, open_to_all=open_to_all)

    def ensure_paths(self, paths: Collection[str], data: bytes | None) -> dict[str, ZooKeeperRefused]:
        """As :meth:`ensure_path` for many nodes, in few requests; returns why some may not be created.

        Raises:
            ZooKeeperRefused: a parent of them may not be created, or too many are refused.
            ZooKeeperUnavailable: it is unknown which of them are there.
        """
        from zkconsumer.zookeeper.fencedtransaction import NO_FENCE, Operation

        for parent in sorted({path.rpartition("/")[0] for path in paths}):
            self.ensure_path(parent, data)
        return self.try_transact(NO_FENCE, [Operation("create", path, data) for path in sorted(paths)]).refused

    def create_ephemerals(
        self, nodes: Sequence[tuple[str, bytes]], parents: Sequence[str] = (), counted: str = "", absent: str = ""
    ) -> Created | None:
        """See :meth:`Ephemerals.create <zkconsumer.zookeeper.ephemerals.Ephemerals.create>`."""
        from zkconsumer.zookeeper.ephemerals import Ephemerals

        ensure_path = partial(self.ensure_path, data=b"", open_to_all=True)
        return Ephemerals(self._client, self._timeout, ensure_path).create(nodes, parents, counted, absent)

    def flash(self, fence: str, path: str, data: bytes) -> None:
        """Create a node and delete it in the same transaction: watches on its parent fire, and no client ever reads it.

        Args:
            fence: see :meth:`try_transact`.
            path: path of a node that does not exist.
            data: data of the node; other clients could only see it in the servers' transaction log.

        Raises:
            SessionExpired: the fence is gone.
            ZooKeeperUnavailable: no answer; whether it was done is unknown.
            ZooKeeperRefused: the servers do not allow it, or the node exists.
        """
        from zkconsumer.zookeeper.fencedtransaction import Operation

        self._do_all(fence, [Operation("create-ephemeral", path, data), Operation("delete", path)])

    def replace_ephemeral(self, fence: str, path: str, data: bytes, others: Sequence[Operation] = ()) -> None:
        """Delete a node and create it again, in one transaction: watches on its parent fire, and it is never absent.

        Args:
            fence: see :meth:`try_transact`.
            path: path of a node that exists.
            data: its next data; it lives as long as this session.
            others: further operations of the same transaction.

        Raises:
            SessionExpired, ZooKeeperUnavailable: see :meth:`flash`.
            ZooKeeperRefused: the servers do not allow it, or the node does not exist.
        """
        from zkconsumer.zookeeper.fencedtransaction import Operation

        self._do_all(fence, [Operation("delete", path), Operation("create-ephemeral", path, data), *others])

    def _do_all(self, fence: str, operations: Sequence[Operation]) -> None:
        """Do the operations in one transaction; what it creates is open to all."""
        from zkconsumer.zookeeper.fencedtransaction import Conflict, send_fenced

        answer = send_fenced(self._client, fence, operations, open_acl())(self._timeout)
        if isinstance(answer, Conflict):
            path = answer.operation.path
            raise answer.refusal or ZooKeeperRefused(f"{path} cannot be created: node or parent {answer.outcome}")

    def transact(self, fence: str, operations: Sequence[Operation]) -> Outcomes:
        """Do the operations as :meth:`try_transact` does; a refusal is raised after the others are done.

        Raises:
            ZooKeeperRefused: the first of the refusals.
            SessionExpired, ZooKeeperUnavailable: see there.
        """
        outcomes = self.try_transact(fence, operations)
        for reason in outcomes.refused.values():
            raise reason
        return outcomes

    def try_transact(
        self,
        fence: str,
        operations: Sequence[Operation],
        *,
        insist: bool = True,
        condition: Operation | None = None,
        together: int = 1,
    ) -> Outcomes:
        """Do the operations in transactions, each of which first checks that the node ``fence`` exists.

        An operation that cannot be done (see :data:`Outcome`) is removed and the rest is sent again.

        Args:
            fence: path of a node of this session; it disappears with the session, and then nothing is done.
            operations: at most one for each path.
            insist: send the rest again; False: stop at the first transaction that cannot be done.
            condition: a check that has to hold as well; otherwise nothing is done.
            together: see :func:`~zkconsumer.zookeeper.fencedtransaction.in_transactions`.

        Returns:
            Outcome by path: one for each operation that was done, or was found impossible or refused.

        Raises:
            SessionExpired: the fence is gone; other transactions stay done.
            ShareChanged: the condition does not hold; the same.
            ZooKeeperUnavailable: no answer; which of the transactions under way were done is unknown.
            ZooKeeperRefused: too many were refused to try the others one by one; other transactions stay done.
        """
        from zkconsumer.zookeeper.partialtransactions import PartialTransactions

        transactions = PartialTransactions(self._client, self._acl, self._timeout, self.get_many, condition)
        return transactions.run(fence, operations, insist, together)

    def commit_changes(self, fence: str, changes: Sequence[Operation]) -> Conflict | None:
        """See :func:`~zkconsumer.zookeeper.fencedtransaction.commit_changes`."""
        from zkconsumer.zookeeper.fencedtransaction import commit_changes

        return commit_changes(self._client, fence, changes, self._acl, self._timeout)

    def commit_independent(self, fence: str, parts: Iterable[Sequence[Operation]]) -> list[Conflict | None]:
        """See :func:`~zkconsumer.zookeeper.fencedtransaction.commit_independent`."""
        from zkconsumer.zookeeper.fencedtransaction import commit_independent

        return commit_independent(self._client, fence, parts, self._acl, self._timeout)
