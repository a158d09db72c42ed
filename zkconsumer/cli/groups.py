"""``zkconsumer groups``: list, describe and verify consumer groups."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.garbagecollection import rare_collections
from zkconsumer.cli.groupoptions import (
    all_groups,
    all_option,
    chosen_groups,
    echo_lines,
    group_option,
    json_option,
    match_option,
    require_kafka,
    storage_option,
    warn,
)
from zkconsumer.cli.groupsource import open_groups
from zkconsumer.cli.main import EXIT_PROBLEM, LazyGroup
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import printable
from zkconsumer.errors import GroupMissing

if TYPE_CHECKING:
    from zkconsumer.config.consumerconfig import ConsumerConfig
    from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
    from zkconsumer.operate.groups.groupdescription import GroupDescription
    from zkconsumer.operate.groups.grouplist import GroupListing
    from zkconsumer.operate.groups.groupverification import RebalanceVerification
    from zkconsumer.operate.groups.observedgroup import GroupSource
    from zkconsumer.zookeeper.session import ZkSession

_HINT = (
    "hint: the offset of an owned partition is shown as - until its consumer's first commit, which comes after "
    "auto.commit.interval.ms (default 60 s)"
)


_ELSEWHERE = {
    "clean": "zkconsumer.cli.groupwrites:clean",
    "delete": "zkconsumer.cli.groupwrites:delete",
    "explain": "zkconsumer.cli.groupexplain:explain",
    "rename": "zkconsumer.cli.groupwrites:rename",
    "status": "zkconsumer.cli.grouplag:status",
    "watch": "zkconsumer.cli.grouplag:watch",
}
"""Subcommands that are not in this module: their modules and attributes."""


@click.group(cls=LazyGroup, elsewhere=_ELSEWHERE)
def groups() -> None:
    """Look at consumer groups, and change them."""


@groups.command(name="list")
@tool_options
@click.option("--long", "is_long", is_flag=True, help="Also layout, members, topics, lag, newest commit and status.")
@match_option
@click.option("--topic", metavar="TOPIC", help="Only groups that consume this topic.")
@click.option("--all-chroots", is_flag=True, help="Groups of every cluster in this ZooKeeper, after their chroots.")
@json_option
@rare_collections()
def list_command(
    connection: ToolConnection,
    is_long: bool,
    pattern: str | None,
    topic: str | None,
    all_chroots: bool,
    as_json: bool,
) -> None:
    """List the groups that ever existed in ZooKeeper; with --bootstrap-server alone those that brokers coordinate.

    With --zookeeper and --bootstrap-server both kinds are in the list; a group of one name in both is one line. The
    status in the long form is that of a single look, which finds groups without members (NO MEMBERS), offsets outside
    the log (RANGE) and what is consumed to the end (OK). Lag is UNKNOWN until `groups status` judges it.
    """
    if all_chroots and connection.broker_config() is not None:
        raise click.UsageError("--all-chroots is for groups in ZooKeeper: give --zookeeper")
    listed_groups: list[tuple[str, str, GroupListing | None]] = []
    problems: list[str] = []
    for chroot, of_chroot in _clusters(connection, all_chroots=all_chroots):
        with open_groups(of_chroot, of_zookeeper_alone=all_chroots) as opened, progress("reading"):
            listed, new_problems = _list(opened.source, pattern, topic, is_long=is_long)
        listed_groups += [(chroot, name, listing) for name, listing in listed]
        problems += new_problems
    if as_json:
        click.echo(json.dumps([_listing_document(*entry, with_chroot=all_chroots) for entry in listed_groups]))
    elif is_long:
        from zkconsumer.cli.grouptables import listing_table

        rows = [(chroot, listing) for chroot, _, listing in listed_groups if listing is not None]
        echo_lines(listing_table(rows, time.time() * 1000, with_chroot=all_chroots))
    else:
        echo_lines(
            f"{chroot or '/'} {printable(name)}" if all_chroots else printable(name)
            for chroot, name, _ in listed_groups
        )
    warn(problems)


def _clusters(connection: ToolConnection, *, all_chroots: bool) -> list[tuple[str, ToolConnection]]:
    """Chroots, and what the options name for each."""
    if not all_chroots:
        return [("", connection)]
    from zkconsumer.operate.groups.grouplist import find_chroots

    config = connection.config()
    servers = config.zookeeper_servers().partition("/")[0]
    with (
        tool_session(dataclasses.replace(config, zookeeper_connect=servers)) as session,
        progress("searching"),
    ):
        chroots = list(find_chroots(session))
    return [(chroot, connection.at_chroot(servers, chroot)) for chroot in chroots]


def _list(
    source: GroupSource, pattern: str | None, topic: str | None, *, is_long: bool
) -> tuple[list[tuple[str, GroupListing | None]], tuple[str, ...]]:
    from zkconsumer.operate.groups.grouplist import list_groups, matching

    names = matching(source.names(), pattern)
    if not is_long and topic is None:
        return [(name, None) for name in names], source.unlisted
    listings, problems = list_groups(source, names, topic=topic)
    return [(listing.group, listing if is_long else None) for listing in listings], problems


def _listing_document(chroot: str, name: str, listing: GroupListing | None, *, with_chroot: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"chroot": chroot or "/"} if with_chroot else {}
    if listing is None:
        return {**document, "group": name}
    return {**document, **dataclasses.asdict(listing), "status": listing.status.value}


@groups.command()
@tool_options
@group_option()
@all_option
@storage_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "checker"]),
    default="table",
    help="The table of ConsumerGroupCommand 1.1.1 or that of ConsumerOffsetChecker 0.10.2.2.  [default: table]",
)
@click.option("--members", "of_members", is_flag=True, help="A line for each member in place of each partition.")
@click.option(
    "--state", "of_state", is_flag=True, help="A line for each group of brokers: coordinator, strategy, state."
)
@click.option(
    "--unhealthy",
    is_flag=True,
    help="Only partitions without a live owner, with unknown lag or with an offset outside the log, and members that "
    "own nothing; the exit code is 3 if there are any.",
)
@json_option
@rare_collections()
def describe(
    connection: ToolConnection,
    groups: tuple[str, ...],
    of_all: bool,
    storage: OffsetStorage,
    form: str,
    of_members: bool,
    of_state: bool,
    unhealthy: bool,
    as_json: bool,
) -> None:
    """Show members, owners, committed offsets and lag of groups.

    With --bootstrap-server alone these are groups that brokers coordinate, in the tables of kafka-consumer-groups of
    Kafka 4; with --zookeeper as well, a group that ZooKeeper does not have is looked for there. What cannot be known is
    shown as `-` (in the checker's format as `unknown`, in JSON as null), never as a number.
    """
    from zkconsumer.operate.groups.groupdescription import describe_groups

    names = chosen_groups(connection, groups, of_all=of_all)
    of_brokers = connection.broker_config()
    if of_brokers is not None:
        from zkconsumer.cli.brokergroups import Shown, describe_broker_groups_command

        require_kafka(storage)
        if form == "checker":
            raise click.UsageError("--format checker is for groups in ZooKeeper: give --zookeeper")
        describe_broker_groups_command(of_brokers, names, Shown(of_members, of_state, unhealthy, as_json))
        return
    if of_state:
        raise click.UsageError("--state is for groups that brokers coordinate: give --bootstrap-server alone")
    config = connection.config()
    skipped: list[str] = []
    try:
        with tool_session(config) as session, progress("reading"):
            descriptions = describe_groups(
                session,
                config,
                names or all_groups(session),
                storage=storage,
                with_log_starts=unhealthy,
                skipped=skipped if of_all else None,
            )
    except GroupMissing:
        if config.bootstrap_servers is None or len(names) > 1 or form == "checker":
            raise
        from zkconsumer.cli.brokergroups import Shown, describe_broker_groups_command

        describe_broker_groups_command(config, names, Shown(of_members, of_state, unhealthy, as_json))
        return
    if unhealthy:
        descriptions = [description.unhealthy() for description in descriptions]
        descriptions = [description for description in descriptions if description.partitions or description.members]
    if as_json:
        from zkconsumer.operate.groups.groupdocuments import description_document

        documents = [description_document(description, both_stores=storage == "both") for description in descriptions]
        is_one = len(names) == 1 and len(documents) == 1
        click.echo(json.dumps(documents[0] if is_one else documents))
    else:
        _print(descriptions, storage, form, of_members=of_members)
    warn([*skipped, *(problem for description in descriptions for problem in description.problems)])
    if unhealthy and descriptions:
        raise click.exceptions.Exit(EXIT_PROBLEM)


def _print(descriptions: Sequence[GroupDescription], storage: str, form: str, *, of_members: bool) -> None:
    from zkconsumer.cli.grouptables import checker_table, coordinator_lines, member_table, offset_table

    if of_members:
        echo_lines(member_table(descriptions))
        echo_lines(coordinator_lines(descriptions))
    elif form == "checker":
        echo_lines(checker_table(descriptions))
    else:
        echo_lines(offset_table(descriptions, both_stores=storage == "both"))
        rows = (row for description in descriptions for row in description.partitions)
        if any(row.owner_live and row.committed is None and row.is_readable for row in rows):
            click.echo(_HINT, err=True)
    for description in descriptions:
        dead = [row for row in description.partitions if row.owner_live is False]
        warn(f"owner {row.owner} of {row.topic}-{row.partition} is not a live member" for row in dead)


@groups.command()
@tool_options
@group_option()
@json_option
@rare_collections()
def verify(connection: ToolConnection, groups: tuple[str, ...], as_json: bool) -> None:
    """Verify that every partition of the subscribed topics is owned by a live member.

    The exit code is 3 if one is not. A group without members fails, too, which the JVM's tool reports as successful.
    With --bootstrap-server alone it is a group that brokers coordinate.
    """
    names = connection.group_names(groups)
    of_brokers = connection.broker_config()
    if of_brokers is not None:
        from zkconsumer.operate.groups.brokerexplanation import verify_broker_group

        with progress("reading"):
            results = [verify_broker_group(of_brokers, name) for name in names]
    else:
        config = connection.config()
        with tool_session(config) as session, progress("reading"):
            results = [_verify(session, config, name) for name in names]
    if as_json:
        documents = [
            {"group": result.group, "successful": result.is_successful, "findings": result.findings}
            for result in results
        ]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents))
    else:
        for result in results:
            for finding in result.findings:
                click.echo(printable(f"{result.group}: {finding}" if len(results) > 1 else finding), err=True)
            verdict = f"Rebalance operation {'successful' if result.is_successful else 'failed'} !"
            click.echo(f"{printable(result.group)}: {verdict}" if len(results) > 1 else verdict)
    if not all(result.is_successful for result in results):
        raise click.exceptions.Exit(EXIT_PROBLEM)


def _verify(session: ZkSession, config: ConsumerConfig, group: str) -> RebalanceVerification:
    """A group in ZooKeeper, or, if there is none of the name and brokers are named, one that they coordinate."""
    from zkconsumer.operate.groups.groupverification import verify_group

    try:
        return verify_group(session, config, group)
    except GroupMissing:
        if config.bootstrap_servers is None:
            raise
        from zkconsumer.operate.groups.brokerexplanation import verify_broker_group

        return verify_broker_group(config, group)
