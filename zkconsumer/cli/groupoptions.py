"""The options that the commands about groups share, and how they print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

import click

from zkconsumer.cli.connection import ToolConnection
from zkconsumer.cli.main import EXIT_PROBLEM
from zkconsumer.cli.terminaltext import printable, step_lines

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

groups_json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document: an object if one --group is given, otherwise an array of such objects, also if it "
    "has one.",
)

storage_option = click.option(
    "--offsets",
    "storage",
    type=click.Choice(["auto", "zookeeper", "kafka", "both"]),
    default="auto",
    help="Whose committed offset counts: Kafka's where there is one, else ZooKeeper's (auto); one store's alone; or "
    "the greater one (both).  [default: auto]",
)


def require_kafka(storage: str) -> None:
    """Refuse ``--offsets`` for groups of brokers.

    Raises:
        click.UsageError: offsets in ZooKeeper are asked for.
    """
    if storage in ("zookeeper", "both"):
        raise click.UsageError("groups that brokers coordinate have no offsets in ZooKeeper; omit --offsets")


def group_option(purpose: str = "Name of a group; repeatable.") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--group``, repeatable, whose default is ``group.id`` of ``--config``."""
    return click.option(
        "--group", "groups", multiple=True, metavar="GROUP", help=f"{purpose}  [default: group.id of --config]"
    )


def _require_regex(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except re.error as error:
        raise click.BadParameter(f"{value}: {error}") from None
    return value


match_option = click.option(
    "--match",
    "pattern",
    callback=_require_regex,
    metavar="RE",
    help="Only groups whose whole name matches a regular expression.",
)

all_option = click.option("--all", "of_all", is_flag=True, help="All groups.")


def chosen_groups(connection: ToolConnection, groups: tuple[str, ...], *, of_all: bool) -> tuple[str, ...]:
    """The groups that the options name; empty for all.

    Raises:
        click.UsageError: ``--group`` and ``--all`` are both given, or none of them and no other name.
    """
    if of_all and groups:
        raise click.UsageError("give --group or --all, not both")
    if not (of_all or groups or connection.names_property("group.id")):
        raise click.UsageError("give --group, --all, or --config FILE with group.id")
    return () if of_all else connection.group_names(groups)


def echo_documents(documents: Sequence[object], names: Sequence[str]) -> None:
    """Print what :data:`groups_json_option` promises; an empty array if nothing is to be shown of the one group.

    Args:
        documents: one for each group.
        names: see :func:`chosen_groups`.
    """
    click.echo(json.dumps(documents[0] if len(names) == 1 and documents else documents))


def echo_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines in one piece; ``err`` is for standard error."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        click.echo(text, nl=False, err=err)


def echo_next(to_do: str, command: str = "") -> None:
    """Print what is next on standard error; see :func:`~zkconsumer.cli.terminaltext.step_lines`."""
    for line in step_lines(to_do, command):
        click.echo(line, err=True)


def warn(problems: Iterable[str]) -> None:
    """Print each problem once, on standard error."""
    for problem in dict.fromkeys(problems):
        click.echo(printable(f"warning: {problem}"), err=True)


def end_reading(unread: Sequence[str], problems: Iterable[str] = (), *, found: bool = False) -> None:
    """End a command that has shown what it could read: with 3, if groups are missing, or a check found a problem."""
    warn((*unread, *problems))
    if unread or found:
        raise click.exceptions.Exit(EXIT_PROBLEM)
