"""Describes groups wherever they are: in ZooKeeper, at brokers, or in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, GroupMissing, ProtocolError
from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
from zkconsumer.operate.groups.brokergroups import BrokerGroupDescription, BrokerGroups, describe_group
from zkconsumer.operate.groups.everygroup import missing_everywhere
from zkconsumer.operate.groups.groupdescription import GroupDescription, describe_groups
from zkconsumer.zookeeper.rules.grouppaths import CONSUMERS
from zkconsumer.zookeeper.session import ZkSession


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
        in_znodes = None if self.in_znodes is None else self.in_znodes.unhealthy()
        at_brokers = None if self.at_brokers is None else self.at_brokers.unhealthy()
        parts = (in_znodes, at_brokers)
        is_unhealthy = any(part is not None and (part.members or part.partitions) for part in parts)
        return EveryDescription(in_znodes, at_brokers) if is_unhealthy else None


class DescribedGroups(NamedTuple):
    """Groups that were looked at once.

    Attributes:
        groups: by name, in the order of the names that were given, or sorted.
        problems: which groups are missing or cannot be read, one sentence each.
    """

    groups: Mapping[str, EveryDescription]
    problems: tuple[str, ...]


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
        names: of groups; empty for all. Brokers that are named beside ZooKeeper are asked for those that they list.
        storage: whose committed offset counts for groups in ZooKeeper.
        with_log_starts: also ask where the logs start.

    Raises:
        ZkConsumerError: one of the named groups does not exist, or cannot be read; or no group can be listed.
    """
    problems: list[str] = []
    in_znodes: dict[str, GroupDescription] = {}
    at_brokers: dict[str, BrokerGroupDescription] = {}
    if session is not None:
        known = session.children(CONSUMERS) or ()
        # With brokers, a group that ZooKeeper does not have is looked for there; without, it is an error.
        chosen = [name for name in names if config.bootstrap_servers is None or name in known] if names else known
        skipped = None if names else problems
        descriptions = describe_groups(
            session, config, sorted(chosen), storage=storage, with_log_starts=with_log_starts, skipped=skipped
        )
        in_znodes = {description.group: description for description in descriptions}
    if config.bootstrap_servers is not None:
        with BrokerGroups(config) as brokers:
            at_brokers = _describe_at_brokers(
                brokers, names, in_znodes, problems, is_alone=session is None, with_log_starts=with_log_starts
            )
    groups = {
        name: EveryDescription(in_znodes.get(name), at_brokers.get(name))
        for name in names or sorted(in_znodes.keys() | at_brokers.keys())
    }
    return DescribedGroups(groups, tuple(problems))


def _describe_at_brokers(
    brokers: BrokerGroups,
    names: Sequence[str],
    in_znodes: Mapping[str, GroupDescription],
    problems: list[str],
    *,
    is_alone: bool,
    with_log_starts: bool,
) -> dict[str, BrokerGroupDescription]:
    """Those of the groups that brokers coordinate; a group in ZooKeeper that stores offsets in Kafka is none."""
    listed = [] if names and not in_znodes else _listed(brokers, in_znodes, problems)
    elsewhere = [name for name in names if name not in in_znodes]
    asked = [name for name in names if name in elsewhere or name in listed] if names else listed
    groups, failures = brokers.read(asked)
    for name, error in failures.items():
        if name in elsewhere:
            raise missing_everywhere(name) if isinstance(error, GroupMissing) and not is_alone else error
        if not isinstance(error, GroupMissing):
            problems.append(f"group {name} cannot be read: {error}")
    chosen = [group for name, group in groups.items() if name not in in_znodes or group.live]
    logs, reasons = brokers.logs(chosen, with_starts=with_log_starts)
    return {group.group: describe_group(group, logs, reasons) for group in chosen}


def _listed(brokers: BrokerGroups, in_znodes: Mapping[str, GroupDescription], problems: list[str]) -> list[str]:
    """Groups that the brokers list; where there are others, brokers that list none are no error."""
    try:
        listed = brokers.names()
    except ProtocolError:  # brokers before 0.9 have no groups
        if not in_znodes:
            raise
        return []
    except BrokerUnavailable as error:
        if not in_znodes:
            raise
        problems.append(f"groups that brokers coordinate are missing: {error}")
        return []
    problems += brokers.unlisted
    return listed
