"""``python -m tests.mutants``: how many mutants of the ``rules`` packages their tests kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import click

from tests.mutants.choice import Equivalent, chosen_tests, modules_of, read_equivalent, read_tests

_ROOT: Final = Path(__file__).parents[2]
_REQUIRED: Final = 90
"""Percentage of the mutants that tests have to kill."""

Examined = dict[str, Any]
"""An ``Examination`` as JSON."""


@click.command()
@click.argument("room", default="")
@click.option("--jobs", default=2, show_default=True, help="Modules that are examined at the same time.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write all results there, too.")
def main(room: str, jobs: int, file: Path | None) -> None:
    """Run the tests of each module in ROOM (by default of all rooms) on the module's mutants, and print survivors."""
    began = time.monotonic()
    more, equivalent = read_tests(), read_equivalent()
    try:
        modules = modules_of(_ROOT, room)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with ThreadPoolExecutor(jobs) as pool:
        examined = list(
            pool.map(lambda module: _examined(module, chosen_tests(_ROOT, module, more), equivalent), modules)
        )
    examined.sort(key=lambda one: one["path"])
    if file:
        file.write_text(json.dumps(examined, indent=1), encoding="utf-8")
    click.echo("\n".join(report(examined, equivalent)))
    click.echo(f"{(time.monotonic() - began) / 60:.1f} minutes")
    sys.exit(not good_enough(examined, equivalent))


def _examined(module: Path, tests: Sequence[str], equivalent: Iterable[Equivalent]) -> Examined:
    excepted = [(one.function, one.original, one.mutated) for one in equivalent if one.path == module.as_posix()]
    command = [sys.executable, "-m", "tests.mutants.examination", module.as_posix(), *tests]
    # The same order of sets in every run, so that it kills the same mutants.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        command, cwd=_ROOT, env=environment, input=json.dumps(excepted), capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise click.ClickException(f"{module}: the examination ended with {ran.returncode}:\n{ran.stderr}")
    examined: Examined = json.loads(ran.stdout)
    click.echo(_summary(module.as_posix(), examined["outcomes"]), err=True)
    return examined


def _summary(name: str, outcomes: Sequence[dict[str, Any]]) -> str:
    all_, killed = len(outcomes), sum(outcome["killed"] for outcome in outcomes)
    percentage = 100 * killed / all_ if all_ else 100
    return f"{name:<60} {all_:>5} mutants {killed:>5} killed {all_ - killed:>4} survived {percentage:>5.1f} %"


def report(examined: Sequence[Examined], equivalent: Iterable[Equivalent]) -> list[str]:
    """Lines that list survivors, modules, rooms and what is wrong with the run itself."""
    rooms = defaultdict[str, list[dict[str, Any]]](list)
    for one in examined:
        rooms[Path(one["path"]).parent.as_posix()] += one["outcomes"]
    return [
        *(
            f"{one['path']}:{outcome['line']}: {outcome['original']} -> {outcome['mutated']}"
            for one in examined
            for outcome in one["outcomes"]
            if not outcome["killed"]
        ),
        *(_summary(one["path"], one["outcomes"]) for one in examined),
        *(_summary(room, outcomes) for room, outcomes in sorted(rooms.items())),
        _summary("all", [outcome for one in examined for outcome in one["outcomes"]]),
        *(f"error: {one['error']}" for one in examined if one["error"]),
        *(f"error: equivalent.toml has a mutant that does not exist: {one}" for one in _stale(examined, equivalent)),
    ]


def good_enough(examined: Sequence[Examined], equivalent: Iterable[Equivalent]) -> bool:
    """True if enough mutants are killed, and nothing is wrong with the run itself."""
    outcomes = [outcome["killed"] for one in examined for outcome in one["outcomes"]]
    failed = any(one["error"] for one in examined) or _stale(examined, equivalent)
    return not failed and 100 * sum(outcomes) >= _REQUIRED * len(outcomes)


def _stale(examined: Sequence[Examined], equivalent: Iterable[Equivalent]) -> list[Equivalent]:
    """Equivalent mutants of examined modules that those modules do not have."""
    found = {(one["path"], *mutant) for one in examined for mutant in map(tuple, one["equivalent"])}
    paths = {one["path"] for one in examined}
    return [
        one
        for one in equivalent
        if one.path in paths and (one.path, one.function, one.original, one.mutated) not in found
    ]


if __name__ == "__main__":
    main()
