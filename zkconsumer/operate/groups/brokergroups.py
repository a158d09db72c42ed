"""ObservedBrokerGroup: what the coordinator of a group of brokers reports of it, and the logs of its partitions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import Final, Literal, Self

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    BrokerUnavailable,
    ConfigError,
    GroupMissing,
    NoCommonVersion,
    ProtocolError,
    ZkConsumerError,
    name_some,
)
from zkconsumer.group.kafka.describedmembers import OF_CONSUMERS, described_group
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.lag import signed_lag
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.groups.finding import describe_topic
from zkconsumer.operate.groups.groupdescription import PartitionDescription
from zkconsumer.operate.groups.observedgroup import (
    BrokerState,
    DescribedGroupMember,
    GroupsLook,
    Layout,
    may_exist,
    missing_topics,
)
from zkconsumer.operate.groups.rules.lagstretches import LagSample
from zkconsumer.operate.groups.zookeepergroups import patience_ms
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets, Logs, committed_answer, why_undescribed
from zkconsumer.operate.offsets.recordtimes import RecordTimes
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.describegroups import list_groups
from zkconsumer.wire.rules.describedgroup import DEAD, DescribedGroup, DescribedMember, KafkaGroup, exists_at_brokers
from zkconsumer.zookeeper.rules.znodes import MigrationMark

Phase = Literal["empty", "rebalancing", "stable"]

_STABLE: Final = "Stable"


@dataclass(frozen=True)
class ObservedBrokerGroup:
    """A group that brokers coordinate, at one moment; an :class:`ObservedGroup`.

    Attributes:
        group: its name.
        described: its state and members.
        coordinator: the broker that coordinates it.
        offsets: what it has committed, by partition.
        problems: what cannot be read, one sentence each.
        existing: partition numbers of those of its topics that exist, as far as it was asked.
        undescribed: those of its topics that may exist, although brokers do not describe them.
        unread: partitions whose offset the coordinator does not report, although it may have one.
    """

    group: str
    described: DescribedGroup
    coordinator: Broker | None
    offsets: Mapping[TopicPartition, StoredOffset]
    problems: tuple[str, ...] = ()
    existing: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    undescribed: frozenset[str] = frozenset()
    unread: frozenset[TopicPartition] = frozenset()

    @property
    def layout(self) -> Layout:
        """It has no znodes."""
        return "kafka"

    @property
    def in_brokers(self) -> BrokerState | None:
        """What the coordinator reports."""
        return BrokerState(self.described.kind, self.described.state, self.described.strategy)

    @property
    def phase(self) -> Phase:
        """What its state means: each release has other names for a rebalance, and before 0.10.1 no ``Empty``."""
        if not KafkaGroup(self.described.state).has_members:
            return "empty"
        return "stable" if self.described.state == _STABLE else "rebalancing"

    @cached_property
    def live(self) -> frozenset[str]:
        """Member ids."""
        return frozenset(member.member_id for member in self.described.members)

    @cached_property
    def owners(self) -> Mapping[TopicPartition, str]:
        """The member id of each assigned partition."""
        return {partition: member.member_id for member in self.described.members for partition in member.assigned}

    @cached_property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Those that are assigned or have an offset, sorted."""
        return tuple(sorted({*self.offsets, *self.owners}))

    @property
    def absent(self) -> frozenset[str]:
        """See :class:`ObservedGroup`."""
        return self.topics - self.existing.keys() - self.undescribed

    @property
    def subscribed(self) -> frozenset[str]:
        """Topics that members subscribe to, as far as the coordinator describes them."""
        return frozenset(topic for member in self.described.members for topic in member.topics)

    @property
    def topics(self) -> frozenset[str]:
        """See :class:`ObservedGroup`."""
        return self.subscribed.union(partition.topic for partition in self.partitions)

    @property
    def newest_commit_ms(self) -> int | None:
        """Unknown: coordinators do not report it."""
        return None

    @property
    def mark(self) -> MigrationMark | None:
        """None: groups in ZooKeeper are marked."""
        return None

    @property
    def in_two_homes(self) -> str:
        """Empty: it has members at brokers alone."""
        return ""

    @property
    def lost(self) -> str:
        """Empty: brokers have it."""
        return ""

    def is_live(self, partition: TopicPartition) -> bool:
        """True if a member has the partition: a coordinator forgets those that are gone."""
        return partition in self.owners

    def in_zookeeper(self, partition: TopicPartition) -> int | None:  # noqa: ARG002 - as that of a group in ZooKeeper
        """None."""
        return None

    def describe_members(self) -> tuple[DescribedGroupMember, ...]:
        """Its members, in the order of their ids."""
        protocol = "consumer" if self.described.kind == "consumer" else "kafka"
        members = sorted(self.described.members, key=lambda member: member.member_id)
        return tuple(_member(member, protocol) for member in members)


