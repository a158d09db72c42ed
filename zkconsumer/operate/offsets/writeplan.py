"""WritePlan: what a command is going to write, and which guards refuse it; made without writing anything."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import HoldReason, NoCommonVersion, WriteRefused, ZkConsumerError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import (
    NO_OFFSET,
    StoredOffset,
    fresh_metadata,
    topic_id_of,
)
from zkconsumer.operate.groups.groupznodes import is_in_zookeeper
from zkconsumer.operate.offsets.groupinuse import (
    live_members,
    marked_since,
    read_mark,
    registered_members,
    why_held,
    why_owned,
)
from zkconsumer.operate.offsets.groupstores import Cluster, Store, partitions_to_hold
from zkconsumer.operate.offsets.judgedoffsets import topic_identities
from zkconsumer.operate.offsets.offsetnodes import OffsetNodes
from zkconsumer.operate.offsets.rules.offsetmoves import OffsetRow
from zkconsumer.operate.offsets.snapshot import GroupChange, KafkaChange, NodeChange, NodeState, Snapshot
from zkconsumer.wire.rules.describedgroup import exists_at_brokers
from zkconsumer.zookeeper.access import Access
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import OffsetNode, describe_mark
from zkconsumer.zookeeper.session import ZkSession

_RECENT_MS: Final = ConsumerConfig.auto_commit_interval_ms
"""An offset without a member that was written so recently is suspicious: the default auto.commit.interval.ms."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What is written of one group.

    Attributes:
        change: what changes, as the snapshot keeps it.
        rows: what that means for the offset of each partition, also where nothing changes.
        hold: partitions that no member may own meanwhile.
        refusals: why the guards refuse to write, one sentence each.
        warnings: what the operator should know, one sentence each.
        file: a file to write and its text, for a store of another program.
        still_refused: as that of a :class:`WritePlan`, of this group alone, and called before its first write.
    """

    change: GroupChange
    rows: tuple[OffsetRow, ...]
    hold: frozenset[TopicPartition] = frozenset()
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    file: tuple[Path, str] | None = None
    still_refused: Callable[[], Sequence[str]] = field(default=tuple, compare=False)

    @property
    def is_empty(self) -> bool:
        """True if nothing is written."""
        return not (self.change.nodes or self.change.kafka or self.file)


def _nothing_else(_is_written: bool, /) -> Sequence[str]:
    return ()


def _no_step(_fence: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What a command writes.

    Attributes:
        command: what the operator asked for, in words.
        groups: in the order in which they are written.
        live: members do not stop it (``--force-live``).
        forceable: the command has that option, for messages.
        names_its_group: the command is about one group, which it names: its table does not, as the JVM tool's does not.
        remarks: what the operator should know of all of it, one sentence each.
        snapshot: what the file of the write gets; None for what ``groups`` change.
        retention_ms: how long Kafka keeps the offsets, in ms; None for the brokers' setting.
        still_refused: reads once more, under the hold, what must be true besides the offsets that are written; returns
            why it is not, one sentence each. It is called with False before the first write, and with True after the
            last one, if something was written.
        begins: called once under the hold, after that, before anything is written, with the fence of the hold; if it
            raises, nothing is.
        sets_again: set what another client overwrites before the hold is released; otherwise report it.
        source: where the offsets are from, if members that register meanwhile would consume its records twice.
        resume: what the operator does to complete a write that failed.
    """

    command: str
    groups: tuple[GroupPlan, ...]
    live: bool = False
    forceable: bool = True
    names_its_group: bool = False
    remarks: tuple[str, ...] = ()
    snapshot: Snapshot | None = None
    retention_ms: int | None = None
    still_refused: Callable[[bool], Sequence[str]] = _nothing_else
    begins: Callable[[str], None] = _no_step
    sets_again: bool = True
    source: str = ""
    resume: str = "complete it by `offsets restore --complete`"

    @property
    def is_empty(self) -> bool:
        """True if nothing is refused, and nothing is written."""
        return not self.refusals and all(group.is_empty for group in self.groups)

    @property
    def to_hold(self) -> tuple[GroupPlan, ...]:
        """The groups that are held: those of which something is written, else all if there is a ``still_refused``.

        1. A plan finds everything as it should be; 2. a client begins, and commits. So that is asked under the hold.
        """
        written = tuple(group for group in self.groups if not group.is_empty)
        return written or (() if self.still_refused is _nothing_else else self.groups)

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why the guards refuse to write, of all groups."""
        return tuple(reason for group in self.groups for reason in group.refusals)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should know, of all groups."""
        return (*self.remarks, *(warning for group in self.groups for warning in group.warnings))


