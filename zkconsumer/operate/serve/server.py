"""WebServer: listens on one address, and answers requests on a thread of its own."""

from __future__ import annotations

import socket
import threading
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from zkconsumer.errors import UsageError
from zkconsumer.operate.serve.hosts import Address, is_loopback

_LONGEST_REQUEST: Final = 1 << 18
"""Bytes of a request's head: the name of a group may have 64 KiB, three times as many when it is percent-encoded."""

_GRACE_S: Final = 2


def listen(address: Address, *, allow_remote: bool) -> socket.socket:
    """A listening socket.

    Args:
        address: host and port to listen on.
        allow_remote: whether it may be another than a loopback address.

    Raises:
        UsageError: it may not, or it cannot be bound.
    """
    try:
        resolved = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if not allow_remote and not is_loopback([str(place[0]) for *_, place in resolved]):
            raise UsageError(
                f"{address} can be reached from other machines, and there is no login; add --allow-remote if that is "
                "intended"
            )
        family, _, _, _, place = resolved[0]
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error}; choose another --listen HOST:PORT") from error


class WebServer:
    """Serves an application; one thread answers all requests.

    Args:
        app: what answers.
        listener: a listening socket, which is closed at the end.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_S,
                h11_max_incomplete_event_size=_LONGEST_REQUEST,
            )
        )
        self._thread = threading.Thread(target=self._run, name="serve-http", daemon=True)

    @property
    def address(self) -> Address:
        """The bound address."""
        return Address(*self._listener.getsockname()[:2])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer what has been asked, and end; idempotent."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        self._server.run([self._listener])