def no_broker_group(group: str) -> ObservedBrokerGroup:
    """A group that brokers do not have, as a coordinator describes it."""
    return ObservedBrokerGroup(group, DescribedGroup("classic", DEAD, "", ()), None, {})


def _member(member: DescribedMember, protocol: str) -> DescribedGroupMember:
    return DescribedGroupMember(
        member.member_id,
        None if member.streams is None else "zkconsumer",
        None if member.streams is None else dict(member.streams),
        None,
        None,
        len(member.assigned),
        tuple(sorted(member.topics)),
        member.host,
        member.client_id,
        member.instance_id,
        protocol,
    )


@dataclass(frozen=True, slots=True)
class BrokerGroupDescription:
    """A group and its lags.

    Attributes:
        observed: the group.
        members: in the order of their ids.
        partitions: in the order of :attr:`ObservedBrokerGroup.partitions`; an owner is a member id.
        problems: what cannot be read, one sentence each.
    """

    observed: ObservedBrokerGroup
    members: tuple[DescribedGroupMember, ...]
    partitions: tuple[PartitionDescription, ...]
    problems: tuple[str, ...]


class BrokerGroups:
    """Asks brokers for the groups that they coordinate; one thread uses it. ZooKeeper is not needed.

    Args:
        config: how brokers are reached.
        interval: seconds between looks, if a look should not take much longer where a broker is silent.
        displays: see :class:`~zkconsumer.cluster.brokercatalog.PatientCatalog`.

    Attributes:
        asked: the brokers, for other questions.
        times: when records of the groups' partitions were written.
        unlisted: why brokers did not list their groups at the last :meth:`names`, one sentence each.

    Raises:
        ConfigError: no brokers are given.
    """

    def __init__(self, config: ConsumerConfig, *, interval: float = math.inf, displays: bool = True) -> None:
        bootstrap = bootstrap_brokers(config.bootstrap_servers)
        if not bootstrap:
            raise ConfigError(["bootstrap.servers is missing; give --bootstrap-server"])
        self._servers: Final = config.bootstrap_servers
        timeout_ms = patience_ms(interval)
        self.asked: Final = BrokerOffsets(config, lambda: bootstrap, timeout_ms=timeout_ms, displays=displays)
        self._listed: dict[int, frozenset[str]] = {}  # by broker, as of its last answer
        self.unlisted: tuple[str, ...] = ()
        self.times: Final = RecordTimes(self.asked.client, config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.asked.close()

    def begin_round(self) -> None:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        self.asked.begin_round()

    def servers(self) -> tuple[ServerAnswer, ...]:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        return self.asked.client.answers()

    def names(self) -> list[str]:
        """Names of all groups of consumers, sorted. Why a broker has not listed its groups is :attr:`unlisted`.

        A broker that does not answer still has those of its last answer, as long as it is one of the cluster, or the
        partitions that it led have no leader.

        Raises:
            BrokerUnavailable: no broker answers.
            NoCommonVersion: the brokers coordinate no groups: all are older than 0.9.
            ProtocolError: no broker lists its groups.
        """
        client, problems = self.asked.client, []
        try:
            asked_about = [OFFSETS_TOPIC] if self.asked.has_offsets_topic() else []
        except BrokerUnavailable:  # if it is one broker, the others are asked below
            asked_about = []
        metadata = client.metadata(asked_about)
        brokers = metadata.brokers.values()
        # 1. A broker ends; 2. it is not in the metadata any more; 3. no broker lists the groups that it coordinated.
        if missing := sorted(metadata.leaderless):
            problems.append(
                f"groups are missing whose coordinator would be the leader of {name_some(missing)}, which have none: "
                f"check which brokers do not run ({describe_topic(OFFSETS_TOPIC, self._servers)})"
            )
        errors: list[ZkConsumerError] = []
        for broker in sorted(brokers):
            try:
                listed = client.ask(broker, list_groups)
            except (BrokerUnavailable, ProtocolError) as error:
                problems.append(f"groups of broker {broker.id} are missing: {error}")
                errors.append(error)
            else:
                self._listed[broker.id] = frozenset(name for name, kind in listed.items() if kind in OF_CONSUMERS)
        if errors and len(errors) == len(brokers):
            raise next((error for error in errors if not isinstance(error, NoCommonVersion)), errors[0])
        self.unlisted = tuple(problems)
        if not missing:
            self._listed = {broker.id: names for broker in brokers if (names := self._listed.get(broker.id))}
        return sorted(frozenset().union(*self._listed.values()))

    def look(self, groups: Sequence[str], at: float) -> GroupsLook:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        observed, failures = self.read(groups)
        logs, problems = self.logs(list(observed.values()))
        samples = {name: _samples(group, at, logs) for name, group in observed.items()}
        of_groups = (problem for group in observed.values() for problem in group.problems)
        return GroupsLook(dict(observed), samples, failures, (*of_groups, *problems))

    def read(
        self, groups: Collection[str], *, with_topics: bool = True
    ) -> tuple[dict[str, ObservedBrokerGroup], dict[str, ZkConsumerError]]:
        """Groups by name, in the order given; and why others cannot be read, or that they do not exist.

        Without the topic of offsets none exists, and the question for a coordinator would create it. ``with_topics``:
        which of their topics exist is asked, too, and what is unknown of these is a problem of the group.
        """
        try:
            possible = groups if groups and self.asked.has_offsets_topic() else ()
        except ZkConsumerError as error:
            return {}, dict.fromkeys(groups, error)
        observed, failures = self.asked.ask_coordinators(possible, _observe)
        for name in groups:
            group = observed.get(name)
            if name not in failures and (group is None or not exists_at_brokers(group.described.state, group.offsets)):
                failures[name] = GroupMissing(
                    f"group {name} does not exist at the brokers; check its name (`zkconsumer groups list`), or give "
                    "--zookeeper if it is a group in ZooKeeper"
                )
        found = {name: observed[name] for name in groups if name not in failures}
        return self._with_existing(found) if with_topics else found, failures

    def required(self, group: str) -> ObservedBrokerGroup:
        """One group.

        Raises:
            GroupMissing: the brokers have no such group.
            ZkConsumerError: its coordinator cannot be asked.
        """
        groups, failures = self.read([group])
        if failures:
            raise failures[group]
        return groups[group]

    def _with_existing(self, groups: dict[str, ObservedBrokerGroup]) -> dict[str, ObservedBrokerGroup]:
        """Groups with the partitions of their topics, and what is missing of them."""
        topics_by_group = {name: group.topics for name, group in groups.items()}
        answer = self.asked.existing(set().union(*topics_by_group.values()))
        found: dict[str, list[int]] = {}
        for topic, number in sorted(answer.found.partitions):
            found.setdefault(topic, []).append(number)
        completed = {}
        for name, group in groups.items():
            topics = topics_by_group[name]
            undescribed = {topic: why for topic, why in answer.found.undescribed.items() if topic in topics}
            existing = {topic: tuple(found[topic]) for topic in sorted(topics & found.keys())}
            known = replace(group, existing=existing, undescribed=frozenset(undescribed))
            why = answer.problems if answer.error is not None and topics else why_undescribed(undescribed)
            completed[name] = replace(known, problems=(*group.problems, *why, *missing_topics(known)))
        return completed

    def logs(
        self, groups: Collection[ObservedBrokerGroup], *, with_starts: bool = True
    ) -> tuple[Logs, tuple[str, ...]]:
        """The logs of all partitions of groups, and what is unknown of them."""
        partitions = {partition for group in groups for partition in group.partitions if may_exist(group, partition)}
        answer = self.asked.logs(partitions, with_starts=with_starts)
        return answer.found, answer.problems


def _observe(group: str, coordinator: OffsetCoordinator) -> ObservedBrokerGroup:
    described = described_group(coordinator.coordinator, group)
    assigned = {partition for member in described.members for partition in member.assigned}
    # Brokers before 0.10.2 answer for named partitions only.
    stored = committed_answer(coordinator.fetch_known(assigned))
    broker = coordinator.coordinator.broker
    return ObservedBrokerGroup(group, described, broker, stored.found, stored.problems, unread=stored.unknown)


def _samples(group: ObservedBrokerGroup, at: float, logs: Logs) -> dict[TopicPartition, LagSample]:
    samples = {}
    for partition in group.partitions:
        stored, owner = group.offsets.get(partition), group.owners.get(partition)
        samples[partition] = LagSample(
            at=at,
            committed=None if stored is None else stored.offset,
            mzxid=None,
            log_start=logs.starts.get(partition),
            log_end=logs.ends.get(partition),
            owner=owner,
            owner_live=owner is not None,
            is_unread=partition in (group.unread if stored is None else logs.unread),
        )
    return samples


def describe_group(group: ObservedBrokerGroup, logs: Logs, problems: tuple[str, ...]) -> BrokerGroupDescription:
    """A group and its lags.

    Args:
        group: as observed.
        logs: of its partitions, read after it.
        problems: what is unknown of the logs.
    """
    rows = tuple(_partition(partition, sample) for partition, sample in _samples(group, 0.0, logs).items())
    return BrokerGroupDescription(group, group.describe_members(), rows, (*group.problems, *(problems if rows else ())))


def _partition(partition: TopicPartition, sample: LagSample) -> PartitionDescription:
    return PartitionDescription(
        topic=partition.topic,
        partition=partition.partition,
        owner=sample.owner,
        owner_live=sample.owner_live or None,
        committed=sample.committed,
        log_end=sample.log_end,
        lag=signed_lag(sample.committed, sample.log_end),
        log_start=sample.log_start,
        in_kafka=sample.committed,
        is_unread=sample.is_unread,
    )
