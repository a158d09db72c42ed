"""Real session expiry, for tests: the servers end a session while its client lives."""

from __future__ import annotations

import time
from typing import Final

from kazoo.client import KazooClient

from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.zookeeper.session import ZkSession

_POLL_S: Final = 0.01
_CONNECT_TIMEOUT_S: Final = 15.0


def expire(session: ZkSession, timeout_s: float = 60.0) -> None:
    """End a session for real, and return when its client has another one.

    Another client connects with the session's identity, which moves the session to it, and closes the session. The
    victim connects again as soon as it has lost the connection; if that comes before the close, the servers drop the
    other client, and it is tried again.

    Args:
        session: an open session, whose client can reach the servers.
        timeout_s: how long to try, in seconds.

    Raises:
        ZooKeeperUnavailable: the client has no other session within ``timeout_s``; check that the servers answer.
    """
    deadline = time.monotonic() + timeout_s
    before = _identity(session, deadline)
    while _identity(session, deadline) == before:
        hosts, identity = session.takeover()
        if identity is None:
            continue  # it has just lost the connection
        thief = KazooClient(hosts, client_id=identity)
        thief.start_async().wait(_CONNECT_TIMEOUT_S)  # start() fails if the connection is lost again at once
        thief.stop()
        thief.close()


def _identity(session: ZkSession, deadline: float) -> int:
    """The session's id; waits while there is none, since the connection is down."""
    while not session.session_id:
        if time.monotonic() > deadline:
            raise ZooKeeperUnavailable(f"no session with {session.address}; check that its servers answer")
        time.sleep(_POLL_S)  # kazoo reports a connection to a listener only, and that one is the session's
    if time.monotonic() > deadline:
        raise ZooKeeperUnavailable(f"the session with {session.address} could not be ended; check that servers answer")
    return session.session_id
