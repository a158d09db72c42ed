"""Stored trials, one JSON file each; the published ones, a line each; what two pages have of them."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.chaos.everyrow import EVERY_ROW

_ROOT: Final = Path(__file__).parents[2]
PUBLISHED: Final = _ROOT / "benchmarks" / "results" / "trials.jsonl"
PAGE: Final = _ROOT / "docs" / "reliability.md"
README: Final = _ROOT / "README.md"
BEGIN: Final = "<!-- trials: made by `python -m tests.chaos publish` -->"
END: Final = "<!-- end of trials -->"

ROOMS: Final = ("group", "offsets", "fetch", "zookeeper", "wire")
"""Packages of the product that decide what a trial shows: a change of others leaves stored trials valid."""

_MEMBERS: Final[Mapping[str, str]] = {
    "": "ours",
    "+jvm": "ours and a JVM",
    "+kafka": "ours, offsets in Kafka",
    "+jvm+kafka": "ours and a JVM, offsets in Kafka",
    "+brokers": "ours, group.protocol=kafka",
    "+assigned": "ours, group.protocol=consumer",
    "+coordinator": "ours, with a coordinator",
    "+coordinator+jvm": "ours, with a coordinator, and a JVM",
    "+coordinator+kafka": "ours, with a coordinator, offsets in Kafka",
    "+coordinator+jvm+kafka": "ours, with a coordinator, and a JVM, offsets in Kafka",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial and its result.

    Attributes:
        row: name of the row.
        members: ``+coordinator``, ``+brokers`` or ``+assigned`` if ours had ``group.protocol`` ``coordinator``,
            ``kafka`` or ``consumer``, ``+jvm`` if one of the members was a JVM, ``+kafka`` if they committed to Kafka;
            empty otherwise.
        seed: of the schedule.
        commit: of the project.
        product: hash of the product's code; trials of the same code need not be repeated.
        schedule: as JSON.
        failures: why it failed, empty if it passed.
        figures: what was measured.
    """

    row: str
    members: str
    seed: int
    commit: str
    product: str
    schedule: str
    failures: tuple[str, ...]
    figures: dict[str, float | None]


class TrialStore:
    """A directory of trials.

    Args:
        directory: is created if it does not exist.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, row: str, members: str, seed: int, product: str) -> Path:
        """The file of a trial."""
        return self.directory / f"{row}{members}-{seed}-{product[:10]}.json"

    def has(self, row: str, members: str, seed: int, product: str) -> bool:
        """True if the trial was run with this code."""
        return self.path(row, members, seed, product).exists()

    def add(self, trial: Trial) -> None:
        """Store a trial."""
        path = self.path(trial.row, trial.members, trial.seed, trial.product)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(trial), indent=1), encoding="utf-8")
        unfinished.replace(path)

    def __iter__(self) -> Iterator[Trial]:
        for path in sorted(self.directory.glob("*.json")):
            yield _trial(path.read_text(encoding="utf-8"))


def _trial(text: str) -> Trial:
    values = json.loads(text)
    return Trial(**{**values, "failures": tuple(values["failures"])})


def merged(store: Iterable[Trial]) -> list[Trial]:
    """The trials to publish: of each row and kind of members those of this code, else those that are published."""
    _, product = code_identity()
    former = published()
    trials = {(one.row, one.members, one.seed): one for one in (*former, *store) if one.product == product}
    renewed = {(row, members) for row, members, _ in trials}
    return [*(one for one in former if (one.row, one.members) not in renewed), *trials.values()]


def write_page(content: str, page: Path = PAGE, begin: str = BEGIN, end: str = END) -> None:
    """Replace what a page has between two comments: the table of docs/reliability.md, the sentences of README.md."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{content}\n{end}{after}", encoding="utf-8")


def publish(trials: Iterable[Trial], file: Path = PUBLISHED) -> None:
    """Replace the published trials, from which the table of docs/reliability.md is made."""
    ordered = sorted(trials, key=lambda one: (list(EVERY_ROW).index(one.row), one.members, one.seed))
    file.write_text("".join(json.dumps(asdict(trial)) + "\n" for trial in ordered), encoding="utf-8")


