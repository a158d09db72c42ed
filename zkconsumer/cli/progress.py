"""A progress bar on standard error, for what takes longer than a second, where standard error is a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO, TypeAlias

from zkconsumer.cli.terminaltext import escaped

Advance: TypeAlias = Callable[[int, int], None]
"""Called with what is done and what there is to do in all."""

_DELAY_S: Final = 1.0


@contextmanager
def progress(what: str, *, output: TextIO | None = None, delay_s: float = _DELAY_S) -> Iterator[Advance]:
    """Show a bar until the block ends; returns the function that moves it, to be called by one thread.

    Without a call it shows that something is done, and for how long.

    Args:
        what: is done, one or two words.
        output: a terminal, or nothing is shown; None for standard error.
        delay_s: nothing is shown for so long, in seconds.
    """
    terminal = sys.stderr if output is None else output
    if not terminal.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(file=terminal), transient=True)
    task = bar.add_task(escaped(what), total=None)
    ended = threading.Event()

    def show() -> None:  # on a thread of its own: what takes so long may be one request
        if not ended.wait(delay_s):
            bar.start()

    shown = threading.Thread(target=show, name="progress", daemon=True)
    shown.start()
    try:
        yield lambda done, total: bar.update(task, completed=done, total=total)
    finally:
        ended.set()
        shown.join()
        if bar.live.is_started:
            bar.stop()
