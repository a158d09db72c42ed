"""resolve: the addresses of a broker's host name, with a time limit."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from zkconsumer.errors import ThreadLimit
from zkconsumer.process.deadline import Deadline
from zkconsumer.process.threads import start_thread
from zkconsumer.process.wakeup import WakeUp

Address = tuple[int, int, int, str, Any]
"""Family, type, protocol, canonical name, and the address to connect to."""

_PORTS = range(1, 1 << 16)


def resolve(host: str, port: int, *, timeout_s: float, wake: WakeUp, given_up: Callable[[], bool]) -> list[Address]:
    """Addresses of a host for TCP.

    The system call that waits for name servers cannot be interrupted, and has its own time limit. So another thread
    makes it, which ends when the name servers have answered or when the system stops waiting for them.

    Args:
        host: name or address, as advertised by a broker or set by a user.
        port: TCP port, 1 to 65535.
        timeout_s: limit of the wait in seconds.
        wake: flag that is raised after ``given_up`` has become true.
        given_up: returns True if the addresses are not needed any more.

    Raises:
        OSError: unknown host, invalid port, no answer in time, or given up.
    """
    if port not in _PORTS:  # getaddrinfo uses only the lowest 16 bits
        raise OSError(f"port {port} is invalid; ports are 1 to 65535")
    with contextlib.suppress(OSError, ValueError):
        return _look_up(host, port, socket.AI_NUMERICHOST)
    resolved: list[list[Address]] = []
    failed: list[Exception] = []

    def look_up() -> None:
        try:
            resolved.append(_look_up(host, port))
        except (OSError, ValueError) as error:  # ValueError: an invalid host name, such as "a..b"
            failed.append(error)
        wake.set()

    try:
        start_thread(threading.Thread(target=look_up, name=f"resolve {host}", daemon=True))
    except ThreadLimit as error:
        raise OSError(f"cannot resolve the host name: {error}") from error
    deadline = Deadline.after(timeout_s)
    while not (resolved or failed):
        if given_up():
            raise ConnectionAbortedError("looking up the host name failed: closed by this process")
        if not wake.wait(deadline.left()) and not (resolved or failed):
            raise TimeoutError("cannot resolve the host name: no answer from the name servers in time")
    if failed:
        raise OSError(f"cannot resolve the host name: {failed[0]}") from failed[0]
    return resolved[0]


def _look_up(host: str, port: int, flags: int = 0) -> list[Address]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