def published(file: Path = PUBLISHED) -> list[Trial]:
    """The published trials."""
    return [_trial(line) for line in file.read_text(encoding="utf-8").splitlines()]


def code_identity(rooms: Sequence[str] = ROOMS) -> tuple[str, str]:
    """The commit, ending in ``-changed`` if anything else is there, and a hash of the code that a trial is about.

    Comments, docstrings and layout do not count: trials stay valid when the words change.
    """
    commit = _git("rev-parse", "HEAD") + ("-changed" if _git("status", "--porcelain", "--", "zkconsumer") else "")
    files = (file for room in rooms for file in (_ROOT / "zkconsumer" / room).rglob("*.py"))
    code = "".join(f"{file.relative_to(_ROOT)}{code_of(file.read_text(encoding='utf-8'))}" for file in sorted(files))
    return commit, hashlib.sha1(code.encode(), usedforsecurity=False).hexdigest()[:9]


def code_of(source: str) -> str:
    """What a Python source says to the interpreter: without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body: list[ast.stmt] = getattr(node, "body", [])
        if isinstance(body, list):
            body[:] = [one for one in body if not _is_text(one)]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(trials: Iterable[Trial]) -> str:
    """The table in Markdown, a line for each row with and without JVM members."""
    found: defaultdict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        found[trial.row, trial.members].append(trial)
    lines = [
        "| row | fault | members | trials | passed | records | lost | duplicates per trial | overlaps | stale commits "
        "| reassigned p50 / p99 (s) | delivering p50 / p99 (s) | seeds | code |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        _line(name, members, found[name, members])
        for name in EVERY_ROW
        for members in _MEMBERS
        if (name, members) in found
    ]
    return "\n".join(lines)


def summary(trials: Sequence[Trial]) -> str:
    """The sums of all trials, in sentences."""

    passed = sum(not trial.failures for trial in trials)
    mixed = sum("+jvm" in trial.members for trial in trials)
    return (
        f"**{len(trials):,} trials with injected faults**, {mixed:,} of them with a JVM member in the group: "
        f"{passed:,} passed (code {_codes(trials)}).\n"
        f"{_total(trials, 'lost'):,} of {_total(trials, 'produced'):,} records were lost, apart from "
        f"{_removed(trials):,} that brokers lost or removed before a member read them, since the fault was just that.\n"
        f"Members of zkconsumer made {_total(trials, 'stale commits'):,} stale commits, JVM members "
        f"{_total(trials, 'stale commits by JVMs'):,}."
    )


def _total(trials: Iterable[Trial], figure: str) -> int:
    return round(sum(trial.figures.get(figure) or 0 for trial in trials))


def _removed(trials: Sequence[Trial]) -> int:
    """Records that no member was handed out, and that no broker has any more."""
    return _total(trials, "gone undelivered") + _total(trials, "removed undelivered")


def _codes(trials: Iterable[Trial]) -> str:
    return ", ".join(sorted({trial.product[:7] for trial in trials}))


def _and(count: int, others: int) -> str:
    return f"{count} + {others}" if others else str(count)


def _line(name: str, members: str, trials: Sequence[Trial]) -> str:
    duplicates = [trial.figures.get("duplicates") or 0 for trial in trials]
    cells = [
        name,
        EVERY_ROW[name].fault,
        _MEMBERS[members],
        str(len(trials)),
        str(sum(not trial.failures for trial in trials)),
        str(_total(trials, "produced")),
        _and(_total(trials, "lost"), _removed(trials)),
        f"{percentile(duplicates, 0.5):.0f}, at most {max(duplicates):.0f}",
        str(_total(trials, "overlaps")),
        _and(_total(trials, "stale commits"), _total(trials, "stale commits by JVMs")),
        _seconds(trials, "reassigned"),
        _seconds(trials, "delivering"),
        f"{min(trial.seed for trial in trials)}-{max(trial.seed for trial in trials)}",
        _codes(trials),
    ]
    return f"| {' | '.join(cells)} |"


def _seconds(trials: Sequence[Trial], figure: str) -> str:
    values = [seconds for trial in trials if (seconds := trial.figures.get(figure)) is not None]
    return f"{percentile(values, 0.5):.2f} / {percentile(values, 0.99):.2f}" if values else ""
