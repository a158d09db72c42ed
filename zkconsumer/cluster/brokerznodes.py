"""BrokerZnodes: the brokers, topics and partitions that Kafka up to 3.9 registers in ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from zkconsumer.errors import MalformedZnode
from zkconsumer.model import Broker, Topic, TopicIdentity
from zkconsumer.wire.knownbrokers import KNOWN_BROKERS
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.reads import Reads
from zkconsumer.zookeeper.rules.grouppaths import is_node_name
from zkconsumer.zookeeper.rules.znodes import BROKER_IDS, BROKER_TOPICS, BrokerIdNode, TopicNode
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads

_log: Final = logging.getLogger(__name__)


class BrokerZnodes:
    """A ``ClusterCatalog``; for the other arguments see ``group/zookeeper/groupreader.py``.

    Args:
        may_lack_topics: True where other brokers than those of this ZooKeeper may be those of the cluster.

    Attributes:
        undescribed: topics of the last description that may exist all the same, for callers on one thread: their znodes
            cannot be read; or ZooKeeper may lack topics, as it does where it has no brokers, as with Kafka 4.
    """

    def __init__(
        self,
        session: ZkSession,
        security_protocol: str,
        watched: WatchedReads | None = None,
        *,
        may_lack_topics: bool = False,
    ) -> None:
        self._may_lack_topics = may_lack_topics
        self._session = session
        self._protocol = security_protocol
        self._watched = watched
        self.undescribed: frozenset[str] = frozenset()

    def live_brokers(self, watch: Watch | None = None) -> tuple[Broker, ...]:
        """Brokers that are registered and have an endpoint for us; the others are logged and skipped.

        Args:
            watch: called when brokers register, disappear, or change their registrations after that.
        """
        watch_of = None if watch is None else lambda _path: watch
        return self.brokers(self._session.read_many(self.broker_paths(watch), watch_of))

    def broker_paths(self, watch: Watch | None = None) -> list[str]:
        """The znodes of the brokers, for :meth:`brokers`; ``watch`` as above."""
        return [BrokerIdNode.path(name) for name in self._session.children(BROKER_IDS, watch) or ()]

    def brokers(self, reads: Reads) -> tuple[Broker, ...]:
        """The brokers whose znodes were read; see :meth:`live_brokers`."""
        brokers = []
        for path, node in reads.nodes.items():
            try:
                if node is not None:
                    broker = BrokerIdNode.decode(path, node.data, self._protocol)
                    if BrokerIdNode.seems_old(path, node.data):
                        KNOWN_BROKERS.seems_old((broker.host, broker.port))
                    brokers.append(broker)
            except MalformedZnode as error:
                _log.error("broker skipped: %s", error)
        for reason in reads.refused.values():
            _log.error("broker skipped: %s", reason)
        return tuple(sorted(brokers))

    def topics(self) -> frozenset[str]:
        """Names of all topics of the cluster, internal ones included."""
        if self._watched is not None:
            return self._watched.children(BROKER_TOPICS)
        return frozenset(self._session.children(BROKER_TOPICS) or ())

    def describe_topics(self, topics: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist; one whose znode cannot be read is reported in the log and skipped."""
        if self._watched is None:
            return self.describe_unwatched(topics)
        return self._described(self._watched.nodes(_paths(topics)))

    def describe_unwatched(self, topics: Iterable[str]) -> dict[str, Topic]:
        """The same, always read, without watches."""
        names = frozenset(topics)
        described = self._described(self._session.read_many(_paths(names)))
        missing = names - described.keys()
        if missing and self._may_lack_any():
            self.undescribed = missing
        return described

    def _may_lack_any(self) -> bool:
        """True if topics may exist that this ZooKeeper lacks: brokers that use it would be registered."""
        return self._may_lack_topics or not self._session.children(BROKER_IDS)

    def _described(self, reads: Reads) -> dict[str, Topic]:
        described, self.undescribed = _topics(reads)
        return described

    def identities(self, topics: Iterable[str]) -> dict[str, TopicIdentity | None]:
        """The identity of each topic, None if it does not exist; without those that may exist all the same."""
        names = frozenset(topics)
        described, unreadable = _topics(self._session.read_many(_paths(names)))
        missing = names - described.keys() - unreadable
        if missing and self._may_lack_any():
            missing = frozenset()
        return {**{name: topic.identity for name, topic in described.items()}, **dict.fromkeys(missing)}


def _paths(topics: Iterable[str]) -> list[str]:
    return [TopicNode.path(topic) for topic in topics if is_node_name(topic)]


# Decoded content is cached: otherwise every member would decode all topics at each read of the group.
@lru_cache(maxsize=8192)
def _topic(path: str, data: bytes | None) -> tuple[tuple[int, ...], str | None]:
    return TopicNode.decode(path, data), TopicNode.topic_id(path, data)


def _topics(reads: Reads) -> tuple[dict[str, Topic], frozenset[str]]:
    """The topics that exist, and the names of those whose znodes cannot be read, which is logged."""
    topics, unknown = {}, dict[str, Exception](reads.refused)
    for path, node in reads.nodes.items():
        if node is None:
            continue
        try:
            partitions, topic_id = _topic(path, node.data)
            topics[_name(path)] = Topic(partitions, TopicIdentity(topic_id, node.czxid))
        except MalformedZnode as error:
            unknown[path] = error
    for reason in unknown.values():
        _log.error("topic skipped: %s", reason)
    return topics, frozenset(map(_name, unknown))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
