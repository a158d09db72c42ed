"""Progress reports of the sandbox: a moving bar on a terminal, occasional lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

# Reports the progress of one step: the amount done, and a short text.
Advance = Callable[[float, str], None]

_LINE_EVERY_S = 2.0


class Progress:
    """Reports steps to a text stream, standard error by default; ``quiet`` reports nothing.

    On a terminal a step is a bar or spinner that disappears when the step ends. Elsewhere a step is one line when it
    begins, then a line at most every two seconds, so that the log of a CI run shows progress.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet

    def write_line(self, text: str) -> None:
        """Write one line."""
        if not self._quiet:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    @contextmanager
    def step(self, text: str, total: float | None = None) -> Iterator[Advance]:
        """Report a longer step; call the yielded function with ``(done, detail)`` to report its progress."""
        if self._quiet:
            yield lambda _done, _detail: None
        elif self._stream.isatty():
            with self._bar(text, total) as advance:
                yield advance
        else:
            self.write_line(f"{text} ...")
            yield self._lines(text, total)

    def _lines(self, text: str, total: float | None) -> Advance:
        written_at = [time.monotonic()]

        def advance(done: float, detail: str) -> None:
            now = time.monotonic()
            if now - written_at[0] >= _LINE_EVERY_S:
                written_at[0] = now
                count = "" if total is None else f" {done:.0f} of {total:.0f}"
                self.write_line(f"{text} ...{count} {detail}".rstrip())

        return advance

    @contextmanager
    def _bar(self, text: str, total: float | None) -> Iterator[Advance]:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
        if total is not None:
            columns.insert(2, BarColumn())
        console = Console(file=self._stream)
        with RichProgress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
            task = bar.add_task(text, total=total)
            yield lambda done, detail: bar.update(task, completed=done, description=f"{text} {detail}".rstrip())
