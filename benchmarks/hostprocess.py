"""HostProcess: a child process with something that a benchmark controls, such as members of a group."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from zkconsumer.errors import SandboxError

_END_S: Final = 10.0


class HostProcess:
    """The process, and the connection to it. It starts at once; the first :meth:`answer` is to its start.

    Args:
        hosted: what is in the process, for messages.
        make: makes it, in the child process, out of the other arguments.
        answer_s: how long an answer may take, in seconds; None for any time.
    """

    def __init__(self, hosted: str, make: Callable[..., Any], *arguments: Any, answer_s: float | None = None) -> None:
        self._hosted, self._answer_s = hosted, answer_s
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), name=hosted, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """True until the process has ended."""
        return self._process.is_alive()

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of what is hosted, and wait for its result; raises as :meth:`answer`."""
        self.ask(name, *arguments)
        return self.answer()

    def ask(self, name: str, *arguments: Any) -> None:
        """Call a method, without waiting.

        Raises:
            SandboxError: the process has ended.
        """
        try:
            self._connection.send((name, arguments))
        except OSError as error:
            raise SandboxError(f"a process with {self._hosted} has ended: {error!r}") from error

    def answer(self) -> Any:
        """The result of the last :meth:`ask`.

        Raises:
            SandboxError: the method failed, the process has ended, or it did not answer in time.
        """
        try:
            if not self._connection.poll(self._answer_s):
                raise SandboxError(f"a process with {self._hosted} did not answer for {self._answer_s:g} s")
            failure, result = self._connection.recv()
        except (OSError, EOFError) as error:
            raise SandboxError(f"a process with {self._hosted} has ended: {error!r}") from error
        if failure is not None:
            raise SandboxError(f"{self._hosted} failed: {failure}")
        return result

    def kill(self) -> None:
        """End the process without giving what it hosts a chance to end."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """End the process. Idempotent."""
        self._connection.close()  # the child sees it and ends
        self._process.join(_END_S)
        self._process.kill()


def _serve(connection: Connection, make: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Serve the parent, in the child process, until it closes the connection."""
    try:
        hosted = make(*arguments)
        connection.send((None, None))
    except Exception:  # noqa: BLE001 - reported to the parent
        connection.send((traceback.format_exc(), None))
        return
    while True:
        try:
            name, values = connection.recv()
        except EOFError:
            return
        try:
            connection.send((None, getattr(hosted, name)(*values)))
        except Exception:  # noqa: BLE001 - reported to the parent
            connection.send((traceback.format_exc(), None))
