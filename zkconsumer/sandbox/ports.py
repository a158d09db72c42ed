"""Loopback ports for servers."""

import random
import socket
from pathlib import Path

from zkconsumer.errors import SandboxError

HOST = "127.0.0.1"

_LOWEST = 15_000
_ATTEMPTS = 200
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port on which no process listens now.

    It is below the range from which the kernel takes ports for outgoing connections. Otherwise a client that retries
    while a server is down can get the server's own port, connect to itself and prevent the server's restart. Raises
    SandboxError if no port is free.
    """
    highest = max(_first_ephemeral_port() - 1, _LOWEST + 1_000)
    for _ in range(_ATTEMPTS):
        port = random.randint(_LOWEST, highest)  # at random, so that sandboxes started together rarely meet
        if is_free(port):
            return port
    raise SandboxError(
        f"no free port on {HOST} between {_LOWEST} and {highest}; check which process listens there (ss -ltn)"
    )


def is_free(port: int) -> bool:
    """True if a server could listen on the port now."""
    with socket.socket() as probe:
        # As Java does: a port whose last connections are in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def require_free(port: int, server: str) -> None:
    """Raise SandboxError, with what to check, unless a server could listen on the port now."""
    if not is_free(port):
        raise SandboxError(
            f"port {port} on {HOST} cannot be used for {server}: it is in use or reserved; "
            f"check which process listens there (ss -ltnp 'sport = :{port}'), or omit the option to get a free port"
        )


def _first_ephemeral_port() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
