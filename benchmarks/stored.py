"""Stored results: a run of a benchmark as data, one JSON file each, from which documents have tables and figures."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.contest import OURS

if TYPE_CHECKING:
    from benchmarks.contest import Contest
    from benchmarks.machine import Machine

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "benchmarks"
"""Directory of the stored results."""

THROUGH: Final = "ZKCONSUMER_BENCH_THROUGH"
"""Environment variable: words before the benchmark's name in the command that the user typed, such as ``slow``."""

_DIGITS: Final = 6
_FEW: Final = 10
_MANY: Final = 1000
_LEFT: Final = frozenset({"job", "contestant", "unit"})
_PRINTING: Final = frozenset({"--markdown", "--json"})


@dataclass(frozen=True, slots=True)
class Row:
    """The measurements of one contestant for one job.

    Attributes:
        job: what was measured.
        contestant: who was measured.
        unit: of ``minimum``, ``median`` and ``maximum``.
        median: of all rounds; the only measurement if there was one.
        minimum: of all rounds; None if there was one.
        maximum: of all rounds; None if there was one.
        ratios: heading of a column, ``ratio`` or ``ratio to CONTESTANT``, to the median divided by the other's.
        peak_mib: peak resident memory in MiB; None if it was not measured.
    """

    job: str
    contestant: str
    unit: str
    median: float
    minimum: float | None = None
    maximum: float | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)
    peak_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a benchmark.

    Attributes:
        name: of the file, without ``.json``.
        command: that made it.
        date: of the run, as ``2026-11-29``.
        commit: of the project, ending in ``-changed`` if anything else was measured; ``published by`` and a commit if
            only that is known.
        machine: processor, cores, memory, versions, and the load before the run.
        rows: in the order of the table.
        remarks: what the run reported below the table.
    """

    name: str
    command: str
    date: str
    commit: str
    machine: str
    rows: Sequence[Row]
    remarks: Sequence[str] = ()


def rows_of(contests: Iterable[Contest]) -> Iterator[Row]:
    """The rows of contests, with six significant digits."""
    for contest in contests:
        for name, summary in contest.summaries().items():
            against = {"ratio": contest.reference, **{f"ratio to {peer}": peer for peer in contest.peers}}
            ratios = {heading: contest.ratio(name, peer) for heading, peer in against.items()}
            yield Row(
                contest.title,
                name,
                contest.unit,
                _rounded(summary.median),
                _rounded(summary.minimum),
                _rounded(summary.maximum),
                {heading: _rounded(ratio) for heading, ratio in ratios.items() if ratio is not None},
                _rounded(contest.memory[name]) if name in contest.memory else None,
            )


def figure_rows(figures: Mapping[str, tuple[float, str]]) -> list[Row]:
    """The rows of a benchmark that measures zkconsumer alone, from figures and their units by what was measured."""
    return [Row(job, OURS, unit, _rounded(value)) for job, (value, unit) in figures.items()]


def result_of_run(name: str, rows: Iterable[Row], remarks: Iterable[str], machine: Machine) -> Result:
    """The result of the run that is this process."""
    line = str(machine._replace(date="")).replace(", ,", ",")
    return Result(name, _command(sys.argv[1:]), machine.date, _commit(), line, list(rows), list(remarks))


def write_result(result: Result, directory: Path = RESULTS) -> Path:
    """Replace a stored result, and return its file; each row is a line."""
    head = {key: value for key, value in asdict(result).items() if key not in ("name", "rows")}
    rows = ",\n".join(f"  {json.dumps(_without_empty(asdict(row)))}" for row in result.rows)
    text = json.dumps(head, indent=1).removesuffix("\n}")
    file = directory / f"{result.name}.json"
    file.write_text(f'{text},\n "rows": [\n{rows}\n ]\n}}\n', encoding="utf-8")
    return file


def read_result(name: str, directory: Path = RESULTS) -> Result:
    """A stored result.

    Raises:
        FileNotFoundError: there is none of this name.
    """
    values = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    return Result(**{**values, "name": name, "rows": [Row(**row) for row in values["rows"]]})


def stored_names(directory: Path = RESULTS) -> list[str]:
    """Names of all stored results."""
    return sorted(path.stem for path in directory.glob("*.json"))


def markdown_table(rows: Sequence[Row]) -> str:
    """The table in Markdown, without columns that are empty."""
    cells = list(_cells(rows))
    headings = [heading for heading in dict.fromkeys(key for row in cells for key in row)]
    used = [heading for heading in headings if any(row.get(heading) for row in cells)]
    ruler = ["---" if heading in _LEFT else "---:" for heading in used]
    lines = [used, ruler, *([row.get(heading, "") for heading in used] for row in cells)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Cells of each row by heading; a job is named in its first row only."""
    is_one_round = all(row.minimum is None for row in rows)
    ratios = dict.fromkeys(heading for row in rows for heading in row.ratios)
    former = None
    for row in rows:
        job = (row.job, row.unit)
        yield {
            "job": row.job if job != former else "",
            "contestant": row.contestant,
            "min": figure_text(row.minimum),
            "figure" if is_one_round else "median": figure_text(row.median),
            "max": figure_text(row.maximum),
            "unit": row.unit,
            **{heading: ratio_text(row.ratios.get(heading)) for heading in ratios},
            "peak MiB": "" if row.peak_mib is None else f"{row.peak_mib:.0f}",
        }
        former = job


def figure_text(value: float | None) -> str:
    """A measurement as tables have it; empty for None."""
    if value is None:
        return ""
    if value >= _MANY:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= _FEW else f"{value:.3f}"


def ratio_text(ratio: float | None) -> str:
    """A ratio as tables have it; empty for None."""
    return "" if ratio is None else "1" if ratio == 1 else f"{ratio:.{3 if ratio < 1 else 2}f}"


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != {}}


def _command(arguments: Sequence[str]) -> str:
    """The command as a reader would type it: without where it prints, and without paths of this machine."""
    words: list[str] = []
    before = ""
    for word in arguments:
        if before == "--beside":
            words.append("PYTHON")
        elif before == "--store":
            words.pop()
        elif word not in _PRINTING and not word.startswith("--store="):
            words.append(word)
        before = word
    return shlex.join(["python", "-m", "benchmarks", *os.environ.get(THROUGH, "").split(), *words])


def _commit() -> str:
    try:
        changed = _git("status", "--porcelain", "--", "zkconsumer", "benchmarks/*.py")
        return _git("rev-parse", "--short=9", "HEAD") + ("-changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
