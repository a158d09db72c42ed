"""Which topics a group's stored offsets were written for, as tools find out: members ignore those of earlier ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from zkconsumer.errors import ZkConsumerError, name_some
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.group.zookeeper.topicrecords import read_origins
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, choose_stored, topic_id_of
from zkconsumer.offsets.rules.topicorigins import (
    NOT_STORED,
    JudgedOffset,
    TopicOrigin,
    WrittenFor,
    count_as_none,
    judge_offsets,
    that_are,
    without_copies,
)
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.offsetnodes import OffsetNodes
from zkconsumer.zookeeper.session import ZkSession


def topic_identities(session: ZkSession, cluster: Cluster, topics: Iterable[str]) -> dict[str, TopicIdentity]:
    """What distinguishes the topics that exist from earlier ones of the same names.

    Raises:
        ZkConsumerError: ZooKeeper, or with ``bootstrap.servers`` the brokers, cannot be asked, or a topic may exist,
            and is not described: an offset of an earlier one would count.
    """
    names = frozenset(topics)
    known = known_identities(cluster.open_reader(session), names)
    if unknown := sorted(names - known.keys()):
        raise ZkConsumerError(
            f"topics are not described, so it is unknown which exist: {name_some(unknown)}; see the log, and give "
            "--bootstrap-server where ZooKeeper has no brokers"
        )
    return {name: one for name, one in known.items() if one is not None}


def known_identities(group_reader: GroupReader, topics: Iterable[str]) -> dict[str, TopicIdentity | None]:
    """The same, with None for a topic that does not exist; one that may exist, and is not described, is absent."""
    if not (names := sorted(topics)):
        return {}
    described = {name: topic.identity for name, topic in group_reader.describe_topics(names).items()}
    return {**dict.fromkeys(set(names) - group_reader.undescribed(names)), **described}


def judge_stored(
    session: ZkSession,
    group: str | None,
    identities: Mapping[str, TopicIdentity],
    stored: Mapping[TopicPartition, StoredOffset],
) -> dict[TopicPartition, JudgedOffset]:
    """Stored offsets with the topics that they were written for.

    Args:
        session: an open session.
        group: whose records in ZooKeeper show it; None for offsets in Kafka, whose marks name their topics.
        identities: of the topics that exist.
        stored: offsets and their marks.

    Raises:
        ZkConsumerError: the records cannot be read.
    """
    if group is None:
        return judge_offsets({topic: TopicOrigin(identity) for topic, identity in identities.items()}, stored)
    return judge_offsets(read_origins(session, group, identities) if stored else {}, stored)


def counting_offsets(
    session: ZkSession,
    cluster: Cluster,
    group: str,
    partitions: Collection[TopicPartition],
    nodes: OffsetNodes,
    in_kafka: Mapping[TopicPartition, StoredOffset],
    stores: Collection[str],
    warnings: list[str],
) -> tuple[dict[TopicPartition, int | None], frozenset[TopicPartition]]:
    """The stored offset of each partition in these stores, None without one, or if it is unknown.

    Of two it is the greater, which a reader under dual commit takes.

    Returns:
        With them the partitions of which a store has an offset of an earlier topic, which counts as none; ``warnings``
        gets a sentence about them.

    Raises:
        ZkConsumerError: the topics, or the group's records of them, cannot be read.
    """
    stored = nodes.stored() if "zookeeper" in stores else {}
    of_nodes = {p: stored[p] for p in partitions if p in stored}
    committed = {p: in_kafka[p] for p in partitions if "kafka" in stores and p in in_kafka}
    topics = {p.topic for p in of_nodes} | {p.topic for p, one in committed.items() if topic_id_of(one.mark)}
    identities = topic_identities(session, cluster, topics)
    in_nodes = judge_stored(session, group, identities, of_nodes)
    of_kafka = judge_stored(session, None, identities, committed)
    outdated = frozenset(p for judged in (in_nodes, of_kafka) for p in that_are(judged, WrittenFor.EARLIER))
    if outdated:
        warnings.append(count_as_none(group, outdated))
    unknown = nodes.unreadable if "zookeeper" in stores else ()
    counting: dict[TopicPartition, int | None] = {}
    for p in partitions:
        one, other = without_copies(in_nodes.get(p, NOT_STORED), of_kafka.get(p, NOT_STORED))
        counting[p] = None if p in unknown else choose_stored(one.counting, other.counting, "max").offset
    return counting, outdated
