"""Prints contests: tables on a terminal, Markdown for the documentation, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from benchmarks.contest import Contest
from benchmarks.machine import Machine
from benchmarks.stored import figure_text, markdown_table, ratio_text, rows_of

if TYPE_CHECKING:
    from rich.console import Console

_BEFORE: Final = ("job", "contestant", "min", "median", "max", "unit", "ratio")
_TARGET: Final = "to reach"
_AFTER: Final = (_TARGET, "peak MiB")
_LEFT: Final = frozenset({"job", "contestant", "unit", _TARGET})


def print_table(console: Console, contests: Sequence[Contest], machine: Machine) -> None:
    """Print a table with a section for each contest."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    peers = _peers(contests)
    for heading in _headings(peers):
        table.add_column(heading, justify="left" if heading in _LEFT else "right")
    for contest in contests:
        for row in _rows(contest, peers):
            table.add_row(*row)
        table.add_section()
    console.print(table)
    for line in remarks(contests):
        console.print(line, soft_wrap=True)
    console.print(str(machine), soft_wrap=True)


def as_markdown(contests: Sequence[Contest], machine: Machine) -> str:
    """The table as Markdown, for the documentation: what was measured, without targets."""
    lines = [line for remark in remarks(contests) for line in ("", remark)]
    return "\n".join([markdown_table(list(rows_of(contests))), *lines, "", f"Machine: {machine}"])


def as_json(contests: Sequence[Contest], machine: Machine) -> str:
    """All measurements as one JSON object."""
    return json.dumps(
        {
            "machine": machine._asdict(),
            "contests": [
                {
                    "title": contest.title,
                    "about": contest.about,
                    "notes": contest.notes,
                    "unit": contest.unit,
                    "reference": contest.reference,
                    "targets": {name: contest.target_of(name) for name in contest.measured},
                    "measured": contest.measured,
                    "median_ratio": {name: contest.ratio(name) for name in contest.measured},
                    "median_ratio_to": {
                        peer: {name: contest.ratio(name, peer) for name in contest.measured} for peer in contest.peers
                    },
                    "peak_mib": contest.memory,
                    "shortest_window_s": contest.windows,
                }
                for contest in contests
            ],
        },
        indent=2,
    )


def _peers(contests: Sequence[Contest]) -> list[str]:
    return list(dict.fromkeys(peer for contest in contests for peer in contest.peers))


def _headings(peers: Sequence[str]) -> list[str]:
    return [*_BEFORE, *(f"ratio to {peer}" for peer in peers), *_AFTER]


def _rows(contest: Contest, peers: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for number, (name, summary) in enumerate(contest.summaries().items()):
        memory = contest.memory.get(name)
        yield (
            "" if number else contest.title,
            name,
            *(figure_text(value) for value in summary),
            contest.unit,
            _ratio(contest, name, contest.reference),
            *(_ratio(contest, name, peer) if peer in contest.peers else "" for peer in peers),
            contest.target_of(name),
            "" if memory is None else f"{memory:.0f}",
        )


def _ratio(contest: Contest, name: str, peer: str) -> str:
    return ratio_text(contest.ratio(name, peer))


def remarks(contests: Sequence[Contest]) -> Iterator[str]:
    """Full descriptions of titles, and warnings about doubtful figures."""
    for contest in contests:
        if contest.about:
            yield f"{contest.title}: {contest.about}."
        yield from contest.notes
        if short := contest.too_short():
            windows = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in short.items())
            yield f"{contest.title}: measured for less than {contest.enough_s:g} s: {windows}."
