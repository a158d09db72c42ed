"""The state of cluster and group that a query needs without being a member: brokers, partitions, offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ProtocolError, RetriableError, TopicUnreadable, UsageError, name_some
from zkconsumer.model import Broker, Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.topicorigins import TopicOrigin, WrittenFor, judge_offsets, that_are
from zkconsumer.spark.rules.options import SourceOptions

if TYPE_CHECKING:
    from zkconsumer.offsets.offsetstore import OffsetStore
    from zkconsumer.wire.rules.describedgroup import DescribedMember
    from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of cluster and group at one time.

    Attributes:
        brokers: live brokers.
        partitions: every partition of the subscribed topics that exist.
        committed: the group's offset of each partition, None if none is stored; without unreadable ones, and empty if
            offsets were not requested.
        members: the group's live members: consumer ids, or member ids of a group that brokers coordinate.
        our_members: those of them that use this package, without the replaced ones; of a group that brokers coordinate
            those that have the same ``client.id``, which by default is the name of the group in this package only.
        outdated: partitions whose offset was written for an earlier topic of the same name.
        refused: why offsets are unreadable that are stored in Kafka.
        unshared: live members with ``group.share=false``; brokers do not know them.
        session_ms: session timeouts in ms, by member: the longer of what it has written and what servers grant now; in
            groups of brokers the coordinator's, or as that of this query if it is unknown.
        undescribed: subscribed topics that may exist, although they are not described.
        replaced: live members with this query's ``group.instance.id``: the one that it replaces when it joins, and then
            the query itself.
        topics: the subscribed topics that are described, as a member of the group sees them: their identities decide
            whether a topic was created again.
    """

    brokers: tuple[Broker, ...]
    partitions: frozenset[TopicPartition]
    committed: Mapping[TopicPartition, int | None]
    members: frozenset[str]
    our_members: frozenset[str]
    outdated: frozenset[TopicPartition] = frozenset()
    refused: Mapping[TopicPartition, TopicUnreadable] = field(default_factory=dict)
    unshared: frozenset[str] = frozenset()
    session_ms: Mapping[str, int] = field(default_factory=dict)
    undescribed: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    topics: Mapping[str, Topic] = field(default_factory=dict)

    @property
    def others(self) -> frozenset[str]:
        """The live members that stay when this query joins."""
        return self.members - self.replaced

    def require(self, options: SourceOptions, topics: Collection[str] = ()) -> None:
        """Check that these topics exist, and the partitions that options name, as far as their topics are described.

        Raises:
            UsageError: some do not.
        """
        absent = sorted(set(topics) - self.partition_counts().keys())
        named = sorted(options.named_partitions - self.partitions)
        missing = [f"topic {topic}" for topic in absent]
        missing += [f"partition {p}" for p in named if p.topic not in self.undescribed.union(absent)]
        if missing:
            servers = options.config.bootstrap_servers or options.config.zookeeper_connect
            raise UsageError(f"{name_some(missing)} does not exist in the cluster of {servers}")

    def partition_counts(self) -> dict[str, int]:
        """Number of partitions of each topic."""
        counts: dict[str, int] = {}
        for partition in self.partitions:
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        return counts


def read_cluster(options: SourceOptions, *, with_offsets: bool = False) -> ClusterView:
    """Read the cluster and the group, over connections that are closed afterwards; nothing is registered.

    ``with_offsets`` also reads the group's offsets, from the store that ``offsets.storage`` specifies.

    Raises:
        RetriableError: ``offsets.storage=kafka``, and the group's coordinator does not answer; or
            ``bootstrap.servers`` is set, and no broker answers.
        ZooKeeperUnavailable: no server answered.
        ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
        GroupAuthorizationFailed: with ``group.protocol=kafka``, the permission to describe the group is missing.
    """
    if options.config.brokers_coordinate:
        return _read_from_brokers(options, with_offsets=with_offsets)
    return _read_from_zookeeper(options, with_offsets=with_offsets)


def _read_from_zookeeper(options: SourceOptions, *, with_offsets: bool) -> ClusterView:
    from zkconsumer.assembly.clusterchoice import open_group_reader
    from zkconsumer.group.zookeeper.topicrecords import read_origins
    from zkconsumer.zookeeper.session import ZkSession

    config = options.config
    session = ZkSession.from_config(config)
    session.open()
    try:
        group_reader = open_group_reader(session, config)
        selected = options.select(group_reader.topics())
        topics, undescribed = group_reader.describe_topics(selected), group_reader.undescribed(selected)
        brokers = group_reader.live_brokers()
        group = group_reader.view(config.group_id)
        members = frozenset(group.members.keys() | group.unreadable.keys())
        granted_ms = round(1000 * session.negotiated_timeout)
        stored = _Stored()
        if with_offsets:
            origins = read_origins(session, config.group_id, _identities(topics))
            stored = _fetch(_store(config, session, brokers), topics, origins)
        return ClusterView(
            brokers=brokers,
            partitions=_partitions(topics),
            committed=stored.committed,
            members=members,
            our_members=frozenset(group.our_clients),
            outdated=stored.outdated,
            refused=stored.refused,
            unshared=frozenset(group.unshared & group.members.keys()),
            session_ms={member: max(group.session_ms.get(member, 0), granted_ms) for member in members},
            undescribed=undescribed,
            topics=topics,
        )
    finally:
        session.close()


