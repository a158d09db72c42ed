"""What commands that write have in common: their options, the table of a dry run, and how a write ends."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from zkconsumer.cli.connection import Command, ToolConnection, bootstrap_option, tool_options, tool_session
from zkconsumer.cli.garbagecollection import rare_collections
from zkconsumer.cli.groupoptions import json_option
from zkconsumer.cli.main import EXIT_FAILED, EXIT_PROBLEM
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import escaped
from zkconsumer.cli.unreadoutput import execute_option
from zkconsumer.errors import WriteRefused, ZkConsumerError

if TYPE_CHECKING:
    from zkconsumer.operate.offsets.groupstores import Cluster, Store
    from zkconsumer.operate.offsets.writeplan import GroupPlan, WritePlan
    from zkconsumer.operate.offsets.writereport import WriteReport
    from zkconsumer.zookeeper.session import ZkSession

LONG_HOLD = click.option(
    "--long-hold",
    is_flag=True,
    help="Allow the hold, during which no member can own a partition, to last longer than 4 s.",
)
STORE = click.option(
    "--store",
    type=click.Choice(["zookeeper", "kafka", "both"]),
    help="Where offsets are written.  [default: where the group has them]",
)


@dataclass(frozen=True, slots=True)
class Writing:
    """The options that all commands that write have.

    Attributes:
        connection: the cluster.
        execute: write; otherwise only show what would be written.
        snapshot: new file for what is changed; None for a name in the current directory.
        long_hold: keep members from owning partitions for longer than 4 s if necessary.
        as_json: print one JSON document.
        force_live: write although members are registered in ZooKeeper.
    """

    connection: ToolConnection
    execute: bool
    snapshot: Path | None
    long_hold: bool
    as_json: bool
    force_live: bool = False

    def store(self, given: Store | None) -> Store | None:
        """The store that is named; Kafka where no ZooKeeper is.

        Raises:
            click.UsageError: ZooKeeper is to be written, and none is named.
        """
        if self.connection.broker_config() is None:
            return given
        if given in ("zookeeper", "both"):
            raise click.UsageError(f"--store {given}: no ZooKeeper is named; give --zookeeper")
        return "kafka"


def _as_it_is(command: Command) -> Command:
    return command


def writing_options(
    function: Callable[..., None], *, brokers: Callable[[Command], Command] = bootstrap_option, live: bool = True
) -> Callable[..., None]:
    """Add the options of :class:`Writing`, which comes as the first argument.

    Args:
        function: the command.
        brokers: as in ``tool_options``.
        live: False for a command that writes no group with members, whatever is forced.
    """
    force_live: Callable[[Command], Command] = click.option(
        "--force-live",
        is_flag=True,
        help="Write although members are registered in ZooKeeper; their next commit overwrites the offsets. Has no "
        "effect on offsets in Kafka, which brokers refuse while a group has members.",
    )
    if not live:
        force_live = _as_it_is

    @functools.partial(tool_options, brokers=brokers)
    @execute_option()
    @click.option(
        "--snapshot",
        type=click.Path(dir_okay=False, path_type=Path),
        help="New file for what is changed.  [default: a name in the current directory]",
    )
    @LONG_HOLD
    @force_live
    @json_option
    @functools.wraps(function)
    def command(connection: ToolConnection, **options: Any) -> None:
        common = {field.name: options.pop(field.name) for field in fields(Writing) if field.name in options}
        with rare_collections():
            function(Writing(connection, **common), **options)

    return command


@contextmanager
def connected(connection: ToolConnection) -> Iterator[tuple[ZkSession, Cluster]]:
    """An open session, and the brokers; raises as :func:`~zkconsumer.cli.connection.tool_session`."""
    from zkconsumer.operate.offsets.groupstores import Cluster

    config = connection.config()
    with tool_session(config) as session, closing(Cluster.of(session, config)) as cluster:
        yield session, cluster


@contextmanager
def connected_to_stores(connection: ToolConnection) -> Iterator[tuple[ZkSession, Cluster]]:
    """As :func:`connected`; brokers alone with --bootstrap-server alone.

    The session is an :class:`~zkconsumer.zookeeper.absentzookeeper.AbsentZooKeeper` then.
    """
    of_brokers = connection.broker_config()
    if of_brokers is None:
        with connected(connection) as both:
            yield both
        return
    from zkconsumer.operate.offsets.groupstores import Cluster
    from zkconsumer.zookeeper.absentzookeeper import AbsentZooKeeper

    session = AbsentZooKeeper(of_brokers.bootstrap_servers or "")
    with closing(Cluster.of(session, of_brokers)) as cluster:
        yield session, cluster


def parse_topics(texts: Iterable[str]) -> dict[str, tuple[int, ...] | None]:
    """Topic to its partitions, None for all of them, from texts TOPIC[:0,1,2].

    Raises:
        click.UsageError: another form, or a topic is given twice.
    """
    topics: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        parts = numbers.split(",") if colon else []
        if not topic or topic in topics or not all(n.isascii() and n.isdigit() for n in parts):
            raise click.UsageError(f"--topic {text}: write it as TOPIC or TOPIC:0,1,2, each topic once")
        topics[topic] = tuple(map(int, parts)) if colon else None
    return topics


def run(
    options: Writing,
    make: Callable[[ZkSession, Cluster], WritePlan],
    *,
    done: Iterable[str] = (),
    connect: Callable[..., AbstractContextManager[tuple[ZkSession, Cluster]]] = connected,
    write: Callable[..., WriteReport] | None = None,
) -> None:
    """Plan, show the plan, and write it with ``--execute``.

    Args:
        options: of the command.
        make: makes the plan.
        done: lines to print when all is written; not with ``--json``.
        connect: opens the session, as :func:`connected`.
        write: executes the plan; None for :func:`~zkconsumer.operate.offsets.offsetwrites.execute`, whose arguments it
            has.

    Raises:
        click.exceptions.Exit: with 3 if a guard refuses, or something was not written, with 1 if a write failed.
    """
    from zkconsumer.operate.offsets.offsetfiles import FileRefused

    with connect(options.connection) as (session, cluster):
        try:
            with progress("reading"):
                plan = make(session, cluster)
        except FileRefused as refused:
            refuse(refused.reasons)
        except WriteRefused as refused:
            refuse(options.connection.completed(refused.reasons))
        if not options.as_json:
            click.echo("\n".join(plan_lines(plan)))
        for warning in plan.warnings:
            click.echo(escaped(f"warning: {warning}"), err=True)
        is_to_write = options.execute and not plan.refusals
        report = _execute(options, session, cluster, plan, write) if is_to_write else None
    if options.as_json:
        click.echo(json.dumps(plan_document(plan, report)))
    if plan.refusals:
        refuse(plan.refusals)
    if report is None:
        click.echo("dry run: nothing was written; give --execute to write", err=True)
        return
    show_end(plan, report, () if options.as_json else done, options.connection)


def _execute(
    options: Writing, session: ZkSession, cluster: Cluster, plan: WritePlan, write: Callable[..., WriteReport] | None
) -> WriteReport:
    from zkconsumer.operate.offsets.offsetwrites import execute
    from zkconsumer.operate.offsets.snapshot import SnapshotFile, default_path

    file = SnapshotFile(options.snapshot or default_path(plan.command))
    try:
        with progress("writing") as advance:
            return (write or execute)(
                session,
                cluster,
                plan,
                file,
                long_hold=options.long_hold,
                announce=lambda written: click.echo(escaped(f"snapshot: {written.absolute()}"), err=True),
                advance=advance,
            )
    except ZkConsumerError as error:
        click.echo("nothing was written", err=True)
        if not isinstance(error, WriteRefused):
            raise
        refuse(error.reasons)


def refuse(reasons: Iterable[str]) -> NoReturn:
    """Print why a command is refused, and end it."""
    for reason in reasons:
        click.echo(escaped(f"refused: {reason}"), err=True)
    raise click.exceptions.Exit(EXIT_PROBLEM)


def show_end(plan: WritePlan, report: WriteReport, done: Iterable[str], connection: ToolConnection) -> None:
    """Print what became of a write.

    Args:
        plan: what was to be written.
        report: of the write.
        done: lines to print if all is written.
        connection: the servers, for the command that undoes it.

    Raises:
        click.exceptions.Exit: with 1 if there is a fault, with 3 if something was not written all the same, such as
            what live members use.
    """
    for warning in report.warnings:
        click.echo(escaped(f"warning: {warning}"), err=True)
    restore = connection.complete(shlex.join(["zkconsumer", "offsets", "restore", str(report.snapshot), "--execute"]))
    is_of_migration = plan.snapshot is not None and plan.snapshot.plan is not None  # `offsets restore` refuses the file
    if report.is_complete:
        end = "written" if is_of_migration else f"written; `{restore}` undoes it"
        for line in done:
            click.echo(escaped(line))
        click.echo(escaped(end) if report.written else "nothing had to be written", err=True)
        return
    for fault in report.faults:
        click.echo(escaped(f"error: {fault}"), err=True)
    lists = [("written", report.written), ("not written", report.not_written)]
    if report.unknown:
        lists.append(("unknown whether written", report.unknown))
    for heading, names in lists:
        click.echo(escaped(f"{heading}: {', '.join(names) or 'nothing'}"), err=True)
    if is_of_migration:
        click.echo(escaped(f"what was written stays: {plan.resume}"), err=True)
    elif not report.is_void:
        click.echo(escaped(f"`{restore}` undoes what was written, with --complete it completes it"), err=True)
    raise click.exceptions.Exit(EXIT_FAILED if report.faults else EXIT_PROBLEM)


# -- the table --------------------------------------------------------------------------------------------------------


def plan_lines(plan: WritePlan) -> Iterator[str]:
    """The table that ``--reset-offsets`` prints, with columns of ours after the JVM tool's, and sums.

    A group that stays as it is, and of which no offset is shown, has a warning instead.
    """
    from zkconsumer.operate.offsets.rules.offsetmoves import sums

    shown = [group for group in plan.groups if group.rows or not group.is_empty]
    for group in shown:
        yield "" if plan.names_its_group else escaped(f"\nGROUP {group.change.group}").replace("\\n", "\n", 1)
        yield from _group_lines(group)
    total = sums(row for group in plan.groups for row in group.rows)
    unknown = f", unknown for {total.unknown} partitions" if total.unknown else ""
    yield f"\n{_changes(plan)}; {total.skipped} records skipped, {total.replayed} replayed{unknown}"


def _changes(plan: WritePlan) -> str:
    changed = [group.change for group in plan.groups]
    counts = {
        "znodes": sum(len(change.nodes) for change in changed),
        "offsets in Kafka": sum(len(change.kafka) for change in changed),
        "files": sum(group.file is not None for group in plan.groups),
    }
    return f"to write: {', '.join(f'{count} {what}' for what, count in counts.items() if count) or 'nothing'}"


def _group_lines(group: GroupPlan) -> Iterator[str]:
    heading = ("NEW-OFFSET", "OLD-OFFSET", "LOG-START", "LOG-END", "SKIPPED", "REPLAYED", "NOTE")
    yield from partition_table(
        heading,
        (
            (row.partition, row.new, row.old, *(row.log or (None, None)), row.skipped, row.replayed, escaped(row.note))
            for row in group.rows
        ),
    )


def partition_table(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of a table whose rows begin with a partition; None is shown as ``-``.

    The first columns are as wide as those of the JVM tool's ``--reset-offsets``.
    """
    line = "{:<30} {:<10}" + " {:<15}" * len(heading)
    yield line.format("TOPIC", "PARTITION", *heading).rstrip()
    for partition, *cells in rows:
        shown = ["-" if cell is None else str(cell) for cell in cells]
        yield line.format(escaped(partition.topic), partition.partition, *shown).rstrip()


def plan_document(plan: WritePlan, report: WriteReport | None) -> dict[str, Any]:
    """The plan, and what became of it, for ``--json``."""
    return {
        "command": plan.command,
        "executed": report is not None,
        "snapshot": None if report is None or report.snapshot is None else str(report.snapshot.absolute()),
        "groups": [
            {
                "group": group.change.group,
                "changes": [change.path for change in group.change.nodes],
                "partitions": [
                    {
                        "topic": row.partition.topic,
                        "partition": row.partition.partition,
                        "old_offset": row.old,
                        "new_offset": row.new,
                        "log_start": None if row.log is None else row.log.start,
                        "log_end": None if row.log is None else row.log.end,
                        "skipped": row.skipped,
                        "replayed": row.replayed,
                        "note": row.note,
                    }
                    for row in group.rows
                ],
            }
            for group in plan.groups
        ],
        "refusals": list(plan.refusals),
        "warnings": [*plan.warnings, *([] if report is None else report.warnings)],
        "faults": [] if report is None else report.faults,
        "written": [] if report is None else report.written,
        "not_written": [] if report is None else report.not_written,
        "unknown": [] if report is None else report.unknown,
    }
