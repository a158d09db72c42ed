"""The adapter to kazoo: translates its errors into ours and our watches into its, and reads what it does not expose."""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotReadOnlyCallError,
    QuotaExceededError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.handlers.utils import selector_select
from kazoo.protocol.serialization import SASL, Auth, Connect, Exists, Sync
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from zkconsumer.errors import SessionExpired, ThreadLimit, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.process.threads import start_thread
from zkconsumer.zookeeper.requestcount import request_count_pair

Watch = Callable[[], None]
"""Called without arguments, on kazoo's thread, once after the next change: it may set a flag and nothing else."""

LOGIN_FAILED: Final = "the login failed; check zookeeper.digest and zookeeper.sasl.*, and for GSSAPI the ticket (klist)"
"""Message for a refused login."""

_ADVICE: Final[dict[type[KazooException], str]] = {
    NoAuthError: "no permission; check the node's ACL (getAcl) against zookeeper.digest, zookeeper.sasl.* and "
    "zookeeper.set.acl",
    InvalidACLError: "this client has not authenticated; zookeeper.set.acl needs zookeeper.digest or zookeeper.sasl.*",
    AuthFailedError: LOGIN_FAILED,
    NotReadOnlyCallError: "the server is read-only, since it has lost its quorum; check the other servers",
    QuotaExceededError: "a quota above the node is used up; check it (listquota) and raise it (setquota)",
}
"""Cause of a refusal and what to check, by kazoo's error."""


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Turn kazoo's errors into ours; NoNodeError and NodeExistsError are handled by the caller.

    Args:
        what: operation and path, for the message.

    Raises:
        SessionExpired: nothing was done.
        ZooKeeperUnavailable: no answer; whether it was done is unknown.
        ZooKeeperRefused: the servers do not allow it.
    """
    try:
        yield
    except (NoNodeError, NodeExistsError):
        raise
    except (ConnectionLoss, ConnectionClosedError, KazooTimeoutError) as error:
        raise ZooKeeperUnavailable(f"ZooKeeper did not answer {what}; check that its servers can be reached") from error
    except (SessionExpiredError, SessionMovedError) as error:  # after the line above: "closed" is one of its kinds
        raise SessionExpired(f"ZooKeeper session expired during {what}") from error
    except KazooException as error:
        advice = _ADVICE.get(type(error), f"{error!r}; check the log of the servers")
        raise ZooKeeperRefused(f"ZooKeeper refused {what}: {advice}") from error


def connection_loop_ended(client: Any) -> bool:
    """True if kazoo has stopped reconnecting by itself: a login was refused, or its loop failed."""
    return bool(client._connection.connection_stopped.is_set()) and not client._stopped.is_set()


class _Poll:
    """What kazoo's select uses of the module ``selectors``; by default it creates an epoll for every call."""

    EVENT_READ = selectors.EVENT_READ
    EVENT_WRITE = selectors.EVENT_WRITE
    DefaultSelector = getattr(selectors, "PollSelector", selectors.DefaultSelector)


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads, with one system call instead of five for each wait: a quarter of a busy member's time.

    Requests that are made while the connection is down block no caller (:mod:`zkconsumer.zookeeper.requestcount`).
    """

    def start(self) -> None:
        """Start the threads; if one cannot be started, those that were started end."""
        try:
            super().start()
        except ThreadLimit:
            self._running = True  # otherwise stop() does nothing
            self.stop()
            raise

    def spawn(self, func: Callable[..., None], *arguments: Any, **keywords: Any) -> threading.Thread:
        """Start a thread of kazoo's."""
        thread = threading.Thread(target=func, args=arguments, kwargs=keywords, daemon=True)
        start_thread(thread)
        return thread

    def create_socket_pair(self) -> Any:
        """What the connection thread reads, and what callers write; a pair of sockets where there is no eventfd."""
        return request_count_pair() if hasattr(os, "eventfd") else super().create_socket_pair()

    def select(self, *arguments: Any, **keywords: Any) -> Any:
        """See :func:`kazoo.handlers.utils.selector_select`."""
        return selector_select(*arguments, **keywords, selectors_module=_Poll)


def start_client(client: Any) -> Any:
    """Let kazoo connect; returns the event that is set when it has connected.

    Raises:
        ThreadLimit: not all its threads could be started, and none of them runs.
    """
    was_stopped = client._stopped.is_set()
    try:
        return client.start_async()
    except ThreadLimit:
        client.handler.stop()
        if was_stopped:  # otherwise stop() would write to a socket that does not exist yet
            client._stopped.set()
        raise


