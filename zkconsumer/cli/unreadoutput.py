"""Standard output of a command that writes: what happens to it does not end the work half done."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from io import IOBase
from typing import Any, TextIO, cast

import click


def discard(stream: IOBase | TextIO) -> None:
    """Let what is written to a standard stream from now on go nowhere, also what Python flushes at exit."""
    with contextlib.suppress(OSError, AttributeError, ValueError):  # there is none, or it is not the system's
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


class _Unread(io.TextIOBase):
    """A standard stream whose failures end no command.

    Args:
        stream: the stream itself.

    Attributes:
        failure: the first error of the stream other than that its reader has closed it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the stream."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """Of the stream."""
        return self._stream.errors

    def isatty(self) -> bool:
        """As of the stream."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Of the stream."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write, as far as that is possible."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, likewise."""
        self._attempt(self._stream.flush)

    def _attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BrokenPipeError:
            discard(self._stream)
        except OSError as error:
            discard(self._stream)
            self.failure = self.failure or error


def need_no_reader() -> None:
    """Let the present command complete its work whatever happens to its standard output and error.

    By default a command ends with the reader of its pipe, with exit code 0
    (:class:`~zkconsumer.cli.main.ProcessCommand`). That would hide that one that writes has written nothing, or a part:
    its exit code has to be that of its work. Another error of a stream, such as a full disk, makes it fail when its
    work is done.

    Raises:
        ZkConsumerError: there is no standard output.
    """
    context = click.get_current_context(silent=True)
    if context is None or isinstance(sys.stdout, _Unread):  # no command runs, or it needs none already
        return
    sys.stdout.write("")  # raises now if there is none
    former = sys.stdout, sys.stderr
    wrapped = [_Unread(stream) for stream in former]
    sys.stdout, sys.stderr = cast(list[Any], wrapped)

    def end() -> None:
        sys.stdout, sys.stderr = former
        for stream in wrapped:
            if stream.failure is not None:
                raise stream.failure

    context.call_on_close(end)


def _begin(_context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    if value:
        need_no_reader()
    return value


def execute_option(
    text: str = "Write. Without it, only what would be written is shown.",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--execute`` of a command, which from then on needs no reader."""
    return click.option("--execute", is_flag=True, callback=_begin, help=text)