def _read_from_brokers(options: SourceOptions, *, with_offsets: bool) -> ClusterView:
    from zkconsumer.cluster.brokercatalog import BrokerCatalog
    from zkconsumer.offsets.storechoice import open_kafka_store

    config = options.config
    snapshot = BrokerCatalog(config).read(options.topics or None)
    selected = options.select(snapshot.topics())
    topics = snapshot.describe_topics(selected)
    stored = _Stored()
    if with_offsets:
        store = open_kafka_store(config, live_brokers=lambda: snapshot.brokers, wait_before_retry=_sleep_before_retry)
        origins = {name: TopicOrigin(identity) for name, identity in _identities(topics).items()}
        stored = _fetch(store, topics, origins)
    members, session_ms = _members_at_coordinator(config, lambda: snapshot.brokers)
    static_id = config.group_instance_id
    replaced = frozenset(m.member_id for m in members if static_id is not None and m.instance_id == static_id)
    ours = frozenset(member.member_id for member in members if member.client_id == config.client_id)
    return ClusterView(
        brokers=snapshot.brokers,
        partitions=_partitions(topics),
        committed=stored.committed,
        members=frozenset(member.member_id for member in members),
        our_members=ours - replaced,
        outdated=stored.outdated,
        refused=stored.refused,
        session_ms={member.member_id: session_ms for member in members},
        undescribed=snapshot.undescribed.intersection(selected),
        replaced=replaced,
        topics=topics,
    )


def _members_at_coordinator(
    config: ConsumerConfig, live_brokers: Callable[[], Sequence[Broker]]
) -> tuple[Sequence[DescribedMember], int]:
    """The members, and their session timeout in ms.

    Without an answer there are none: the query joins, which waits for the coordinator, and checks the members then.
    """
    from zkconsumer.group.kafka.describedmembers import group_members
    from zkconsumer.wire.brokerclient import BrokerClient
    from zkconsumer.wire.describegroups import consumer_session_ms
    from zkconsumer.wire.findcoordinator import CoordinatorClient

    group, session_ms = config.group_id, config.session_timeout_ms
    members: Sequence[DescribedMember] = ()
    with closing(CoordinatorClient(BrokerClient.from_config(live_brokers, config), group)) as coordinator:
        try:
            members = group_members(coordinator, group)
        except RetriableError as error:  # for example, a new cluster creates the topic of offsets at the first request
            _log.info("group %s: its members are not known yet: %s", group, error)
        if members and config.group_protocol == "consumer":
            try:
                session_ms = coordinator.ask(lambda connection: consumer_session_ms(connection, group))
            except (RetriableError, ProtocolError) as error:
                _log.info("group %s: session.timeout.ms is used for its members: %s", group, error)
    return members, session_ms


def _partitions(topics: Mapping[str, Topic]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions)


def _identities(topics: Mapping[str, Topic]) -> dict[str, TopicIdentity]:
    return {name: topic.identity for name, topic in topics.items()}


class _Stored(NamedTuple):
    committed: Mapping[TopicPartition, int | None] = MappingProxyType({})
    outdated: frozenset[TopicPartition] = frozenset()
    refused: Mapping[TopicPartition, TopicUnreadable] = MappingProxyType({})


def _fetch(store: OffsetStore, topics: Mapping[str, Topic], origins: Mapping[str, TopicOrigin]) -> _Stored:
    try:
        readable = store.fetch(sorted(_partitions(topics)))
        store.consume(origins)
        stored = store.stored(readable)
        committed = {partition: one.offset for partition, one in stored.items()}
        outdated = that_are(judge_offsets(origins, stored), WrittenFor.EARLIER)
        return _Stored(committed, frozenset(outdated), store.refused())
    finally:
        store.close()


def _store(config: ConsumerConfig, session: ZkSession, brokers: Sequence[Broker]) -> OffsetStore:
    from zkconsumer.offsets.storechoice import open_store
    from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore

    return open_store(
        config,
        ZooKeeperOffsetStore(session, config.group_id),
        live_brokers=lambda: brokers,
        wait_before_retry=_sleep_before_retry,
    )


def _sleep_before_retry(seconds: float) -> bool:
    time.sleep(seconds)
    return False
