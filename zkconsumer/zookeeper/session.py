"""ZkSession: one ZooKeeper connection and session, with kazoo's errors translated and its traps kept inside.

Facts about kazoo that shape this file: state listeners and watches run on kazoo's own threads and must not block; a
request made while the connection is down is queued and may run later, even in a later session, so whatever must not
happen then is sent in a transaction that checks a node of this session first (:meth:`ZkSession.transact`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, KeeperState

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ChrootMissing, SessionExpired, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.forks import Owner
from zkconsumer.zookeeper.kazooadapter import (
    LOGIN_FAILED,
    NegotiationLog,
    PollingHandler,
    Watch,
    connection_loop_ended,
    translated_errors,
)
from zkconsumer.zookeeper.reads import Reads, Znode, ZnodeReads
from zkconsumer.zookeeper.security import client_arguments, open_acl, owned_acl
from zkconsumer.zookeeper.transaction import Batch, FencedTransactions, Operation, Outcomes, Stop

_log = logging.getLogger(__name__)

_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
"""How kazoo pauses between connection attempts, in seconds. By itself it would double the pause up to an hour, and a
short outage would cost the session for want of a reconnect in time."""


class ZkSession:
    """A connection to ZooKeeper that survives disconnects and gets a new session after an expiry.

    Args:
        connect: ``host:port,host:port/chroot``.
        session_timeout_ms: requested session timeout; also how long a single operation may take.
        connection_timeout_ms: how long :meth:`open` waits for a server, and as long again for the answer to its first
            request, if the session timeout is not longer.
        on_connection: called on kazoo's thread when the connection came back or the session was lost; sets a flag.
        authentication: further arguments of kazoo's client, see :func:`zkconsumer.zookeeper.security.client_arguments`.
        acl: access to what is created in :meth:`transact` and :meth:`ensure_path`; None opens it to everybody.

    Attributes:
        connections: counted up when a connection is made or lost, and with it all watches; written by kazoo's thread.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        on_connection: Watch = lambda: None,
        authentication: Mapping[str, Any] | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        self._acl = open_acl() if acl is None else list(acl)
        self._owner = Owner()
        self._connect = connect
        self._timeout = session_timeout_ms / 1000
        self._connection_timeout = connection_timeout_ms / 1000
        self._on_connection = on_connection
        self._connected = threading.Event()
        self._lost = False
        self.connections = 0
        self._login_refused = False
        self._negotiation = NegotiationLog(self._timeout)
        self._client: Any = KazooClient(
            hosts=connect,
            timeout=self._timeout,
            handler=PollingHandler(),
            logger=self._negotiation,
            connection_retry=_RECONNECT,
            **(authentication or {}),
        )
        self._reads = ZnodeReads(self._client, self._timeout)
        self._client.add_listener(self._state_changed)

    @classmethod
    def from_config(cls, config: ConsumerConfig, on_connection: Watch = lambda: None) -> Self:
        """A session as the properties ``zookeeper.*`` describe it, not open yet.

        Raises:
            ConfigError: what they ask for is not installed.
        """
        return cls(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            on_connection=on_connection,
            authentication=client_arguments(config),
            acl=owned_acl(config),
        )

    # -- life -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect and check the chroot.

        Raises:
            ZooKeeperUnavailable: no server answered in time.
            ZooKeeperRefused: the servers refused the login.
            ChrootMissing: the chroot does not exist.
                After each of them the connection is closed again; after an interrupt soon.
        """
        try:
            self._check_chroot(self._client.start_async())
        except BaseException as error:
            if not isinstance(error, Exception):
                # An interrupt: kazoo's thread may wait for a server that does not answer, and closing waits for that.
                threading.Thread(target=self._close_later, name="zookeeper-close", daemon=True).start()
                raise
            self.close()
            if isinstance(error, ZooKeeperUnavailable) and self._login_refused:
                raise ZooKeeperRefused(f"ZooKeeper at {self._connect} refused us: {LOGIN_FAILED}") from error
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
            # Also without a chroot, since kazoo tells a refused login by the first request only. Not even by that,
            # always: 1. the connection is there, and we are woken; 2. the server refuses the login, and kazoo's thread
            # fails what waits with that news; 3. it closes the connection; 4. we ask, and hear of that alone.
            # The answer has more time than later ones: the login may be under way, and the server have just started.
            try:
                root = self.exists("/", timeout=max(self._timeout, self._connection_timeout))
                break
            except ZooKeeperUnavailable:
                if self._login_refused or time.monotonic() >= deadline:
                    raise  # else kazoo gave up a connection that was silent, and there may be another
        if root is None:
            raise ChrootMissing(
                f"chroot {self._client.chroot} of {self._connect} does not exist; check what follows the slash of "
                "zookeeper.connect"
            )

    def _close_later(self) -> None:
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - kazoo: its thread still waits for the server
            _log.debug("ZooKeeper %s: the connection is not closed: %s", self._connect, error)

    def close(self) -> None:
        """End the session, which removes its ephemeral znodes at once. Idempotent; in a forked child a no-op."""
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

    @property
    def connected(self) -> bool:
        """True while the connection is up."""
        return self._connected.is_set()

    @property
    def lost(self) -> bool:
        """True from the news that the session expired until there is a new one."""
        return self._lost

    @property
    def negotiated_timeout(self) -> float:
        """The session timeout in seconds that the server granted, which may differ from the requested one."""
        return self._negotiation.timeout

    def probe(self, answered: Callable[[int | None], None]) -> bool:
        """Ask for the root without waiting.

        Args:
            answered: called on kazoo's thread, with the session's id if a server answered in the session that asked.

        Returns:
            False if nothing was sent since there is no connection.
        """
        session_id = self.session_id

        def done(result: Any) -> None:
            alive = result.successful() and session_id != 0 and self.session_id == session_id
            answered(session_id if alive else None)

        if not self.connected:
            return False
        self._client.exists_async("/").rawlink(done)
        return True

    def revive(self) -> bool:
        """Start over, with a new session, if the client has given up; True if it had to be done.

        kazoo reconnects for ever, except after a refused login and after an error that it did not foresee. To be called
        by one thread, and not by a thread of kazoo's.
        """
        if not connection_loop_ended(self._client):
            return False
        reason = (
            "the login was refused; check zookeeper.digest and zookeeper.sasl.* against the servers"
            if self._login_refused
            else "kazoo's connection loop has ended; its last lines in the log say why"
        )
        _log.error("ZooKeeper %s: %s. Connecting again", self._connect, reason)
        self._client.start_async()
        return True

    def _state_changed(self, state: str) -> None:
        # Runs on kazoo's connection thread: any request from here would wait for itself.
        self._reads.forget_server()
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

    # -- reads ----------------------------------------------------------------------------------------------------

    def exists(self, path: str, watch: Watch | None = None, *, timeout: float | None = None) -> Znode | None:
        """See :meth:`ZnodeReads.exists <zkconsumer.zookeeper.reads.ZnodeReads.exists>`."""
        return self._reads.exists(path, watch, timeout=timeout)

    def get(self, path: str) -> Znode | None:
        """The node, or None if there is none."""
        return self.get_many([path])[path]

    def get_many(self, paths: Iterable[str], watch: Watch | None = None) -> dict[str, Znode | None]:
        """See :meth:`ZnodeReads.get_many <zkconsumer.zookeeper.reads.ZnodeReads.get_many>`."""
        return self._reads.get_many(paths, watch)

    def read_many(self, paths: Iterable[str], watch_of: Callable[[str], Watch] | None = None) -> Reads:
        """See :meth:`ZnodeReads.read_many <zkconsumer.zookeeper.reads.ZnodeReads.read_many>`."""
        return self._reads.read_many(paths, watch_of)

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """See :meth:`ZnodeReads.children <zkconsumer.zookeeper.reads.ZnodeReads.children>`."""
        return self._reads.children(path, watch)

    # -- writes ---------------------------------------------------------------------------------------------------

    def ensure_path(self, path: str, data: bytes | None, *, open_to_all: bool = False) -> None:
        """Create a persistent node unless it exists; the missing parents of it get the same data and access."""
        with translated_errors(f"create {path}"):
            try:
                acl = open_acl() if open_to_all else self._acl
                self._client.create_async(path, data, acl=acl).get(timeout=self._timeout)
            except NodeExistsError:
                return
            except NoNodeError:
                self.ensure_path(path.rpartition("/")[0], data, open_to_all=open_to_all)
                self.ensure_path(path, data, open_to_all=open_to_all)

    def ensure_paths(self, paths: Collection[str], data: bytes | None) -> dict[str, ZooKeeperRefused]:
        """As :meth:`ensure_path` for many nodes, in few requests; returns why some may not be created.

        Raises:
            ZooKeeperRefused: a parent of them may not be created, or too many are refused.
            ZooKeeperUnavailable: it is unknown which of them are there.
        """
        for parent in sorted({path.rpartition("/")[0] for path in paths}):
            self.ensure_path(parent, data)
        return self.try_transact("/", [Operation("create", path, data) for path in sorted(paths)]).refused

    def create_ephemerals(self, nodes: Sequence[tuple[str, bytes]]) -> bool:
        """Create nodes that live as long as this session, open to everybody, all or none; False if one exists."""
        batch = Batch(self._client, open_acl())
        batch.add(Operation("create-ephemeral", path, data) for path, data in nodes)
        answer = batch.commit(self._timeout)
        if isinstance(answer, Stop) and answer.reason is not None:
            raise answer.reason
        return not isinstance(answer, Stop)

    def flash(self, fence: str, path: str, data: bytes) -> None:
        """Create a node and delete it in the same transaction: watches on its parent fire, and no client ever reads it.

        Args:
            fence: see :meth:`try_transact`.
            path: of a node that does not exist.
            data: of the node; other clients could only see it in the servers' transaction log.

        Raises:
            SessionExpired: the fence is gone.
            ZooKeeperUnavailable: no answer; whether it was done is unknown.
            ZooKeeperRefused: the servers do not allow it, or the node exists.
        """
        batch = Batch(self._client, open_acl())
        batch.check(fence)
        batch.add([Operation("create-ephemeral", path, data), Operation("delete", path)])
        answer = batch.commit(self._timeout)
        if not isinstance(answer, Stop):
            return
        if answer.reason is not None:
            raise answer.reason
        if answer.index == 0:
            raise SessionExpired(f"session node {fence} is gone: this session owns nothing any more")
        raise ZooKeeperRefused(f"{path} cannot be created, node or parent: {answer.outcome}")

    def transact(self, fence: str, operations: Sequence[Operation]) -> Outcomes:
        """Do the operations as :meth:`try_transact` does; a refusal is an error, raised when the rest is done.

        Raises:
            ZooKeeperRefused: the first of the refusals.
            SessionExpired, ZooKeeperUnavailable: see there.
        """
        outcomes = self.try_transact(fence, operations)
        for reason in outcomes.refused.values():
            raise reason
        return outcomes

    def try_transact(self, fence: str, operations: Sequence[Operation], *, insist: bool = True) -> Outcomes:
        """Do the operations in transactions, each of which first checks that the node ``fence`` exists.

        An operation that cannot be done (see :data:`Outcome`) is taken out and the rest sent again.

        Args:
            fence: path of a node of this session; when the session is gone the node is, and nothing is done.
            operations: at most one for each path.
            insist: send the rest again; False: leave it at the first transaction that cannot be done.

        Returns:
            Outcome by path: one for each operation that was done, or was found impossible or refused.

        Raises:
            SessionExpired: the fence is gone; what earlier groups of 500 did before that stays done.
            ZooKeeperUnavailable: no answer; whether the last group was done is unknown.
            ZooKeeperRefused: so many were refused that trying the others one by one would take long.
        """
        return FencedTransactions(self._client, self._acl, self._timeout, self.get_many).run(fence, operations, insist)
