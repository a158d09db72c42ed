"""``zkconsumer groups``: look at consumer groups."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zkconsumer.cli.connection import connection_options, group_name, tool_config, tool_session

if TYPE_CHECKING:
    from zkconsumer.tools.groups import GroupDescription

_HINT = (
    "hint: an owned partition shows - until its consumer's first commit; that is after auto.commit.interval.ms, by "
    "default 60 s"
)

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def groups() -> None:
    """Look at consumer groups."""


@groups.command()
@connection_options
@click.option("--group", help="Name of the group.  [default: group.id of --config]")
@_JSON
def describe(
    zookeeper: str | None, config_file: Path | None, properties: tuple[str, ...], group: str | None, as_json: bool
) -> None:
    """Show members, owners, committed offsets and lag of a group.

    The committed offset is the one in Kafka where there is one, else the one in ZooKeeper. What cannot be known is
    shown as `-` (null in JSON), never as a number.
    """
    from zkconsumer.tools.groups import describe_group

    name = group_name(group, zookeeper, config_file, properties)
    config = tool_config(zookeeper, config_file, properties)
    with tool_session(config) as session:
        description = describe_group(session, config, name)
    if as_json:
        document = dataclasses.asdict(description)
        del document["problems"]
        click.echo(json.dumps(document))
    else:
        _print_table(description)
        if any(row.owner_live and row.committed is None for row in description.partitions):
            click.echo(_HINT, err=True)
    for problem in description.problems:
        click.echo(f"warning: {problem}", err=True)


def _print_table(description: GroupDescription) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for heading in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"):
        number = heading not in ("TOPIC", "CONSUMER-ID")
        table.add_column(heading, no_wrap=True, overflow="ignore", justify="right" if number else "left")
    owning: set[str] = set()
    for row in description.partitions:
        consumer = "-" if row.owner is None else row.owner.rpartition("-")[0]
        owning.add(consumer)
        dead = " (not a live member)" if row.owner_live is False else ""
        cells = (row.partition, row.committed, row.log_end, row.lag)
        table.add_row(row.topic, *("-" if cell is None else str(cell) for cell in cells), consumer + dead)
    for member in description.members:
        if member.id not in owning:
            for topic in member.threads or ("-",):  # a filter may match no topic
                table.add_row(topic, "-", "-", "-", "-", member.id)
    # Wide enough for any row: a table that is cut to the terminal loses what it is read for.
    console = Console(width=10_000, highlight=False, markup=False, emoji=False)
    with console.capture() as text:
        console.print(table)
    click.echo(text.get(), nl=False)  # rich itself ends the process with 1 if the reader closes the pipe
