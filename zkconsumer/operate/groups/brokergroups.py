"""BrokerGroup: what the coordinator of a group of brokers tells of it, and the logs of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, ConfigError, ProtocolError, ZkConsumerError
from zkconsumer.group.kafka.describedmembers import described_group
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.lag import signed_lag
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.groups.groupdescription import PartitionDescription
from zkconsumer.operate.offsets.brokeroffsets import TIMEOUT_MS, BrokerOffsets, Logs
from zkconsumer.operate.offsets.recordtimes import RecordTimes
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.describegroups import list_groups
from zkconsumer.wire.errorcodes import error_name
from zkconsumer.wire.rules.describedgroup import DEAD, DescribedGroup, DescribedMember

_OF_CONSUMERS: Final = frozenset({"consumer", ""})
"""Protocol types: members are consumers, or there were simple commits only."""


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """A group that brokers coordinate, at one moment.

    Attributes:
        group: its name.
        described: its state and members.
        coordinator: the broker that coordinates it.
        offsets: what it has committed, by partition.
        problems: what cannot be read, one sentence each.
    """

    group: str
    described: DescribedGroup
    coordinator: Broker | None
    offsets: Mapping[TopicPartition, StoredOffset]
    problems: tuple[str, ...] = ()

    @property
    def owners(self) -> dict[TopicPartition, DescribedMember]:
        """The member of each assigned partition."""
        return {partition: member for member in self.described.members for partition in member.assigned}

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that are assigned or have an offset, sorted."""
        return sorted({*self.offsets, *self.owners})

    def consumes(self, topic: str) -> bool:
        """True if it has partitions or offsets of a topic, or a member that subscribes to it."""
        return any(partition.topic == topic for partition in self.partitions) or any(
            topic in member.topics for member in self.described.members
        )


class BrokerGroupDescription(NamedTuple):
    """A group and its lags.

    Attributes:
        observed: the group.
        partitions: in the order of :attr:`BrokerGroup.partitions`; an owner is a member id.
        problems: what cannot be read, one sentence each.
    """

    observed: BrokerGroup
    partitions: tuple[PartitionDescription, ...]
    problems: tuple[str, ...]


class BrokerGroups:
    """Asks brokers for the groups that they coordinate; one thread uses it. ZooKeeper is not needed.

    Args:
        config: how brokers are reached.
        timeout_ms: how long a broker may be silent, in ms.

    Attributes:
        times: when records of the groups' partitions were written.

    Raises:
        ConfigError: no brokers are given.
    """

    def __init__(self, config: ConsumerConfig, timeout_ms: int = TIMEOUT_MS) -> None:
        bootstrap = bootstrap_brokers(config.bootstrap_servers)
        if not bootstrap:
            raise ConfigError(["bootstrap.servers is missing; give --bootstrap-server"])
        self._asked = BrokerOffsets(config, lambda: bootstrap, timeout_ms=timeout_ms)
        self.times: Final = RecordTimes(self._asked.client, config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._asked.close()

    def begin_round(self) -> None:
        """Ask brokers again that did not answer."""
        self._asked.begin_round()

    def names(self) -> tuple[list[str], tuple[str, ...]]:
        """Names of all groups of consumers, sorted; and why a broker has not listed its groups.

        Raises:
            BrokerUnavailable: no broker answers.
            ProtocolError: the brokers coordinate no groups.
        """
        client, names, problems = self._asked.client, set(), []
        brokers = client.metadata([]).brokers.values()
        errors: list[ZkConsumerError] = []
        for broker in sorted(brokers):
            try:
                listed = client.ask(broker, list_groups)
            except (BrokerUnavailable, ProtocolError) as error:
                problems.append(f"groups of broker {broker.id} are missing: {error}")
                errors.append(error)
            else:
                names |= {name for name, kind in listed.items() if kind in _OF_CONSUMERS}
        if errors and len(errors) == len(brokers):
            raise errors[0]
        return sorted(names), tuple(problems)

    def read(self, groups: Collection[str]) -> tuple[dict[str, BrokerGroup], dict[str, ZkConsumerError]]:
        """Groups by name, in the order given; and why others cannot be read, or that they do not exist."""
        observed, failures = self._asked.ask_coordinators(groups, _observe)
        for name, group in observed.items():
            if group.described.state == DEAD and not group.offsets:
                failures[name] = ZkConsumerError(
                    f"group {name} does not exist at the brokers; check its name (`zkconsumer groups list`), or give "
                    "--zookeeper if it is a group in ZooKeeper"
                )
        return {name: observed[name] for name in groups if name not in failures}, failures

    def logs(self, groups: Collection[BrokerGroup], *, with_starts: bool = True) -> tuple[Logs, tuple[str, ...]]:
        """The logs of all partitions of groups, and what is unknown of them."""
        partitions = {partition for group in groups for partition in group.partitions}
        answer = self._asked.logs(partitions, with_starts=with_starts)
        return answer.found, answer.problems


def _observe(group: str, coordinator: OffsetCoordinator) -> BrokerGroup:
    described = described_group(coordinator.coordinator, group)
    assigned = {partition for member in described.members for partition in member.assigned}
    stored = coordinator.fetch_known(assigned)  # brokers before 0.10.2 tell it of named partitions only
    problems = tuple(f"the offset of {p} cannot be read: {error_name(code)}" for p, code in stored.errors.items())
    offsets = {partition: offset for partition, offset in stored.found.items() if offset.offset is not None}
    return BrokerGroup(group, described, coordinator.coordinator.broker, offsets, problems)


def describe_broker_groups(
    config: ConsumerConfig, choose: Callable[[BrokerGroups], Sequence[str]], *, with_log_starts: bool = False
) -> tuple[list[BrokerGroupDescription], dict[str, ZkConsumerError]]:
    """Describe groups of brokers; nothing is written. All committed offsets are read before the log ends.

    Args:
        config: how brokers are reached.
        choose: returns the names of the groups.
        with_log_starts: also ask where the logs start.

    Returns:
        The groups in the order of their names, and why others cannot be read.

    Raises:
        ConfigError, BrokerUnavailable, ProtocolError: as :class:`BrokerGroups`.
    """
    with closing(BrokerGroups(config)) as brokers:
        groups, failures = brokers.read(choose(brokers))
        logs, problems = brokers.logs(list(groups.values()), with_starts=with_log_starts)
    return [describe_group(group, logs, problems) for group in groups.values()], failures


def describe_group(group: BrokerGroup, logs: Logs, problems: tuple[str, ...]) -> BrokerGroupDescription:
    """A group and its lags.

    Args:
        group: as observed.
        logs: of its partitions, read after it.
        problems: what is unknown of the logs.
    """
    owners = group.owners
    rows = tuple(_partition(group, partition, owners.get(partition), logs) for partition in group.partitions)
    return BrokerGroupDescription(group, rows, (*group.problems, *(problems if rows else ())))


def _partition(
    group: BrokerGroup, partition: TopicPartition, owner: DescribedMember | None, logs: Logs
) -> PartitionDescription:
    stored, log_end = group.offsets.get(partition), logs.ends.get(partition)
    committed = None if stored is None else stored.offset
    return PartitionDescription(
        topic=partition.topic,
        partition=partition.partition,
        owner=None if owner is None else owner.member_id,
        owner_live=None if owner is None else True,
        committed=committed,
        log_end=log_end,
        lag=signed_lag(committed, log_end),
        log_start=logs.starts.get(partition),
        in_kafka=committed,
    )
