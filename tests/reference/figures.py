"""Measured figures in documents: each is bound to a stored result.

A *figure* is a number with a unit of measurement (``UNIT``), or one of 100,000 or more, in the text or a table of a
page. It is either measured or given. A comment in the same section binds each measured figure, in their order::

    <!-- figures
    0.161 s: group | joins a group on 5,000 partitions | zkconsumer
    13 times: group | joins a group on 5,000 partitions | JVM consumer 1.1.1 / zkconsumer
    86 MiB: fetch-large-appends | format-1 | zkconsumer, records | highest peak MiB
    -->

The fields after the figure are the result, the job (or a part of it, with ``, UNIT`` if several units have it), the
contestant, or two of them for a quotient, and the column if it is not ``median``; ``lowest`` or ``highest`` before it
where several rows match. ``zkconsumer*`` stands for all contestants that begin so. A quotient is shown in percent if
the figure's unit is ``%``. Rounds and trials of ``benchmarks/results`` are ``rounds | KIND | FIGURE`` and
``trials | ROW, MEMBERS | FIGURE | p50`` (or ``p99``, ``max``, ``sum``).

A given figure is a setting, a size of a workload, a result of arithmetic, or a fact of Kafka. Another comment, anywhere
in the page, names those of the page: ``<!-- given: 60 s, 16 KiB -->``. A figure that no comment names is a problem, so
a wrong one is found.

``python -m tests.reference.figures`` renews the tables of docs/measurements.md, and prints the problems of all
pages; with ``--renew`` it first writes the stored values into the pages, whose sentences have to be read again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.stored import Row, markdown_table, read_result, stored_names
from tests.chaos.store import percentile
from tests.chaos.store import published as published_trials
from tests.fixtures.documents import ROOT, name_of
from tests.rounds.store import published as published_rounds

UNIT: Final = (
    r"(?:[KMG]i?B|%|ms/s|m?s|us|ns|minutes?|seconds?|hours?|times"
    r"|(?:records|rows|requests|packets|bytes)(?:/s| a second)?|(?:thousand|million|billion)(?: \w+(?:/s)?)?"
    r"|connections|rounds|trials|processes|commits)"
)
_NUMBER: Final = re.compile(r"(?<![\w.,/#+-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w|[.,]?\d)")
_UNIT: Final = re.compile(rf"(?:[ \n]+|(?=%))(?P<unit>{UNIT})(?![\w/])")
_RANGE: Final = re.compile(r"(?:[ \n]+\([^)]*\))?,?[ \n]+(?:to|or|and|of|/)[ \n]+(?=\d)")
_LARGE: Final = 100_000

_WITHOUT: Final = re.compile(
    r"^ *```.*?^ *```$|<!-- (?:result|rounds|soaks|trials): .*?<!-- end of \w+ -->|<!--.*?-->|`[^`]*`"
    r"|(?<=\])\([^)\s]*\)|<[^>\n]*>",
    re.MULTILINE | re.DOTALL,
)
_FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
COMMENT: Final = re.compile(r"<!-- figures\n(.*?)-->", re.DOTALL)
"""Binds the figures of a section."""
_GIVEN: Final = re.compile(r"<!-- given: (.*?) -->", re.DOTALL)
_STATISTICS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "p50": lambda values: percentile(values, 0.5),
    "p99": lambda values: percentile(values, 0.99),
    "max": max,
    "sum": sum,
}

GENERATED: Final = frozenset({"cli.md", "compatibility.md", "config.md", "metrics.md"})
"""Pages that `make docs` writes as a whole, from code and stored results."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in a text.

    Attributes:
        number: as written.
        unit: as written; that of the end of a range for its begin; empty for a large number without a unit.
        begin: where the number is in the text.
    """

    number: str
    unit: str
    begin: int = 0

    def __str__(self) -> str:
        return f"{self.number} {self.unit}".rstrip()

    def shows(self, value: float) -> bool:
        """True if the number is the value, rounded to as many digits."""
        _, _, decimals = self.number.partition(".")
        unit_in_last_place = 10.0 ** -len(decimals)
        return abs(float(self.number.replace(",", "")) - value) <= 0.5000001 * unit_in_last_place


_result: Final = cache(read_result)
_rounds: Final = cache(published_rounds)
_trials: Final = cache(published_trials)


class BindingError(ValueError):
    """A binding names no stored measurement, or several."""


def pages() -> list[Path]:
    """The pages whose figures are bound."""
    return [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED)]


def figures(text: str) -> list[Figure]:
    """All figures of a text, in order; code, links and what is made of stored results has none."""
    text = _WITHOUT.sub(lambda found: found[0][0].replace("<", " ") + " " * (len(found[0]) - 2) + "`", text)
    return [
        Figure(number[0], " ".join(unit.split()), number.start())
        for number in _NUMBER.finditer(text)
        if (unit := _unit(text, number.end())) or float(number[0].replace(",", "")) >= _LARGE
    ]


def _unit(text: str, end: int) -> str:
    """The unit of a number that ends there, or of the range that it begins."""
    while (found := _UNIT.match(text, end)) is None:
        between = _RANGE.match(text, end)
        number = between and _NUMBER.match(text, between.end())
        if number is None:
            return ""
        end = number.end()
    return found["unit"]


def bindings(text: str) -> list[tuple[str, str]]:
    """The figures that comments of a text bind, and what to, in order."""
    lines = (line.partition(": ") for block in COMMENT.findall(text) for line in block.splitlines())
    return [(figure, binding) for figure, _, binding in lines]


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of a page from a heading to the next one; figures are where they are in the page."""

    heading: str
    given: list[Figure]
    measured: list[Figure]
    bound: list[tuple[str, str]]

    def is_bound(self) -> bool:
        """True if the comments of the section name its measured figures, in their order."""
        return [str(figure) for figure in self.measured] == [name for name, _ in self.bound]


