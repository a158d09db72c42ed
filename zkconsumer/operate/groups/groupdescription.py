"""What consumer groups look like from outside: members, owners, offsets, lag (jvm-consumer.md#tools)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from zkconsumer.assembly.clusterchoice import open_group_reader
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZkConsumerError
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import outside_log, signed_lag
from zkconsumer.offsets.rules.storedoffsets import (
    NO_OFFSET,
    ChosenOffset,
    OffsetStorage,
    Store,
    StoredOffset,
    counting_offset,
    counts_in_kafka,
)
from zkconsumer.offsets.rules.topicorigins import WrittenFor, count_as_none, without_copies
from zkconsumer.operate.groups.groupznodes import GroupZnodes, read_groups
from zkconsumer.operate.groups.observedgroup import DescribedGroupMember, may_exist, missing_topics
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets, BrokersAnswer, Logs, unread_commits
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.zookeeper.session import ZkSession

if TYPE_CHECKING:
    from zkconsumer.operate.groups.groupcoordinators import GroupCoordinator
    from zkconsumer.zookeeper.rules.znodes import MigrationMark


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition. Offsets and lag are numbers of records; None is unknown.

    Attributes:
        topic: its topic.
        partition: its number.
        owner: thread id in its owner znode, None if there is none.
        owner_live: whether that thread's consumer is registered; None without an owner.
        committed: the offset that counts by the :data:`OffsetStorage`; one of an earlier topic is none in either store.
        log_end: read after ``committed``.
        lag: their difference. It is negative only if the offset lies after the log end.
        log_start: None also where it was not asked for.
        in_zookeeper: the offset stored there.
        in_kafka: the offset stored there; None also where the coordinator was not asked.
        is_readable: False if the offset that counts may be one that cannot be read.
        is_unread: True if the offset or the log end is unknown, and may exist.
    """

    topic: str
    partition: int
    owner: str | None
    owner_live: bool | None
    committed: int | None
    log_end: int | None
    lag: int | None
    log_start: int | None = None
    in_zookeeper: int | None = None
    in_kafka: int | None = None
    is_readable: bool = True
    is_unread: bool = False

    @property
    def is_outside_log(self) -> bool:
        """True if the committed offset is known to lie before the log start or after the log end."""
        return outside_log(self.committed, self.log_start, self.log_end) is not None

    @property
    def is_unhealthy(self) -> bool:
        """True if no live member owns the partition, its lag is unknown, or its offset lies outside the log."""
        return self.owner_live is not True or self.lag is None or self.is_outside_log


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group at one moment.

    Attributes:
        group: name of the group.
        members: in the order of their ids.
        partitions: partitions of every topic that a member subscribes to, or that the group ever owned or committed to
            ZooKeeper; those that it committed to Kafka only where the :data:`OffsetStorage` is kafka or both.
        problems: data that cannot be read (registrations, offsets, log ends), one sentence each, with the reason.
        coordinator: of a group that has members with ``group.protocol=coordinator``.
        mark: of a group that was migrated, or is being.
    """

    group: str
    members: tuple[DescribedGroupMember, ...]
    partitions: tuple[PartitionDescription, ...]
    problems: tuple[str, ...] = ()
    coordinator: GroupCoordinator | None = None
    mark: MigrationMark | None = None

    @property
    def live(self) -> frozenset[str]:
        """Ids of its members."""
        return frozenset(member.id for member in self.members)


def describe_group(session: ZkSession, config: ConsumerConfig, group: str) -> GroupDescription:
    """Describe one group; see :func:`describe_groups`."""
    (description,) = describe_groups(session, config, [group])
    return description


def describe_groups(
    session: ZkSession,
    config: ConsumerConfig,
    groups: Sequence[str],
    *,
    storage: OffsetStorage = "auto",
    with_log_starts: bool = False,
    shared: BrokerOffsets | None = None,
    failures: dict[str, ZkConsumerError] | None = None,
) -> list[GroupDescription]:
    """Describe groups from ZooKeeper and the brokers. Nothing is written.

    Brokers that do not answer make log ends unknown; they do not make this fail. All committed offsets are read before
    the log ends, so a commit in between cannot make a lag negative.

    Args:
        session: an open session.
        config: how brokers are reached.
        groups: names of groups.
        storage: whose committed offset counts.
        with_log_starts: also ask where the logs start.
        shared: asks the brokers of ``config``, for whom else; None for connections of its own.
        failures: takes why groups cannot be read, by name; None makes that an error.

    Raises:
        ZkConsumerError: one of the groups does not exist, or ZooKeeper cannot be read.
    """
    brokers = bootstrap_brokers(config.bootstrap_servers)
    asked = BrokerOffsets(config, lambda: brokers, displays=True) if shared is None else shared
    with closing(asked) if shared is None else nullcontext():
        group_reader = open_group_reader(session, config, without_brokers=True, catalog=asked.catalog)
        groups_znodes = read_groups(session, group_reader, groups).required(failures)
        brokers = brokers or group_reader.live_brokers()
        in_kafka = read_offsets_in_kafka(group_reader, asked, groups_znodes, storage)
        partitions = existing_partitions(groups_znodes, in_kafka)
        logs = asked.logs(partitions, with_starts=with_log_starts)
    return [_description(znodes, in_kafka[znodes.group], storage, logs) for znodes in groups_znodes]


OffsetsInKafka = BrokersAnswer[dict[TopicPartition, StoredOffset]]
"""What a group committed to Kafka."""


def existing_partitions(
    groups: Sequence[GroupZnodes],
    in_kafka: Mapping[str, OffsetsInKafka] = MappingProxyType({}),
) -> set[TopicPartition]:
    """The partitions of groups that brokers can be asked about: brokers before 0.11 may create what does not exist.

    Args:
        groups: what was read of the groups from ZooKeeper.
        in_kafka: their offsets in Kafka, which has none of topics that do not exist.
    """
    known = {p for znodes in groups for p in znodes.partitions}
    existing = {p for znodes in groups for p in znodes.partitions if may_exist(znodes, p)}
    return existing | {p for stored in in_kafka.values() for p in stored.found if p not in known}


def all_partitions(znodes: GroupZnodes, in_kafka: OffsetsInKafka) -> list[TopicPartition]:
    """A group's partitions by its znodes and by its offsets in Kafka, in their order."""
    return sorted({*znodes.partitions, *in_kafka.found})