class Probe(Exists):  # type: ignore[misc] # kazoo has no types
    """Asks whether a node exists, and never waits for a connection."""

    waits = False


class ProbeSync(Sync):  # type: ignore[misc] # kazoo has no types
    """Lets the server catch up with its leader, and never waits for a connection."""

    waits = False


class SessionClient(KazooClient):  # type: ignore[misc] # kazoo has no types
    """kazoo's client, which sends requests over a connection only.

    A request waits for a connection until a session timeout after the last one was lost; from then on requests fail at
    once, until there is another one. kazoo would queue them: 1. callers stop waiting for answers, and try again; 2.
    what they gave up stays in the queue, which grows for as long as no server answers; 3. all of it is sent to the
    ensemble that recovers.
    """

    def __init__(self, **arguments: Any) -> None:
        self._patient_until = 0.0  # on the monotonic clock; written by the connection's thread
        super().__init__(**arguments)

    def _session_callback(self, state: str) -> None:
        if self._live.is_set():  # before it is not any more
            self._patient_until = time.monotonic() + self._session_timeout / 1000
        super()._session_callback(state)

    def _call(self, request: Any, async_object: Any) -> Any:
        if not self._live.is_set() and self._state == KeeperState.CONNECTING:
            patience = self._patient_until - time.monotonic() if getattr(request, "waits", True) else 0
            if not self._live.wait(max(0.0, patience)):
                async_object.set_exception(ConnectionLoss())
                return False
        return super()._call(request, async_object)


class SecretFilter(logging.Filter):
    """Removes secrets from kazoo's log records: it logs each request unchanged, the login included.

    Secrets are the credentials of a login, the tokens of SASL (PLAIN sends the password in one), and the password of a
    session, with which another client can take the session over. kazoo formats no secret itself; all are arguments.
    """

    _REQUESTS: Final = (Auth, SASL, Connect)

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the secrets among the arguments of ``record``; the record itself is always kept."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(self._shown, record.args))
        return True

    def _shown(self, argument: object) -> object:
        if isinstance(argument, self._REQUESTS):
            return f"{type(argument).__name__}(<hidden>)"
        return "<hidden>" if isinstance(argument, bytes) else argument  # bytes: the session's password


_SECRET_FILTER: Final = SecretFilter()


class NegotiationLog:
    """kazoo's logger: the only place where kazoo reports some things (notes.md#kazoo).

    Attributes:
        timeout: the negotiated session timeout in seconds.
        last_failure: why the last connection attempt failed; empty before the first failure.
    """

    _LEVEL: Final = 5
    _MARK: Final = "Session created"
    _FAILURES: Final = ("Cannot resolve", "Connection dropped", "Connection time-out")

    def __init__(self, requested: float) -> None:
        self.timeout = requested
        self.last_failure = ""
        self._logger = logging.getLogger("zkconsumer.kazoo")
        self._logger.addFilter(_SECRET_FILTER)  # a filter that is there already is not added again

    def log(self, level: int, message: str, *arguments: Any, **keywords: Any) -> None:
        """Read the timeout from the one line that has it; pass everything on."""
        if level == self._LEVEL and message.startswith(self._MARK):
            self.timeout = float(arguments[2]) / 1000
        self._logger.log(level, message, *arguments, **keywords)

    def warning(self, message: str, *arguments: Any, **keywords: Any) -> None:
        """Keep why the last connection attempt failed; pass everything on."""
        if message.startswith(self._FAILURES):
            self.last_failure = message % arguments
        self._logger.warning(message, *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


class _WatchAdapter:
    """Gives a flag-setting callable the form of a kazoo watch; equal adapters count once per node in kazoo's sets."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, event: WatchedEvent) -> None:
        # NONE means that the connection broke and kazoo dropped the watch; a reconnect sets the flag, too.
        if event.type != EventType.NONE:
            self._watch()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WatchAdapter) and self._watch == other._watch

    def __hash__(self) -> int:
        return hash(self._watch)


def as_kazoo_watch(watch: Watch | None) -> _WatchAdapter | None:
    """The watch in the form that kazoo calls, None for none."""
    return None if watch is None else _WatchAdapter(watch)
