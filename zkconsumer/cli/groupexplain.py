"""``zkconsumer groups explain``: what keeps a group from consuming, and what to run next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.groupoptions import echo_lines, group_option, json_option, storage_option
from zkconsumer.cli.main import EXIT_PROBLEM
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import printable

if TYPE_CHECKING:
    from zkconsumer.config.consumerconfig import ConsumerConfig
    from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
    from zkconsumer.operate.groups.finding import Finding
    from zkconsumer.zookeeper.session import ZkSession


@click.command()
@tool_options
@group_option()
@storage_option
@click.option(
    "--metrics", multiple=True, metavar="URL", help="Metrics page of a zkconsumer member (metrics.port); repeatable."
)
@json_option
def explain(
    connection: ToolConnection,
    groups: tuple[str, ...],
    storage: OffsetStorage,
    metrics: tuple[str, ...],
    as_json: bool,
) -> None:
    """Look for everything that keeps a group from consuming, with evidence and the next command.

    Members that own nothing, partitions without an owner, dead owners, a missing coordinator and members that do not
    obey it (group.protocol=coordinator), offsets outside the log, unknown topics, unreachable brokers, partitions
    without a leader or with replicas out of sync, leaders that change often, a missing controller, unreadable znodes,
    ACLs in the way, clocks, sessions that expire, quotas. The exit code is 3 if there are findings.
    """
    names = connection.group_names(groups)
    config = connection.config()
    findings_by_group: dict[str, list[Finding]] = {}
    with tool_session(config) as session, progress("reading") as advance:
        for number, name in enumerate(names):
            advance(number, len(names))
            findings_by_group[name] = explain_one(session, config, connection, name, storage, metrics)
    if as_json:
        documents = [
            {"group": name, "findings": [finding._asdict() for finding in findings]}
            for name, findings in findings_by_group.items()
        ]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents))
    else:
        for name, findings in findings_by_group.items():
            _print(name, findings)
    if any(findings_by_group.values()):
        raise click.exceptions.Exit(EXIT_PROBLEM)


def explain_one(
    session: ZkSession,
    config: ConsumerConfig,
    connection: ToolConnection,
    group: str,
    storage: OffsetStorage,
    metrics: tuple[str, ...] = (),
) -> list[Finding]:
    """What keeps a group from consuming; commands that are named have the servers of ``connection``.

    Raises:
        ZkConsumerError: there is no such group, or ZooKeeper cannot be read.
    """
    from zkconsumer.assembly.clusterchoice import open_group_reader
    from zkconsumer.operate.groups.clusterfacts import read_cluster_facts
    from zkconsumer.operate.groups.explanation import explain_group
    from zkconsumer.operate.groups.groupznodes import read_group

    group_reader = open_group_reader(session, config, without_brokers=True)
    znodes = read_group(session, group_reader, group)
    facts = read_cluster_facts(session, config, group_reader, znodes, storage=storage, metrics=metrics)
    return [
        finding._replace(next_command=connection.complete(finding.next_command))
        for finding in explain_group(znodes, facts)
    ]


def _print(group: str, findings: list[Finding]) -> None:
    if not findings:
        click.echo(f"{printable(group)}: nothing was found that keeps it from consuming")
    for number, finding in enumerate(findings, 1):
        echo_lines(
            (
                f"{number}. {finding.kind}: {printable(finding.subject)}",
                f"   {printable(finding.evidence)}",
                f"   next: {printable(finding.next_command)}",
            )
        )
