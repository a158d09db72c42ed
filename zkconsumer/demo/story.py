"""What the demo tells: numbered steps while it runs, a table of checks at the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from zkconsumer.demo.checks import Check
from zkconsumer.sandbox.progress import Advance, Progress

if TYPE_CHECKING:
    from rich.console import Console


class Story:
    """Writes to a console; what is only of interest while one waits goes to ``progress``."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self.progress = progress
        self._chapters = 0

    def tell(self, text: str) -> None:
        """Tell the next step that was done."""
        self._chapters += 1
        self._console.print(f"{self._chapters:2}  {text}", soft_wrap=True)

    def add(self, text: str) -> None:
        """Add a line to the step that was told last."""
        self._console.print(f"      {text}", soft_wrap=True)

    def waiting(self, text: str, total: float | None = None) -> AbstractContextManager[Advance]:
        """Show that something takes a while; see :meth:`zkconsumer.sandbox.progress.Progress.step`."""
        return self.progress.step(text, total)

    def verdict(self, checks: Sequence[Check], kept: Path | None, picture: Path, seconds: float) -> None:
        """Print the table of checks, what it comes to, where picture and kept files are, and how long it took."""
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
