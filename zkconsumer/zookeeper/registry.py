"""Registry: reads brokers, topics and members out of ZooKeeper. It never writes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from zkconsumer.core.groupview import GroupView, Topic
from zkconsumer.core.subscription import Subscription, all_topics
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
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.reads import Reads, Znode
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads

_log = logging.getLogger(__name__)


class Registry:
    """What ZooKeeper says of the cluster and of consumer groups.

    Args:
        session: an open session.
        security_protocol: broker endpoints of this protocol are used.
        watched: keeps what :meth:`view`, :meth:`topics`, :meth:`member_ids` and :meth:`describe_topics` read for as
            long as watches guard it, for the one thread that calls them; None reads all of it each time, without
            watches, and on any thread.
    """

    def __init__(
        self, session: ZkSession, security_protocol: str = "PLAINTEXT", watched: WatchedReads | None = None
    ) -> None:
        self._session = session
        self._protocol = security_protocol
        self._watched = watched

    def live_brokers(self, watch: Watch | None = None) -> tuple[Broker, ...]:
        """Brokers that are registered and have an endpoint for us; the others are logged and skipped.

        Args:
            watch: called once when brokers come or go after that.
        """
        names = self._session.children(BROKER_IDS, watch) or []
        return self._brokers(self._session.read_many(BrokerIdNode.path(name) for name in names))

    def _brokers(self, reads: Reads) -> tuple[Broker, ...]:
        brokers = []
        for path, node in reads.nodes.items():
            try:
                if node is not None:
                    brokers.append(BrokerIdNode.decode(path, node.data, self._protocol))
            except MalformedZnode as error:
                _log.error("broker skipped: %s", error)
        for reason in reads.refused.values():
            _log.error("broker skipped: %s", reason)
        return tuple(sorted(brokers))

    def _children(self, path: str) -> frozenset[str]:
        if self._watched is not None:
            return self._watched.children(path)
        return frozenset(self._session.children(path) or ())

    def topics(self) -> frozenset[str]:
        """Names of all topics of the cluster, internal ones included."""
        return self._children(BROKER_TOPICS)

    def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Partition numbers, ascending, of those topics that exist; always read, without watches."""
        reads = self._session.read_many(TopicNode.path(topic) for topic in topics)
        return {name: topic.partitions for name, topic in _described(reads).items()}

    def describe_topics(self, topics: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist; one whose znode cannot be read is reported in the log and skipped."""
        paths = [TopicNode.path(topic) for topic in topics]
        return _described(self._session.read_many(paths) if self._watched is None else self._watched.nodes(paths))

    def groups(self) -> list[str]:
        """Names of all groups that ever existed, sorted."""
        root = GroupPaths("").root.rstrip("/")
        return sorted(self._session.children(root) or ())

    def group_exists(self, group: str) -> bool:
        """True if the group ever had a member or an offset."""
        return self._session.exists(GroupPaths(group).root) is not None

    def member_ids(self, group: str) -> frozenset[str]:
        """Names of the group's registrations."""
        return self._children(GroupPaths(group).ids)

    def view(self, group: str, topics_of: str | None = None) -> GroupView:
        """One snapshot of a group.

        All that has no watch is read in one request: 50 members that each read a group of 50 are a herd (SPEC 15.1).

        Args:
            group: its name.
            topics_of: id of the member whose topics are described; None describes those of all members.
        """
        paths = GroupPaths(group)
        registrations = [paths.consumer_id(name) for name in sorted(self.member_ids(group))]
        clients = [f"{paths.members}/{name}" for name in self._session.children(paths.members) or ()]
        brokers = [BrokerIdNode.path(name) for name in self._session.children(BROKER_IDS) or ()]
        reads = self._session.read_many([*registrations, *clients, *brokers])
        registered = _registrations(_only(reads, registrations))
        topics: frozenset[str] = frozenset()
        if any(subscription.topic_filter for subscription in registered.members.values()):
            topics = self.topics()
        concerned = [one for name, one in registered.members.items() if topics_of in (None, name)]
        described = self.describe_topics(sorted(all_topics(concerned, topics)))
        return GroupView(
            members=registered.members,
            partitions={name: topic.partitions for name, topic in described.items()},
            identities={name: topic.identity for name, topic in described.items()},
            topics=topics,
            unreadable=registered.unreadable,
            brokers=self._brokers(_only(reads, brokers)),
            our_clients=_our_clients(_only(reads, clients)),
            registered_ms=registered.since_ms,
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


@lru_cache(maxsize=8192)
def _topic(path: str, data: bytes | None) -> tuple[tuple[int, ...], str | None]:
    return TopicNode.decode(path, data), TopicNode.topic_id(path, data)


class _Registrations(NamedTuple):
    members: dict[str, Subscription]
    unreadable: dict[str, str]
    since_ms: dict[str, int]


def _only(reads: Reads, paths: Iterable[str]) -> Reads:
    wanted = set(paths)
    nodes = {path: node for path, node in reads.nodes.items() if path in wanted}
    return Reads(nodes, {path: reason for path, reason in reads.refused.items() if path in wanted})


def _registrations(reads: Reads) -> _Registrations:
    found = _Registrations({}, {path.rpartition("/")[2]: str(reason) for path, reason in reads.refused.items()}, {})
    for path, node in reads.nodes.items():
        consumer_id = path.rpartition("/")[2]
        if node is None:
            continue  # left between the two reads; the watch on ids fires for it
        try:
            found.members[consumer_id], since = _registration(path, node.data)
            if since is not None:
                found.since_ms[consumer_id] = since
        except (MalformedZnode, ConfigError) as error:
            found.unreadable[consumer_id] = str(error)
    return found


def _described(reads: Reads) -> dict[str, Topic]:
    found = {}
    for path, node in reads.nodes.items():
        if node is None:
            continue
        try:
            partitions, topic_id = _topic(path, node.data)
            found[path.rpartition("/")[2]] = Topic(partitions, TopicIdentity(topic_id, node.czxid))
        except MalformedZnode as error:
            _log.error("topic skipped: %s", error)
    for reason in reads.refused.values():
        _log.error("topic skipped: %s", reason)
    return found


def _our_clients(reads: Reads) -> dict[str, str]:
    clients = {}
    for path, node in reads.nodes.items():
        try:
            if node is not None:
                consumer_id, assignor = _client(path, node.data)
                clients[consumer_id] = assignor
        except MalformedZnode as error:
            _log.warning("a session node is skipped: %s", error)
    for reason in reads.refused.values():
        _log.warning("a session node is skipped: %s", reason)
    return clients
