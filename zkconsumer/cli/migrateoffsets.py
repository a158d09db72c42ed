"""``zkconsumer migrate plan``, ``run`` and ``verify``: one migration, from its plan to its check."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.groupoptions import echo_lines, echo_next, json_option, warn
from zkconsumer.cli.main import EXIT_FAILED, EXIT_PROBLEM
from zkconsumer.cli.migrateback import remove_from_kafka
from zkconsumer.cli.migrationoptions import (
    EXECUTE,
    MISSING,
    OUTPUT,
    PLAN,
    RETENTION,
    REWIND,
    connection_of,
    ends_of,
    parse_end_option,
    planned_ends,
    read_plan,
    refuse_to_overwrite,
    write_plan,
)
from zkconsumer.cli.migrationtables import plan_lines, run_document, verified_row, verify_lines
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import escaped
from zkconsumer.cli.writing import LONG_HOLD, refuse
from zkconsumer.errors import WriteRefused

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.rules.migrationend import End
    from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
    from zkconsumer.operate.migrate.run import RunReport


@click.command("plan")
@tool_options
@click.option(
    "--from", "source", required=True, callback=parse_end_option, metavar="URI", help="Where offsets are read."
)
@click.option("--to", "target", required=True, callback=parse_end_option, metavar="URI", help="Where they are written.")
@OUTPUT
@MISSING
@REWIND
@RETENTION
@json_option
def plan_command(
    connection: ToolConnection,
    source: End,
    target: End,
    output: Path,
    missing: Any,
    rewind: bool,
    retention_ms: int | None,
    as_json: bool,
) -> None:
    """Plan to write the offsets of one group to another store. Nothing is written but the plan.

    A URI is `zookeeper:GROUP[@HOST:PORT/CHROOT]` or `kafka:GROUP`, `spark-options:FILE` with the JSON of Spark's
    startingOffsets, and with --from also `storm:/ROOT/ID` (Storm's spout), `dibbhatt:/PATH/ID` (the receiver, also its
    older layout) or `spark:CHECKPOINT` (a local directory). Servers in a URI are those of that end; the znodes of a
    spout or receiver may have servers of their own, too. The plan has for each partition the offset of the
    source, the former one of the target, the new one, the log, and what is skipped and read again. The exit code is 3
    if a guard does not hold, such as that no member is registered; `migrate run` checks all of them again.
    """
    from zkconsumer.operate.migrate.rules.migrationend import check_ends

    try:
        check_ends(source, target)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    refuse_to_overwrite(output)
    with ends_of(connection, source, target) as ends, progress("reading"):
        plan = ends.plan(missing=missing, retention_ms=retention_ms, rewind=rewind)
    write_plan(output, plan, connection, as_json=as_json)


@click.command("run")
@PLAN
@tool_options
@EXECUTE
@LONG_HOLD
@json_option
def run_command(connection: ToolConnection, plan_file: Path, execute: bool, long_hold: bool, as_json: bool) -> None:
    """Execute PLAN, after checking every guard and comparing every offset with it again.

    No member can own a partition meanwhile. PLAN.snapshot.json has what the target was before, and how far runs and
    rollbacks of PLAN have come; `migrate rollback`, `reverse` and `mirror` read it. If a run fails or is killed, the
    same command resumes it: it reads what the target has, and writes the rest; to Kafka it commits all offsets again.
    """
    from zkconsumer.operate.migrate.run import check_plan, run_plan

    plan = read_plan(plan_file)
    try:
        with planned_ends(connection, plan) as ends, progress("writing" if execute else "reading") as advance:
            if execute:
                report = run_plan(ends, plan, plan_file, long_hold=long_hold, advance=advance)
            else:
                report = check_plan(ends, plan, plan_file)
    except WriteRefused as refused:
        if as_json:
            click.echo(json.dumps(run_document(plan, None, refused.reasons, executed=False)))
        refuse(connection_of(connection, plan).completed(refused.reasons))
    if as_json:
        click.echo(json.dumps(run_document(plan, report, (), executed=execute)))
    else:
        echo_lines(plan_lines(plan))
    _show_end(report, plan, plan_file, connection, executed=execute)


def _show_end(
    report: RunReport, plan: MigrationPlan, plan_file: Path, connection: ToolConnection, *, executed: bool
) -> None:
    warn(report.warnings)
    if not executed:
        left = len(plan.partitions) - len(report.found)
        click.echo(f"dry run: {left} offsets would be written; give --execute to write", err=True)
        return
    for fault in report.faults:
        click.echo(escaped(f"error: {fault}"), err=True)
    click.echo(f"written: {len(report.written)} offsets, {len(report.found)} were there", err=True)
    if not report.is_complete:
        raise click.exceptions.Exit(EXIT_FAILED)
    echo_next("", connection.complete(shlex.join(["zkconsumer", "migrate", "verify", str(plan_file)])))


@click.command("verify")
@PLAN
@tool_options
@json_option
def verify_command(connection: ToolConnection, plan_file: Path, as_json: bool) -> None:
    """Compare both stores with PLAN, and show both lags at one reading of the log ends.

    The exit code is 3 unless source and target have the planned offset of every partition. Once consumers of the
    target have committed, they differ. Partitions that PLAN does not have are shown with a warning, such as those of
    topics that began after it; those of topics that were deleted since are not compared.
    """
    from zkconsumer.operate.migrate.rules.migrationrecheck import is_verified, warn_of_scope

    plan = read_plan(plan_file)
    with planned_ends(connection, plan) as ends, progress("reading"):
        rows = ends.verify(plan)
    if as_json:
        click.echo(json.dumps({"equal": is_verified(rows), "partitions": list(map(verified_row, rows))}))
    else:
        echo_lines(verify_lines(rows))
    warn(warn_of_scope(plan, rows))
    if not is_verified(rows):
        raise click.exceptions.Exit(EXIT_PROBLEM)
    if not as_json:
        echo_next(f"start the consumers of {plan.target}")
        if (plan.source.kind, plan.target.kind, plan.source.group) == ("kafka", "zookeeper", plan.target.group):
            echo_next(*remove_from_kafka([plan.target.group], connection_of(connection, plan)))
