"""``zkconsumer offsets``: export, import, restore, reset and copy the offsets of groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.groupoptions import end_reading, warn
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import escaped
from zkconsumer.cli.writing import STORE, Writing, connected_to_stores, parse_topics, refuse, run, writing_options

if TYPE_CHECKING:
    from zkconsumer.operate.offsets.groupstores import Cluster
    from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec
    from zkconsumer.operate.offsets.writeplan import WritePlan
    from zkconsumer.zookeeper.session import ZkSession

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SPECS = ("to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "to_datetime", "by_duration", "from_file")


@click.group()
def offsets() -> None:
    """Export, import and move the offsets of groups."""


@offsets.command("export")
@tool_options
@click.option("--group", "groups", multiple=True, help="Name of a group; repeatable.  [default: all groups]")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["zk", "csv", "json"]),
    help="zk: as ExportZkOffsets; csv: as --reset-offsets --export; json: an object for each line.  [default: zk; json "
    "for offsets that Kafka stores]",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="File.  [default: standard output]")
def export(
    connection: ToolConnection, groups: tuple[str, ...], kind: Literal["zk", "csv", "json"] | None, output: Path | None
) -> None:
    """Write the offsets that ZooKeeper stores to a file; with --bootstrap-server alone those that Kafka stores.

    The rows of `csv` have the group as their first column unless exactly one group is given. What cannot be exported
    (groups and znodes that may not be read, offsets that were stored for an earlier topic of the same name, names that
    the format cannot express) is reported, and the exit code is 3.
    """
    from zkconsumer.operate.offsets.offsetexport import export_broker_offsets, export_offsets
    from zkconsumer.operate.offsets.offsetfiles import format_offsets
    from zkconsumer.operate.offsets.wholefiles import write_output

    of_brokers = connection.broker_config()
    if of_brokers is not None:
        with progress("reading"):
            exported = export_broker_offsets(of_brokers, groups)
    else:
        config = connection.config()
        with tool_session(config) as session, progress("reading") as advance:
            exported = export_offsets(session, config, groups, advance=advance)
    problems = [*exported.problems]
    kind = kind or ("zk" if of_brokers is None else "json")  # zk has paths of znodes
    text = format_offsets(exported.offsets, kind, with_group=len(set(groups)) != 1, skipped=problems)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output(output, text)
    warn(exported.warnings)
    for problem in connection.completed(problems):
        click.echo(escaped(f"not exported: {problem}"), err=True)
    end_reading((), found=bool(problems))


@offsets.command("import")
@click.argument("file", type=_FILE)
@writing_options
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="The group of a CSV file of three columns; of other files, import only this group; repeatable.",
)
@click.option("--skip-missing", is_flag=True, help="Skip lines of topics and partitions that do not exist.")
@click.option("--clamp", is_flag=True, help="Store the nearest offset that the log has for one that is outside of it.")
@STORE
def import_(writing: Writing, file: Path, groups: tuple[str, ...], skip_missing: bool, clamp: bool, store: Any) -> None:
    """Store the offsets of FILE, in any format of `offsets export`.

    The file is refused as a whole, with every fault and its line number: also for topics that do not exist and for
    offsets outside the log, unless --skip-missing and --clamp are given; then each such line is a warning. Members of
    the groups must be stopped.
    """
    from zkconsumer.operate.offsets.offsetimport import plan_import

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        from zkconsumer.operate.offsets.offsetfiles import parse_offsets

        content = parse_offsets(str(file), file.read_bytes(), *dict.fromkeys(groups))
        return plan_import(
            session,
            cluster,
            content,
            store=writing.store(store),
            live=writing.force_live,
            skip_missing=skip_missing,
            clamp=clamp,
        )

    run(writing, make, connect=connected_to_stores)


@offsets.command()
@click.argument("snapshot_file", metavar="SNAPSHOT", type=_FILE)
@writing_options
@click.option("--complete", is_flag=True, help="Write what the command did not write, instead of undoing it.")
@click.option(
    "--overwrite", is_flag=True, help="Also what other clients wrote since; delete offsets of migrated groups."
)
@click.option("--clamp", is_flag=True, help="Of an offset that its log no longer has, write the nearest one it has.")
def restore(writing: Writing, snapshot_file: Path, complete: bool, overwrite: bool, clamp: bool) -> None:
    """Undo what a command wrote, or complete it, from the snapshot that it made."""
    from zkconsumer.operate.offsets.restoreplan import plan_restore
    from zkconsumer.operate.offsets.snapshot import read_snapshot

    content = read_snapshot(snapshot_file)
    if content.plan is not None:  # its state would not be true any more
        refuse(
            [
                f"{snapshot_file} is of a migration: `zkconsumer migrate rollback PLAN` undoes what its runs wrote, "
                "and `zkconsumer migrate run PLAN` completes it"
            ]
        )

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        return plan_restore(
            session,
            cluster,
            content,
            complete=complete,
            overwrite=overwrite,
            outside="clamp" if clamp else "refuse",
            live=writing.force_live,
        )

    run(writing, make, connect=connected_to_stores)


@offsets.command()
@writing_options
@click.option("--group", required=True, help="Name of the group.")
@click.option("--all-topics", is_flag=True, help="All topics that the group has offsets of or ever owned.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1,2]", help="A topic, or some partitions of it.")
@click.option("--to-earliest", is_flag=True, help="The log start.")
@click.option("--to-latest", is_flag=True, help="The log end.")
@click.option("--to-current", is_flag=True, help="The committed offset; the log end where there is none.")
@click.option("--to-offset", type=int, metavar="N", help="This offset, or the nearest one that the log has.")
@click.option("--shift-by", type=int, metavar="N", help="N records forward, or backward if N is negative.")
@click.option("--to-datetime", metavar="TS", help="The first record from then on, as 2017-06-01T12:00:00.000 (UTC).")
@click.option(
    "--by-duration", metavar="PnDTnHnMnS", help="The first record of this period before now, for example PT6H."
)
@click.option("--from-file", type=_FILE, help="Offsets of a file, as --export of the JVM tool writes it.")
@click.option("--approximate", is_flag=True, help="Accept offsets by time from brokers before 0.10.1.")
@click.option("--create", is_flag=True, help="Create the group if it does not exist.")
@STORE
def reset(
    writing: Writing,
    group: str,
    all_topics: bool,
    topics: tuple[str, ...],
    approximate: bool,
    create: bool,
    store: Any,
    **options: Any,
) -> None:
    """Move the offsets of a group (KIP-122). Its members must be stopped.

    With --bootstrap-server alone it is a group that brokers coordinate, as for export, import, restore and copy.
    """
    from zkconsumer.operate.offsets.resetplan import plan_reset

    # By identity: offset 0 equals False.
    given = [name for name in _SPECS if options[name] is not None and options[name] is not False]
    if len(given) != 1:
        raise click.UsageError(f"give exactly one of {', '.join(_option(name) for name in _SPECS)}")
    if given == ["from_file"]:
        if all_topics or topics:
            raise click.UsageError("--from-file names the partitions; omit --all-topics and --topic")
    elif all_topics == bool(topics):
        raise click.UsageError("give either --all-topics or --topic")
    wanted = parse_topics(topics) if topics else None
    spec = _spec(given[0], options[given[0]], group)

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        return plan_reset(
            session,
            cluster,
            group,
            wanted,
            spec,
            store=writing.store(store),
            live=writing.force_live,
            approximate=approximate,
            create=create,
        )

    run(writing, make, connect=connected_to_stores)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _spec(name: str, value: Any, group: str) -> ResetSpec:
    import time

    from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec, parse_datetime, time_before

    try:
        match name:
            case "to_earliest":
                return ResetSpec("earliest")
            case "to_latest":
                return ResetSpec("latest")
            case "to_current":
                return ResetSpec("current")
            case "to_offset":
                return ResetSpec("offset", value)
            case "shift_by":
                return ResetSpec("shift", value)
            case "to_datetime":
                return ResetSpec("time", parse_datetime(value))
            case "by_duration":
                return ResetSpec("time", time_before(int(time.time() * 1000), value))
    except ValueError as error:
        raise click.UsageError(f"{_option(name)}: {error}") from None
    return ResetSpec("file", offsets=_offsets_of_file(value, group))


def _offsets_of_file(file: Path, group: str) -> dict[Any, int]:
    from zkconsumer.operate.offsets.offsetfiles import FileRefused, parse_offsets

    try:
        content = parse_offsets(str(file), file.read_bytes(), group)
    except FileRefused as refused:
        refuse(refused.reasons)
    return {row.partition: row.offset for row in content.offsets}


@offsets.command("copy")
@writing_options
@click.option("--from-group", "source", required=True, help="Group whose offsets are read; it may be running.")
@click.option("--to-group", "destination", required=True, help="Group whose offsets are written.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1,2]", help="A topic, or some partitions of it.")
@STORE
def copy(writing: Writing, source: str, destination: str, topics: tuple[str, ...], store: Any) -> None:
    """Copy one group's offsets in ZooKeeper to another group, whose members must be stopped.

    With --bootstrap-server alone, brokers coordinate both groups, and the offsets are in Kafka.
    """
    from zkconsumer.operate.offsets.offsetimport import plan_copy

    wanted = parse_topics(topics) if topics else None

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        return plan_copy(
            session, cluster, source, destination, wanted, store=writing.store(store), live=writing.force_live
        )

    run(writing, make, connect=connected_to_stores)
