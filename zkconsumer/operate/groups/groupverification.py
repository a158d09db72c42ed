"""Verifies that a live thread owns each partition that a group subscribes to, as VerifyConsumerRebalance does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from zkconsumer.assembly.clusterchoice import open_group_reader
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.bothhomes import Explained
from zkconsumer.operate.groups.groupznodes import GroupZnodes, read_group
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.observedgroup import GroupSource, is_migrated, undescribed_topics
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.zookeeper.rules.znodes import MigrationMark, describe_mark
from zkconsumer.zookeeper.session import ZkSession

if TYPE_CHECKING:
    from zkconsumer.cluster.brokercatalog import PatientCatalog


def verify_group(
    session: ZkSession, config: ConsumerConfig, group: str, *, catalog: PatientCatalog | None = None
) -> Explained[str]:
    """Verify that the last rebalance of a group succeeded. Nothing is written.

    Three cases differ from the JVM's tool. A group without members has failed, unless it was migrated, where the JVM
    reports success; so has one with the mark of a migration, if it has members or is not complete. Internal topics
    that a filter matches are ignored, as members ignore them, where the JVM expects owners.

    Args:
        session: an open session.
        config: whose ``security.protocol`` selects the brokers' endpoints.
        group: its name.
        catalog: asks the brokers of ``bootstrap.servers``, for several groups; None for connections of its own.

    Raises:
        ZkConsumerError: there is no such group, or ZooKeeper cannot be read.
    """
    return explain_rebalance(read_group(session, open_group_reader(session, config, catalog=catalog), group))


def explain_rebalance(znodes: GroupZnodes) -> Explained[str]:
    """The members of a group in ZooKeeper, what is wrong with its ownership, and its mark."""
    marked = None if znodes.mark is None else describe_marked(znodes, znodes.mark)
    return Explained(znodes.live, list(rebalance_findings(znodes)), znodes.mark, marked)


def without_work(source: GroupSource, groups: Sequence[str]) -> set[str]:
    """Those of the groups that have neither members nor lag; ``groups status`` does not count them as problems either.

    A group that was migrated to brokers which do not have it is none of them.

    Raises:
        ZooKeeperUnavailable: no server answers.
    """
    sampler = LagSampler(source, window=2, with_ages=False)
    sampler.sample(groups, 0.0)
    lags = {name: sampler.evaluate(name) for name, group in sampler.observed.items() if not group.lost}
    return {name for name, lag in lags.items() if lag.status is LagStatus.NO_MEMBERS and not lag.is_problem}


def rebalance_findings(znodes: GroupZnodes) -> Iterator[str]:
    """What is wrong with the ownership of a group's partitions."""
    if is_migrated(znodes.mark, znodes.live):
        return
    if znodes.mark is not None:
        yield describe_marked(znodes, znodes.mark)
    view = znodes.view
    for consumer_id, reason in sorted(view.unreadable.items()):
        yield f"the registration of consumer {consumer_id} cannot be read: {reason}"
    # One that has joined since the view was read has not rebalanced, and one that has left since is no member.
    if znodes.live.isdisjoint(view.members.keys() | view.unreadable.keys()):
        yield f"no consumer of group {znodes.group} is registered"
    yield from undescribed_topics(znodes)
    for partition, owner in misowned(znodes):
        if owner is None:
            yield f"no owner for partition {partition}"
        else:
            yield f"owner {owner} of partition {partition} is not a consumer thread that subscribes to the topic"


def describe_marked(znodes: GroupZnodes, mark: MigrationMark) -> str:
    """What the mark of a group means for its consumers in ZooKeeper, and which of them are registered all the same."""
    members = f"; members in ZooKeeper read the same records: {name_some(sorted(znodes.live))}" if znodes.live else ""
    return f"{describe_mark(znodes.group, mark)}{members}"


def misowned(znodes: GroupZnodes) -> Iterator[tuple[TopicPartition, str | None]]:
    """Partitions of subscribed topics without an owner (None), or whose owner is no thread that subscribes to them."""
    for topic, threads in sorted(znodes.view.threads_by_topic(exclude_internal=True).items()):
        allowed = {str(thread) for thread in threads}
        for partition in (TopicPartition(topic, number) for number in znodes.existing.get(topic, ())):
            owner = znodes.owners.get(partition)
            if owner not in allowed:
                yield partition, owner
