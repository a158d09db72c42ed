"""Describes groups wherever they are: in ZooKeeper, at brokers, or in both."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
from zkconsumer.operate.groups.brokergroups import BrokerGroupDescription, BrokerGroups, describe_group
from zkconsumer.operate.groups.everygroup import (
    EveryGroup,
    continues_at_brokers,
    counts_at_brokers,
    failures_in_both,
    is_lost,
)
from zkconsumer.operate.groups.groupdescription import GroupDescription, PartitionDescription, describe_groups
from zkconsumer.operate.groups.observedgroup import UNREAD_LAG, is_migrated, unread_groups
from zkconsumer.operate.groups.zookeepergroups import ZooKeeperGroups
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets
from zkconsumer.zookeeper.session import ZkSession

D = TypeVar("D", GroupDescription, BrokerGroupDescription)


@dataclass(frozen=True, slots=True)
class EveryDescription:
    """A group; at least one of the two is there.

    Attributes:
        in_znodes: as ZooKeeper has it; None if it has no znodes.
        at_brokers: as its coordinator has it; None if brokers were not asked, do not have it, or have nothing of it
            but offsets of a group in ZooKeeper, which are in ``in_znodes``.
        is_lost: it was migrated, and the brokers have answered that they do not have it.
    """

    in_znodes: GroupDescription | None
    at_brokers: BrokerGroupDescription | None
    is_lost: bool = False

    @property
    def is_unread(self) -> bool:
        """True if an offset or a log end of it is unknown, and may exist."""
        parts = (part.partitions for part in (self.in_znodes, self.at_brokers) if part is not None)
        return any(row.is_unread for rows in parts for row in rows)

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be read, one sentence each."""
        both = (part.problems for part in (self.in_znodes, self.at_brokers) if part is not None)
        return tuple(problem for problems in both for problem in problems)

    @property
    def partitions(self) -> dict[TopicPartition, PartitionDescription]:
        """What counts of each partition: as ZooKeeper has it, but for an owner at brokers that counts.

        Those that brokers alone have follow.
        """
        rows = _by_partition(self.in_znodes)
        for partition, row in _by_partition(self.at_brokers).items():
            in_znodes = rows.get(partition)
            if in_znodes is None:
                rows[partition] = row
            elif counts_at_brokers(in_znodes.owner_live, row.owner):
                rows[partition] = replace(in_znodes, owner=row.owner, owner_live=row.owner_live)
        return rows

    def unhealthy(self) -> EveryDescription | None:
        """Its unhealthy partitions, and the members that own nothing; None if there are none.

        What ZooKeeper has of a group that was migrated is not unhealthy, unless brokers do not have the group.
        """
        in_znodes = self.in_znodes
        if in_znodes is not None and is_migrated(in_znodes.mark, in_znodes.live) and not self.is_lost:
            in_znodes = None
        counting = EveryDescription(in_znodes, self.at_brokers).partitions
        unhealthy = {partition for partition, row in counting.items() if row.is_unhealthy}
        in_znodes = None if in_znodes is None else _only(in_znodes, unhealthy)
        at_brokers = None if self.at_brokers is None else _only(self.at_brokers, unhealthy)
        is_unhealthy = any(part is not None and (part.members or part.partitions) for part in (in_znodes, at_brokers))
        return EveryDescription(in_znodes, at_brokers) if is_unhealthy else None


def _by_partition(
    part: GroupDescription | BrokerGroupDescription | None,
) -> dict[TopicPartition, PartitionDescription]:
    return {} if part is None else {TopicPartition(row.topic, row.partition): row for row in part.partitions}


def _only(description: D, partitions: Container[TopicPartition]) -> D:
    """A group with these of its partitions, and the members that own nothing."""
    return replace(
        description,
        members=tuple(member for member in description.members if not member.partitions),
        partitions=tuple(row for p, row in _by_partition(description).items() if p in partitions),
    )


class DescribedGroups(NamedTuple):
    """Groups that were looked at once.

    Attributes:
        groups: by name, in the order of the names that were given, or sorted.
        unread: which groups, or parts of them, are missing or cannot be read, one sentence each.
        problems: which home of groups is silent, likewise.
    """

    groups: Mapping[str, EveryDescription]
    unread: tuple[str, ...]
    problems: tuple[str, ...] = ()


Described = tuple[dict[str, D], dict[str, ZkConsumerError]]
"""Groups by name, and why others cannot be read."""


