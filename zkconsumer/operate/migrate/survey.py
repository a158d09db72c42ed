"""Reads what a migration survey needs of groups: their znodes, their logs, their groups in Kafka, the brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import GroupMissing, ZkConsumerError, ZooKeeperRefused
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset
from zkconsumer.operate.groups.everygroup import (
    continues_at_brokers,
    describe_lost,
    is_lost,
)
from zkconsumer.operate.groups.groupdescription import existing_partitions, read_offsets_in_kafka
from zkconsumer.operate.groups.groupznodes import GroupZnodes, pattern_of, read_groups
from zkconsumer.operate.migrate.rules.surveyverdict import (
    Layout,
    OffsetZnode,
    SurveyedMember,
    SurveyedPartition,
    SurveyFacts,
)
from zkconsumer.operate.offsets.brokeroffsets import why_undescribed
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.fields import is_encodable
from zkconsumer.wire.rules.describedgroup import DEAD, KafkaGroup, exists_at_brokers
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.session import ZkSession

_RETENTION: Final = "offsets.retention.minutes"
_RECEIVER: Final = "Receiver-"
"""How consumers begin their names that store the last processed offset; JVM members have no such znodes."""


def read_survey_facts(
    session: ZkSession,
    config: ConsumerConfig,
    groups: Sequence[str],
    *,
    failures: dict[str, ZkConsumerError] | None = None,
) -> list[SurveyFacts]:
    """Read the facts of groups. Nothing is written, and no topic is created.

    Args:
        session: an open session.
        config: how brokers are reached.
        groups: names of groups.
        failures: takes why groups cannot be read, by name; None makes that an error.

    Raises:
        ZkConsumerError: one of the groups does not exist, or ZooKeeper cannot be read.
    """
    with closing(Cluster.of(session, config)) as cluster:
        group_reader = cluster.open_reader(session, without_brokers=True)
        groups_znodes = read_groups(session, group_reader, groups).required(failures)
        topics = {partition.topic for znodes in groups_znodes for partition in znodes.partitions}
        problems, releases, retention = _broker_facts(cluster)
        existing = cluster.existing(topics)
        undescribed = existing.found.undescribed
        # A broker that has just started denies topics that ZooKeeper describes.
        partitions = existing.found.partitions | existing_partitions(groups_znodes)
        in_kafka = read_offsets_in_kafka(group_reader, cluster.offsets, groups_znodes, "kafka")
        logs = cluster.offsets.logs(partitions)
        states = _kafka_groups(cluster, [znodes.group for znodes in groups_znodes])
        servers = "" if config.bootstrap_servers else cluster.servers
    surroundings = _Surroundings(partitions, logs.found.ranges(), releases, retention, servers)
    facts = []
    for znodes in groups_znodes:
        stored = in_kafka[znodes.group]
        kafka, group_problems = states[znodes.group]
        own = {topic: why for topic, why in undescribed.items() if topic in znodes.topics}
        unknown = existing.problems if existing.error is not None else why_undescribed(own)
        group_problems += tuple(f"the brokers' partitions are unknown: {problem}" for problem in unknown)
        unreadable = (*problems, *znodes.problems, *stored.problems, *group_problems)
        lacks_log = any(p in partitions and p not in surroundings.logs for p in znodes.partitions)
        unreadable += logs.problems if lacks_log else ()
        facts.append(_facts(session, znodes, stored.found, kafka, surroundings, unreadable))
    return facts


class _Surroundings(NamedTuple):
    """What the groups have in common."""

    existing: set[TopicPartition]
    logs: Mapping[TopicPartition, LogRange]
    releases: Mapping[int, tuple[int, ...]]
    retention: Mapping[int, int | None]
    servers: str


def _facts(
    session: ZkSession,
    znodes: GroupZnodes,
    in_kafka: Mapping[TopicPartition, StoredOffset],
    kafka: KafkaGroup | None,
    surroundings: _Surroundings,
    problems: Sequence[str],
) -> SurveyFacts:
    name, mark, live = znodes.group, znodes.mark, znodes.live
    stored = [partition for partition, offset in in_kafka.items() if offset.offset is not None]
    is_missing = kafka is not None and not exists_at_brokers(kafka.state, stored)
    lost = is_lost(name, mark, live, GroupMissing(name) if is_missing else None)
    return SurveyFacts(
        group=znodes.group,
        layout=_layout(session, znodes),
        members=_members(znodes),
        partitions=_partitions(znodes, in_kafka, surroundings),
        newest_commit_ms=znodes.newest_commit_ms,
        kafka=kafka,
        retention_minutes=surroundings.retention,
        releases=surroundings.releases,
        problems=tuple(dict.fromkeys(problems)),
        mark=mark,
        continues_at_brokers=continues_at_brokers(name, mark, live),
        lost=describe_lost(name) if lost else "",
        servers=surroundings.servers,
    )


def _broker_facts(cluster: Cluster) -> tuple[list[str], dict[int, tuple[int, ...]], dict[int, int | None]]:
    """What cannot be read, releases, and ``offsets.retention.minutes``, by broker."""
    try:
        releases = cluster.releases()
        settings = cluster.settings([_RETENTION])
    except ZkConsumerError as error:
        return [f"releases and settings of the brokers are unknown: {error}"], {}, {}
    return [], releases, {number: _minutes(settings.get(number, {}).get(_RETENTION)) for number in releases}


def _minutes(value: str | None) -> int | None:
    return int(value) if value is not None and value.isascii() and value.isdigit() else None


def _kafka_groups(cluster: Cluster, groups: Sequence[str]) -> dict[str, tuple[KafkaGroup | None, tuple[str, ...]]]:
    """The group of the same name in Kafka, by name, and why it is unknown."""
    possible = [group for group in groups if is_encodable(group)]
    states: dict[str, tuple[KafkaGroup | None, tuple[str, ...]]] = {
        group: (KafkaGroup(DEAD), (f"Kafka cannot have a group with the name {group!r}; migrate to another name",))
        for group in groups
    }
    described: Mapping[str, KafkaGroup | ZkConsumerError]
    try:
        described = cluster.describe_all(possible)
    except ZkConsumerError as error:
        described = dict.fromkeys(possible, error)
    for group, description in described.items():
        if isinstance(description, ZkConsumerError):
            states[group] = None, (f"group {group} in Kafka cannot be described: {description}",)
        else:
            states[group] = description, ()
    return states


def _members(znodes: GroupZnodes) -> tuple[SurveyedMember, ...]:
    view = znodes.view
    known = tuple(
        SurveyedMember(
            consumer_id,
            "zkconsumer" if consumer_id in view.our_clients else "jvm",
            pattern_of(subscription),
            None if subscription.topic_filter is None else subscription.topic_filter.regex,
        )
        for consumer_id, subscription in sorted(view.members.items())
    )
    unknown = (SurveyedMember(consumer_id, "unknown", "unknown") for consumer_id in sorted(view.unreadable))
    return (*known, *unknown)


def _partitions(
    znodes: GroupZnodes,
    in_kafka: Mapping[TopicPartition, StoredOffset],
    surroundings: _Surroundings,
) -> tuple[SurveyedPartition, ...]:
    topics = {partition.topic for partition in znodes.partitions}
    existing = {partition for partition in surroundings.existing if partition.topic in topics}
    return tuple(
        SurveyedPartition(
            partition,
            partition in surroundings.existing,
            znodes.judged(partition),
            znodes.judge(partition, in_kafka.get(partition, NO_OFFSET)),
            surroundings.logs.get(partition),
            znode=_offset_znode(znodes.unreadable.get(partition)),
        )
        for partition in sorted(existing.union(znodes.partitions))
    )


def _offset_znode(unreadable: ZkConsumerError | None) -> OffsetZnode:
    if unreadable is None:
        return "known"
    return "refused" if isinstance(unreadable, ZooKeeperRefused) else "malformed"


def _layout(session: ZkSession, znodes: GroupZnodes) -> Layout:
    return "last-processed" if stores_last_processed(session, znodes) else znodes.layout


def stores_last_processed(session: ZkSession, znodes: GroupZnodes) -> bool:
    """True if the znodes are not a JVM consumer's, but those of a receiver whose path is ``/consumers``.

    Its offsets are one less than the JVM's. Its members are named Receiver-N, and its owner znodes are persistent.
    """
    paths = GroupPaths(znodes.group)
    return _has_receivers(session, paths, znodes.view.unreadable) or bool(znodes.lasting_owners)


def _has_receivers(session: ZkSession, paths: GroupPaths, names: Collection[str]) -> bool:
    below = session.children_of(paths.consumer_id(name) for name in names).names
    return any(child.startswith(_RECEIVER) for children in below.values() for child in children or ())
