"""``zkconsumer groups describe``: members, owners, offsets and lag, in the tables of Kafka's tools."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final, Literal

import click

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.garbagecollection import rare_collections
from zkconsumer.cli.groupoptions import (
    all_option,
    chosen_groups,
    echo_documents,
    echo_lines,
    end_reading,
    group_option,
    groups_json_option,
    require_kafka,
    storage_option,
    warn,
)
from zkconsumer.cli.groupsource import LateSession
from zkconsumer.cli.progress import progress
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import name_some

if TYPE_CHECKING:
    from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
    from zkconsumer.operate.groups.brokergroups import BrokerGroupDescription
    from zkconsumer.operate.groups.groupdescription import GroupDescription

Table = Literal["offsets", "checker", "members", "state"]

_HINT: Final = (
    "hint: the offset of an owned partition is shown as - until its consumer's first commit, which comes after "
    f"auto.commit.interval.ms (default {ConsumerConfig.auto_commit_interval_ms // 1000} s)"
)


@click.command()
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
    "--state",
    "of_state",
    is_flag=True,
    help="A line for each group that brokers coordinate: coordinator, strategy, state.",
)
@click.option(
    "--unhealthy",
    is_flag=True,
    help="Only partitions without a live owner, with unknown lag or with an offset outside the log, and members that "
    "own nothing; the exit code is 3 if there are any.",
)
@groups_json_option
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
    Kafka 4; with --zookeeper as well these follow those in ZooKeeper. A group that has members in both, or that was
    migrated to brokers, is in both tables. What cannot be known is shown as `-` (in the checker's format as `unknown`,
    in JSON as null), never as a number.
    """
    from zkconsumer.cli.brokergrouptables import idle_member_lines
    from zkconsumer.operate.groups.everydescription import describe_every_group

    names = chosen_groups(connection, groups, of_all=of_all)
    table = _table(form, of_members=of_members, of_state=of_state)
    of_brokers = connection.broker_config()
    if of_brokers is not None:
        require_kafka(storage)
        if table == "checker":
            raise click.UsageError("--format checker is for groups in ZooKeeper: give --zookeeper")
    config = of_brokers or connection.config()
    if table == "state" and config.bootstrap_servers is None:
        raise click.UsageError("--state is for groups that brokers coordinate: give --bootstrap-server")
    with closing(LateSession(config)) as late, progress("reading"):
        open_session = None if of_brokers is not None else late
        described, unread, silent = describe_every_group(
            open_session, config, names, storage=storage, with_log_starts=unhealthy
        )
    shown = list(described.values())
    if unhealthy:
        shown = [part for group in shown if (part := group.unhealthy()) is not None]
    if as_json:
        from zkconsumer.operate.groups.groupdocuments import every_document

        documents = [every_document(group, both_stores=storage == "both") for group in shown]
        echo_documents(documents, names)
    else:
        _print_znodes([group.in_znodes for group in shown if group.in_znodes is not None], storage, table)
        at_brokers = [group.at_brokers for group in shown if group.at_brokers is not None]
        if table == "checker":  # which shows a group that was migrated, and has no members, as ZooKeeper has it
            of_znodes = {group.in_znodes.group for group in shown if group.in_znodes is not None}
            at_brokers = [one for one in at_brokers if one.members or one.observed.group not in of_znodes]
        _print_at_brokers(at_brokers, table)
        if unhealthy and table == "offsets":  # whose table at brokers has partitions alone, as Kafka's
            echo_lines(idle_member_lines(at_brokers), err=True)
    problems = (problem for group in described.values() for problem in group.problems)
    end_reading(connection.completed(unread), (*silent, *problems), found=unhealthy and bool(shown))


def _table(form: str, *, of_members: bool, of_state: bool) -> Table:
    chosen: list[Table] = []
    chosen += ["checker"] if form == "checker" else []
    chosen += ["members"] if of_members else []
    chosen += ["state"] if of_state else []
    if len(chosen) > 1:
        raise click.UsageError("give one of --format checker, --members and --state")
    return chosen[0] if chosen else "offsets"


def _print_znodes(descriptions: Sequence[GroupDescription], storage: str, table: Table) -> None:
    from zkconsumer.cli.grouptables import checker_table, coordinator_lines, member_table, offset_table

    if not descriptions:
        return
    if table == "members":
        echo_lines(member_table(descriptions))
        echo_lines(coordinator_lines(descriptions))
    elif table == "checker":
        echo_lines(checker_table(descriptions))
    elif table == "state":
        warn(f"group {description.group} is in ZooKeeper, which has no state of it" for description in descriptions)
    else:
        echo_lines(offset_table(descriptions, both_stores=storage == "both"))
        rows = (row for description in descriptions for row in description.partitions)
        if any(row.owner_live and row.committed is None and row.is_readable for row in rows):
            click.echo(_HINT, err=True)
    for description in descriptions:
        dead = [row for row in description.partitions if row.owner_live is False]
        warn(f"owner {row.owner} of {row.topic}-{row.partition} is not a live member" for row in dead)


def _print_at_brokers(descriptions: Sequence[BrokerGroupDescription], table: Table) -> None:
    """As kafka-consumer-groups of Kafka 4 does."""
    from zkconsumer.cli.brokergrouptables import member_table, notice, offset_table, state_table

    if table == "checker" and descriptions:
        names = name_some([description.observed.group for description in descriptions])
        raise click.UsageError(f"--format checker is for groups in ZooKeeper, and brokers coordinate {names}")
    for description in descriptions:
        if table == "state":
            echo_lines(state_table(description.observed))
            continue
        if text := notice(description.observed):
            click.echo(f"\n{text}", err=True)
        echo_lines(member_table(description) if table == "members" else offset_table(description))
