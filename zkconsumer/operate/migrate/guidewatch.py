"""Watches what the members of a group commit, in ZooKeeper and in the tail of ``__consumer_offsets``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from zkconsumer.connector.simpleconsumer import SimpleConsumer
from zkconsumer.errors import (
    TRANSIENT,
    LeaderUnknown,
    NotLeader,
    OffsetOutOfRange,
    ZkConsumerError,
)
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import clamp_to_log
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC, StoredCommit, decode_commit, partition_of_group
from zkconsumer.operate.migrate.rules.guidance import Evidence, WatchedPartition
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.offsetnodes import stored_offset, why_unreadable
from zkconsumer.operate.offsets.patience import Patience
from zkconsumer.wire.isolation import READ_UNCOMMITTED
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode
from zkconsumer.zookeeper.session import ZkSession

T = TypeVar("T")

_WAIT_MS: Final = 1000
"""How long a broker waits for a commit before it answers that there is none."""
_PATIENCE_S: Final = 30.0
"""How long the leader of the partition of ``__consumer_offsets``, or ZooKeeper, may be away."""


def _patiently(question: Callable[[], T], failed: Callable[[], None] = lambda: None) -> T:
    """Ask again while the leader moves, or ZooKeeper is away; a session that expired is followed by another one.

    A watch only reads, and what it compares (owners, offsets and their transactions) does not depend on its session.
    """
    return Patience(_PATIENCE_S).ask(question, (NotLeader, *TRANSIENT), failed)


@contextmanager
def _closing_on_failure(tail: CommitTail) -> Iterator[None]:
    """For a constructor: who cannot make an object cannot close it."""
    try:
        yield
    except BaseException:
        tail.close()
        raise


class CommitTail:
    """Commits of one group that brokers store from now on, whatever ``isolation.level`` is. One thread uses it.

    Args:
        cluster: the brokers.
        group: consumer group.

    Raises:
        ZkConsumerError: no broker answers, or the topic may not be read.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._consumer: SimpleConsumer | None = None
        self._partition: TopicPartition | None = None
        self._found: list[StoredCommit] = []
        with _closing_on_failure(self):
            self._position = _patiently(self._end, self.close)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None

    def read(self) -> list[StoredCommit]:
        """What was stored since the last call, after waiting a second for it at most.

        Raises:
            ZkConsumerError: no broker answers, or a record cannot be decoded.
        """
        return _patiently(self._read, self.close)

    def _end(self) -> int:
        connected = self._connect()
        if connected is None:
            return 0  # the topic does not exist yet, so each of its records will be new
        partition, consumer = connected
        return consumer.latest(partition)

    def _connect(self) -> tuple[TopicPartition, SimpleConsumer] | None:
        """The group's partition and a client of its leader; None if the topic does not exist."""
        leaders = self._cluster.offsets_topic_leaders()
        if not leaders:
            return None
        partition = TopicPartition(OFFSETS_TOPIC, partition_of_group(self._group, len(leaders)))
        leader = leaders.get(partition)
        if leader is None:
            raise LeaderUnknown(f"{partition} has no leader; check its brokers")
        self._partition = partition
        # With read_committed a transaction that is open in this partition would hide the commits after it.
        config = self._cluster.config.replace(isolation_level=READ_UNCOMMITTED)
        self._consumer = SimpleConsumer(leader.host, leader.port, config=config)
        return partition, self._consumer

    def _read(self) -> list[StoredCommit]:
        if (self._consumer is None or self._partition is None) and self._connect() is None:
            time.sleep(_WAIT_MS / 1000)  # the first commit of any group to Kafka creates the topic
            return []
        assert self._consumer is not None
        assert self._partition is not None
        while True:
            try:
                answer = self._consumer.fetch(self._partition, self._position, max_wait_ms=_WAIT_MS, min_bytes=1)
            except OffsetOutOfRange:  # its segment was deleted, or an unclean election has truncated the log
                start, end = self._consumer.earliest(self._partition), self._consumer.latest(self._partition)
                self._position = clamp_to_log(self._position, start, end)
                continue
            commits = [decode_commit(record.key, record.value) for record in answer]
            self._found += [commit for commit in commits if commit is not None and commit.group == self._group]
            self._position = answer.next_offset
            if self._position >= answer.high_watermark:
                commits_found, self._found = self._found, []
                return commits_found


class _Nodes(NamedTuple):
    """Owner and offset znodes of a partition at one moment."""

    owner: Znode | None
    offset: Znode | None


