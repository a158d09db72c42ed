"""Stored runs of rounds: one JSON file each; the published ones, a line each; and the table of docs/reliability.md."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.store import ROOMS as OF_TRIALS

PUBLISHED: Final = Path(__file__).parents[2] / "benchmarks" / "results" / "rounds.jsonl"

ROOMS: Final = (*OF_TRIALS, "operate/migrate", "operate/offsets")
"""Packages of the product that decide what rounds show."""


class Kind(NamedTuple):
    """A kind of group.

    Attributes:
        title: what it consists of.
        test: moves it.
        groups: how many groups a fleet has; 0 for what is no fleet.
    """

    title: str
    test: str
    groups: int = 0


_FLEET: Final = "tests/interop/test_fleet_rounds.py::test_a_fleet_moves_there_and_back_with_killed_tools"

KINDS: Final[Mapping[str, Kind]] = {
    "jvm": Kind(
        "JVM consumer 1.1.1, and confluent-kafka at Kafka",
        "tests/interop/test_migration.py::test_a_group_moves_to_kafka_and_back_under_load[join_jvm]",
    ),
    "zkconsumer": Kind(
        "zkconsumer, and confluent-kafka at Kafka",
        "tests/interop/test_migration.py::test_a_group_moves_to_kafka_and_back_under_load[join]",
    ),
    "fleet": Kind("ten groups of a fleet, and confluent-kafka at Kafka; tools killed at random moments", _FLEET, 10),
    "fleet-200": Kind("the same with 200 groups", _FLEET, 200),
    "mirrormaker": Kind(
        "MirrorMaker 1.1.1, with its old and its new consumer",
        "tests/interop/test_mirrormaker.py::test_a_mirrormaker_moves_to_the_new_consumer_and_back_under_load",
    ),
}
"""By the name for the command."""


@dataclass(frozen=True, slots=True)
class Run:
    """Rounds of one group, one after the other.

    Attributes:
        kind: see :data:`KINDS`.
        began: seconds since the epoch.
        rounds: how many were to be made.
        commit: of the project.
        product: hash of the product's code at that commit.
        passed: False if the test failed, which then may have made fewer rounds.
        figures: of :func:`tests.fixtures.rounds.report`; empty if the test failed.
    """

    kind: str
    began: int
    rounds: int
    commit: str
    product: str
    passed: bool
    figures: dict[str, int]


class RunStore:
    """A directory of runs.

    Args:
        directory: is created if it does not exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, run: Run) -> None:
        """Store a run."""
        path = self._directory / f"{run.kind}-{run.began}.json"
        path.write_text(json.dumps(asdict(run), indent=1), encoding="utf-8")

    def __iter__(self) -> Iterator[Run]:
        for path in sorted(self._directory.glob("*.json")):
            yield Run(**json.loads(path.read_text(encoding="utf-8")))


def publish(runs: Iterable[Run], file: Path = PUBLISHED) -> None:
    """Replace the published runs, from which the table of docs/reliability.md is made."""
    ordered = sorted(runs, key=lambda one: (list(KINDS).index(one.kind), one.began))
    file.write_text("".join(json.dumps(asdict(run)) + "\n" for run in ordered), encoding="utf-8")


def published(file: Path = PUBLISHED) -> list[Run]:
    """The published runs."""
    return [Run(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def table(runs: Iterable[Run]) -> str:
    """The table in Markdown, a line for each kind of group."""
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.kind].append(run)
    lines = [
        "| group | rounds | runs | passed | records | lost | by both | twice |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_line(KINDS[kind].title, found[kind]) for kind in KINDS if kind in found]
    return "\n".join(lines)


def _line(title: str, runs: list[Run]) -> str:
    passed = [run for run in runs if run.passed]
    totals = [sum(run.figures[name] for run in passed) for name in ("records", "lost", "by both", "twice")]
    cells = [title, sum(run.rounds for run in passed), len(runs), len(passed), *totals]
    return f"| {' | '.join(map(str, cells))} |"
