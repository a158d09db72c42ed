"""GroupReader: reads groups from ZooKeeper, and brokers and topics from there or from the brokers. It never writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from zkconsumer.cluster.brokerznodes import BrokerZnodes
from zkconsumer.cluster.rules.clustercatalog import ClusterCatalog
from zkconsumer.errors import ConfigError, MalformedZnode, ZkConsumerError
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.subscription import Subscription, all_topics
from zkconsumer.group.zookeeper.registrationreads import RegistrationReads
from zkconsumer.model import Broker, Topic, TopicPartition
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.reads import Reads, Znode
from zkconsumer.zookeeper.rules.grouppaths import CONSUMERS, GroupPaths
from zkconsumer.zookeeper.rules.znodes import ConsumerIdNode, PartitionOwnerNode, SessionNode
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads

_log = logging.getLogger(__name__)


class GroupViews(NamedTuple):
    """Views of many groups, and why others cannot be read."""

    views: dict[str, GroupView]
    failures: dict[str, ZkConsumerError]


class GroupReader:
    """Consumer groups as ZooKeeper has them, and the brokers and topics of their cluster.

    Args:
        session: an open session.
        security_protocol: broker endpoints of this protocol are used.
        watched: keeps what :meth:`view`, :meth:`topics` and :meth:`member_ids` read for as
            long as watches guard it, for the one thread that calls them; None reads all of it each time, without
            watches, and on any thread.
        read_cluster: returns the cluster as it is now, with all topics (None) or those that are named; without it
            brokers and topics are read from ZooKeeper.
        reads: keeps the registrations that :meth:`view` has read, for the one thread and the one group that it is
            called for; None reads all of them each time.
    """

    def __init__(
        self,
        session: ZkSession,
        security_protocol: str = "PLAINTEXT",
        watched: WatchedReads | None = None,
        *,
        read_cluster: Callable[[Collection[str] | None], ClusterCatalog] | None = None,
        reads: RegistrationReads | None = None,
    ) -> None:
        self._session = session
        self._watched = watched
        self._znodes = BrokerZnodes(session, security_protocol, watched)
        self._read_cluster = read_cluster
        self._reads = reads

    def live_brokers(self, watch: Watch | None = None) -> tuple[Broker, ...]:
        """Brokers that are alive and have an endpoint for us.

        Args:
            watch: called when brokers register in ZooKeeper, disappear from it, or change there after that.
        """
        if self._read_cluster is not None:
            return self._read_cluster(()).live_brokers()
        return self._znodes.live_brokers(watch)

    def _children(self, path: str) -> frozenset[str]:
        if self._watched is not None:
            return self._watched.children(path)
        return frozenset(self._session.children(path) or ())

    def _cluster(self, topics: Collection[str] | None) -> ClusterCatalog:
        return self._znodes if self._read_cluster is None else self._read_cluster(topics)

    def _live(self, cluster: ClusterCatalog, registered: Reads) -> tuple[Broker, ...]:
        return self._znodes.brokers(registered) if cluster is self._znodes else cluster.live_brokers()

    def topics(self) -> frozenset[str]:
        """Names of all topics of the cluster, internal ones included."""
        return self._znodes.topics() if self._read_cluster is None else self._read_cluster(None).topics()

    def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Partition numbers, ascending, of those topics that exist; always read, without watches."""
        return {name: topic.partitions for name, topic in self.describe_topics(topics).items()}

    def describe_topics(self, topics: Iterable[str]) -> dict[str, Topic]:
        """Partitions and identity of those topics that exist; always read, without watches."""
        wanted = list(topics)
        if self._read_cluster is None:
            return self._znodes.describe_unwatched(wanted)
        return self._read_cluster(wanted).describe_topics(wanted)

    def undescribed(self, topics: Iterable[str]) -> frozenset[str]:
        """Those of the topics that may exist, although they are not described."""
        wanted = frozenset(topics)
        return self._cluster(wanted).undescribed & wanted

    def describe_subscribed(self, subscription: Subscription, *, exclude_internal: bool) -> dict[str, Topic]:
        """The topics of one subscription that exist.

        Args:
            subscription: of a member.
            exclude_internal: ``exclude.internal.topics``.
        """
        has_filter = subscription.topic_filter is not None
        cluster = self._cluster(None if has_filter else all_topics([subscription], ()))
        topics = cluster.topics() if has_filter else frozenset()
        return cluster.describe_topics(sorted(subscription.expand(topics, exclude_internal=exclude_internal)))

    def groups(self) -> list[str]:
        """Names of all groups that ever existed, sorted."""
        return sorted(self._session.children(CONSUMERS) or ())

    def member_ids(self, group: str) -> frozenset[str]:
        """Names of the group's registrations."""
        return self._children(GroupPaths(group).ids)

    def group_events(self, group: str) -> int:
        """How often the watch on the group's registrations has fired; counted only with watched reads."""
        return 0 if self._watched is None else self._watched.events(GroupPaths(group).ids)

    def view(self, group: str, topics_of: str | None = None) -> GroupView:
        """One snapshot of a group.

        Nodes without a watch are read in one request: 50 members that each read a group of 50 are a herd
        (jvm-consumer.md#defects).

        Args:
            group: name of the group.
            topics_of: id of the member whose topics are described; None describes those of all members.
        """
        paths = GroupPaths(group)
        registrations = [paths.consumer_id(name) for name in sorted(self.member_ids(group))]
        cversion = 0 if self._watched is None else self._watched.cversion(paths.ids)
        clients = [f"{paths.members}/{name}" for name in self._session.children(paths.members) or ()]
        brokers = self._znodes.broker_paths() if self._read_cluster is None else []
        if self._reads is None:
            reads = self._session.read_many([*registrations, *clients, *brokers])
        else:
            reads = self._reads.read(registrations, cversion, clients, brokers)
        registered = _registrations(_only(reads, registrations))
        concerned = [subscription for name, subscription in registered.members.items() if topics_of in (None, name)]
        has_filter = any(subscription.topic_filter for subscription in registered.members.values())
        cluster = self._cluster(None if has_filter else all_topics(concerned, ()))
        topics = cluster.topics() if has_filter else frozenset()
        described = cluster.describe_topics(sorted(all_topics(concerned, topics)))
        live = self._live(cluster, _only(reads, brokers))
        return _view(registered, _our_clients(_only(reads, clients)), topics, described, live)

    def views(self, groups: Collection[str]) -> GroupViews:
        """As :meth:`view` for many groups, in few requests and without watches."""
        paths = {group: GroupPaths(group) for group in groups}
        children = self._session.children_of(
            p for group_paths in paths.values() for p in (group_paths.ids, group_paths.members)
        )
        brokers = self._znodes.broker_paths() if self._read_cluster is None else []
        failures: dict[str, ZkConsumerError] = {}
        nodes: dict[str, tuple[list[str], list[str]]] = {}
        for group, group_paths in paths.items():
            refused = children.refused.get(group_paths.ids) or children.refused.get(group_paths.members)
            if refused is not None:
                failures[group] = refused
                continue
            nodes[group] = (
                [group_paths.consumer_id(name) for name in sorted(children.names[group_paths.ids] or ())],
                [f"{group_paths.members}/{name}" for name in children.names[group_paths.members] or ()],
            )
        reads = self._session.read_many([*brokers, *(p for pair in nodes.values() for part in pair for p in part)])
        registered = {group: _registrations(_only(reads, ids)) for group, (ids, _) in nodes.items()}
        everyone = [
            subscription for registrations in registered.values() for subscription in registrations.members.values()
        ]
        has_filter = any(subscription.topic_filter for subscription in everyone)
        cluster = self._cluster(None if has_filter else all_topics(everyone, ()))
        topics = cluster.topics() if has_filter else frozenset()
        described = cluster.describe_topics(sorted(all_topics(everyone, topics)))
        live = self._live(cluster, _only(reads, brokers))
        views = {}
        for group, registrations in registered.items():
            members = registrations.members.values()
            of_filters = topics if any(subscription.topic_filter for subscription in members) else frozenset()
            wanted = {name: described[name] for name in sorted(all_topics(members, of_filters)) if name in described}
            clients = _our_clients(_only(reads, nodes[group][1]))
            views[group] = _view(registrations, clients, of_filters, wanted, live)
        return GroupViews(views, failures)

    def owned_topics(self, group: str) -> list[str]:
        """Topics of which a member of the group ever owned partitions, sorted."""
        return sorted(self._session.children(GroupPaths(group).owners) or ())

    def owners(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Znode | None]:
        """The owner znode of each partition, None if there is none."""
        paths = GroupPaths(group)
        nodes = self._session.get_many(paths.owner(partition) for partition in partitions)
        return {partition: nodes[paths.owner(partition)] for partition in partitions}

    def owner_threads(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str | None]:
        """The text of each partition's owner znode, None if there is none."""
        paths = GroupPaths(group)
        return {
            partition: None if node is None else PartitionOwnerNode.decode(paths.owner(partition), node.data)
            for partition, node in self.owners(group, partitions).items()
        }


