"""Prints contests: tables on a terminal, Markdown for the documentation, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from zkconsumer.bench.contest import Contest
from zkconsumer.bench.machine import Machine

if TYPE_CHECKING:
    from rich.console import Console

_HEADINGS: Final = ("job", "contestant", "min", "median", "max", "unit", "ratio", "to reach", "peak MiB")
_RIGHT: Final = frozenset({"min", "median", "max", "ratio", "peak MiB"})
_FEW: Final = 10
_MANY: Final = 1000


def print_table(console: Console, contests: Sequence[Contest], machine: Machine) -> None:
    """Print a table with a section for each contest."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _RIGHT else "left")
    for contest in contests:
        for row in _rows(contest):
            table.add_row(*row)
        table.add_section()
    console.print(table)
    console.print(str(machine), soft_wrap=True)


def as_markdown(contests: Sequence[Contest], machine: Machine) -> str:
    """The same as Markdown."""
    ruler = ["---:" if heading in _RIGHT else "---" for heading in _HEADINGS]
    rows = [_HEADINGS, ruler, *(row for contest in contests for row in _rows(contest))]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", f"Machine: {machine}"])


def as_json(contests: Sequence[Contest], machine: Machine) -> str:
    """Everything that was measured, as one JSON object."""
    return json.dumps(
        {
            "machine": machine._asdict(),
            "contests": [
                {
                    "title": contest.title,
                    "unit": contest.unit,
                    "reference": contest.reference,
                    "targets": {name: contest.target_of(name) for name in contest.measured},
                    "measured": contest.measured,
                    "median_ratio": {name: contest.ratio(name) for name in contest.measured},
                    "peak_mib": contest.memory,
                }
                for contest in contests
            ],
        },
        indent=2,
    )


def _rows(contest: Contest) -> Iterator[tuple[str, ...]]:
    for number, (name, summary) in enumerate(contest.summaries().items()):
        ratio, memory = contest.ratio(name), contest.memory.get(name)
        yield (
            "" if number else contest.title,
            name,
            *(_figure(value) for value in summary),
            contest.unit,
            "" if ratio is None else "1" if name == contest.reference else f"{ratio:.{3 if ratio < 1 else 2}f}",
            contest.target_of(name),
            "" if memory is None else f"{memory:.0f}",
        )


def _figure(value: float) -> str:
    if value >= _MANY:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= _FEW else f"{value:.3f}"