class GroupWatch:
    """Watches one group, which continues as before. One thread uses it. It outlives its session.

    Args:
        session: an open session.
        cluster: brokers, which have the group's offsets in Kafka.
        group: name of the consumer group.
        partitions: of the group; those of topics that were deleted do not belong to it, those of unknown topics do.

    Raises:
        ZkConsumerError: ZooKeeper or the brokers do not answer for half a minute, or refuse.
    """

    def __init__(self, session: ZkSession, cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
        self._session = session
        self._cluster = cluster
        self._paths = GroupPaths(group)
        self._partitions = sorted(partitions)
        # What is committed after the owners were read was committed by these owners, unless they change.
        self._before = _patiently(self._nodes)
        self._tail = CommitTail(cluster, group)
        with _closing_on_failure(self._tail):
            stored = _patiently(lambda: cluster.committed(group, self._partitions))
        self._in_kafka: dict[TopicPartition, int | None] = {p: offset.offset for p, offset in stored.items()}
        self._commits: dict[TopicPartition, list[int]] = {partition: [] for partition in self._partitions}
        self._former: dict[TopicPartition, int | None] = {}

    def close(self) -> None:
        """Close the connection to the broker. Idempotent."""
        self._tail.close()

    def look(self) -> list[WatchedPartition]:
        """What was seen since the beginning, after waiting a second for a commit.

        Raises:
            ZkConsumerError: as for the constructor, or an offset znode holds no offset.
        """
        # With dual commit a member of the JVM writes the znode after Kafka: read in this order, Kafka has what the
        # znode has. One of zkconsumer writes it first: Kafka has what the look before has found.
        nodes = _patiently(self._nodes)
        for commit in self._tail.read():
            if commit.partition in self._commits:
                self._in_kafka[commit.partition] = commit.offset
                if commit.offset is not None:
                    self._commits[commit.partition].append(commit.offset)
        seen = [self._watched(partition, self._before[partition], nodes[partition]) for partition in self._partitions]
        unequal = [one.partition for one in seen if None not in (one.znode, one.in_kafka) and one.znode != one.in_kafka]
        self._cluster.offsets.begin_round()
        logs = self._cluster.offsets.logs(unequal).found.ranges()
        self._former = {one.partition: one.znode for one in seen if one.is_znode_written}
        return [one._replace(log=logs.get(one.partition)) for one in seen]

    def _nodes(self) -> dict[TopicPartition, _Nodes]:
        owners = {self._paths.owner(partition): partition for partition in self._partitions}
        offsets = {self._paths.offset(partition): partition for partition in self._partitions}
        nodes = self._session.get_many([*owners, *offsets])
        return {p: _Nodes(nodes[self._paths.owner(p)], nodes[self._paths.offset(p)]) for p in self._partitions}

    def _watched(self, partition: TopicPartition, before: _Nodes, now: _Nodes) -> WatchedPartition:
        owner = None
        if before.owner is not None and now.owner is not None and before.owner.czxid == now.owner.czxid:
            owner = PartitionOwnerNode.decode(self._paths.owner(partition), now.owner.data)
        path = self._paths.offset(partition)
        if (reason := why_unreadable(path, now.offset)) is not None:
            raise ZkConsumerError(f"{reason}; the offset that counts is unknown")
        is_written = now.offset is not None and (before.offset is None or before.offset.mzxid != now.offset.mzxid)
        return WatchedPartition(
            partition,
            owner,
            stored_offset(path, now.offset),
            is_written,
            self._in_kafka.get(partition),
            tuple(self._commits[partition]),
            former_znode=self._former.get(partition),
        )


def watch_group(
    watch: GroupWatch,
    seconds: float,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[WatchedPartition]:
    """Watch until everything is known of all partitions that have an owner, at most so long.

    Args:
        watch: a watch that has begun.
        seconds: how long to watch at most; a second of further looks follows if the last one needs it.
        advance: called after each look with the seconds that have passed, and that may.
        clock: monotonic, in seconds.

    Raises:
        ZkConsumerError: as for :class:`GroupWatch`.
    """
    began = clock()
    over_at: float | None = None
    while True:
        seen, now = watch.look(), clock()
        advance(min(int(now - began), int(seconds)), int(seconds))
        if all(_is_known(watched) for watched in seen):
            return seen
        if over_at is not None and now - over_at >= _WAIT_MS / 1000:
            return seen
        if over_at is None and now - began >= seconds:
            if not any(watched.needs_another_look for watched in seen):
                return seen
            over_at = now  # a look ends at the first commit of any group, so one more may take no time


def _is_known(partition: WatchedPartition) -> bool:
    """True if a longer watch shows no more; a partition without the same owner all the time never shows anything."""
    if partition.owner is None:
        return True
    return partition.evidence is Evidence.PROVEN and partition.is_dual is not None
