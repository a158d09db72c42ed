"""``zkconsumer groups delete``, ``rename`` and ``clean``: commands that remove groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.groupoptions import match_option
from zkconsumer.cli.writing import Writing, run, writing_options

if TYPE_CHECKING:
    from zkconsumer.operate.offsets.groupstores import Cluster
    from zkconsumer.operate.offsets.writeplan import WritePlan
    from zkconsumer.zookeeper.session import ZkSession

_STORE = click.option(
    "--store", type=click.Choice(["zookeeper"]), help="Accept that Kafka keeps the offsets that it stores."
)
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000}


@click.command()
@writing_options
@click.option("--group", "names", multiple=True, help="Name of a group; repeatable.")
@click.option("--topic", help="Only what is stored of this topic; without --group, of every group without members.")
@click.option(
    "--store",
    type=click.Choice(["zookeeper", "kafka", "both"]),
    help="Where offsets are deleted.  [default: zookeeper, refused if Kafka stores offsets of the group, too]",
)
def delete(writing: Writing, names: tuple[str, ...], topic: str | None, store: Any) -> None:
    """Delete groups without members from ZooKeeper, or what they store of a topic."""
    from zkconsumer.operate.groups.groupwrites import plan_delete

    if not names and topic is None:
        raise click.UsageError("give --group, --topic or both")

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        return plan_delete(session, cluster, names, topic, store=store, live=writing.force_live)

    run(writing, make, done=_deleted(names, topic) if store != "kafka" else ())


def _deleted(names: tuple[str, ...], topic: str | None) -> list[str]:
    """As the JVM tool reports it."""
    if topic is None:
        return [f"Deleted all consumer group information for group {name} in zookeeper." for name in names]
    if not names:
        return [f"Deleted consumer group information for all inactive consumer groups for topic {topic} in zookeeper."]
    return [f"Deleted consumer group information for group {name} topic {topic} in zookeeper." for name in names]


@click.command()
@writing_options
@click.option("--from", "source", required=True, help="Name of a group without members.")
@click.option("--to", "destination", required=True, help="Its new name, which no group has.")
@_STORE
def rename(writing: Writing, source: str, destination: str, store: Any) -> None:
    """Give the offsets of a group to a group of another name, and delete the first."""
    from zkconsumer.operate.groups.groupwrites import plan_rename

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        return plan_rename(session, cluster, source, destination, store=store)

    run(writing, make)


@click.command()
@writing_options
@click.option("--older-than", required=True, metavar="90d", help="Nothing was written for so long; d, h or m.")
@match_option
def clean(writing: Writing, older_than: str, pattern: str | None) -> None:
    """Delete groups without members that no client has written to, joined or left for a time.

    Offsets in Kafka stay, and so do groups with the mark of a migration.
    """
    from zkconsumer.operate.groups.groupwrites import plan_clean

    parts = re.fullmatch(r"(\d+)([dhm])", older_than, re.ASCII)
    if parts is None or not int(parts[1]):
        raise click.UsageError(f"--older-than {older_than}: write it as 90d, 12h or 30m")
    age_ms = int(parts[1]) * _UNITS_MS[parts[2]]

    def make(session: ZkSession, _cluster: Cluster) -> WritePlan:
        return plan_clean(session, age_ms, pattern)

    run(writing, make)