# Decoded content is cached: otherwise every member would decode all registrations at each read of the group.


@lru_cache(maxsize=16_384)
def _registration(path: str, data: bytes | None) -> tuple[Subscription, int | None]:
    registration = ConsumerIdNode.decode(path, data)
    written = registration.timestamp
    since = int(written) if written is not None and written.isdecimal() else None
    return Subscription.from_registration(registration), since


@lru_cache(maxsize=16_384)
def _client(path: str, data: bytes | None) -> tuple[str, _Client]:
    node = SessionNode
    protocol, shares = node.protocol(path, data), node.shares(path, data)
    user_data = node.user_data(path, data)
    client = _Client(node.decode(path, data), node.session_ms(path, data), protocol, shares, user_data)
    return SessionNode.consumer_id(path.rpartition("/")[2]), client


class _Client(NamedTuple):
    assignor: str
    session_ms: int | None
    protocol: str
    shares: bool
    user_data: bytes


class _Registrations(NamedTuple):
    members: dict[str, Subscription]
    unreadable: dict[str, str]
    since_ms: dict[str, int]


def _only(reads: Reads, paths: Iterable[str]) -> Reads:
    wanted = list(paths)
    nodes = {path: reads.nodes[path] for path in wanted if path in reads.nodes}
    return Reads(nodes, {path: reads.refused[path] for path in wanted if path in reads.refused})