def _sections(text: str) -> Iterator[_Section]:
    given = _given(text)
    text = _without_blocks(text)
    begins = [0, *(heading.start() for heading in re.finditer(r"^#+ ", text, re.MULTILINE) if heading.start())]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        part = text[begin:end]
        found = [Figure(figure.number, figure.unit, begin + figure.begin) for figure in figures(part)]
        yield _Section(
            part.partition("\n")[0].lstrip("# "),
            [figure for figure in found if str(figure) in given],
            [figure for figure in found if str(figure) not in given],
            bindings(part),
        )


def _without_blocks(text: str) -> str:
    """The text with spaces in place of its code blocks."""
    return _FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)


def _given(text: str) -> set[str]:
    return {name for listed in _GIVEN.findall(text) for name in re.split(r",\s+", listed)}


def problems(text: str) -> list[str]:
    """What is wrong with the figures of a page: not bound, bound to another value, or bound and given."""
    given = _given(text)
    found = []
    used = set()
    for section in _sections(text):
        used |= set(map(str, section.given))
        written, names = [str(figure) for figure in section.measured], [name for name, _ in section.bound]
        if both := {*names} & given:
            found.append(f"{section.heading}: both measured and given: {', '.join(sorted(both))}")
        elif not section.is_bound():
            text_has, comment_has = _differing(written, names), _differing(names, written)
            found.append(f"{section.heading}: the text has {text_has}, its comment {comment_has}")
        else:
            pairs = zip(section.measured, section.bound, strict=True)
            wrong = (_wrong(figure, binding) for figure, (_, binding) in pairs)
            found += [f"{section.heading}: {problem}" for problem in wrong if problem]
    found += [f"no figure is {name}, which is named as given" for name in sorted(given - used)]
    return found


def renewed(text: str) -> str:
    """A page whose measured figures are those of the stored results, with as many decimals as before.

    Sentences may no longer be true: read them.
    """
    edits: list[tuple[int, int, str]] = []
    lines = iter([place for comment in COMMENT.finditer(_without_blocks(text)) for place in _lines(text, comment)])
    for section in _sections(text):
        for number, (_, binding) in enumerate(section.bound):
            begin = next(lines)
            if not section.is_bound():
                continue
            figure = section.measured[number]
            try:
                value = _shown_value(figure, binding)
            except BindingError:
                continue
            if not figure.shows(value):
                decimals = len(figure.number.partition(".")[2])
                new = f"{value:,.{decimals}f}"
                edits += [(place, place + len(figure.number), new) for place in (figure.begin, begin)]
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _lines(text: str, comment: re.Match[str]) -> Iterator[int]:
    """Where the lines of a comment begin."""
    begin = comment.start(1)
    for line in comment[1].splitlines(keepends=True):
        yield begin
        begin += len(line)


def _differing(these: Sequence[str], those: Sequence[str]) -> str:
    """What one list has from the first difference on, shortened."""
    same = next((i for i, pair in enumerate(zip(these, those, strict=False)) if pair[0] != pair[1]), len(those))
    return " and ".join(these[same : same + 3]) or "no more"


