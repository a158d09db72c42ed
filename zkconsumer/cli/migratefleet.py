"""``zkconsumer migrate fleet``: the migration of many groups, from one file for each cluster."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.ending import Ending
from zkconsumer.cli.fleettables import outcome_document, status_csv, status_document, status_lines
from zkconsumer.cli.grouplag import duration_option
from zkconsumer.cli.groupoptions import echo_lines, json_option, match_option, warn
from zkconsumer.cli.main import EXIT_FAILED, EXIT_PROBLEM
from zkconsumer.cli.migrationoptions import EXECUTE, LONG_HOLD
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import escaped
from zkconsumer.cli.writing import connected, refuse
from zkconsumer.errors import WriteRefused

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.fleet import GroupOutcome, Job, Step
    from zkconsumer.operate.migrate.fleetmirror import Part
    from zkconsumer.operate.migrate.fleetstatus import FleetRow
    from zkconsumer.operate.migrate.rules.fleetfile import FleetFile

_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


@click.group()
def fleet() -> None:
    """Move many groups from ZooKeeper to Kafka, wave by wave, from one file for each cluster."""


def _fleet_options(function: Callable[..., None]) -> Callable[..., None]:
    """The groups that a command is about, as :class:`_Chosen` in place of its options."""

    @_DIRECTORY
    @tool_options
    @click.option("--wave", type=click.IntRange(1), metavar="N", help="The groups of this wave.")
    @click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; repeatable.")
    @click.option("--cluster", "clusters", multiple=True, metavar="NAME", help="Only this cluster; repeatable.")
    @click.option("--workers", type=click.IntRange(1, 32), default=4, show_default=True, help="Groups at a time.")
    @functools.wraps(function)
    def command(
        connection: ToolConnection,
        directory: Path,
        wave: int | None,
        groups: tuple[str, ...],
        clusters: tuple[str, ...],
        workers: int,
        **options: Any,
    ) -> None:
        function(_Chosen(connection, directory, wave, groups, clusters, workers), **options)

    return command


@dataclasses.dataclass(frozen=True, slots=True)
class _Chosen:
    """The options of a command about groups of a fleet."""

    connection: ToolConnection
    directory: Path
    wave: int | None
    groups: tuple[str, ...]
    clusters: tuple[str, ...]
    workers: int

    def fleets(self) -> list[FleetFile]:
        """The clusters that are meant."""
        from zkconsumer.operate.migrate.fleet import read_fleets

        fleets = read_fleets(self.directory)
        if absent := sorted(set(self.clusters) - {file.name for file in fleets}):
            raise click.UsageError(f"--cluster {absent[0]}: {self.directory} has no such file")
        return [file for file in fleets if not self.clusters or file.name in self.clusters]

    def jobs(self, *, required: bool = True) -> dict[str, list[Job]]:
        """The groups that are meant, by cluster; all of them without ``--wave`` and ``--group`` unless ``required``."""
        from zkconsumer.operate.migrate.fleet import Job, files_of
        from zkconsumer.operate.migrate.rules.fleetfile import groups_of

        fleets = self.fleets()
        if self.wave is None and not self.groups:
            if required:
                raise click.UsageError("give --wave N, or --group GROUP")
            chosen = [(file, group) for file in fleets for group in file.groups]
        else:
            chosen = groups_of(fleets, self.wave, self.groups)
        jobs: dict[str, list[Job]] = {}
        for file, group in chosen:
            jobs.setdefault(file.name, []).append(Job(file, group, files_of(self.directory, file, group)))
        if len(jobs) > 1 and (self.connection.zookeeper or self.connection.bootstrap_servers):
            raise click.UsageError(
                f"servers are given for one cluster, and {', '.join(jobs)} are meant; give --cluster"
            )
        return jobs

    def connection_of(self, file: FleetFile) -> ToolConnection:
        """The servers of a cluster: those of the command, else those of its file."""
        given = self.connection
        return dataclasses.replace(
            given,
            zookeeper=given.zookeeper or file.zookeeper or None,
            bootstrap_servers=given.bootstrap_servers or file.bootstrap_servers or None,
            config_file=given.config_file or (self.directory / file.config if file.config else None),
        )

    def command(self, verb: str, *options: str) -> str:
        """Another command about the same groups, to be pasted."""
        words = ["zkconsumer", "migrate", "fleet", verb, str(self.directory)]
        words += [] if self.wave is None else ["--wave", str(self.wave)]
        for option, names in (("--group", self.groups), ("--cluster", self.clusters)):
            words += [word for name in names for word in (option, name)]
        return self.connection.complete(shlex.join([*words, *options]))

    def each(self, step: Step, what: str, *, reversed_: bool = False) -> list[GroupOutcome]:
        """Do a step for all groups, with a progress bar."""
        from zkconsumer.operate.migrate.fleet import for_each

        by_cluster = self.jobs()
        total = sum(map(len, by_cluster.values()))
        outcomes: list[GroupOutcome] = []
        with progress(what) as advance:
            for jobs in by_cluster.values():
                connection = self.connection_of(jobs[0].fleet)
                connection.config()  # what is wrong with the options is raised here, and not by a thread
                connect = functools.partial(connected, connection)
                for outcome in for_each(jobs, connect, step, workers=self.workers, reversed_=reversed_):
                    outcomes.append(outcome)
                    advance(len(outcomes), total)
        order = {
            (file, job.group.group): at
            for at, (file, job) in enumerate((f, j) for f, js in by_cluster.items() for j in js)
        }
        return sorted(outcomes, key=lambda outcome: order[outcome[:2]])


@fleet.command("init")
@_DIRECTORY
@tool_options
@match_option
@click.option("--name", default="cluster", show_default=True, metavar="NAME", help="Of the cluster, and of its file.")
@click.option(
    "--wave-size", type=click.IntRange(0), default=0, metavar="N", help="Groups in a wave.  [default: one wave of all]"
)
def init_command(connection: ToolConnection, directory: Path, pattern: str | None, name: str, wave_size: int) -> None:
    """Write DIR/NAME.toml with the groups of a cluster, from what is found; edit it, and keep it in git.

    Groups that are not ready, by `migrate survey`, get wave 0, which no command touches, and the reason. Waves have the
    groups with the fewest partitions first. Groups that were migrated are left out. If the file exists, groups that it
    does not have are appended; what it has stays.
    """
    from zkconsumer.operate.groups.grouplist import matching_groups
    from zkconsumer.operate.migrate.rules.fleetfile import format_fleet, format_groups, parse_fleet
    from zkconsumer.operate.migrate.rules.surveyverdict import survey
    from zkconsumer.operate.migrate.survey import read_survey_facts
    from zkconsumer.operate.offsets.wholefiles import write_whole

    file = directory / f"{name}.toml"
    known = {group.group for group in parse_fleet(name, file.read_bytes()).groups} if file.exists() else set()
    config = connection.config()
    skipped: list[str] = []
    with tool_session(config) as session, progress("reading"):
        names = [group for group in matching_groups(session, pattern) if group not in known]
        facts = read_survey_facts(session, config, names, skipped=skipped)
    found = _found(map(survey, facts))
    directory.mkdir(parents=True, exist_ok=True)
    if file.exists():
        write_whole(file, file.read_text().rstrip("\n") + "\n" + format_groups(found, wave_size))
    else:
        cluster = {
            "zookeeper": config.zookeeper_connect or "",
            "bootstrap_servers": config.bootstrap_servers or "",
            "config": "" if connection.config_file is None else os.path.relpath(connection.config_file, directory),
        }
        write_whole(file, format_fleet(cluster, found, wave_size))
    warn(skipped)
    ready = sum(group.is_ready for group in found)
    click.echo(escaped(f"{file}: {len(found)} groups, {ready} of them in waves; edit it, then:"))
    click.echo(escaped(f"next: zkconsumer migrate fleet status {directory}"))


def _found(surveys: Iterable[Any]) -> list[Any]:
    from zkconsumer.operate.migrate.rules.fleetfile import FoundGroup
    from zkconsumer.operate.migrate.rules.surveyverdict import Level, SurveyVerdict

    found = []
    for one in sorted(surveys, key=lambda one: (len(one.facts.partitions), one.facts.group)):
        if one.verdict is SurveyVerdict.MIGRATED:
            continue
        counts = f"{len(one.facts.members)} members, {len(one.facts.partitions)} partitions"
        blockers = "; ".join(finding.text for finding in one.findings if finding.level is Level.BLOCKER)
        note = f"{one.verdict.value}, {counts}{f': {blockers}' if blockers else ''}"
        found.append(FoundGroup(one.facts.group, note, one.verdict is not SurveyVerdict.NOT_READY))
    return found


@fleet.command("status")
@_fleet_options
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a line of CSV for each group.")
def status_command(chosen: _Chosen, as_json: bool, as_csv: bool) -> None:
    """Show how far each group has come, and the totals.

    A group is not started, planned, written (its offsets are in Kafka), consumed (new consumers have continued there),
    mirrored, done (and its znodes are deleted), came back, gone wrong (why), or unknown. The exit code is 3 if a group
    has gone wrong.
    """
    from zkconsumer.operate.migrate.rules.fleetstate import FleetState

    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    with progress("reading"):
        rows = _rows(chosen)
    if as_json:
        click.echo(json.dumps(status_document(rows)))
    elif as_csv:
        click.echo(status_csv(rows), nl=False)
    else:
        echo_lines(status_lines(rows))
    if any(row.state is FleetState.WRONG for row in rows):
        raise click.exceptions.Exit(EXIT_PROBLEM)


def _rows(chosen: _Chosen) -> list[FleetRow]:
    from zkconsumer.operate.migrate.fleetstatus import read_status

    rows: list[FleetRow] = []
    for jobs in chosen.jobs(required=False).values():
        with connected(chosen.connection_of(jobs[0].fleet)) as (session, cluster):
            rows += read_status(session, cluster, jobs)
    return rows


def fleet_document(connection: ToolConnection, directory: Path) -> dict[str, Any]:
    """The document of ``fleet status``, for the page of ``serve``, whose servers need not be those of the fleet.

    Args:
        connection: whose properties apply.
        directory: of the fleet.

    Raises:
        ZkConsumerError: a file has faults, or ZooKeeper cannot be read.
        OSError: a file cannot be read.
    """
    of_files = dataclasses.replace(connection, zookeeper=None, bootstrap_servers=None, config_file=None)
    return status_document(_rows(_Chosen(of_files, directory, None, (), (), 1)))


@fleet.command("plan")
@_fleet_options
@json_option
def plan_command(chosen: _Chosen, as_json: bool) -> None:
    """Plan the migration of the groups of a wave, into DIR/CLUSTER/GROUP/plan.json; nothing else is written.

    A plan that was not run is replaced. The exit code is 3 if a guard of a group does not hold, such as that no member
    is registered; `fleet run` checks all of them again.
    """
    from zkconsumer.operate.migrate.fleet import plan_step

    then = chosen.command("run", "--execute")
    _report("planned", chosen.each(plan_step, "planning"), as_json=as_json, then=then)


@fleet.command("run")
@_fleet_options
@EXECUTE
@LONG_HOLD
@click.option("--any-time", is_flag=True, help="Also outside the windows of the groups.")
@json_option
def run_command(chosen: _Chosen, execute: bool, long_hold: bool, any_time: bool, as_json: bool) -> None:
    """Write what the plans of a wave have, as `migrate run` does for one.

    A group that a guard refuses is reported, and the others are written. If it fails or is killed, the same command
    resumes each group.
    """
    from zkconsumer.operate.migrate.fleet import run_step

    _require_execute(chosen, execute, "run")
    step = run_step(lambda: datetime.now(UTC), long_hold=long_hold, any_time=any_time)
    _report("written", chosen.each(step, "writing"), as_json=as_json, then=chosen.command("verify"))


@fleet.command("verify")
@_fleet_options
@json_option
def verify_command(chosen: _Chosen, as_json: bool) -> None:
    """Compare both stores with the plans of a wave; the exit code is 3 unless all offsets are equal."""
    from zkconsumer.operate.migrate.fleet import verify_step

    _report("equal", chosen.each(verify_step, "reading"), as_json=as_json)


@fleet.command("rollback")
@_fleet_options
@EXECUTE
@LONG_HOLD
@json_option
def rollback_command(chosen: _Chosen, execute: bool, long_hold: bool, as_json: bool) -> None:
    """Write the offsets back that Kafka had before a wave was run, of groups that no new consumer has continued."""
    from zkconsumer.operate.migrate.fleet import rollback_step

    _require_execute(chosen, execute, "rollback")
    _report("rolled back", chosen.each(rollback_step(long_hold=long_hold), "writing"), as_json=as_json)


@fleet.command("reverse")
@_fleet_options
@EXECUTE
@LONG_HOLD
@json_option
def reverse_command(chosen: _Chosen, execute: bool, long_hold: bool, as_json: bool) -> None:
    """Take the groups of a wave back to ZooKeeper, from where their consumers in Kafka are; stop these first.

    Without --execute the ways back are planned, into DIR/CLUSTER/GROUP/back.json.
    """
    from zkconsumer.operate.migrate.fleet import reverse_step

    step = reverse_step(execute=execute, long_hold=long_hold)
    _report("written back" if execute else "planned", chosen.each(step, "writing", reversed_=True), as_json=as_json)


@fleet.command("mirror")
@_fleet_options
@duration_option("--for", "7d", "How long to copy.", argument="duration")
@duration_option("--interval", "60s", "Between copies.")
@EXECUTE
@LONG_HOLD
@json_option
def mirror_command(
    chosen: _Chosen, duration: float, interval: float, execute: bool, long_hold: bool, as_json: bool
) -> None:
    """Copy the offsets of the groups of a wave back to their znodes, at every interval, in one process.

    A group whose members have returned to ZooKeeper is not copied any more; the exit code is 3 then. SIGTERM and Ctrl-C
    end the mirror with 0, or with 1 if the last copy of a group failed. With --json there is a document for each round,
    on a line of its own.
    """
    from zkconsumer.operate.migrate.fleetmirror import mirror_step, run_fleet_mirror

    _require_execute(chosen, execute, "mirror")
    by_cluster = chosen.jobs()
    parts: list[Part] = [
        (functools.partial(connected, chosen.connection_of(jobs[0].fleet)), jobs) for jobs in by_cluster.values()
    ]
    reported: set[tuple[str, ...]] = set()

    def show(outcomes: Sequence[GroupOutcome]) -> None:
        if as_json:
            click.echo(json.dumps(outcome_document(outcomes)))
        else:
            copied = sum(outcome.offsets for outcome in outcomes)
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            click.echo(f"{stamp} {copied} offsets of {len(outcomes)} groups copied")
        for outcome in outcomes:
            if outcome.reasons and (key := (*outcome[:2], *outcome.reasons)) not in reported:
                reported.add(key)
                warn(f"{outcome.group}: {reason}" for reason in outcome.reasons)

    ending = Ending()
    try:
        with ending.by_signals(), mirror_step([job for _, jobs in parts for job in jobs], long_hold=long_hold) as step:
            faults = run_fleet_mirror(
                parts,
                step,
                duration=duration,
                interval=interval,
                workers=chosen.workers,
                pause=ending.sleep,
                show=show,
            )
    except WriteRefused as refused:
        refuse(refused.reasons)
    if faults:
        _exit(faults.values())


def _require_execute(chosen: _Chosen, execute: bool, verb: str) -> None:
    """Without ``--execute``, show what the command is about and end it."""
    if execute:
        return
    for cluster, jobs in chosen.jobs().items():
        for job in jobs:
            click.echo(escaped(f"{cluster} {job.group.group} to {job.group.target}"))
    click.echo(f"dry run: nothing was written; give --execute to {verb} these groups", err=True)
    raise click.exceptions.Exit(0)


def _report(verb: str, outcomes: Sequence[GroupOutcome], *, as_json: bool, then: str = "") -> None:
    """Print what became of each group, and what to do next, and end with the code of the worst."""
    if as_json:
        click.echo(json.dumps(outcome_document(outcomes)))
    else:
        for outcome in outcomes:
            name = f"{outcome.cluster} {outcome.group}"
            if outcome.outcome == "done":
                click.echo(escaped(f"{name}: {verb}, {outcome.offsets} offsets"))
            for reason in outcome.reasons:
                click.echo(escaped(f"{name}: {outcome.outcome}: {reason}"), err=True)
            warn(f"{name}: {warning}" for warning in outcome.warnings)
        counts = Counter(outcome.outcome for outcome in outcomes)
        totals = ", ".join(f"{counts[kind]} {kind}" for kind in ("refused", "failed") if counts[kind])
        click.echo(f"{counts['done']} of {len(outcomes)} groups {verb}{f', {totals}' if totals else ''}")
    if any(outcome.outcome != "done" for outcome in outcomes):
        _exit(outcomes)
    if then and not as_json:
        click.echo(escaped(f"next: {then}"), err=True)


def _exit(outcomes: Iterable[GroupOutcome]) -> NoReturn:
    has_failed = any(outcome.outcome == "failed" for outcome in outcomes)
    raise click.exceptions.Exit(EXIT_FAILED if has_failed else EXIT_PROBLEM)