def _registrations(reads: Reads) -> _Registrations:
    registrations = _Registrations(
        {}, {path.rpartition("/")[2]: str(reason) for path, reason in reads.refused.items()}, {}
    )
    for path, node in reads.nodes.items():
        consumer_id = path.rpartition("/")[2]
        if node is None:
            continue  # left between the two reads; the watch on ids fires for it
        try:
            registrations.members[consumer_id], since = _registration(path, node.data)
            if since is not None:
                registrations.since_ms[consumer_id] = since
        except (MalformedZnode, ConfigError) as error:
            registrations.unreadable[consumer_id] = str(error)
    return registrations


def _our_clients(reads: Reads) -> dict[str, _Client]:
    clients: dict[str, _Client] = {}
    for path, node in reads.nodes.items():
        try:
            if node is not None:
                consumer_id, client = _client(path, node.data)
                clients[consumer_id] = client
        except MalformedZnode as error:
            _log.warning("session node skipped, its member counts as a JVM consumer: %s", error)
    for reason in reads.refused.values():
        _log.warning("session node skipped, its member counts as a JVM consumer: %s", reason)
    return clients


def _view(
    registered: _Registrations,
    clients: Mapping[str, _Client],
    topics: frozenset[str],
    described: Mapping[str, Topic],
    brokers: tuple[Broker, ...],
) -> GroupView:
    return GroupView(
        members=registered.members,
        partitions={name: topic.partitions for name, topic in described.items()},
        identities={name: topic.identity for name, topic in described.items()},
        topics=topics,
        unreadable=registered.unreadable,
        brokers=brokers,
        our_clients={name: client.assignor for name, client in clients.items()},
        obeying=frozenset(name for name, client in clients.items() if client.protocol == "coordinator"),
        unshared=frozenset(name for name, client in clients.items() if not client.shares),
        session_ms={name: client.session_ms for name, client in clients.items() if client.session_ms is not None},
        registered_ms=registered.since_ms,
        user_data={name: client.user_data for name, client in clients.items() if client.user_data},
    )
