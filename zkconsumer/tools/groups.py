"""What a consumer group looks like from outside: members, owners, offsets, lag (SPEC 12)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.groupview import GroupView
from zkconsumer.core.subscription import Blacklist, Subscription
from zkconsumer.core.znodes import BLACK_LIST, STATIC, WHITE_LIST, GroupPaths
from zkconsumer.errors import CoordinatorMoved, ZkConsumerError, name_some
from zkconsumer.kafka.client import LATEST, BrokerClient
from zkconsumer.kafka.coordinator import OffsetCoordinator
from zkconsumer.kafka.errorcodes import error_name
from zkconsumer.kafka.group_offsets import StoredOffsets
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.offsets.zookeeper import ZooKeeperOffsetStore
from zkconsumer.zookeeper.registry import Registry
from zkconsumer.zookeeper.session import ZkSession

_LOG_END_TIMEOUT_MS: Final = 6000
_COORDINATOR_TIMEOUT_MS: Final = 2000
_COORDINATOR_ATTEMPTS: Final = 5
_COORDINATOR_PAUSE_S: Final = 0.3  # ConsumerGroupCommand's (SPEC 12); the first question may create the offsets topic


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member: its consumer id, ``jvm`` or ``zkconsumer``, threads by topic, kind of subscription, and since when.

    ``registered_ms`` is in ms since the epoch, None where the member did not say.
    """

    id: str
    client: str
    threads: dict[str, int]
    pattern: str
    registered_ms: int | None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition: owner (thread id) and whether that member lives, offsets and lag in records; None = unknown."""

    topic: str
    partition: int
    owner: str | None
    owner_live: bool | None
    committed: int | None
    log_end: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group at one moment.

    Attributes:
        group: its name.
        members: in the order of their ids.
        partitions: of every topic that a member subscribes to, or that the group ever owned or committed.
        problems: what cannot be read (registrations, offsets, log ends), one sentence each, with the reason.
    """

    group: str
    members: tuple[MemberDescription, ...]
    partitions: tuple[PartitionDescription, ...]
    problems: tuple[str, ...] = ()


def describe_group(session: ZkSession, config: ConsumerConfig, group: str) -> GroupDescription:
    """Describe one group from ZooKeeper and the brokers.

    The committed offset is the one in Kafka where the group's coordinator has one, else the one in ZooKeeper, as the
    JVM's tool has it. Brokers that do not answer make the log end unknown; they do not make this fail.

    Args:
        session: an open session.
        config: how brokers are reached.
        group: name of the group.

    Raises:
        ZkConsumerError: there is no such group, or ZooKeeper cannot be read.
    """
    registry = Registry(session, config.security_protocol)
    if not registry.group_exists(group):
        raise ZkConsumerError(
            f"group {group} does not exist in ZooKeeper; check its name and the chroot (a group that stores offsets in "
            "Kafka and has no ZooKeeper member is not here)"
        )
    view = registry.view(group)
    paths = GroupPaths(group)
    topics = set(registry.owned_topics(group)) | set(session.children(paths.offsets) or ())
    for subscription in view.members.values():
        topics |= subscription.expand(view.topics, exclude_internal=True).keys()
    partitions = _partitions(session, registry, paths, topics)
    owners = registry.owner_threads(group, partitions)
    in_zookeeper = ZooKeeperOffsetStore(session, group).fetch(partitions)
    in_kafka = offsets_in_kafka(config, view.brokers, group, partitions)
    committed = {**in_zookeeper, **in_kafka.offsets}
    ends = log_ends(config, view.brokers, partitions)
    return GroupDescription(
        group,
        tuple(_member(view, consumer_id, view.members[consumer_id]) for consumer_id in sorted(view.members)),
        tuple(_partition(p, owners[p], view, committed.get(p), ends.offsets.get(p)) for p in partitions),
        (
            *view.unreadable.values(),
            *(f"znode {paths.offset(p)} does not hold an offset" for p in partitions if p not in in_zookeeper),
            *in_kafka.problems,
            *ends.problems,
        ),
    )


