"""Lists groups in a line each, and the chroots of a ZooKeeper that have groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from zkconsumer.errors import ZooKeeperRefused
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.observedgroup import GroupSource, Layout, ObservedGroup
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus
from zkconsumer.zookeeper.rules.grouppaths import CONSUMERS
from zkconsumer.zookeeper.rules.znodes import BROKER_IDS
from zkconsumer.zookeeper.session import ZkSession

_DEEPEST_CHROOT = 4
_NO_CHROOTS = frozenset(
    {"zookeeper", "brokers", "consumers", "config", "admin", "controller", "isr_change_notification"}
)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in a list.

    Attributes:
        group: its name.
        layout: see :data:`~zkconsumer.operate.groups.observedgroup.Layout`.
        members: number of registered members.
        topics: number of topics that it subscribes to, owned or committed.
        lag: in records, of the partitions where it is known; None if it is known of none.
        unknown: number of partitions whose lag is unknown.
        newest_commit_ms: when an offset in ZooKeeper was last written, in ms since the epoch; None if there is none.
        status: see :mod:`zkconsumer.operate.groups.rules.lagstatus`; one sample shows only UNKNOWN, NO MEMBERS, RANGE
            and OK.
        reason: the evidence for it, in words.
        protocol: ``classic`` or ``consumer`` (KIP-848) of a group that brokers coordinate; None of others.
        state: as brokers name it; None of others.
        strategy: by which brokers' members are assigned; None of others, and if it is unknown.
    """

    group: str
    layout: Layout
    members: int
    topics: int
    lag: int | None
    unknown: int
    newest_commit_ms: int | None
    status: LagStatus
    reason: str
    protocol: str | None = None
    state: str | None = None
    strategy: str | None = None


def matching_groups(session: ZkSession, pattern: str | None = None) -> list[str]:
    """Names of all groups that ever existed and match a regex as a whole, sorted."""
    return matching(GroupReader(session).groups(), pattern)


def matching(names: Iterable[str], pattern: str | None) -> list[str]:
    """Those of the names that match a regex as a whole, sorted; all of them without a regex."""
    return sorted(name for name in names if pattern is None or re.fullmatch(pattern, name))


def none_found(pattern: str | None, topic: str | None = None) -> list[str]:
    """A sentence on what may be misspelt where no group is found; empty where all groups were asked for.

    Args:
        pattern: see :func:`matching`.
        topic: see :func:`list_groups`.
    """
    if topic is not None:
        chosen = "" if pattern is None else f" that matches {pattern}"
        return [f"no group{chosen} subscribes to topic {topic}, owns it or has committed it; check its name"]
    return [] if pattern is None else [f"no group matches {pattern}; check --match"]


def list_groups(
    source: GroupSource, groups: Sequence[str], *, topic: str | None = None
) -> tuple[list[GroupListing], tuple[str, ...], tuple[str, ...]]:
    """Describe groups in a line each; which groups are missing, one sentence each; and what else could not be read.

    Args:
        source: where they are read.
        groups: their names.
        topic: only groups that subscribe to it, own it, or have committed it; None for all.
    """
    sampler = LagSampler(source, window=2, with_ages=False)
    sampler.sample(groups, 0.0)
    chosen = [group for group in sampler.observed.values() if topic is None or topic in group.topics]
    return (
        [group_listing(group, sampler.evaluate(group.group)) for group in chosen],
        sampler.missing(),
        sampler.problems,
    )


def group_listing(group: ObservedGroup, evaluated: GroupLag) -> GroupListing:
    """The line of one group.

    Args:
        group: what was read of it.
        evaluated: its lag status.
    """
    in_brokers = group.in_brokers
    return GroupListing(
        group=group.group,
        layout=group.layout,
        members=len(group.live),
        topics=len(group.topics),
        lag=evaluated.lag,
        unknown=sum(partition_lag.lag is None for partition_lag in evaluated.partitions.values()),
        newest_commit_ms=group.newest_commit_ms,
        status=evaluated.status,
        reason=evaluated.reason,
        protocol=None if in_brokers is None else in_brokers.protocol,
        state=None if in_brokers is None else in_brokers.state,
        strategy=None if in_brokers is None else in_brokers.strategy or None,
    )


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
