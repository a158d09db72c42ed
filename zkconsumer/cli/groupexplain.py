"""``zkconsumer groups explain``: what keeps a group from consuming, and what to run next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.groupoptions import (
    all_option,
    chosen_groups,
    echo_documents,
    echo_lines,
    end_reading,
    group_option,
    groups_json_option,
    storage_option,
    warn,
)
from zkconsumer.cli.groupsource import OpenedGroups, open_groups
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import printable, step_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from zkconsumer.config.consumerconfig import ConsumerConfig
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
    from zkconsumer.operate.groups.bothhomes import Explained
    from zkconsumer.operate.groups.brokergroups import BrokerGroups
    from zkconsumer.operate.groups.finding import Finding
    from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets
    from zkconsumer.zookeeper.session import ZkSession


@click.command()
@tool_options
@group_option()
@all_option
@storage_option
@click.option(
    "--metrics", multiple=True, metavar="URL", help="Metrics page of a zkconsumer member (metrics.port); repeatable."
)
@groups_json_option
def explain(
    connection: ToolConnection,
    groups: tuple[str, ...],
    of_all: bool,
    storage: OffsetStorage,
    metrics: tuple[str, ...],
    as_json: bool,
) -> None:
    """Look for what keeps a group from consuming, with evidence and the next command.

    Members that own nothing, partitions without an owner, dead owners, a missing coordinator and members that do not
    obey it (group.protocol=coordinator), offsets outside the log, members that have committed nothing, unknown topics,
    unreachable brokers, partitions without a leader or with replicas out of sync, leaders that change often, a missing
    controller, unreadable znodes, ACLs in the way, clocks, sessions that expire, quotas. One look does not show whether
    offsets move: `groups status` does. The exit code is 3 if there are findings, other than that a group was migrated,
    has more members than partitions, or has neither members nor lag, which are no problems. With --bootstrap-server
    alone it is for a group that brokers coordinate: its state, members without partitions, partitions without members,
    offsets, topics, brokers and leaders. With --all groups without findings are counted only.
    """
    from zkconsumer.operate.groups.bothhomes import look_at_each

    names = chosen_groups(connection, groups, of_all=of_all)
    with open_groups(connection, storage) as opened, progress("reading") as advance:
        findings_by_group, unread = look_at_each(
            names or opened.source.names(),
            lambda name: explain_one(opened, connection, name, storage, metrics, report=warn),
            advance,
            named=names,
        )
        unread += () if names else opened.source.unlisted
    if as_json:
        documents = [
            {"group": name, "findings": [finding._asdict() for finding in findings]}
            for name, findings in findings_by_group.items()
        ]
        echo_documents(documents, names)
    else:
        shown = {name: findings for name, findings in findings_by_group.items() if findings or names}
        for name, findings in shown.items():
            status = shlex.join(["zkconsumer", "groups", "status", "--group", name])
            if findings and len(names) != 1:
                click.echo(f"{printable(name)}:")
            _print(name, findings, connection.complete(status))
        if not names:
            status = "zkconsumer groups status --all --problems"
            click.echo(f"nothing was found in {len(findings_by_group) - len(shown)} other groups")
            echo_lines(_what_one_look_cannot_show(connection.complete(status)))
    every = (finding for findings in findings_by_group.values() for finding in findings)
    end_reading(connection.completed(unread), found=any(finding.is_problem for finding in every))


def explain_one(
    opened: OpenedGroups,
    connection: ToolConnection,
    group: str,
    storage: OffsetStorage,
    metrics: tuple[str, ...] = (),
    *,
    report: Callable[[Sequence[str]], None] | None = None,
) -> list[Finding]:
    """What keeps a group from consuming; commands that are named have the servers of ``connection``.

    Where brokers are named beside a ZooKeeper, a group of both is looked at in both. ``report`` takes what is unknown
    of a group that counts as read; without it that is a finding.

    Raises:
        GroupMissing: there is no such group.
        ZkConsumerError: ZooKeeper or the coordinator cannot be asked.
    """
    from zkconsumer.operate.groups.bothhomes import Looks, look_in_both
    from zkconsumer.operate.groups.brokerexplanation import lost_group, two_homes, unknown_elsewhere

    config, session, at_brokers = opened.config, opened.session, opened.at_brokers
    asked = None if at_brokers is None else at_brokers.asked
    looks = Looks(
        None if session is None else lambda: _explain_znodes(session(), storage, config, group, metrics, asked),
        None if at_brokers is None else lambda: _explain_at_brokers(config, at_brokers, group, metrics),
        lambda error: _explain_coordinator(config, asked, group, error),
        lambda evidence: unknown_elsewhere(group, evidence),
        None if report is None else lambda unknown: report([f"group {group}: {unknown}"]),
        lambda evidence: two_homes(group, evidence),
        lambda evidence: lost_group(group, evidence),
    )
    findings = look_in_both(group, looks)
    return [finding._replace(next_command=connection.complete(finding.next_command)) for finding in findings]


def _explain_znodes(
    session: ZkSession,
    storage: OffsetStorage,
    config: ConsumerConfig,
    group: str,
    metrics: tuple[str, ...],
    asked: BrokerOffsets | None,
) -> Explained[Finding]:
    from zkconsumer.assembly.clusterchoice import open_group_reader
    from zkconsumer.operate.groups.bothhomes import Explained
    from zkconsumer.operate.groups.clusterfacts import read_cluster_facts
    from zkconsumer.operate.groups.explanation import explain_group, explain_mark
    from zkconsumer.operate.groups.groupznodes import read_group

    catalog = None if asked is None else asked.catalog
    group_reader = open_group_reader(session, config, without_brokers=True, catalog=catalog)
    znodes = read_group(session, group_reader, group)
    facts = read_cluster_facts(session, config, group_reader, znodes, storage=storage, metrics=metrics, shared=asked)
    return Explained(znodes.live, explain_group(znodes, facts), znodes.mark, explain_mark(znodes))


def _explain_at_brokers(
    config: ConsumerConfig, brokers: BrokerGroups, group: str, metrics: tuple[str, ...]
) -> Explained[Finding]:
    from zkconsumer.operate.groups.bothhomes import Explained
    from zkconsumer.operate.groups.brokerexplanation import explain_broker_group
    from zkconsumer.operate.groups.clusterfacts import read_broker_facts

    observed = brokers.required(group)
    facts = read_broker_facts(config, brokers.asked, observed, metrics=metrics)
    return Explained(observed.live, explain_broker_group(observed, facts))


def _explain_coordinator(
    config: ConsumerConfig, asked: BrokerOffsets | None, group: str, error: ZkConsumerError
) -> Explained[Finding]:
    """Why no broker coordinates a group. Raises BrokerUnavailable if no broker answers."""
    from zkconsumer.operate.groups.bothhomes import Explained
    from zkconsumer.operate.groups.brokerexplanation import explain_without_coordinator
    from zkconsumer.operate.groups.clusterfacts import read_coordinator_facts

    assert asked is not None, "a coordinator was asked"
    facts = read_coordinator_facts(config, asked)
    return Explained(frozenset(), explain_without_coordinator(group, error, facts))


def _what_one_look_cannot_show(status: str) -> Iterator[str]:
    """Lines with the command that shows the rest."""
    from zkconsumer.operate.groups.lagfindings import LOOK_AT_PROCESS

    yield f"   one look cannot show whether offsets move; where the status is STALL or WARN, {LOOK_AT_PROCESS}"
    yield from step_lines("", status, indent="   ")


def _print(group: str, findings: list[Finding], status: str) -> None:
    if not findings:
        click.echo(f"{printable(group)}: nothing was found that keeps it from consuming")
        echo_lines(_what_one_look_cannot_show(status))
    for number, finding in enumerate(findings, 1):
        echo_lines(
            (
                f"{number}. {finding.kind}: {printable(finding.subject)}",
                f"   {printable(finding.evidence)}",
                *step_lines(finding.to_do, finding.next_command, indent="   "),
            )
        )
