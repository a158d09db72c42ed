"""``zkconsumer migrate guide``: the next step of a group whose members move their offsets to Kafka by themselves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.grouplag import duration_option
from zkconsumer.cli.groupoptions import echo_lines, json_option
from zkconsumer.cli.main import EXIT_PROBLEM
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import printable
from zkconsumer.cli.writing import refuse

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.rules.guidance import Guidance, WatchedPartition


@click.command("guide")
@tool_options
@click.option("--group", metavar="GROUP", help="Name of the group.  [default: group.id of --config]")
@duration_option(
    "--watch", "150s", "How long to watch at most; more than twice auto.commit.interval.ms of the members."
)
@json_option
def guide_command(connection: ToolConnection, group: str | None, watch: float, as_json: bool) -> None:
    """Report the next step of a running group that moves its offsets to Kafka with two rolling restarts.

    The group's znodes and the tail of __consumer_offsets are watched: what members commit shows where they store
    offsets. Nothing is written. The exit code is 3 if the next step must not be taken yet, or some members have not
    taken the last one, or it is unknown, or the group has the mark of a migration.
    """
    from zkconsumer.assembly.clusterchoice import open_group_reader
    from zkconsumer.operate.groups.groupznodes import read_group
    from zkconsumer.operate.groups.observedgroup import may_exist
    from zkconsumer.operate.migrate.guidewatch import GroupWatch, watch_group
    from zkconsumer.operate.migrate.rules.guidance import Stage, guide
    from zkconsumer.operate.offsets.groupstores import Cluster
    from zkconsumer.zookeeper.rules.znodes import describe_mark

    (name,) = connection.group_names(() if group is None else (group,))
    config = connection.config()
    with tool_session(config) as session, progress("watching, in seconds") as advance:
        znodes = read_group(session, open_group_reader(session, config), name)
        if znodes.mark is not None:
            refuse(connection.completed([describe_mark(name, znodes.mark)]))
        partitions = [partition for partition in znodes.partitions if may_exist(znodes, partition)]
        with (
            closing(Cluster.of(session, config)) as cluster,
            closing(GroupWatch(session, cluster, name, partitions)) as watched,
        ):
            seen = watch_group(watched, watch, advance)
    guidance = guide(seen)
    if as_json:
        click.echo(json.dumps(_document(name, seen, guidance)))
    else:
        echo_lines(map(printable, _lines(name, seen, guidance)))
    if guidance.obstacles or guidance.left_behind or guidance.stage is Stage.UNKNOWN:
        raise click.exceptions.Exit(EXIT_PROBLEM)


def _lines(group: str, seen: Sequence[WatchedPartition], guidance: Guidance) -> Iterator[str]:
    counts = Counter(watched.evidence.value for watched in seen)
    yield f"{group}: {guidance.stage.value}"
    yield f"  commits to Kafka: {', '.join(f'{n} partitions {text}' for text, n in counts.items()) or 'no partitions'}"
    for obstacle in guidance.obstacles:
        yield f"  stop: {obstacle}"
    for warning in guidance.warnings:
        yield f"  warning: {warning}"
    yield f"  to do: {guidance.step}"
    if guidance.back:
        yield f"  back: {guidance.back}"


def _document(group: str, seen: Sequence[WatchedPartition], guidance: Guidance) -> dict[str, Any]:
    return {
        "group": group,
        **guidance._asdict(),
        "stage": guidance.stage.value,
        "partitions": [
            {
                "topic": watched.partition.topic,
                "partition": watched.partition.partition,
                "owner": watched.owner,
                "evidence": watched.evidence.value,
                "in_zookeeper": watched.znode,
                "in_kafka": watched.in_kafka,
                "commits": len(watched.commits),
            }
            for watched in seen
        ],
    }