@dataclass(slots=True)
class Guards:
    """Collects what speaks against a write.

    Args:
        session: an open session.
        live: members are a warning and no refusal.
        forceable: the command has ``--force-live``, for messages.
        now_ms: current time in ms since the epoch.
        own: offsets that a tool of ours has written, by partition.
    """

    session: ZkSession
    live: bool = False
    forceable: bool = True
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    own: Mapping[TopicPartition, Collection[int | None]] = field(default_factory=dict)

    def check_group(self, group: str, hold: Collection[TopicPartition], nodes: OffsetNodes) -> None:
        """Members, owners, other tools, and offsets that are being written."""
        if self.session.is_absent:
            return
        paths = GroupPaths(group)
        held = why_held(self.session, paths)
        if members := registered_members(self.session, paths):
            if self.live:
                self.warnings.append(
                    f"group {group} has live members, whose next commit overwrites what is written: "
                    f"{name_some(members)}"
                )
            else:
                self.refusals.append(live_members(group, members, forceable=self.forceable))
        elif owned := why_owned(self.session, paths, hold):
            if not (held and isinstance(owned, HoldReason)):  # owner znodes of a hold end with it
                self.refusals.append(owned)
        else:
            self._warn_of_recent(group, nodes)
        if held:
            self.refusals.append(held)

    def _warn_of_recent(self, group: str, nodes: OffsetNodes) -> None:
        since = self.now_ms() - _RECENT_MS
        recent = [
            partition
            for partition, node in nodes.nodes.items()
            if node.modified_ms > since and nodes.offset(partition) not in self.own.get(partition, ())
        ]
        if recent:
            self.warnings.append(
                f"offsets of group {group} were written in the last minute although no member is registered: "
                f"{name_some(recent)}; a member has just left, a command such as "
                "`offsets reset` has just written, or a SimpleConsumer is at work"
            )

    def check_members_in_kafka(self, cluster: Cluster, group: str) -> None:
        """A coordinator refuses commits of others while its group has members, so nothing can force them."""
        try:
            described = cluster.describe(group)
        except ZkConsumerError:  # brokers before 0.9 have no groups; of others, the commit reports what is wrong
            return
        if described.has_members:
            self.refusals.append(
                f"group {group} has members at the brokers ({described.state}), which accept their commits alone; stop "
                "them"
            )

    def warn_of_mark(self, group: str, *, unless: str | None = None) -> Callable[[], Sequence[str]]:
        """A group that was migrated, to another store than ``unless``, has left its offsets in ZooKeeper.

        Returns:
            Why its znodes are not written under its hold: a migration has marked it since.
        """
        mark = read_mark(self.session, group)
        if mark is not None and (unless is None or not mark.may_be_of(unless)):
            self.warnings.append(describe_mark(group, mark))
        return partial(marked_since, self.session, group, mark)

    def require_deletion(self, cluster: Cluster, group: str) -> None:
        """Brokers before 2.4 cannot delete offsets. To commit another offset instead would make records be skipped."""
        try:
            if cluster.can_delete(group):
                return
            reason = f"the brokers cannot delete offsets of group {group} in Kafka, which those since 2.4 can (KIP-496)"
        except ZkConsumerError as error:
            reason = f"whether the brokers can delete offsets of group {group} in Kafka is unknown: {error}"
        self.refusals.append(
            f"{reason}; write ZooKeeper's with --store zookeeper, and let Kafka's expire (offsets.retention.minutes)"
        )

    def choose_store(
        self, group: str, given: Store | None, in_zookeeper: bool, in_kafka: Callable[[], bool]
    ) -> frozenset[str]:
        """Which stores to write: the one that has offsets of the group; where both have, the operator decides.

        A reader under dual commit takes the greater of both, so a rewind of one store would be lost.
        """
        if given is not None:
            return frozenset({"zookeeper", "kafka"} if given == "both" else {given})
        try:
            kafka_has = in_kafka()
        except WriteRefused:
            raise
        except ZkConsumerError as error:
            self.refusals.append(
                f"whether Kafka stores offsets of group {group}, too, is unknown: {error}. Give --store zookeeper to "
                "write ZooKeeper's only"
            )
            return frozenset({"zookeeper"})
        if kafka_has and in_zookeeper:
            mark = read_mark(self.session, group)
            if mark is not None and mark.may_be_of(f"kafka:{group}"):
                reason = f"group {group} {mark.meaning}; give --store kafka for offsets there"
            else:
                reason = (
                    f"group {group} has offsets in ZooKeeper and in Kafka, and readers under dual commit take the "
                    "greater; give --store both, --store zookeeper or --store kafka"
                )
            self.refusals.append(reason)
        return frozenset({"kafka"} if kafka_has else {"zookeeper"})


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Offsets to write to one group.

    Attributes:
        group: its name.
        rows: by partition, what is to be stored.
        nodes: the group's offset znodes, as they were read.
        in_kafka: the offsets in Kafka, as they were read.
        stores: ``zookeeper``, ``kafka`` or both.
        outdated: partitions whose offset was stored for an earlier topic; it is written even if it is equal.
    """

    group: str
    rows: Mapping[TopicPartition, OffsetRow]
    nodes: OffsetNodes
    in_kafka: Mapping[TopicPartition, StoredOffset]
    stores: frozenset[str]
    outdated: frozenset[TopicPartition] = frozenset()


def plan_offsets(session: ZkSession, cluster: Cluster, guards: Guards, target: WriteTarget) -> GroupPlan:
    """The plan of one group, whose guards are checked here."""
    wanted = {p: row.new for p, row in target.rows.items() if row.new is not None}
    nodes: tuple[NodeChange, ...] = ()
    kafka: tuple[KafkaChange, ...] = ()
    still_refused: Callable[[], Sequence[str]] = tuple
    if "zookeeper" in target.stores:
        nodes = offset_changes(session, target.group, wanted, target.nodes, target.outdated)
        guards.warnings += (
            f"{target.nodes.unreadable[p]}; it is replaced" for p in wanted if p in target.nodes.unreadable
        )
        still_refused = guards.warn_of_mark(target.group)
    if "kafka" in target.stores:
        stored = {p: target.in_kafka.get(p, NO_OFFSET) for p in wanted}
        named = {p.topic for p, one in stored.items() if topic_id_of(one.mark) is not None}
        identities = topic_identities(session, cluster, named)
        recorded = {topic: one.recorded for topic, one in identities.items()}
        kafka = tuple(
            KafkaChange(
                p,
                stored[p].offset,
                new,
                fresh_metadata(stored[p].mark, uuid.uuid4().hex, recorded.get(p.topic)),
                str(stored[p].mark or ""),
            )
            for p, new in sorted(wanted.items())
            if stored[p].offset != new or p in target.outdated
        )
    hold = partitions_to_hold(session, cluster, target.group, wanted)
    if nodes or kafka:  # a group of which nothing is written refuses no write of the others
        guards.check_group(target.group, hold, target.nodes)
    rows = tuple(target.rows[p] for p in sorted(target.rows))
    if kafka:
        guards.check_members_in_kafka(cluster, target.group)
    change = GroupChange(target.group, nodes, kafka).holding(None if session.is_absent else target.group)
    return GroupPlan(
        change, rows, frozenset(hold), tuple(guards.refusals), tuple(guards.warnings), still_refused=still_refused
    )


def offset_changes(
    session: ZkSession,
    group: str,
    wanted: Mapping[TopicPartition, int],
    nodes: OffsetNodes,
    outdated: Collection[TopicPartition] = (),
) -> tuple[NodeChange, ...]:
    """Changes of offset znodes and of the parents that they need; nothing for an offset that is stored already.

    Those of ``outdated`` partitions were stored for earlier topics, so they are written in any case.
    """
    paths = GroupPaths(group)
    changes = []
    missing = [partition for partition in sorted(wanted) if partition not in nodes.nodes]
    rewritten = [partition for partition in sorted(wanted) if partition in outdated]  # which a rollback removes
    access = _access_of_siblings(session, paths, [*missing, *rewritten], nodes)
    changes += _missing_parents(session, paths, {partition.topic for partition in missing}, access)
    for partition, offset in sorted(wanted.items()):
        node, data = nodes.nodes.get(partition), OffsetNode.encode(offset)
        if node is not None and node.data == data and partition not in outdated:
            continue
        before = None if node is None else NodeState(node.data, node.version, node.mzxid)
        may_be_created = node is None or partition in outdated
        after = NodeState(data, access=access.get(partition.topic) if may_be_created else None)
        changes.append(NodeChange(paths.offset(partition), before, after))
    return tuple(changes)


def _access_of_siblings(
    session: ZkSession, paths: GroupPaths, missing: Iterable[TopicPartition], nodes: OffsetNodes
) -> dict[str, Access]:
    """By topic, the access that a new offset znode gets: that of a znode beside it, else of one of another topic.

    A node with another access than its siblings would lock out the group's members.
    """
    sibling: dict[str, str] = {}
    for partition in nodes.nodes:
        sibling.setdefault(partition.topic, paths.offset(partition))
    cousin = next(iter(sibling.values()), paths.offsets)
    wanted = {partition.topic: sibling.get(partition.topic, cousin) for partition in missing}
    access = session.access(wanted.values())
    return {topic: access[path] for topic, path in wanted.items() if path in access}


def _missing_parents(
    session: ZkSession, paths: GroupPaths, topics: Collection[str], access: Mapping[str, Access]
) -> list[NodeChange]:
    parents: dict[str, Access | None] = {}
    if topics:
        parents = dict.fromkeys([paths.root, paths.offsets])
        parents |= {paths.offset_topic(topic): access.get(topic) for topic in sorted(topics)}
    nodes = session.get_many(parents)
    missing = [path for path in parents if nodes[path] is None]
    return [NodeChange(path, None, NodeState(None, access=parents[path])) for path in missing]


def group_exists(
    session: ZkSession,
    cluster: Cluster,
    group: str,
    stores: Collection[str],
    in_kafka: Mapping[TopicPartition, StoredOffset],
) -> bool:
    """True if ZooKeeper has the group, or the brokers, which are asked if Kafka is written."""
    if in_kafka or (not session.is_absent and is_in_zookeeper(session, group)):
        return True
    try:
        return "kafka" in stores and exists_at_brokers(cluster.describe(group).state, in_kafka)
    except NoCommonVersion:  # brokers before 0.9, which have no groups
        return False


def read_kafka(
    cluster: Cluster, group: str, partitions: Collection[TopicPartition], given: Store | None
) -> Callable[[], dict[TopicPartition, StoredOffset]]:
    """Reads the group's offsets in Kafka when they are first needed; never with ``--store zookeeper``.

    They are those of all topics, since the group's store is chosen by all; ``partitions`` are what old brokers are
    asked for (:meth:`Cluster.committed_known <zkconsumer.operate.offsets.groupstores.Cluster.committed_known>`).
    """
    memo: list[dict[TopicPartition, StoredOffset]] = []

    def read() -> dict[TopicPartition, StoredOffset]:
        if not memo:
            memo.append({} if given == "zookeeper" else cluster.committed_known(group, partitions))
        return memo[0]

    return read
