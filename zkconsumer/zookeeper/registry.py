"""Registry: reads brokers, topics and members out of ZooKeeper. It never writes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from zkconsumer.core.groupview import GroupView, Topic
from zkconsumer.core.subscription import Subscription
from zkconsumer.core.znodes import (
    BROKER_IDS,
    BROKER_TOPICS,
    BrokerIdNode,
    ConsumerIdNode,
    GroupPaths,
    PartitionOwnerNode,
    SessionNode,
    TopicNode,
)
from zkconsumer.errors import ConfigError, MalformedZnode
from zkconsumer.model import Broker, TopicIdentity, TopicPartition
from zkconsumer.zookeeper.border import Watch
from zkconsumer.zookeeper.session import ZkSession, Znode

_log = logging.getLogger(__name__)


class Registry:
    """What ZooKeeper says of the cluster and of consumer groups.

    Every read that takes a watch leaves it armed, so that reading again after it fired leaves no gap.

    Args:
        session: an open session; any thread may read.
        security_protocol: broker endpoints of this protocol are used.
    """

    def __init__(self, session: ZkSession, security_protocol: str = "PLAINTEXT") -> None:
        self._session = session
        self._protocol = security_protocol

    def live_brokers(self, watch: Watch | None = None) -> tuple[Broker, ...]:
        """Brokers that are registered and have an endpoint for us; the others are logged and left out."""
        names = self._session.children(BROKER_IDS, watch) or []
        return self._brokers(self._session.get_many(BrokerIdNode.path(name) for name in names))

    def _brokers(self, nodes: Mapping[str, Znode | None]) -> tuple[Broker, ...]:
        brokers = []
        for path, node in nodes.items():
            try:
                if node is not None:
                    brokers.append(BrokerIdNode.decode(path, node.data, self._protocol))
            except MalformedZnode as error:
                _log.error("broker left out: %s", error)
        return tuple(sorted(brokers))

    def topics(self, watch: Watch | None = None) -> frozenset[str]:
        """Names of all topics of the cluster, internal ones included."""
        return frozenset(self._session.children(BROKER_TOPICS, watch) or ())

    def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Partition numbers, ascending, of those topics that exist."""
        return {name: topic.partitions for name, topic in self.describe_topics(topics).items()}

    def describe_topics(self, topics: Iterable[str], watch: Watch | None = None) -> dict[str, Topic]:
        """Those of the topics that exist; one whose znode cannot be read is reported in the log and skipped."""
        found = {}
        nodes = self._session.get_many((TopicNode.path(topic) for topic in topics), watch)
        for path, node in nodes.items():
            if node is None:
                continue
            try:
                partitions, topic_id = _topic(path, node.data)
                found[path.rpartition("/")[2]] = Topic(partitions, TopicIdentity(topic_id, node.czxid))
            except MalformedZnode as error:
                _log.error("topic skipped: %s", error)
        return found

    def groups(self) -> list[str]:
        """Names of all groups that ever existed, sorted."""
        root = GroupPaths("").root.rstrip("/")
        return sorted(self._session.children(root) or ())

    def group_exists(self, group: str) -> bool:
        """True if the group ever had a member or an offset."""
        return self._session.exists(GroupPaths(group).root) is not None

    def member_ids(self, group: str, watch: Watch | None = None) -> list[str]:
        """Names of the group's registrations; a watch is armed for members that come or go."""
        return self._session.children(GroupPaths(group).ids, watch) or []

    def view(self, group: str, watch: Watch | None = None) -> GroupView:
        """One snapshot of a group; a watch is armed for members, topics of interest and, with filters, all topics.

        All that needs no watch is read in one request: 50 members that each read a group of 50 are a herd (SPEC 15.1).
        """
        paths = GroupPaths(group)
        registrations = [paths.consumer_id(name) for name in self.member_ids(group, watch)]
        clients = [f"{paths.members}/{name}" for name in self._session.children(paths.members) or ()]
        brokers = [BrokerIdNode.path(name) for name in self._session.children(BROKER_IDS) or ()]
        nodes = self._session.get_many([*registrations, *clients, *brokers])
        members: dict[str, Subscription] = {}
        unreadable: dict[str, str] = {}
        registered_ms: dict[str, int] = {}
        for path in registrations:
            node, consumer_id = nodes[path], path.rpartition("/")[2]
            if node is None:
                continue  # left between the two reads; the watch on ids fires for it
            try:
                members[consumer_id], since = _registration(path, node.data)
                if since is not None:
                    registered_ms[consumer_id] = since
            except (MalformedZnode, ConfigError) as error:
                unreadable[consumer_id] = str(error)
        topics: frozenset[str] = frozenset()
        if any(subscription.topic_filter for subscription in members.values()):
            topics = self.topics(watch)
        wanted = {
            topic for subscription in members.values() for topic in subscription.expand(topics, exclude_internal=False)
        }
        described = self.describe_topics(sorted(wanted), watch)
        return GroupView(
            members=members,
            partitions={name: topic.partitions for name, topic in described.items()},
            identities={name: topic.identity for name, topic in described.items()},
            topics=topics,
            unreadable=unreadable,
            brokers=self._brokers({path: nodes[path] for path in brokers}),
            our_clients=_our_clients({path: nodes[path] for path in clients}),
            registered_ms=registered_ms,
        )

    def owned_topics(self, group: str) -> list[str]:
        """Topics that some member of the group ever owned partitions of, sorted."""
        return sorted(self._session.children(GroupPaths(group).owners) or ())

    def owners(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Znode | None]:
        """The owner znode of each partition, None where there is none."""
        paths = GroupPaths(group)
        nodes = self._session.get_many(paths.owner(partition) for partition in partitions)
        return {partition: nodes[paths.owner(partition)] for partition in partitions}

    def owner_threads(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str | None]:
        """The text of each partition's owner znode, None where there is none."""
        paths = GroupPaths(group)
        return {
            partition: None if node is None else PartitionOwnerNode.decode(paths.owner(partition), node.data)
            for partition, node in self.owners(group, partitions).items()
        }


# What a node holds is decoded once: every member decodes the registrations of all others at every look at the group.


@lru_cache(maxsize=4096)
def _registration(path: str, data: bytes | None) -> tuple[Subscription, int | None]:
    registration = ConsumerIdNode.decode(path, data)
    written = registration.timestamp
    since = int(written) if written is not None and written.isdecimal() else None
    return Subscription.from_registration(registration), since


@lru_cache(maxsize=4096)
def _client(path: str, data: bytes | None) -> tuple[str, str]:
    return SessionNode.consumer_id(path.rpartition("/")[2]), SessionNode.decode(path, data)


@lru_cache(maxsize=1024)
def _topic(path: str, data: bytes | None) -> tuple[tuple[int, ...], str | None]:
    return TopicNode.decode(path, data), TopicNode.topic_id(path, data)


def _our_clients(nodes: Mapping[str, Znode | None]) -> dict[str, str]:
    clients = {}
    for path, node in nodes.items():
        try:
            if node is not None:
                consumer_id, assignor = _client(path, node.data)
                clients[consumer_id] = assignor
        except MalformedZnode as error:
            _log.warning("a session node is left out: %s", error)
    return clients
