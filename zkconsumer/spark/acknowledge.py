"""Acknowledgements: the application's process reports a finished batch to the source's process on Spark's driver.

Spark calls the source when it wants the next batch, not when the last one has finished: under ``processingTime`` that
is minutes later, and after ``query.stop()`` never. A listener in the application learns it within milliseconds. It
sends the number of the plan over a Unix socket that only this user may use; its path travels in ``reportLatestOffset``.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from zkconsumer.leftovers import OwnedDirectory

_log = logging.getLogger(__name__)

_TIMEOUT_S = 2.0
_LONGEST = 200
"""Bytes of an acknowledgement; more is none."""


class AcknowledgementServer:
    """Receives acknowledgements on a thread of its own.

    Args:
        acknowledged: called on that thread with the number of the plan whose batch has finished.
    """

    def __init__(self, acknowledged: Callable[[int], None]) -> None:
        self._directory = OwnedDirectory("zkconsumer-ack-")
        self.path = str(self._directory.path / "acknowledge")
        try:
            self._server = _Server(self.path, _handler(acknowledged))
            Path(self.path).chmod(0o600)
        except BaseException:
            self._directory.remove()
            raise
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="zkconsumer-acknowledgements", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop receiving and remove the socket. Idempotent."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._directory.remove()


def open_server(acknowledged: Callable[[int], None]) -> AcknowledgementServer | None:
    """A server, or None where no socket can be made (the temporary directory's path is too long, or read-only)."""
    try:
        return AcknowledgementServer(acknowledged)
    except OSError as error:
        _log.warning(
            "finished batches cannot be acknowledged, and are committed when Spark asks for the next one: no socket "
            "below %s (%s); set TMPDIR to a short path that can be written",
            tempfile.gettempdir(),
            error,
        )
        return None


def acknowledge(path: str, number: int) -> None:
    """Report that the batch of a plan has finished.

    Args:
        path: of the source's socket.
        number: of the plan.

    Raises:
        OSError: the source's process has ended, or runs on another machine.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(json.dumps({"n": number}).encode() + b"\n")
        connection.recv(1)  # the end: it was handled, so that a stop that follows commits it


class _Server(socketserver.UnixStreamServer):
    request_queue_size = 16

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - socketserver's signature
        _log.info("an acknowledgement was not understood or not handled", exc_info=True)


def _handler(acknowledged: Callable[[int], None]) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        timeout = _TIMEOUT_S

        def handle(self) -> None:
            acknowledged(int(json.loads(self.rfile.readline(_LONGEST))["n"]))

    return Handler