def _wrong(figure: Figure, binding: str) -> str:
    try:
        value = _shown_value(figure, binding)
    except BindingError as error:
        return f"{figure}: {error}"
    return "" if figure.shows(value) else f"{figure}: {binding} is {value:,.{0 if value >= _LARGE else 3}f}"


def _shown_value(figure: Figure, binding: str) -> float:
    """The stored value, in the figure's unit."""
    return measured_value(binding) * (100 if figure.unit == "%" and " / " in binding else 1)


@cache
def measured_value(binding: str) -> float:
    """The value that a binding names.

    Raises:
        BindingError: nothing that is stored, or several values.
    """
    name, *fields = (field.strip() for field in binding.split(" | "))
    try:
        if name == "rounds":
            kind, key = fields
            return _one([float({"rounds": run.rounds, **run.figures}[key]) for run in _rounds() if run.kind == kind])
        if name == "trials":
            row, key, statistic = fields
            row, _, members = row.partition(", ")
            trials = (one.figures for one in _trials() if one.row == row and (not members or one.members == members))
            return _STATISTICS[statistic]([value for one in trials if (value := one.get(key)) is not None])
        job, contestant, *column = fields
        rows = _rows_of_job(_result(name).rows, job)
        return _value(rows, contestant, *column)
    except (ValueError, KeyError, IndexError, FileNotFoundError, TypeError) as error:
        raise BindingError(f"{binding} names no stored measurement: {error!r}") from error


def _rows_of_job(rows: Sequence[Row], job: str) -> list[Row]:
    exact = [row for row in rows if job in (row.job, f"{row.job}, {row.unit}")]
    return exact or [row for row in rows if job in f"{row.job}, {row.unit}"]


def _value(rows: Sequence[Row], contestant: str, column: str = "median") -> float:
    first, _, rest = column.partition(" ")
    which, name = (first, rest or "median") if first in ("lowest", "highest") else ("", column)
    ours, _, other = contestant.partition(" / ")
    values = [
        value / divisor
        for row in rows
        if _is_called(row, ours) and (value := _cell(row, name)) is not None
        for divisor in (_others(rows, row, other, name) if other else [1.0])
    ]
    return _one(values) if not which else min(values) if which == "lowest" else max(values)


def _others(rows: Sequence[Row], ours: Row, contestant: str, name: str) -> Iterator[float]:
    """The values of another contestant for the same job."""
    for row in rows:
        if (row.job, row.unit) == (ours.job, ours.unit) and _is_called(row, contestant):
            value = _cell(row, name)
            if value is not None:
                yield value


def _is_called(row: Row, contestant: str) -> bool:
    if contestant.endswith("*"):
        return row.contestant.startswith(contestant[:-1])
    return row.contestant == contestant


def _cell(row: Row, column: str) -> float | None:
    cells = {"min": row.minimum, "median": row.median, "max": row.maximum, "peak MiB": row.peak_mib, **row.ratios}
    return cells.get(column)


def _one(values: Sequence[float]) -> float:
    (value,) = {*values}
    return value


RESULT: Final = re.compile(r"<!-- result: ([\w-]+) -->\n.*?<!-- end of result -->", re.DOTALL)
"""A table of a page, which `make docs` renews: the name of a stored result, and what is made of it."""


def with_tables(text: str) -> str:
    """A page with its tables renewed from the stored results."""
    return RESULT.sub(lambda found: f"<!-- result: {found[1]} -->\n{_section(found[1])}\n<!-- end of result -->", text)


def _section(name: str) -> str:
    result = read_result(name)
    run = f"{result.date}, {result.machine}. Commit: {result.commit}."
    return "\n\n".join([f"`{result.command}`", markdown_table(result.rows), *result.remarks, run])


def unshown(text: str) -> list[str]:
    """Stored results that a page does not show."""
    return sorted({*stored_names()} - {*RESULT.findall(text)})


if __name__ == "__main__":
    measurements = ROOT / "docs/measurements.md"
    measurements.write_text(with_tables(measurements.read_text(encoding="utf-8")), encoding="utf-8")
    for path in pages():
        page = path.read_text(encoding="utf-8")
        if "--renew" in sys.argv[1:]:
            page = renewed(page)
            path.write_text(page, encoding="utf-8")
        for problem in problems(page):
            print(f"{name_of(path)}: {problem}")
