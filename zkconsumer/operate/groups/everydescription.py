"""Describes groups wherever they are: in ZooKeeper, at brokers, or in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZkConsumerError
from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
from zkconsumer.operate.groups.brokergroups import BrokerGroupDescription, BrokerGroups, describe_group
from zkconsumer.operate.groups.everygroup import failures_in_both, listed_by
from zkconsumer.operate.groups.groupdescription import GroupDescription, describe_groups
from zkconsumer.operate.groups.observedgroup import unread_groups
from zkconsumer.zookeeper.rules.grouppaths import CONSUMERS
from zkconsumer.zookeeper.session import ZkSession

D = TypeVar("D", GroupDescription, BrokerGroupDescription)


@dataclass(frozen=True, slots=True)
class EveryDescription:
    """A group; at least one of the two is there.

    Attributes:
        in_znodes: as ZooKeeper has it; None if it has no znodes.
        at_brokers: as its coordinator has it; None if brokers were not asked, do not have it, or have nothing of it
            but offsets that are in ``in_znodes``.
    """

    in_znodes: GroupDescription | None
    at_brokers: BrokerGroupDescription | None

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be read, one sentence each."""
        both = (part.problems for part in (self.in_znodes, self.at_brokers) if part is not None)
        return tuple(problem for problems in both for problem in problems)

    def unhealthy(self) -> EveryDescription | None:
        """Its unhealthy partitions, and the members that own nothing; None if there are none."""
        in_znodes = None if self.in_znodes is None else only_unhealthy(self.in_znodes)
        at_brokers = None if self.at_brokers is None else only_unhealthy(self.at_brokers)
        parts = (in_znodes, at_brokers)
        is_unhealthy = any(part is not None and (part.members or part.partitions) for part in parts)
        return EveryDescription(in_znodes, at_brokers) if is_unhealthy else None


def only_unhealthy(description: D) -> D:
    """A group with its unhealthy partitions, and the members that own nothing."""
    return replace(
        description,
        members=tuple(member for member in description.members if not member.partitions),
        partitions=tuple(partition for partition in description.partitions if partition.is_unhealthy),
    )


class DescribedGroups(NamedTuple):
    """Groups that were looked at once.

    Attributes:
        groups: by name, in the order of the names that were given, or sorted.
        unread: which groups, or parts of them, are missing or cannot be read, one sentence each.
    """

    groups: Mapping[str, EveryDescription]
    unread: tuple[str, ...]


def describe_every_group(
    session: ZkSession | None,
    config: ConsumerConfig,
    names: Sequence[str],
    *,
    storage: OffsetStorage = "auto",
    with_log_starts: bool = False,
) -> DescribedGroups:
    """Describe groups. Nothing is written.

    Args:
        session: with ZooKeeper; None for groups of brokers alone.
        config: how brokers are reached; those that ``bootstrap.servers`` names have groups, too.
        names: of groups; empty for all.
        storage: whose committed offset counts for groups in ZooKeeper.
        with_log_starts: also ask where the logs start.

    Raises:
        ZkConsumerError: none of the named groups exists and can be read; or no group can be listed.
    """
    in_znodes: dict[str, GroupDescription] = {}
    at_brokers: dict[str, BrokerGroupDescription] = {}
    failures: dict[str, ZkConsumerError] = {}
    unread: tuple[str, ...] = ()
    if session is not None:
        wanted = names or sorted(session.children(CONSUMERS) or ())
        descriptions = describe_groups(
            session, config, wanted, storage=storage, with_log_starts=with_log_starts, failures=failures
        )
        in_znodes = {description.group: description for description in descriptions}
    if config.bootstrap_servers is not None:
        with BrokerGroups(config) as brokers:
            if not names:
                listed, unread = (brokers.names(), brokers.unlisted) if session is None else listed_by(brokers)
            observed, not_at_brokers = brokers.read(names or sorted(listed))
            # A group in ZooKeeper that stores offsets in Kafka is none of the brokers.
            chosen = [group for name, group in observed.items() if name not in in_znodes or group.live]
            logs, reasons = brokers.logs(chosen, with_starts=with_log_starts)
        at_brokers = {group.group: describe_group(group, logs, reasons) for group in chosen}
        if session is None:
            failures = not_at_brokers
        else:
            asked = dict.fromkeys((*failures, *not_at_brokers))
            failures, parts = failures_in_both(asked, {*in_znodes, *at_brokers}, failures, not_at_brokers)
            unread += parts
    found = in_znodes.keys() | at_brokers.keys()
    groups = {
        name: EveryDescription(in_znodes.get(name), at_brokers.get(name))
        for name in names or sorted(found)
        if name in found
    }
    return DescribedGroups(groups, (*unread_groups(groups, failures, names), *unread))
