"""``zkconsumer groups delete``, ``rename`` and ``clean``: commands that remove groups."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import brokers_of_zookeeper_groups_option
from zkconsumer.cli.grouplag import milliseconds
from zkconsumer.cli.groupoptions import match_option
from zkconsumer.cli.writing import Writing, connected_to_stores, run, writing_options

if TYPE_CHECKING:
    from zkconsumer.operate.offsets.groupstores import Cluster
    from zkconsumer.operate.offsets.writeplan import WritePlan
    from zkconsumer.zookeeper.session import ZkSession

_of_empty_groups = functools.partial(writing_options, brokers=brokers_of_zookeeper_groups_option, live=False)
_STORE = click.option(
    "--store", type=click.Choice(["zookeeper"]), help="Accept that Kafka keeps the offsets that it stores."
)


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
    """Delete groups without members from ZooKeeper, or what they store of a topic.

    With --bootstrap-server alone these are groups that brokers coordinate, which have to be named; brokers since 2.4.
    """
    from zkconsumer.operate.groups.groupremoval import plan_delete

    if not names and topic is None:
        raise click.UsageError("give --group, --topic or both")
    if writing.connection.broker_config() is not None:
        _delete_at_brokers(writing, names, topic, store)
        return

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        return plan_delete(session, cluster, names, topic, store=store, live=writing.force_live)

    run(writing, make, done=_deleted(names, topic) if store != "kafka" else ())


def _delete_at_brokers(writing: Writing, names: tuple[str, ...], topic: str | None, store: Any) -> None:
    from zkconsumer.operate.groups.brokergroupremoval import delete_at_brokers, plan_delete_at_brokers

    writing.store(store)
    if not names:
        raise click.UsageError("give --group: groups that brokers coordinate are deleted by name")
    run(
        writing,
        lambda session, cluster: plan_delete_at_brokers(session, cluster, names, topic),
        connect=connected_to_stores,
        write=functools.partial(delete_at_brokers, whole=topic is None),
    )


def _deleted(names: tuple[str, ...], topic: str | None) -> list[str]:
    """As the JVM tool reports it."""
    if topic is None:
        return [f"Deleted all consumer group information for group {name} in zookeeper." for name in names]
    if not names:
        return [f"Deleted consumer group information for all inactive consumer groups for topic {topic} in zookeeper."]
    return [f"Deleted consumer group information for group {name} topic {topic} in zookeeper." for name in names]


@click.command()
@_of_empty_groups
@click.option("--from", "source", required=True, help="Name of a group without members.")
@click.option("--to", "destination", required=True, help="Its new name, which no group has.")
@_STORE
def rename(writing: Writing, source: str, destination: str, store: Any) -> None:
    """Give the offsets of a group to a group of another name, and delete the first."""
    from zkconsumer.operate.groups.groupremoval import plan_rename

    def make(session: ZkSession, cluster: Cluster) -> WritePlan:
        return plan_rename(session, cluster, source, destination, store=store)

    run(writing, make)


@click.command()
@_of_empty_groups
@click.option(
    "--older-than",
    "age_ms",
    required=True,
    callback=milliseconds,
    metavar="DURATION",
    help="Minimum time without a write, such as 90d, at least 1m; in s, m, h or d.",
)
@match_option
def clean(writing: Writing, age_ms: int, pattern: str | None) -> None:
    """Delete groups that have no members and have not changed for the time of --older-than.

    Offsets in Kafka stay, and so do groups with the mark of a migration.
    """
    from zkconsumer.operate.groups.groupremoval import plan_clean

    def make(session: ZkSession, _cluster: Cluster) -> WritePlan:
        return plan_clean(session, age_ms, pattern)

    run(writing, make)
