"""``zkconsumer migrate rollback`` and ``reverse``: the ways back from a migration."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.groupoptions import json_option
from zkconsumer.cli.migrationoptions import (
    EXECUTE,
    MISSING,
    OUTPUT,
    PLAN,
    RETENTION,
    REWIND,
    connection_of,
    ends_of,
    read_plan,
    refuse_to_overwrite,
    write_plan,
)
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import step_lines
from zkconsumer.cli.writing import LONG_HOLD, Writing, refuse, run
from zkconsumer.errors import WriteRefused

if TYPE_CHECKING:
    from zkconsumer.operate.offsets.groupstores import Cluster
    from zkconsumer.operate.offsets.writeplan import WritePlan
    from zkconsumer.zookeeper.session import ZkSession


def remove_from_kafka(groups: Iterable[str], connection: ToolConnection) -> tuple[str, str]:
    """What to do once groups have come back to ZooKeeper, and the command: their offsets in Kafka count for tools."""
    named = (word for group in groups for word in ("--group", group))
    command = ["zkconsumer", "groups", "delete", *named, "--store", "kafka", "--force-live", "--execute"]
    to_do = (
        "when the old consumers of what came back have committed to ZooKeeper, remove the offsets in Kafka, which "
        "tools count first"
    )
    return to_do, connection.complete(shlex.join(command))


@click.command("rollback")
@PLAN
@tool_options
@EXECUTE
@LONG_HOLD
@json_option
def rollback_command(
    connection: ToolConnection, plan_file: Path, execute: bool, long_hold: bool, as_json: bool
) -> None:
    """Write the offsets back that the target had before PLAN was run.

    It is refused as a whole, with exit code 3, if one partition has moved since: then consumers have run, and the way
    back is `migrate reverse`. If it fails or is killed, the same command resumes it.
    """
    from zkconsumer.operate.migrate.migrationends import MigrationEnds
    from zkconsumer.operate.migrate.rollback import plan_rollback, roll_back
    from zkconsumer.operate.offsets.snapshot import default_path, exclusive

    plan = read_plan(plan_file)

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        return plan_rollback(MigrationEnds(session, cluster, plan.source, plan.target), plan, plan_file)

    snapshot = default_path(f"rollback of {plan_file.name}", plan_file.absolute().parent)
    writing = Writing(connection_of(connection, plan), execute, snapshot, long_hold, as_json)
    try:
        with exclusive(plan_file, plan):
            run(
                writing,
                make,
                done=step_lines(f"start the consumers of {plan.source} again"),
                write=functools.partial(roll_back, plan, plan_file),
            )
    except WriteRefused as refused:
        refuse(refused.reasons)


@click.command("reverse")
@PLAN
@tool_options
@OUTPUT
@MISSING
@REWIND
@RETENTION
@json_option
def reverse_command(
    connection: ToolConnection,
    plan_file: Path,
    output: Path,
    missing: Any,
    rewind: bool,
    retention_ms: int | None,
    as_json: bool,
) -> None:
    """Plan the way back from where the target of PLAN is now. Nothing is written but the new plan.

    Once consumers have run at the target this is the only way back that neither skips records nor reads them again.
    Stop them first, and the mirror if there is one. The new plan is for `migrate run`, as any other. The exit code is 3
    if a guard does not hold, such as that no consumer has continued at the source of PLAN meanwhile; what `migrate
    mirror` has written there is accepted.
    """
    from zkconsumer.operate.migrate.rollback import plan_reverse
    from zkconsumer.operate.migrate.rules.waysback import reversed_ends
    from zkconsumer.operate.offsets.snapshot import exclusive

    plan = read_plan(plan_file)
    try:
        source, target = reversed_ends(plan)
    except ValueError as error:
        raise click.UsageError(f"there is no way back: {error}") from None
    refuse_to_overwrite(output)
    try:
        with (
            exclusive(plan_file, plan),
            ends_of(connection_of(connection, plan), source, target) as ends,
            progress("reading"),
        ):
            back = plan_reverse(ends, plan, plan_file, missing=missing, retention_ms=retention_ms, rewind=rewind)
    except WriteRefused as refused:
        refuse(connection_of(connection, plan).completed(refused.reasons))
    write_plan(output, back, connection_of(connection, plan), as_json=as_json)