def _partitions(
    session: ZkSession, registry: Registry, paths: GroupPaths, topics: Iterable[str]
) -> list[TopicPartition]:
    """All partitions of the topics: those that exist, and those that only the group's znodes still know."""
    wanted = sorted(topics)
    found = {TopicPartition(topic, n) for topic, numbers in registry.partitions(wanted).items() for n in numbers}
    for topic in wanted:
        for parent in (paths.owner_topic(topic), paths.offset_topic(topic)):
            names = session.children(parent) or ()
            found |= {TopicPartition(topic, int(name)) for name in names if name.isascii() and name.isdigit()}
    return sorted(found)


def _member(view: GroupView, consumer_id: str, subscription: Subscription) -> MemberDescription:
    if subscription.topic_filter is None:
        pattern = STATIC
    else:
        pattern = BLACK_LIST if isinstance(subscription.topic_filter, Blacklist) else WHITE_LIST
    registered = view.registered_ms.get(consumer_id)
    return MemberDescription(
        consumer_id,
        "zkconsumer" if consumer_id in view.our_clients else "jvm",
        subscription.expand(view.topics, exclude_internal=True),
        pattern,
        registered,
    )


def _partition(
    partition: TopicPartition, owner: str | None, view: GroupView, committed: int | None, end: int | None
) -> PartitionDescription:
    return PartitionDescription(
        partition.topic,
        partition.partition,
        owner,
        None if owner is None else _is_live(owner, view),
        committed,
        end,
        None if committed is None or end is None else end - committed,
    )


def _is_live(owner: str, view: GroupView) -> bool:
    try:
        consumer_id = ConsumerThreadId.parse(owner).consumer_id
    except ValueError:
        return False
    return consumer_id in view.members or consumer_id in view.unreadable


class LogEndReport(NamedTuple):
    """Log ends that the brokers reported, and why they did not report others."""

    offsets: dict[TopicPartition, int]
    problems: tuple[str, ...] = ()


def log_ends(
    config: ConsumerConfig, brokers: Collection[Broker], partitions: Collection[TopicPartition]
) -> LogEndReport:
    """Ask the leaders of partitions where their logs end; silence of the brokers is not an error here."""
    if not partitions:
        return LogEndReport({})
    if not brokers:
        return LogEndReport({}, ("log ends are unknown: no broker is registered in ZooKeeper; check that brokers run",))
    client = BrokerClient.from_config(lambda: tuple(brokers), config, timeout_ms=_LOG_END_TIMEOUT_MS)
    try:
        answer = client.list_offsets(dict.fromkeys(partitions, LATEST))
    except ZkConsumerError as error:
        return LogEndReport({}, (f"log ends are unknown: {error}",))
    finally:
        client.close()
    return LogEndReport(
        {partition: end for partition, end in answer.found.items() if end is not None},
        tuple(f"log ends of {name_some(theirs)} are unknown: {why}" for why, theirs in answer.reasons().items()),
    )


class OffsetsInKafka(NamedTuple):
    """Offsets that the group's coordinator has, and why it could not be asked."""

    offsets: dict[TopicPartition, int]
    problems: tuple[str, ...] = ()


def offsets_in_kafka(
    config: ConsumerConfig, brokers: Collection[Broker], group: str, partitions: Collection[TopicPartition]
) -> OffsetsInKafka:
    """Ask the group's coordinator for what is committed to Kafka; its silence is not an error here."""
    if not brokers or not partitions:
        return OffsetsInKafka({})
    client = BrokerClient.from_config(lambda: tuple(brokers), config, timeout_ms=_COORDINATOR_TIMEOUT_MS)
    coordinator = OffsetCoordinator(client, group)
    try:
        stored = _persistently(lambda: coordinator.fetch(partitions))
    except ZkConsumerError as error:
        return OffsetsInKafka({}, (f"offsets in Kafka are unknown, those shown are ZooKeeper's: {error}",))
    finally:
        client.close()
    return OffsetsInKafka(
        {partition: one.offset for partition, one in stored.found.items() if one.offset is not None},
        tuple(f"the offset of {p} in Kafka cannot be read: {error_name(code)}" for p, code in stored.errors.items()),
    )


def _persistently(
    fetch: Callable[[], StoredOffsets],
) -> StoredOffsets:
    """Repeat the question while the coordinator is being found or loads; not while a broker is silent."""
    for _ in range(_COORDINATOR_ATTEMPTS - 1):
        try:
            return fetch()
        except CoordinatorMoved:
            time.sleep(_COORDINATOR_PAUSE_S)
    return fetch()
