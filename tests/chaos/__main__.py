"""``python -m tests.chaos``: runs trials and stores them, replays and shrinks a schedule, and makes the table."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import click

from tests.chaos.broken import BREAKS
from tests.chaos.campaign import PROTOCOLS, run_campaign, servers_for
from tests.chaos.everyrow import EVERY_ROW
from tests.chaos.rows import Row
from tests.chaos.schedule import Schedule
from tests.chaos.soak import PROTOCOL_NAMES, run_soak, soak_lines, write_report
from tests.chaos.soakstore import SOAKS
from tests.chaos.soakstore import publish as publish_reports
from tests.chaos.store import (
    PUBLISHED,
    README,
    Trial,
    TrialStore,
    code_identity,
    merged,
    publish,
    published,
    summary,
    table,
    write_page,
)
from tests.chaos.trial import run_trial, shrink_schedule
from tests.chaos.verdicts import Verdict
from zkconsumer.sandbox.cache import cache_directory
from zkconsumer.testing.checker import check
from zkconsumer.testing.ledgerfile import read_ledger


def _store(directory: Path | None) -> TrialStore:
    return TrialStore(directory or cache_directory() / "chaos-trials")


@click.group()
def main() -> None:
    """Hurt a group of real processes on real servers, and check what it did: a row, or one of the other commands."""


_STORE = click.option("--store", type=click.Path(path_type=Path), help="Directory of stored trials.")


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first trial.")
@click.option("--trials", type=int, default=1, show_default=True, help="Number of trials, with consecutive seeds.")
@click.option("--jvm", is_flag=True, help="One of the members is a JVM consumer.")
@click.option(
    "--protocol",
    type=click.Choice(list(PROTOCOLS)),
    help="group.protocol of the members of ours.  [default: zookeeper, or that of the row]",
)
@click.option("--offsets", type=click.Choice(["zookeeper", "kafka"]), default="zookeeper", help="Where members commit.")
@click.option("--schedule", "given", help="Run this schedule, as a failed trial prints it, and store nothing.")
@click.option("--shrink", "shrinking", is_flag=True, help="Look for a smaller schedule where a trial fails.")
@click.option("--break", "broken", type=click.Choice(list(BREAKS)), multiple=True, help="Switch a protection off.")
@click.option("--minutes", type=float, default=0.0, help="Begin no further trial after this time; 0: no limit.")
@_STORE
def row_options() -> None:
    """The options of every row."""


def run(  # noqa: PLR0917 - a command has as many parameters as options
    row: Row,
    seed: int,
    trials: int,
    jvm: bool,
    protocol: str | None,
    offsets: str,
    given: str | None,
    shrinking: bool,
    broken: tuple[str, ...],
    minutes: float,
    store: Path | None,
) -> None:
    """Run trials of a row; those that are stored for this very code are not repeated."""
    trial_store, (commit, product) = _store(store), code_identity()
    stores = not given and not broken
    members = PROTOCOLS.get(protocol or "", "") + ("+jvm" * jvm) + ("+kafka" * (offsets == "kafka"))
    ours = "" if protocol in (None, "zookeeper") else protocol  # else that of the row
    seeds = list(range(seed, seed + trials))
    if stores:
        seeds = [one for one in seeds if not trial_store.has(row.name, members, one, product)]
    if not seeds:
        return
    failed, began, ended = 0, time.monotonic(), False
    directory = Path(tempfile.mkdtemp(prefix="zkconsumer-chaos-"))
    servers = servers_for(directory, row, ours or row.ours)
    try:
        for number in seeds:
            if minutes and time.monotonic() - began > 60 * minutes:
                break
            made = row.schedule(number, jvm=jvm, ours=ours, storage=offsets)
            schedule = Schedule.from_json(given) if given else made
            verdict = run_trial(servers, row, schedule, broken=broken)
            _print(row, number, schedule, verdict)
            if stores:
                failures = tuple(verdict.failures)
                trial = Trial(row.name, members, number, commit, product, schedule.to_json(), failures, verdict.figures)
                trial_store.add(trial)
            failed += bool(verdict.failures)
            if verdict.failures and shrinking:
                smaller = shrink_schedule(servers, row, schedule, broken=broken)
                click.echo(f"  shrunk to: {smaller}\n  --schedule '{smaller.to_json()}'")
        ended = True
    finally:
        servers.close()
        if failed or not ended:
            click.echo(f"ledgers and logs: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if failed else 0)


def _print(row: Row, seed: int, schedule: Schedule, verdict: Verdict) -> None:
    figures = ", ".join(f"{name} {value:g}" for name, value in verdict.figures.items() if value)
    members = ", ".join(schedule.members)
    click.echo(f"{row.name} seed {seed} ({members}): {'FAILED' if verdict.failures else 'passed'}; {figures}")
    if verdict.failures:
        click.echo("\n".join(f"  {one}" for one in verdict.failures))
        if verdict.disturbance:
            click.echo(f"  disturbed: {verdict.disturbance}; run it again")
        click.echo(f"  {schedule}\n  --schedule '{schedule.to_json()}'")


@main.command(name="all")
@click.option("--minutes", type=float, default=60.0, show_default=True, help="Begin no further trial after this time.")
@click.option("--part", default="1/1", show_default=True, metavar="I/N", help="Of N processes that share the work.")
@_STORE
def run_all(minutes: float, part: str, store: Path | None) -> None:
    """Run what is missing of the trials that docs/reliability.md requires: of each row and protocol, with new seeds.

    Trials that are stored or published for this code are not repeated, so a run continues where another one ended.
    """
    number, _, parts = part.partition("/")
    failed = run_campaign(_store(store), published(), minutes, int(number) - 1, int(parts))
    sys.exit(1 if failed else 0)


@main.command()
@click.option("--hours", type=float, default=1.0, show_default=True, help="How long.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the faults.")
@click.option("--protocol", type=click.Choice(PROTOCOL_NAMES), default="zookeeper", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=Path("soak"), show_default=True, help="Directory.")
def soak(hours: float, seed: int, protocol: str, output: Path) -> None:
    """Run a group for hours with a random fault each minute; a report and a picture of what grows."""
    directory = Path(tempfile.mkdtemp(prefix="zkconsumer-soak-"))
    result, samples, faults = run_soak(protocol, hours, seed, directory)
    file = write_report(result, samples, faults, output)
    click.echo("\n".join([*soak_lines(result), f"report: {file} and {file.with_suffix('.png').name}"]))
    if result.failures:
        click.echo(f"ledgers and logs: {directory}")
        sys.exit(1)
    shutil.rmtree(directory, ignore_errors=True)


@main.command()
@_STORE
def report(store: Path | None) -> None:
    """Print a table of the stored and the published trials."""
    click.echo(table(merged(_store(store))))


@main.command(name="publish")
@_STORE
def publish_trials(store: Path | None) -> None:
    """Add the stored trials to benchmarks/results/trials.jsonl, and write the table of docs/reliability.md."""
    publish(merged(_store(store)))
    write_page(table(published()))
    write_page(summary(published()), README)
    click.echo(f"{PUBLISHED}\n{table(published())}")


@main.command(name="publish-soaks")
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
def publish_soaks(reports: tuple[Path, ...]) -> None:
    """Publish REPORTS of soaks: benchmarks/results/soaks.jsonl, the table and the picture of docs/reliability.md."""
    publish_reports(reports)
    click.echo(SOAKS)


@main.command(name="check")
@click.argument("directory", type=click.Path(path_type=Path, exists=True))
def check_again(directory: Path) -> None:
    """Check the ledger of a failed trial again."""
    for error in check(read_ledger(directory)).errors():
        click.echo(error)


for _row in EVERY_ROW.values():
    main.add_command(
        click.Command(_row.name, callback=partial(run, _row), params=row_options.params, help=f"Trials: {_row.fault}.")
    )

if __name__ == "__main__":
    main()
