"""``zkconsumer migrate fleet``: the migration of many groups, from one file for each cluster."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.ending import Ending
from zkconsumer.cli.fleettables import (
    echo_lines_of,
    outcome_document,
    outcome_totals,
    status_csv,
    status_document,
    status_lines,
)
from zkconsumer.cli.groupoptions import echo_lines, echo_next, end_reading, json_option, match_option, warn
from zkconsumer.cli.main import EXIT_FAILED, EXIT_PROBLEM
from zkconsumer.cli.migrateback import remove_from_kafka
from zkconsumer.cli.migrateconfig import literal
from zkconsumer.cli.migratefleetgroups import DIRECTORY, ChosenGroups, fleet_options
from zkconsumer.cli.migrationoptions import COPY_FOR, COPY_INTERVAL, EXECUTE, MISSING, REWIND
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import escaped
from zkconsumer.cli.unreadoutput import need_no_reader
from zkconsumer.cli.writing import LONG_HOLD, connected
from zkconsumer.errors import ZkConsumerError

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.fleet import GroupOutcome
    from zkconsumer.operate.migrate.fleetmirror import Part
    from zkconsumer.operate.migrate.fleetstatus import FleetRow
    from zkconsumer.operate.migrate.fleetsteps import Step
    from zkconsumer.operate.migrate.rules.fleetfacts import Verb
    from zkconsumer.operate.migrate.rules.fleetfile import FleetGroup
    from zkconsumer.operate.migrate.rules.fleetnext import NextStep


@click.group()
def fleet() -> None:
    """Move many groups from ZooKeeper to Kafka, wave by wave, from one file for each cluster."""


@fleet.command("init")
@DIRECTORY
@tool_options
@match_option
@click.option(
    "--name",
    metavar="NAME",
    help="Of the cluster, and of its file.  [default: that of the file in DIR with this ZooKeeper, else cluster]",
)
@click.option(
    "--wave-size", type=click.IntRange(0), default=0, metavar="N", help="Groups in a wave.  [default: one wave of all]"
)
def init_command(
    connection: ToolConnection, directory: Path, pattern: str | None, name: str | None, wave_size: int
) -> None:
    """Write DIR/NAME.toml with the groups of a cluster, from what is found; edit it, and keep it in git.

    Groups that `migrate survey` reports as not ready, and those whose offsets are all in Kafka, are put into wave 0,
    with the reason in a comment; commands act on them only if --group names them. Waves have the groups with the fewest
    partitions first. Groups that were migrated are skipped. If the file exists, groups that it does not have are
    appended, in waves after the last one of the file; what it has stays. Groups that another file of DIR has of the
    same ZooKeeper are skipped. If groups cannot be read, the others are
    written, and the exit code is 3; the same command appends them later.
    """
    from zkconsumer.operate.groups.grouplist import matching_groups
    from zkconsumer.operate.groups.observedgroup import unread_groups
    from zkconsumer.operate.migrate.fleetfiles import name_of_cluster
    from zkconsumer.operate.migrate.rules.fleetfile import format_fleet, format_groups, parse_fleet
    from zkconsumer.operate.migrate.rules.fleetfound import found_groups
    from zkconsumer.operate.migrate.rules.surveyverdict import survey
    from zkconsumer.operate.migrate.survey import read_survey_facts
    from zkconsumer.operate.offsets.wholefiles import write_whole

    need_no_reader()
    if name is not None and Path(name).name != name:
        raise click.UsageError(f"--name {name}: it becomes the name of a file in {directory}")
    config = connection.config()
    name, elsewhere = name_of_cluster(directory, config.zookeeper_connect or "", name)
    file = directory / f"{name}.toml"

    def read_present() -> tuple[bytes | None, dict[str, FleetGroup]]:
        content = file.read_bytes() if file.exists() else None
        return content, {one.group: one for one in (() if content is None else parse_fleet(name, content).groups)}

    _, known = read_present()
    failures: dict[str, ZkConsumerError] = {}
    with tool_session(config) as session, progress("reading"):
        names = [group for group in matching_groups(session, pattern) if group not in {*known, *elsewhere}]
        facts = read_survey_facts(session, config, names, failures=failures)
    directory.mkdir(parents=True, exist_ok=True)
    # The survey takes minutes, in which another command, or an editor, may have written the file.
    content, known = read_present()
    found = [one for one in found_groups(map(survey, facts)) if one.group not in known]
    if content is not None:
        write_whole(file, content.decode().rstrip("\n") + "\n" + format_groups(found, wave_size, known.values()))
    else:
        cluster = {
            "zookeeper": config.zookeeper_connect or "",
            "bootstrap_servers": config.bootstrap_servers or "",
            "config": "" if connection.config_file is None else os.path.relpath(connection.config_file, directory),
        }
        write_whole(file, format_fleet(cluster, found, wave_size))
    ready = sum(group.is_ready for group in found)
    already = f" are added to {len(known)}" if known else ""
    counts = f"{len(found)} groups{already}, {ready} of them in waves; edit it, then:" if found else "no new groups"
    click.echo(escaped(f"{file}: {counts}"))
    # The file has the servers, and no other property.
    others = dataclasses.replace(connection.at(zookeeper=None, bootstrap_servers=None), config_file=None)
    echo_next("", others.complete(shlex.join(["zkconsumer", "migrate", "fleet", "status", str(directory)])))
    end_reading(unread_groups(facts, failures, ()))


@fleet.command("status")
@fleet_options
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a line of CSV for each group.")
def status_command(chosen: ChosenGroups, as_json: bool, as_csv: bool) -> None:
    """Show how far each group has come, and the totals.

    A group is not started, needs no plan (its old consumers have stored its offsets in Kafka), planned, refused (its
    plan is, and why), written (its offsets are in Kafka), consumed (new consumers have continued there), mirrored, done
    (and its znodes are deleted), rolled back, came back, gone wrong (why), or unknown. The exit code is 3 if a group
    has gone wrong or is unknown.
    """
    from zkconsumer.operate.migrate.rules.fleetfacts import FleetState
    from zkconsumer.operate.migrate.rules.fleetnext import FleetPosition, next_steps

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
        positions = [FleetPosition(row.cluster, row.group, row.judged) for row in rows]
        for step in next_steps(positions, by_wave=not chosen.groups):
            echo_next(step.to_do, _command_of(chosen, step))
    if any(row.state in (FleetState.WRONG, FleetState.UNKNOWN) for row in rows):
        raise click.exceptions.Exit(EXIT_PROBLEM)


def _command_of(chosen: ChosenGroups, step: NextStep) -> str:
    if step.verb == "delete":
        names = [word for name in step.groups for word in ("--group", name)]
        (file,) = (file for file in chosen.fleets() if file.name == step.cluster)
        words = ["zkconsumer", "groups", "delete", *names, "--store", "zookeeper"]
        return chosen.connection_of(file).complete(shlex.join(words))
    if not step.verb:
        return ""
    clusters = (step.cluster,) if step.cluster else chosen.clusters
    options = ("--execute",) if step.verb in ("run", "mirror") else ()
    return dataclasses.replace(chosen, wave=step.wave, groups=step.groups, clusters=clusters).command(
        step.verb, *options
    )


def _rows(chosen: ChosenGroups) -> list[FleetRow]:
    from zkconsumer.operate.migrate.fleetstatus import read_status, unknown_rows

    rows: list[FleetRow] = []
    for jobs in chosen.jobs(required=False).values():
        connection = chosen.connection_of(jobs[0].fleet)
        connection.config()
        try:
            with connected(connection) as (session, cluster):
                rows += [
                    row._replace(judged=row.judged._replace(reason=connection.completed([row.reason])[0]))
                    for row in read_status(session, cluster, jobs, now=datetime.now(UTC))
                ]
        except ZkConsumerError as error:
            rows += unknown_rows(jobs, str(error))
    return sorted(rows, key=lambda row: (row.cluster, row.group.wave))


def fleet_document(connection: ToolConnection, directory: Path) -> dict[str, Any]:
    """The document of ``fleet status``, for the page of ``serve``, whose servers need not be those of the fleet.

    Args:
        connection: whose properties apply.
        directory: of the fleet.

    Raises:
        ZkConsumerError: a file has faults.
        OSError: a file cannot be read.
    """
    of_files = dataclasses.replace(connection.at(zookeeper=None, bootstrap_servers=None), config_file=None)
    return status_document(_rows(ChosenGroups(of_files, directory, None, (), (), 1)))


@fleet.command("plan")
@fleet_options
@json_option
def plan_command(chosen: ChosenGroups, as_json: bool) -> None:
    """Plan the migration of the groups of a wave, into DIR/CLUSTER/GROUP/plan.json; nothing else is written.

    A plan that was not run is replaced, and so is one that was rolled back or reversed, or whose group has gone wrong
    since; its files are kept beside it as GROUP.earlier-N. Groups that were migrated are skipped. The exit code is 3 if
    a guard of a group does not hold, such as that no member is registered; `fleet run` checks all of them again.
    """
    from zkconsumer.operate.migrate.fleetsteps import plan_step

    need_no_reader()
    _do(chosen, "plan", plan_step, "planned", as_json=as_json, then=("", chosen.command("run", "--execute")))


@fleet.command("run")
@fleet_options
@EXECUTE
@LONG_HOLD
@click.option("--any-time", is_flag=True, help="Also outside the windows of the groups.")
@json_option
def run_command(chosen: ChosenGroups, execute: bool, long_hold: bool, any_time: bool, as_json: bool) -> None:
    """Execute the plans of a wave, as `migrate run` does for one.

    A group that a guard refuses is reported, and the others are written. Groups that are written already, or that
    consumers have continued in Kafka, are skipped; one that was rolled back needs a new plan. If the command fails or
    is killed, the same command resumes each group. Without --execute every guard is checked all the same.
    """
    from zkconsumer.operate.migrate.fleetsteps import run_step

    step = run_step(lambda: datetime.now(UTC), execute=execute, long_hold=long_hold, any_time=any_time)
    then = "", chosen.command("verify")
    _do(chosen, "run", step, "written", as_json=as_json, then=then, execute=execute)


@fleet.command("verify")
@fleet_options
@json_option
def verify_command(chosen: ChosenGroups, as_json: bool) -> None:
    """Compare both stores with the plans of a wave.

    Groups that new consumers have continued are skipped. The exit code is 3 unless all others were run and are equal.
    """
    from zkconsumer.operate.migrate.fleetsteps import verify_step

    config = chosen.command("config")
    to_do = (
        f"start the new consumers (`{config}`), with --target java or confluent for other clients; while they run, "
        "the mirror keeps the way back short"
    )
    then = to_do, chosen.command("mirror", "--execute")
    _do(chosen, "verify", verify_step, "equal", as_json=as_json, then=then)


@fleet.command("config")
@fleet_options
@click.option(
    "--target",
    type=click.Choice(["zkconsumer", "java", "confluent"]),
    default="zkconsumer",
    show_default=True,
    help="For which consumers: ours, KafkaConsumer, or confluent-kafka (a dict of Python).",
)
@json_option
def config_command(chosen: ChosenGroups, target: str, as_json: bool) -> None:
    """Print the properties by which the new consumers of a wave join their groups; no server is asked.

    Those are the group, its protocol as in the file of the cluster, and the brokers, if the file or the command names
    them; the exit code is 3 if neither does. `migrate config` converts what else a properties file of the old consumers
    has.
    """
    from zkconsumer.operate.migrate.rules.fleetfile import new_properties

    documents: list[dict[str, Any]] = []
    without_brokers: list[str] = []
    for job in (job for jobs in chosen.jobs().values() for job in jobs):
        servers = chosen.connection_of(job.fleet).known_brokers()
        if not servers:
            file = chosen.directory / f"{job.fleet.name}.toml"
            without_brokers.append(f"no brokers are known: set bootstrap_servers in {file}, or give --bootstrap-server")
        properties = new_properties(job.group, servers, "zkconsumer" if target == "zkconsumer" else "java")
        named = {"cluster": job.fleet.name, "group": job.group.group, "owner": job.group.owner}
        documents.append({**named, "properties": properties})
    if as_json:
        click.echo(json.dumps(documents))
    for document in documents if not as_json else ():
        owner = f", owner {document['owner']}" if document["owner"] else ""
        click.echo(escaped(f"# {document['cluster']} {document['group']}{owner}"))
        echo_lines(_property_lines(document["properties"], target))
        click.echo()
    end_reading(without_brokers)


def _property_lines(properties: Mapping[str, str], target: str) -> Iterator[str]:
    import javaproperties

    if target == "confluent":
        yield from ("{", *(f"    {literal(name)}: {literal(value)}," for name, value in properties.items()), "}")
        return
    for name, value in properties.items():
        # Readers that are not Java's take an escape for a part of the value, and a value needs none before a colon.
        yield javaproperties.join_key_value(name, value).replace("\\:", ":")


@fleet.command("rollback")
@fleet_options
@EXECUTE
@LONG_HOLD
@json_option
def rollback_command(chosen: ChosenGroups, execute: bool, long_hold: bool, as_json: bool) -> None:
    """Restore the offsets that Kafka had before a wave was run, for groups in which no new consumer has committed.

    A rollback ignores the windows of the groups. Without --execute every guard is checked all the same.
    """
    from zkconsumer.operate.migrate.fleetsteps import rollback_step

    step = rollback_step(execute=execute, long_hold=long_hold)
    _do(chosen, "rollback", step, "rolled back", as_json=as_json, then=("start the old consumers", ""), execute=execute)


@fleet.command("reverse")
@fleet_options
@EXECUTE
@LONG_HOLD
@MISSING
@REWIND
@json_option
def reverse_command(
    chosen: ChosenGroups, execute: bool, long_hold: bool, missing: Any, rewind: bool, as_json: bool
) -> None:
    """Take the groups of a wave back to ZooKeeper, from where their consumers in Kafka are; stop these first.

    Without --execute the ways back are planned, into DIR/CLUSTER/GROUP/back.json. What the file of the cluster has as
    `missing` and `rewind` is for the way to Kafka alone. A group that came back, and whose consumers have continued in
    Kafka since, is reversed again.
    """
    from zkconsumer.operate.migrate.fleetsteps import reverse_step

    need_no_reader()  # also without --execute it writes the plans
    step = reverse_step(execute=execute, long_hold=long_hold, missing=missing, rewind=rewind)
    verb = "written back" if execute else "planned"
    given = [*(() if missing == "fail" else ("--missing", missing)), *(("--rewind",) if rewind else ())]
    then = ("start the old consumers", "") if execute else ("", chosen.command("reverse", *given, "--execute"))
    hints = functools.partial(_left_in_kafka, chosen) if execute else _no_hints
    _do(chosen, "reverse", step, verb, as_json=as_json, then=then, reversed_=True, hints=hints)


def _no_hints(_: Iterable[GroupOutcome]) -> Iterable[tuple[str, str]]:
    return ()


def _left_in_kafka(chosen: ChosenGroups, outcomes: Iterable[GroupOutcome]) -> Iterator[tuple[str, str]]:
    done = {outcome[:2] for outcome in outcomes if outcome.outcome == "done"}
    for jobs in chosen.jobs().values():
        own = [one.group.group for one in jobs if one.name in done and one.group.target.group == one.group.group]
        if own:
            yield remove_from_kafka(own, chosen.connection_of(jobs[0].fleet))


@fleet.command("mirror")
@fleet_options
@COPY_FOR
@COPY_INTERVAL
@EXECUTE
@LONG_HOLD
@REWIND
@json_option
def mirror_command(
    chosen: ChosenGroups,
    duration: float,
    interval: float,
    execute: bool,
    long_hold: bool,
    rewind: bool,
    as_json: bool,
) -> None:
    """Copy the offsets of the groups of a wave back to their znodes, at every interval, in one process.

    A group whose members have returned to ZooKeeper is not copied any more; the exit code is 3 then. SIGTERM and Ctrl-C
    end the mirror with 0, or with 1 if the last copy of a group failed. With --json there is a document for each round,
    on a line of its own.
    """
    from zkconsumer.operate.migrate.fleetmirror import FleetMirror, due_step, run_fleet_mirror

    if not execute:
        _do(chosen, "mirror", due_step(rewind=rewind), "copied", as_json=as_json, execute=False, reversed_=True)
        return
    parts, connections, others = _parts(chosen)
    reported: set[tuple[str, ...]] = set()

    def show(outcomes: Sequence[GroupOutcome]) -> None:
        if as_json:
            click.echo(json.dumps(outcome_document(outcomes)))
        else:
            copied = sum(outcome.offsets for outcome in outcomes)
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            click.echo(f"{stamp} {copied} offsets of {len(outcomes)} groups copied")
        for outcome in (chosen.pasteable(outcome, connections[outcome.cluster]) for outcome in outcomes):
            if outcome.reasons and (key := (*outcome[:2], *outcome.reasons)) not in reported:
                reported.add(key)
                warn(f"{outcome.cluster} {outcome.group}: {reason}" for reason in outcome.reasons)

    ending = Ending()
    mirror = FleetMirror([job for _, jobs in parts for job in jobs], long_hold=long_hold, rewind=rewind)
    with ending.by_signals(), closing(mirror):
        faults = run_fleet_mirror(
            parts, mirror, duration=duration, interval=interval, workers=chosen.workers, pause=ending.sleep, show=show
        )
    if faults or others:
        _exit([*faults.values(), *others])


def _parts(chosen: ChosenGroups) -> tuple[list[Part], dict[str, ToolConnection], list[GroupOutcome]]:
    """The groups that a mirror copies, how their clusters are reached, and those groups that it refuses."""
    from zkconsumer.operate.migrate.fleet import to_begin

    parts: list[Part] = []
    connections: dict[str, ToolConnection] = {}
    others: list[GroupOutcome] = []
    for cluster, jobs in chosen.jobs().items():
        connections[cluster] = chosen.connection_of(jobs[0].fleet)
        connect = functools.partial(connected, connections[cluster])
        try:
            left, not_begun = to_begin(jobs, connect, "mirror")
        except ZkConsumerError:  # the copies report it, and ask again
            left, not_begun = list(jobs), []
        parts.append((connect, left))
        others += [chosen.pasteable(outcome, connections[cluster]) for outcome in not_begun]
    warn(f"{other.cluster} {other.group}: {other.outcome}: {'; '.join(other.reasons)}" for other in others)
    return parts, connections, [outcome for outcome in others if outcome.outcome == "refused"]


def _do(
    chosen: ChosenGroups,
    verb: Verb,
    step: Step,
    done: str,
    *,
    as_json: bool,
    then: tuple[str, str] | None = None,
    execute: bool | None = None,
    reversed_: bool = False,
    hints: Callable[[Iterable[GroupOutcome]], Iterable[tuple[str, str]]] = _no_hints,
) -> None:
    """Do a step for the groups that are meant, show what became of each, and end with the code of the worst.

    Args:
        chosen: the groups.
        verb: the command.
        step: to do.
        done: what a group is then.
        as_json: print one document.
        then: what is next, if no group is refused: what people do, and the command. Otherwise `fleet status` has what
            each group waits for.
        execute: False for a dry run; None for a command that has none.
        reversed_: the step is about the way back.
        hints: the same of the groups that are done, also if others are refused: the same command then skips those that
            are done.
    """
    done = f"would be {done}" if execute is False else done
    is_live = not (as_json or sys.stderr.isatty())  # a bar would be drawn over the lines
    show = functools.partial(echo_lines_of, done=done) if is_live else lambda _outcome: None
    outcomes = chosen.each(verb, step, _WHAT[verb], reversed_=reversed_, show=show)
    if as_json:
        click.echo(json.dumps(outcome_document(outcomes, executed=execute)))
    else:
        for outcome in () if is_live else outcomes:
            echo_lines_of(outcome, done=done)
        click.echo(outcome_totals(outcomes, done))
    is_complete = all(outcome.outcome not in ("refused", "failed") for outcome in outcomes)
    if execute is False:
        give = "; give --execute to write" if is_complete else ""
        click.echo(f"dry run: nothing was written{give}", err=True)
    elif not is_complete and not as_json:
        echo_next("", chosen.command("status"))
    elif is_complete and then and not as_json and any(outcome.outcome == "done" for outcome in outcomes):
        echo_next(*then)
    for hint in () if as_json else hints(outcomes):
        echo_next(*hint)
    if not is_complete:
        _exit(outcomes)


_WHAT: Final[dict[Verb, str]] = {
    "plan": "planning",
    "run": "writing",
    "verify": "reading",
    "rollback": "writing",
    "reverse": "writing",
    "mirror": "reading",
}


def _exit(outcomes: Iterable[GroupOutcome]) -> NoReturn:
    has_failed = any(outcome.outcome == "failed" for outcome in outcomes)
    raise click.exceptions.Exit(EXIT_FAILED if has_failed else EXIT_PROBLEM)
