"""Acknowledgements: the application's process reports a finished batch to the source's process on Spark's driver.

Spark calls the source when it needs the next batch, not when the last one has finished: with ``processingTime`` that is
minutes later, and after ``query.stop()`` never. A listener in the application is notified within milliseconds. It sends
the number of the plan over a Unix socket that only this user may use; ``reportLatestOffset`` contains the path.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from zkconsumer.errors import ThreadLimit
from zkconsumer.process.stalefiles import OwnedDirectory
from zkconsumer.process.threads import start_thread

_log = logging.getLogger(__name__)

_TIMEOUT_S = 2.0
_LONGEST = 200
"""Maximum bytes of an acknowledgement; a longer message is ignored."""


class AcknowledgementServer:
    """Receives acknowledgements, and requests for reports, each on a thread of its own.

    While one waits in ``commit``, others arrive. Otherwise: 1. a rebalance begins, and waits for the batch in flight
    before it commits; 2. the acknowledgement of an earlier batch waits for that commit; 3. the one of the batch in
    flight waits behind it.

    Args:
        acknowledged: called with the number of the plan whose batch has finished, and the number of tasks that the
            cluster runs at a time, None if unknown; returns True if there is something to commit. Must not wait.
        commit: called then; may wait, also while and after the server is closed.
        report: called when the state of the query is requested.
        parent: directory in which the socket's directory is created; None for the directory of temporary files.
    """

    def __init__(
        self,
        acknowledged: Callable[[int, int | None], bool],
        commit: Callable[[], None],
        report: Callable[[], object],
        parent: Path | None = None,
    ) -> None:
        self._acknowledged, self._commit, self._report = acknowledged, commit, report
        self._is_closed = False
        self._noting = threading.Lock()  # guards it, and is held for each acknowledgement but not for its commit
        self._directory = OwnedDirectory("zkconsumer-ack-", parent)
        self.path = str(self._directory.path / "acknowledge")
        with ExitStack() as undo:
            undo.callback(self._directory.remove)
            self._server = _Server(self.path, self._handler())
            undo.callback(self._server.server_close)
            Path(self.path).chmod(0o600)
            self._thread = threading.Thread(
                target=self._server.serve_forever, args=(0.05,), name="zkconsumer-acknowledgements", daemon=True
            )
            start_thread(self._thread)
            undo.pop_all()

    def close(self) -> None:
        """Stop receiving and remove the socket; what was acknowledged before is noted, but perhaps not committed yet.

        Idempotent.
        """
        self._server.shutdown()
        self._thread.join()
        with self._noting:
            self._is_closed = True
        self._server.server_close()
        self._directory.remove()

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        answer = self._answer

        class Handler(socketserver.StreamRequestHandler):
            timeout = _TIMEOUT_S

            def handle(self) -> None:
                self.wfile.write(answer(json.loads(self.rfile.readline(_LONGEST))))

        return Handler

    def _answer(self, message: Mapping[str, Any]) -> bytes:
        if "report" in message:
            return json.dumps(self._report()).encode()
        with self._noting:
            to_commit = not self._is_closed and self._acknowledged(int(message["n"]), message.get("parallelism"))
        if to_commit:
            self._commit()
        return b""


def open_server(
    acknowledged: Callable[[int, int | None], bool],
    commit: Callable[[], None],
    report: Callable[[], object],
    parent: Path | None = None,
) -> AcknowledgementServer | None:
    """A server, or None if it cannot be made: the temporary directory's path is too long, or read-only."""
    try:
        return AcknowledgementServer(acknowledged, commit, report, parent)
    except (OSError, ThreadLimit) as error:
        _log.warning(
            "finished batches are committed only when Spark requests the next one: cannot create a socket "
            "for acknowledgements in %s (%s); set TMPDIR to a short path that is writable",
            parent or tempfile.gettempdir(),
            error,
        )
        return None


def acknowledge(path: str, number: int, parallelism: int | None = None) -> None:
    """Report over the socket of the source's process that the batch of a plan has finished, and the parallelism.

    Raises:
        OSError: the source's process has ended, or runs on another machine.
    """
    _request(path, {"n": number, "parallelism": parallelism})


def request_report(path: str) -> str:
    """The JSON of the newest report of the source's process.

    Raises:
        OSError: as :func:`acknowledge`.
    """
    return _request(path, {"report": True})


def _request(path: str, message: object) -> str:
    """Send a message, and return the answer when the server has handled it, so that a later stop commits it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(json.dumps(message).encode() + b"\n")
        with connection.makefile("rb") as answer:
            return answer.read().decode()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    request_queue_size = 16
    daemon_threads = True  # so closing does not wait for their commits

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - socketserver's signature
        _log.info("an acknowledgement failed; its batch is committed when Spark requests the next one", exc_info=True)
