"""``zkconsumer groups``: list, describe and verify consumer groups."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.garbagecollection import rare_collections
from zkconsumer.cli.groupoptions import (
    all_option,
    chosen_groups,
    echo_documents,
    echo_lines,
    end_reading,
    group_option,
    groups_json_option,
    json_option,
    match_option,
    warn,
)
from zkconsumer.cli.groupsource import OpenedGroups, open_groups
from zkconsumer.cli.main import LazyGroup
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import printable

if TYPE_CHECKING:
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.operate.groups.bothhomes import Explained
    from zkconsumer.operate.groups.grouplist import GroupListing
    from zkconsumer.operate.groups.observedgroup import GroupSource

_ELSEWHERE = {
    "clean": "zkconsumer.cli.groupremoval:clean",
    "delete": "zkconsumer.cli.groupremoval:delete",
    "describe": "zkconsumer.cli.groupdescribe:describe",
    "explain": "zkconsumer.cli.groupexplain:explain",
    "rename": "zkconsumer.cli.groupremoval:rename",
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
    """List the groups that have znodes in ZooKeeper; with --bootstrap-server alone, those that brokers coordinate.

    With --zookeeper and --bootstrap-server both kinds are in the list; a group of one name in both is one line. The
    status in the long form is that of a single look, which finds groups without members (NO MEMBERS), offsets outside
    the log (RANGE) and what is consumed to the end (OK). Lag is UNKNOWN until `groups status` judges it.
    """
    if all_chroots and connection.broker_config() is not None:
        raise click.UsageError("--all-chroots is for groups in ZooKeeper: give --zookeeper")
    from zkconsumer.operate.groups.grouplist import none_found

    listed_groups: list[tuple[str, str, GroupListing | None]] = []
    unread: list[str] = []
    problems: list[str] = []
    for chroot, of_chroot in _clusters(connection, all_chroots=all_chroots):
        with open_groups(of_chroot, of_zookeeper_alone=all_chroots) as opened, progress("reading"):
            listed, new_unread, new_problems = _list(opened.source, pattern, topic, is_long=is_long)
        listed_groups += [(chroot, name, listing) for name, listing in listed]
        unread += new_unread
        problems += new_problems
    if not listed_groups:
        problems += none_found(pattern, topic)
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
    end_reading(unread, problems)


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
    return [(chroot, connection.at(zookeeper=servers + chroot)) for chroot in chroots]


def _list(
    source: GroupSource, pattern: str | None, topic: str | None, *, is_long: bool
) -> tuple[list[tuple[str, GroupListing | None]], tuple[str, ...], tuple[str, ...]]:
    from zkconsumer.operate.groups.grouplist import list_groups, matching

    names = matching(source.names(), pattern)
    if not is_long and topic is None:
        return [(name, None) for name in names], source.unlisted, ()
    listings, unread, problems = list_groups(source, names, topic=topic)
    return [(listing.group, listing if is_long else None) for listing in listings], unread, problems


def _listing_document(chroot: str, name: str, listing: GroupListing | None, *, with_chroot: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"chroot": chroot or "/"} if with_chroot else {}
    if listing is None:
        return {**document, "group": name}
    return {**document, **dataclasses.asdict(listing), "status": listing.status.value}


@groups.command()
@tool_options
@group_option()
@all_option
@groups_json_option
@rare_collections()
def verify(connection: ToolConnection, groups: tuple[str, ...], of_all: bool, as_json: bool) -> None:
    """Verify that every partition of the subscribed topics is owned by a live member.

    The exit code is 3 if one is not, in any of the groups. A group without members fails, too, unless it was
    migrated, or with --all has no lag; VerifyConsumerRebalance reports it as successful. A migrated group fails if it
    has members in ZooKeeper.
    With --bootstrap-server alone it is a group that brokers coordinate; with --zookeeper as well, one of either kind,
    and a migrated group that continues in Kafka under its name has to have members there.
    """
    from zkconsumer.operate.groups.bothhomes import look_at_each
    from zkconsumer.operate.groups.groupverification import without_work

    names = chosen_groups(connection, groups, of_all=of_all)
    with open_groups(connection) as opened, progress("reading") as advance:
        every = names or opened.source.names()
        findings_by_group, unread = look_at_each(every, lambda name: _verify(opened, name), advance, named=names)
        unread += opened.source.unlisted
        failed = [name for name, findings in findings_by_group.items() if findings]
        if failed and not names:  # who names a group expects it to have members
            findings_by_group |= {name: [] for name in without_work(opened.source, failed)}
    if as_json:
        documents = [
            {"group": name, "successful": not findings, "findings": findings}
            for name, findings in findings_by_group.items()
        ]
        echo_documents(documents, names)
    else:
        several = len(names) != 1
        for name, findings in findings_by_group.items():
            for finding in findings:
                click.echo(printable(f"{name}: {finding}" if several else finding), err=True)
            verdict = f"Rebalance operation {'failed' if findings else 'successful'} !"
            click.echo(f"{printable(name)}: {verdict}" if several else verdict)
    end_reading(connection.completed(unread), found=any(findings_by_group.values()))


def _verify(opened: OpenedGroups, group: str) -> list[str]:
    """What is wrong with a group in ZooKeeper, at brokers, or in both."""
    from zkconsumer.operate.groups.bothhomes import Looks, look_in_both
    from zkconsumer.operate.groups.brokerexplanation import verify_broker_group
    from zkconsumer.operate.groups.groupverification import verify_group

    def fail(error: ZkConsumerError) -> Explained[str]:
        raise error

    config, session, at_brokers = opened.config, opened.session, opened.at_brokers
    catalog = None if at_brokers is None else at_brokers.asked.catalog
    looks = Looks(
        None if session is None else lambda: verify_group(session(), config, group, catalog=catalog),
        None if at_brokers is None else lambda: verify_broker_group(at_brokers, group),
        fail,
        str,
        lambda unknown: warn([f"group {group}: {unknown}"]),
        str,
        str,
    )
    return look_in_both(group, looks)
