"""``zkconsumer migrate unmark``: remove the mark of a migrated group."""

from __future__ import annotations

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.terminaltext import escaped
from zkconsumer.cli.unreadoutput import execute_option


@click.command("unmark")
@tool_options
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Name of a group; repeatable.")
@execute_option("Remove it; without this option nothing is written.")
def unmark_command(connection: ToolConnection, groups: tuple[str, ...], execute: bool) -> None:
    """Remove the mark that keeps zkconsumer members of a migrated group from registering.

    Needed only if the mark is wrong, for example in a copy of the ensemble.

    `migrate run` to Kafka writes it. A way back removes it when all offsets are written back: the rollback of that run,
    or the run of the plan that `migrate reverse` makes (`fleet reverse --execute` makes and runs it). A rollback of a
    way back that was not complete sets it again; after a complete one there is none. `groups delete` deletes it with
    the group. After it is removed, members in ZooKeeper begin at the offsets there, and read again what the new
    consumers have read.
    """
    from zkconsumer.operate.migrate.migrationmark import remove_mark
    from zkconsumer.operate.offsets.groupinuse import read_mark

    names = connection.group_names(groups)
    with tool_session(connection.config()) as session:
        for name in names:
            mark = read_mark(session, name)
            if mark is None:
                click.echo(escaped(f"group {name} has no mark"))
                continue
            if execute:
                remove_mark(session, name)
            done = "removed" if execute else "would be removed; give --execute to remove it"
            click.echo(escaped(f"group {name} {mark.state}, to {mark.where}: {done}"))
