"""The demo's output: numbered steps while it runs, a table of checks at the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from demo.checks import Check
from zkconsumer.sandbox.progress import Advance, Progress

if TYPE_CHECKING:
    from rich.console import Console


class Story:
    """Writes to a console; information that matters only during a wait goes to ``progress``."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self.progress = progress
        self._chapters = 0

    def step(self, text: str) -> None:
        """Print the next completed step."""
        self._chapters += 1
        self._console.print(f"{self._chapters:2}  {text}", soft_wrap=True)

    def add(self, text: str) -> None:
        """Add a line to the last step."""
        self._console.print(f"      {text}", soft_wrap=True)

    def waiting(self, text: str, total: float | None = None) -> AbstractContextManager[Advance]:
        """Show a longer wait; see :meth:`zkconsumer.sandbox.progress.Progress.step`."""
        return self.progress.step(text, total)

    def verdict(self, checks: Sequence[Check], kept: Path | None, picture: Path, seconds: float) -> None:
        """Print the table of checks, the result, the paths of the picture and of kept files, and the duration."""
        from rich.box import SIMPLE
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE, pad_edge=False)
        for heading in ("check", "figures", "result"):
            table.add_column(heading, overflow="fold")
        for check in checks:
            result = Text("ok", "green") if check.ok else Text("FAILED", "bold red")
            table.add_row(check.name, check.figures, result)
        self._console.print(table)
        failed = [check.name for check in checks if not check.ok]
        if failed:
            self._console.print(f"FAILED: {len(failed)} of {len(checks)} checks: {'; '.join(failed)}", soft_wrap=True)
        else:
            self._console.print(f"All {len(checks)} checks hold.")
        if kept is not None:
            self._console.print(f"Kept: {kept}", soft_wrap=True)
        self._console.print(f"Picture: {picture}", soft_wrap=True)
        self._console.print(f"Time: {seconds:.0f} s")
