"""``zkconsumer migrate mirror``: copies the offsets of a migrated group back to its znodes, again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.ending import Ending
from zkconsumer.cli.groupoptions import echo_lines, warn
from zkconsumer.cli.main import EXIT_FAILED
from zkconsumer.cli.migrationoptions import (
    COPY_FOR,
    COPY_INTERVAL,
    EXECUTE,
    PLAN,
    REWIND,
    connection_of,
    ends_of,
    read_plan,
)
from zkconsumer.cli.migrationtables import copy_lines
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import escaped
from zkconsumer.cli.writing import LONG_HOLD, refuse
from zkconsumer.errors import WriteRefused

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from zkconsumer.operate.migrate.migrationends import MigrationEnds
    from zkconsumer.operate.migrate.mirror import CopyReport, Mirror
    from zkconsumer.operate.migrate.rules.mirrorplan import CopiedOffset


@click.command("mirror")
@PLAN
@tool_options
@COPY_FOR
@COPY_INTERVAL
@EXECUTE
@LONG_HOLD
@REWIND
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each copy, on a line of its own.")
def mirror_command(
    connection: ToolConnection,
    plan_file: Path,
    duration: float,
    interval: float,
    execute: bool,
    long_hold: bool,
    rewind: bool,
    as_json: bool,
) -> None:
    """Copy the offsets of the target of PLAN, a group in Kafka, to the znodes of its source at every interval.

    So the way back stays short, and monitors of offsets in ZooKeeper keep working. No member can own a partition in
    ZooKeeper while a copy is written. The mirror ends with exit code 3 if consumers of the source have registered or
    written offsets, with 0 at SIGTERM or Ctrl-C, and with 1 if its last copy failed. Where servers do not answer, the
    next copy asks them again. PLAN.mirror has what was copied; the same command continues from there.
    """
    from zkconsumer.operate.migrate.mirror import Mirror
    from zkconsumer.operate.migrate.rules.mirrorplan import check_mirror
    from zkconsumer.operate.migrate.rules.waysback import reversed_ends
    from zkconsumer.operate.offsets.snapshot import exclusive

    plan = read_plan(plan_file)
    try:
        check_mirror(plan)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    source, target = reversed_ends(plan)

    def connect() -> AbstractContextManager[MigrationEnds]:
        return ends_of(connection_of(connection, plan), source, target)

    try:
        with exclusive(plan_file, plan):
            mirror = Mirror(plan, plan_file, long_hold=long_hold, rewind=rewind)
            if execute:
                _run(mirror, connect, duration, interval, as_json=as_json)
            else:
                _show_due(mirror, connect, as_json=as_json)
    except WriteRefused as refused:
        refuse(connection_of(connection, plan).completed(refused.reasons))


def _show_due(mirror: Mirror, connect: Callable[[], AbstractContextManager[MigrationEnds]], *, as_json: bool) -> None:
    with connect() as ends, progress("reading"):
        copy = mirror.decide(ends)
    if as_json:
        click.echo(json.dumps(_document(copy.rows, (), (), executed=False)))
    else:
        echo_lines(copy_lines(copy.rows))
    warn(copy.warnings)
    click.echo(f"dry run: {len(copy.due)} offsets would be copied now; give --execute to copy", err=True)


def _run(
    mirror: Mirror,
    connect: Callable[[], AbstractContextManager[MigrationEnds]],
    duration: float,
    interval: float,
    *,
    as_json: bool,
) -> None:
    from zkconsumer.operate.migrate.mirror import run_mirror

    shown: set[str] = set()

    def show(report: CopyReport | Exception) -> None:
        if isinstance(report, Exception):
            warn([f"this copy failed: {report}"])
            return
        if as_json:
            click.echo(json.dumps(_document(report.rows, report.copied, report.faults, executed=True)))
        else:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            click.echo(f"{stamp} {len(report.copied)} of {len(report.rows)} offsets copied")
        warn([*report.faults, *(warning for warning in report.warnings if warning not in shown)])
        shown.update(report.warnings)

    ending = Ending()
    with ending.by_signals():
        failure = run_mirror(mirror, connect, duration=duration, interval=interval, pause=ending.sleep, show=show)
    if failure:
        click.echo(escaped(f"error: the last copy failed: {failure}"), err=True)
        raise click.exceptions.Exit(EXIT_FAILED)


def _document(
    rows: Iterable[CopiedOffset], copied: Iterable[Any], faults: Iterable[str], *, executed: bool
) -> dict[str, Any]:
    """One copy as JSON."""
    written = set(copied)
    return {
        "at_ms": int(time.time() * 1000),
        "executed": executed,
        "partitions": [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "in_kafka": row.in_kafka,
                "in_zookeeper": row.in_zookeeper,
                "due": row.is_due,
                "copied": row.partition in written,
            }
            for row in rows
        ],
        "faults": list(faults),
    }