def describe_every_group(
    open_session: Callable[[], ZkSession] | None,
    config: ConsumerConfig,
    names: Sequence[str],
    *,
    storage: OffsetStorage = "auto",
    with_log_starts: bool = False,
) -> DescribedGroups:
    """Describe groups. Nothing is written.

    Args:
        open_session: returns a session with ZooKeeper; None for groups of brokers alone.
        config: how brokers are reached; those that ``bootstrap.servers`` names have groups, too.
        names: of groups; empty for all.
        storage: whose committed offset counts for groups in ZooKeeper.
        with_log_starts: also ask where the logs start.

    Raises:
        ZkConsumerError: none of the named groups exists and can be read; or no group can be listed.
    """
    if open_session is None:
        with BrokerGroups(config) as brokers:
            at_brokers, failures = _at_brokers(brokers, names or brokers.names(), {}, with_log_starts)
            return _found(names, {}, at_brokers, failures, unlisted=brokers.unlisted)
    ask_zookeeper = partial(_in_znodes, open_session, config, storage, with_log_starts)
    if config.bootstrap_servers is None:
        in_znodes, failures = ask_zookeeper(None, names or ZooKeeperGroups(open_session, config).names())
        return _found(names, in_znodes, {}, failures)
    with BrokerGroups(config) as brokers:
        every = EveryGroup(ZooKeeperGroups(open_session, config, asked=brokers.asked), brokers)
        ask_zookeeper = partial(ask_zookeeper, brokers.asked)
        wanted = names or every.names()
        in_znodes, no_znodes = every.in_znodes.ask(wanted, ask_zookeeper, lambda silence: ({}, silence))
        at_brokers, not_at_brokers = every.at_brokers.ask(
            wanted,
            lambda asked: _at_brokers(brokers, asked, in_znodes, with_log_starts),
            lambda silence: ({}, silence),
            unlisted=_continuing(in_znodes),
        )
    found = {*in_znodes, *at_brokers}
    live = {name for name, description in at_brokers.items() if description.observed.live}
    failures, partly_read = failures_in_both(wanted, found, live, no_znodes, not_at_brokers)
    silent = every.in_znodes.problems + every.at_brokers.problems
    lost = {n for n, one in in_znodes.items() if is_lost(n, one.mark, one.live, not_at_brokers.get(n))}
    return _found(names, in_znodes, at_brokers, failures, partly_read, every.unlisted, silent, lost)


def _in_znodes(
    open_session: Callable[[], ZkSession],
    config: ConsumerConfig,
    storage: OffsetStorage,
    with_log_starts: bool,
    shared: BrokerOffsets | None,
    names: Sequence[str],
) -> Described[GroupDescription]:
    failures: dict[str, ZkConsumerError] = {}
    described = describe_groups(
        open_session(),
        config,
        names,
        storage=storage,
        with_log_starts=with_log_starts,
        shared=shared,
        failures=failures,
    )
    return {description.group: description for description in described}, failures


def _at_brokers(
    brokers: BrokerGroups, names: Sequence[str], in_znodes: Mapping[str, GroupDescription], with_log_starts: bool
) -> Described[BrokerGroupDescription]:
    observed, failures = brokers.read(names)
    # A group in ZooKeeper that stores offsets in Kafka is none of the brokers.
    theirs = in_znodes.keys() - _continuing(in_znodes)
    chosen = [group for name, group in observed.items() if name not in theirs or group.live]
    logs, reasons = brokers.logs(chosen, with_starts=with_log_starts)
    return {group.group: describe_group(group, logs, reasons) for group in chosen}, failures


def _continuing(in_znodes: Mapping[str, GroupDescription]) -> set[str]:
    return {name for name, one in in_znodes.items() if continues_at_brokers(name, one.mark, one.live)}


def _found(
    names: Sequence[str],
    in_znodes: Mapping[str, GroupDescription],
    at_brokers: Mapping[str, BrokerGroupDescription],
    failures: Mapping[str, ZkConsumerError],
    partly_read: Mapping[str, ZkConsumerError] = MappingProxyType({}),
    unlisted: tuple[str, ...] = (),
    problems: tuple[str, ...] = (),
    lost: Container[str] = (),
) -> DescribedGroups:
    found = in_znodes.keys() | at_brokers.keys()
    groups = {
        name: EveryDescription(in_znodes.get(name), at_brokers.get(name), name in lost)
        for name in names or sorted(found)
        if name in found
    }
    partly_read = {**{name: UNREAD_LAG for name, group in groups.items() if group.is_unread}, **partly_read}
    return DescribedGroups(groups, unread_groups(groups, failures, names, partly_read) + unlisted, problems)
