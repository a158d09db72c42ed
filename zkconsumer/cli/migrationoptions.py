"""What the commands of ``zkconsumer migrate`` have in common: options, the file of a plan, and its ends."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zkconsumer.cli.connection import ToolConnection, tool_session
from zkconsumer.cli.grouplag import duration_option, milliseconds
from zkconsumer.cli.groupoptions import echo_lines, echo_next, warn
from zkconsumer.cli.migrationtables import plan_lines
from zkconsumer.cli.unreadoutput import execute_option, need_no_reader
from zkconsumer.cli.writing import connected, refuse
from zkconsumer.errors import WriteRefused, ZkConsumerError

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.migrationends import MigrationEnds
    from zkconsumer.operate.migrate.rules.migrationend import End
    from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan


def parse_end_option(_context: click.Context, _parameter: click.Parameter, value: str) -> End:
    """The end that an option names, for click."""
    from zkconsumer.operate.migrate.rules.migrationend import parse_end

    try:
        return parse_end(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


PLAN = click.argument("plan_file", metavar="PLAN", type=click.Path(exists=True, dir_okay=False, path_type=Path))
OUTPUT = click.option(
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the plan; only a plan that was not run is replaced.",
)
MISSING = click.option(
    "--missing",
    type=click.Choice(["fail", "earliest", "latest"]),
    default="fail",
    show_default=True,
    help="Where partitions begin of which neither end has an offset.",
)
EXECUTE = execute_option()
REWIND = click.option(
    "--rewind", is_flag=True, help="Accept that offsets of the target move back, so that records are read again."
)
COPY_FOR = duration_option("--for", "7d", "How long to copy.", argument="duration")
COPY_INTERVAL = duration_option("--interval", "60s", "Between copies.")
RETENTION = click.option(
    "--retention",
    "retention_ms",
    callback=milliseconds,
    metavar="DURATION",
    help="How long Kafka keeps the offsets, such as 30d, at least 1m; in s, m, h or d.  "
    "[default: the brokers' offsets.retention.minutes]",
)


def refuse_to_overwrite(output: Path) -> None:
    """Only a plan that was never run gives way to a newer one."""
    from zkconsumer.operate.offsets.snapshot import OF_RUNS, beside

    if output.exists():
        try:
            is_plan = output.is_file()  # to read a pipe would wait for its writer
            if is_plan:
                read_plan(output)
        except ZkConsumerError:
            is_plan = False
        if not is_plan:
            raise click.UsageError(f"--output {output}: the file exists, and is no plan; give a new name")
        if beside(output, OF_RUNS).exists():
            raise click.UsageError(f"--output {output}: this plan was run; give a new name")


def may_be_written(output: Path) -> bool:
    """True unless :func:`refuse_to_overwrite` refuses the file of a plan."""
    try:
        refuse_to_overwrite(output)
    except click.UsageError:
        return False
    except OSError:  # the command reports it
        return True
    return True


@contextmanager
def ends_of(connection: ToolConnection, source: End, target: End) -> Iterator[MigrationEnds]:
    """Both ends of a migration, connected.

    Raises:
        click.UsageError: it is not clear which servers of ZooKeeper are meant.
    """
    from zkconsumer.operate.migrate.migrationends import MigrationEnds
    from zkconsumer.operate.migrate.rules.migrationend import check_servers

    try:
        servers = check_servers(source, target, has_servers=connection.names_zookeeper())
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    main = connection if servers is None else connection.at(zookeeper=servers)
    with connected(main) as (session, cluster):
        if source.kind == "zookeeper" or source.servers in (None, session.address):
            yield MigrationEnds(session, cluster, source, target)
        else:
            with tool_session(connection.at(zookeeper=source.servers).config()) as source_session:
                yield MigrationEnds(session, cluster, source, target, source_session=source_session)


def connection_of(connection: ToolConnection, plan: MigrationPlan) -> ToolConnection:
    """The servers of ZooKeeper that the group's URI names, else those of the command, else those of the plan."""
    from zkconsumer.operate.migrate.rules.migrationend import check_servers

    servers = check_servers(plan.source, plan.target, has_servers=True)
    if servers is None and not connection.names_zookeeper():
        servers = plan.servers
    return connection if servers is None else connection.at(zookeeper=servers)


@contextmanager
def planned_ends(connection: ToolConnection, plan: MigrationPlan) -> Iterator[MigrationEnds]:
    """The ends of a plan."""
    with ends_of(connection_of(connection, plan), plan.source, plan.target) as ends:
        yield ends


def read_plan(plan_file: Path) -> MigrationPlan:
    """Read the file of a plan; raises as :func:`~zkconsumer.operate.migrate.rules.planfile.decode_plan`."""
    from zkconsumer.operate.migrate.rules.planfile import decode_plan

    return decode_plan(str(plan_file), plan_file.read_bytes())


def write_plan(output: Path, plan: MigrationPlan, connection: ToolConnection, *, as_json: bool) -> None:
    """Write the file of a plan, and show it; commands in its refusals get the servers of ``connection``.

    What stops it is asked once more: a run of the former plan may have begun since.

    Raises:
        click.exceptions.Exit: with 3 if a guard does not hold, or a run of the former plan is under way.
    """
    from zkconsumer.operate.migrate.rules.planfile import encode_plan, plan_document
    from zkconsumer.operate.offsets.snapshot import exclusive
    from zkconsumer.operate.offsets.wholefiles import write_whole

    need_no_reader()
    try:
        with exclusive(output) if output.exists() else nullcontext():
            refuse_to_overwrite(output)
            write_whole(output, encode_plan(plan))
    except WriteRefused as refused:
        refuse(refused.reasons)
    if as_json:
        click.echo(json.dumps(plan_document(plan)))
    else:
        echo_lines(plan_lines(plan))
    warn(plan.warnings)
    if plan.refusals:
        refuse(connection.completed(plan.refusals))
    if not as_json:
        echo_next("", connection.complete(shlex.join(["zkconsumer", "migrate", "run", str(output)])))
