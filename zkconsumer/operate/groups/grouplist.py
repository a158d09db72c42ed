"""Lists the groups of a ZooKeeper, and on request of every chroot in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZooKeeperRefused
from zkconsumer.model import Broker
from zkconsumer.operate.groups.groupznodes import GroupZnodes
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus
from zkconsumer.zookeeper.rules.grouppaths import CONSUMERS
from zkconsumer.zookeeper.rules.znodes import BROKER_IDS
from zkconsumer.zookeeper.session import ZkSession

Layout = Literal["consumer", "offsets", "kafka-0.7", "empty"]
"""What a group's znodes are: those of a group with members, offsets alone (a simple consumer's, or imported ones),
those of Kafka 0.7, whose offset znodes are named broker-partition, or none."""

_DEEPEST_CHROOT = 4
_NO_CHROOTS = frozenset(
    {"zookeeper", "brokers", "consumers", "config", "admin", "controller", "isr_change_notification"}
)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in a list.

    Attributes:
        group: its name.
        layout: see :data:`Layout`.
        members: number of registered members.
        topics: number of topics that it subscribes to, owned or committed.
        lag: in records, of the partitions where it is known.
        unknown: number of partitions whose lag is unknown.
        newest_commit_ms: when an offset in ZooKeeper was last written, in ms since the epoch; None if there is none.
        status: see :mod:`zkconsumer.operate.groups.rules.lagstatus`; one sample shows only UNKNOWN, NO MEMBERS, RANGE
            and OK.
        reason: the evidence for it, in words.
    """

    group: str
    layout: Layout
    members: int
    topics: int
    lag: int
    unknown: int
    newest_commit_ms: int | None
    status: LagStatus
    reason: str


def matching_groups(session: ZkSession, pattern: str | None = None) -> list[str]:
    """Names of all groups that ever existed and match a regex as a whole, sorted."""
    return matching(session.children(CONSUMERS) or (), pattern)


def matching(names: Iterable[str], pattern: str | None) -> list[str]:
    """Those of the names that match a regex as a whole, sorted; all of them without a regex."""
    return sorted(name for name in names if pattern is None or re.fullmatch(pattern, name))


def list_groups(
    session: ZkSession,
    config: ConsumerConfig,
    groups: Sequence[str],
    *,
    bootstrap: Sequence[Broker] = (),
    topic: str | None = None,
) -> tuple[list[GroupListing], tuple[str, ...]]:
    """Describe groups in a line each; and what could not be read, one sentence each.

    Args:
        session: an open session.
        config: how brokers are reached.
        groups: their names; one that cannot be read is a problem, not an error.
        bootstrap: brokers to ask instead of those that are registered in ZooKeeper.
        topic: only groups that subscribe to it, own it, or have committed it; None for all.
    """
    with LagSampler(session, config, window=2, bootstrap=bootstrap, with_ages=False) as sampler:
        sampler.sample(groups, 0.0)
        every = [znodes for znodes in sampler.znodes.values() if topic is None or topic in topics_of(znodes)]
        return [group_listing(znodes, sampler.evaluate(znodes.group)) for znodes in every], sampler.problems


def group_listing(znodes: GroupZnodes, evaluated: GroupLag) -> GroupListing:
    """The line of one group.

    Args:
        znodes: what was read of the group.
        evaluated: the lag status of the group.
    """
    return GroupListing(
        group=znodes.group,
        layout=layout_of(znodes),
        members=len(znodes.live),
        topics=len(topics_of(znodes)),
        lag=evaluated.lag,
        unknown=sum(partition_lag.lag is None for partition_lag in evaluated.partitions.values()),
        newest_commit_ms=max((stored.modified_ms for stored in znodes.offsets.values()), default=None),
        status=evaluated.status,
        reason=evaluated.reason,
    )


def topics_of(znodes: GroupZnodes) -> set[str]:
    """The topics that a group subscribes to, owned or committed."""
    return {partition.topic for partition in znodes.partitions} | znodes.offset_topics | znodes.owned_topics


def layout_of(znodes: GroupZnodes) -> Layout:
    """What a group's znodes are."""
    if znodes.foreign_offsets:
        return "kafka-0.7"
    if znodes.live or znodes.owned_topics:
        return "consumer"
    return "offsets" if znodes.offset_topics else "empty"


def find_chroots(root: ZkSession) -> Iterator[str]:
    """Paths below which there is a Kafka cluster's ``/consumers`` or ``/brokers/ids``; empty for the root itself.

    Args:
        root: a session without a chroot.
    """
    level = [""]
    for _ in range(_DEEPEST_CHROOT + 1):
        below: list[str] = []
        for path in level:
            try:
                names = set(root.children(path or "/") or ())
            except ZooKeeperRefused:
                continue
            if CONSUMERS[1:] in names or (BROKER_IDS.split("/")[1] in names and root.exists(path + BROKER_IDS)):
                yield path
            below += [f"{path}/{name}" for name in sorted(names - _NO_CHROOTS)]
        level = below
