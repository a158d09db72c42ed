"""``python -m tests.rounds``: moves groups to Kafka and back, stores what became of the records, makes the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from tests.chaos.store import code_identity
from tests.fixtures.rounds import GROUPS, RESULT, ROUNDS
from tests.rounds.store import KINDS, PUBLISHED, ROOMS, Kind, Run, RunStore, publish, published, table
from zkconsumer.sandbox.cache import cache_directory

_ROOT: Final = Path(__file__).parents[2]
_STORE = click.option("--store", type=click.Path(path_type=Path), help="Directory of stored runs.")


def _store(directory: Path | None) -> RunStore:
    return RunStore(directory or cache_directory() / "migration-rounds")


@click.group()
def main() -> None:
    """Move groups from ZooKeeper to Kafka and back under load, and check that no record is lost or consumed by both."""


@main.command()
@click.argument(
    "kinds", nargs=-1, type=click.Choice(list(KINDS)), metavar="[jvm|zkconsumer|fleet|fleet-200|mirrormaker]..."
)
@click.option("--rounds", type=click.IntRange(min=1), default=50, show_default=True, help="Rounds of each group.")
@_STORE
def run(kinds: tuple[str, ...], rounds: int, store: Path | None) -> None:
    """Run the test of each kind of group with so many rounds, and store its figures; by default of all kinds."""
    run_store, (commit, product), failed = _store(store), code_identity(ROOMS), False
    for kind in kinds or KINDS:
        began = int(time.time())
        figures = _run_test(KINDS[kind], rounds)
        made = Run(kind, began, rounds, commit, product, figures is not None, figures or {})
        run_store.add(made)
        click.echo(f"{kind}, {rounds} rounds: {figures or 'FAILED'}; {time.time() - began:.0f} s")
        failed |= not made.passed
    sys.exit(1 if failed else 0)


def _run_test(kind: Kind, rounds: int) -> dict[str, int] | None:
    """The figures of a test; None if it failed."""
    with tempfile.TemporaryDirectory(prefix="zkconsumer-rounds-") as directory:
        result = Path(directory) / "result.json"
        environment = {**os.environ, ROUNDS: str(rounds), GROUPS: str(kind.groups), RESULT: str(result)}
        command = [sys.executable, "-m", "pytest", "-q", kind.test]
        code = subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode
        if code or not result.exists():
            return None
        found: dict[str, int] = json.loads(result.read_text(encoding="utf-8"))
        return found


@main.command()
@_STORE
def report(store: Path | None) -> None:
    """Print a table of the stored runs."""
    click.echo(table(_store(store)))


@main.command(name="publish")
@_STORE
def publish_runs(store: Path | None) -> None:
    """Put the stored runs into benchmarks/results/rounds.jsonl, and print the table of docs/reliability.md."""
    renewed = list(_store(store))
    kinds = {one.kind for one in renewed}
    publish([*(one for one in published() if one.kind not in kinds), *renewed])
    click.echo(f"{PUBLISHED}\n{table(published())}")


if __name__ == "__main__":
    main()