def read_offsets_in_kafka(
    group_reader: GroupReader,
    asked: BrokerOffsets,
    groups: Sequence[GroupZnodes],
    storage: OffsetStorage,
) -> dict[str, OffsetsInKafka]:
    """What groups committed to Kafka, by group; nothing where the coordinators do not have to be asked.

    As long as the topic of offsets does not exist no group has an offset in Kafka, so nothing is asked.

    Args:
        group_reader: reads which topics the cluster has.
        asked: the brokers, whose coordinators are asked.
        groups: what was read of the groups from ZooKeeper.
        storage: whose offsets count.
    """
    if storage == "zookeeper":
        return {znodes.group: BrokersAnswer({}) for znodes in groups}
    try:
        may_have_offsets = asked.has_offsets_topic(group_reader)
    except ZkConsumerError as error:
        return unread_commits({znodes.group: error for znodes in groups})
    if not may_have_offsets:
        return {znodes.group: BrokersAnswer({}) for znodes in groups}
    partitions = {znodes.group: znodes.partitions for znodes in groups}
    return asked.committed(partitions, with_others=counts_in_kafka(storage))


def counting_stored(
    znodes: GroupZnodes, in_kafka: OffsetsInKafka, partition: TopicPartition, storage: OffsetStorage
) -> ChosenOffset:
    """Which of a group's stored offsets counts for a tool."""
    unknown_in: list[Store] = ["zookeeper"] if partition in znodes.unreadable else []
    if partition in in_kafka.unknown:
        unknown_in.append("kafka")
    of_znode = znodes.judged(partition)
    of_kafka = znodes.judge(partition, in_kafka.found.get(partition, NO_OFFSET))
    if storage == "both":
        of_znode, of_kafka = without_copies(of_znode, of_kafka)
    return counting_offset(of_znode.counting, of_kafka.counting, storage, unknown_in)


def is_unread(partition: TopicPartition, counts: ChosenOffset, in_kafka: OffsetsInKafka, logs: Logs) -> bool:
    """True if a partition's lag is unknown because an offset or a log end could not be read that may exist."""
    if counts.offset is not None:
        return partition in logs.unread
    return in_kafka.error is not None or not counts.is_known


def without_offset(
    znodes: GroupZnodes, in_kafka: OffsetsInKafka, storage: OffsetStorage
) -> dict[TopicPartition, int | None]:
    """The offsets of earlier topics of those partitions that have no other one; none while that is unknown."""
    if in_kafka.error is not None:
        return {}
    judged = [(p, znodes.judged(p)) for p in znodes.offsets]
    judged += ((p, znodes.judge(p, one)) for p, one in in_kafka.found.items())
    outdated = {p: one.offset for p, one in judged if one.written_for is WrittenFor.EARLIER}
    return {p: n for p, n in outdated.items() if counting_stored(znodes, in_kafka, p, storage).offset is None}


def outdated_problems(znodes: GroupZnodes, in_kafka: OffsetsInKafka, storage: OffsetStorage) -> list[str]:
    """What :func:`without_offset` finds, in a sentence."""
    outdated = without_offset(znodes, in_kafka, storage)
    return [count_as_none(znodes.group, [f"{p} ({n})" for p, n in outdated.items()])] if outdated else []


def _description(
    znodes: GroupZnodes,
    in_kafka: OffsetsInKafka,
    storage: OffsetStorage,
    logs: BrokersAnswer[Logs],
) -> GroupDescription:
    partitions = all_partitions(znodes, in_kafka)
    return GroupDescription(
        znodes.group,
        znodes.describe_members(),
        tuple(_partition(znodes, p, in_kafka, storage, logs.found) for p in partitions),
        (
            *znodes.problems,
            *missing_topics(znodes),
            *in_kafka.problems,
            *outdated_problems(znodes, in_kafka, storage),
            *(logs.problems if partitions else ()),
        ),
        znodes.coordinator,
        znodes.mark,
    )


def _partition(
    znodes: GroupZnodes,
    partition: TopicPartition,
    in_kafka: OffsetsInKafka,
    storage: OffsetStorage,
    logs: Logs,
) -> PartitionDescription:
    committed = counting_stored(znodes, in_kafka, partition, storage)
    log_end = logs.ends.get(partition)
    return PartitionDescription(
        topic=partition.topic,
        partition=partition.partition,
        owner=znodes.owners.get(partition),
        owner_live=znodes.is_live(partition) if partition in znodes.owners else None,
        committed=committed.offset,
        log_end=log_end,
        lag=signed_lag(committed.offset, log_end),
        log_start=logs.starts.get(partition),
        in_zookeeper=znodes.in_zookeeper(partition),
        in_kafka=znodes.judge(partition, in_kafka.found.get(partition, NO_OFFSET)).counting,
        is_readable=committed.is_known,
        is_unread=is_unread(partition, committed, in_kafka, logs),
    )
