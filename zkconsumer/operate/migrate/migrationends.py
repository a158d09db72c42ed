"""Reads both ends of a migration, and the guards of each."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from zkconsumer.config.serveraddresses import server_addresses
from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, offsets_of, unmarked, usable_offset
from zkconsumer.offsets.rules.topicorigins import (
    JudgedOffset,
    WrittenFor,
    describe_before,
    judge_offsets,
    may_be_copy,
    that_are,
)
from zkconsumer.operate.groups.groupznodes import read_group
from zkconsumer.operate.migrate.foreignlayouts import read_layout
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import (
    Guard,
    MigrationPlan,
    Missing,
    Observation,
    Place,
    make_plan,
)
from zkconsumer.operate.migrate.rules.migrationrecheck import VerifiedPartition, verify
from zkconsumer.operate.migrate.survey import stores_last_processed
from zkconsumer.operate.offsets.groupstores import Cluster, partitions_to_hold
from zkconsumer.operate.offsets.judgedoffsets import judge_stored, topic_identities
from zkconsumer.operate.offsets.offsetnodes import OffsetNodes, offset_nodes
from zkconsumer.operate.offsets.writeplan import Guards
from zkconsumer.wire.rules.describedgroup import KafkaGroup, why_no_groups
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import parse_json
from zkconsumer.zookeeper.session import ZkSession

OwnOffsets = Mapping[TopicPartition, Collection[int | None]]
"""Offsets that tools of ours have written, by partition."""

CLUSTER_ID: Final = "/cluster/id"
"""Znode of the cluster's id, which brokers since 0.10.1 write."""


@dataclass(slots=True)
class SeenEnd:
    """What was read of one end.

    Attributes:
        topics: of the end, also those without an offset.
        offsets: by partition; those without one are absent.
        guards: conditions of this end.
        warnings: what the operator should know.
    """

    topics: set[str]
    offsets: Mapping[TopicPartition, JudgedOffset]
    guards: list[Guard] = field(default_factory=list)
    warnings: tuple[str, ...] = ()


class _EndReader(Protocol):
    """Reads one end, of whatever kind; raises as :meth:`MigrationEnds.observe`."""

    def as_source(self, planned: Collection[TopicPartition]) -> SeenEnd:
        """All offsets, those of ``planned`` among them, read in a way that shows whether they still change."""

    def as_target(self, existing: Collection[TopicPartition], own: OwnOffsets = MappingProxyType({})) -> SeenEnd:
        """The offsets of partitions, and whether they may be written; ``own`` are those that a mirror has written."""

    def offsets(self, partitions: Collection[TopicPartition], *, with_others: bool) -> dict[TopicPartition, int]:
        """See :meth:`MigrationEnds.offsets_of_target`."""


class _GroupInZooKeeper:
    def __init__(self, session: ZkSession, cluster: Cluster, end: End, other: End) -> None:
        self._session, self._cluster = session, cluster
        self._end, self._other = end, other

    def as_source(self, planned: Collection[TopicPartition]) -> SeenEnd:  # noqa: ARG002
        znodes = read_group(self._session, self._cluster.open_reader(self._session), self._end.group)
        seen = self._read({partition.topic for partition in znodes.partitions})
        marked = Guards(self._session)
        marked.warn_of_mark(self._end.group, unless=str(self._other))
        seen.warnings += tuple(marked.warnings)
        seen.guards.append(_layout_guard(self._end, is_other=stores_last_processed(self._session, znodes)))
        return seen

    def as_target(self, existing: Collection[TopicPartition], own: OwnOffsets = MappingProxyType({})) -> SeenEnd:
        return self._read({partition.topic for partition in existing}, own)

    def _read(self, topics: set[str], own: OwnOffsets = MappingProxyType({})) -> SeenEnd:
        group, nodes = self._end.group, offset_nodes(self._session, self._end.group, topics)
        checked = Guards(self._session, forceable=False, own=own)
        checked.check_group(group, partitions_to_hold(self._session, self._cluster, group, nodes.nodes), nodes)
        guards = [Guard("zookeeper", False, reason) for reason in checked.refusals]
        if not guards:
            guards = [Guard("zookeeper", True, f"group {group} in ZooKeeper has no members")]
        guards.append(_readable(nodes))
        offsets = _judged(self._session, self._cluster, group, topics, nodes.stored())
        return SeenEnd(topics, offsets, guards, tuple(checked.warnings))

    def offsets(self, partitions: Collection[TopicPartition], *, with_others: bool) -> dict[TopicPartition, int]:
        topics = None if with_others else {partition.topic for partition in partitions}
        return _those(
            partitions, offset_nodes(self._session, self._end.group, topics).offsets(), with_others=with_others
        )


class _GroupInKafka:
    def __init__(self, session: ZkSession, cluster: Cluster, group: str, other: End) -> None:
        self._session, self._cluster, self._group, self._other = session, cluster, group, other

    def as_source(self, planned: Collection[TopicPartition]) -> SeenEnd:
        """The group must not have members: before, after, and with equal reads."""
        cluster, group = self._cluster, self._group
        named = {*planned, *self._at_other_end()}
        before, first = cluster.describe(group), cluster.committed_all(group, named)
        second, after = cluster.committed_all(group, named), cluster.describe(group)
        guard = _empty_in_kafka(group, before if before.has_members else after)
        if guard.holds and first != second:
            guard = Guard("kafka", False, f"offsets of group {group} in Kafka change; stop what commits them")
        topics = {partition.topic for partition in offsets_of(second)}
        return SeenEnd(topics, _judged(self._session, cluster, None, topics, second), [guard])

    def as_target(self, existing: Collection[TopicPartition], own: OwnOffsets = MappingProxyType({})) -> SeenEnd:  # noqa: ARG002
        topics = {partition.topic for partition in existing}
        reason = why_no_groups(self._cluster.releases())
        can_have_groups = Guard("brokers", reason is None, reason or "the brokers coordinate consumer groups")
        if not can_have_groups.holds:  # such brokers refuse the further requests
            return SeenEnd(topics, {}, [can_have_groups])
        empty = _empty_in_kafka(self._group, self._cluster.describe(self._group))
        stored = self._cluster.committed(self._group, existing)
        guards = [can_have_groups, empty, self._may_commit(topics)]
        return SeenEnd(topics, _judged(self._session, self._cluster, None, topics, stored), guards)

    def _at_other_end(self) -> Collection[TopicPartition]:
        """The partitions of a group in ZooKeeper that this one may have continued."""
        if self._other.kind != "zookeeper":
            return ()
        return offset_nodes(self._session, self._other.group, without_refused=True).nodes.keys()

    def _may_commit(self, topics: Collection[str]) -> Guard:
        denied = self._cluster.unwritable(self._group, topics) if topics else []
        if denied is None:
            return Guard("permission", True, "the brokers are older than 2.3, and do not report permissions")
        if denied:
            return Guard("permission", False, f"commits need Read on {name_some(denied)}; add the ACLs")
        return Guard("permission", True, "offsets may be committed")

    def offsets(self, partitions: Collection[TopicPartition], *, with_others: bool) -> dict[TopicPartition, int]:
        read = self._cluster.committed_known if with_others else self._cluster.committed
        return offsets_of(read(self._group, partitions))


class _Layout:
    """Offsets of another layout; a file that can be a target need not exist yet."""

    def __init__(self, session: ZkSession, end: End) -> None:
        self._session, self._end = session, end

    def as_source(self, planned: Collection[TopicPartition]) -> SeenEnd:  # noqa: ARG002
        first, second = (read_layout(self._session, self._end) for _ in range(2))
        # Consumers pause between writes, and write nothing if there is nothing to do; so `run` compares with the plan.
        holds = first.offsets == second.offsets
        text = f"two reads of the offsets of {self._end} {'are equal' if holds else 'differ; stop its consumers'}"
        guards = [Guard("source", holds, text)]
        if second.problems:
            guards.append(Guard("znodes", False, "; ".join(second.problems)))
        offsets = judge_offsets({}, unmarked(second.offsets))
        return SeenEnd({partition.topic for partition in second.offsets}, offsets, guards, second.warnings)

    def as_target(self, existing: Collection[TopicPartition], own: OwnOffsets = MappingProxyType({})) -> SeenEnd:  # noqa: ARG002
        offsets = judge_offsets({}, unmarked(self.offsets(existing, with_others=True)))
        return SeenEnd({partition.topic for partition in existing}, offsets)

    def offsets(self, partitions: Collection[TopicPartition], *, with_others: bool) -> dict[TopicPartition, int]:
        if self._end.kind == "spark-options" and not Path(self._end.group).exists():
            return {}
        return _those(partitions, read_layout(self._session, self._end).offsets, with_others=with_others)


def _end_reader(end: End, other: End, session: ZkSession, cluster: Cluster) -> _EndReader:
    if end.kind == "zookeeper":
        return _GroupInZooKeeper(session, cluster, end, other)
    if end.kind == "kafka":
        return _GroupInKafka(session, cluster, end.group, other)
    return _Layout(session, end)


class MigrationEnds:
    """Both ends of a migration.

    Args:
        session: an open session.
        cluster: the brokers whose topics the offsets are of.
        source: where offsets are read.
        target: where they are written.
        source_session: an open session where the source is, if that is elsewhere; None if it is not. Nothing is written
            there.
    """

    def __init__(
        self,
        session: ZkSession,
        cluster: Cluster,
        source: End,
        target: End,
        *,
        source_session: ZkSession | None = None,
    ) -> None:
        self.session = session
        self.cluster = cluster
        self.source = source
        self.target = target
        self._source = _end_reader(source, target, source_session or session, cluster)
        self._target = _end_reader(target, source, session, cluster)

    def observe(self, planned: Collection[TopicPartition] = (), own: OwnOffsets = MappingProxyType({})) -> Observation:
        """Read everything that a plan consists of, or is compared with. Nothing is written.

        Args:
            planned: partitions of a plan, which are read in any case.
            own: offsets that a mirror has written to the target: that they are recent is no sign of a consumer.

        Raises:
            ZkConsumerError: a store or a log cannot be read.
            OSError: a file cannot be read.
        """
        source = self._source.as_source(planned)
        topics = source.topics | {partition.topic for partition in planned}
        existing = self.cluster.partitions(topics)
        target = self._target.as_target(existing, own)
        warnings = [*source.warnings, *target.warnings]
        if gone := sorted(source.offsets.keys() - existing):
            warnings.append(f"offsets of {name_some(gone)} are not migrated: the cluster has no such partitions")
        at_source = {p: one for p, one in source.offsets.items() if p in existing}
        at_target = {p: one for p, one in target.offsets.items() if p in existing}
        if outdated := that_are(at_source, WrittenFor.EARLIER):
            warnings.append(f"offsets of {name_some(outdated)} are of earlier topics of that name, and not used")
        warnings += describe_before(that_are(at_source, WrittenFor.BEFORE))
        if copies := [p for p in outdated if p in at_target and may_be_copy(at_source[p], at_target[p])]:
            warnings.append(
                f"offsets of {self.target} may be copies of such offsets, and are not used either: {name_some(copies)}"
            )
        if others := sorted({*that_are(at_target, WrittenFor.EARLIER)}.difference(outdated)):
            warnings.append(
                f"offsets of {self.target} are of earlier topics of that name, and not used: {name_some(others)}"
            )
        return Observation(
            place=self.place(),
            source=at_source,
            target=at_target,
            logs=self.cluster.log_ranges(existing),
            identities=topic_identities(self.session, self.cluster, topics),
            guards=(*source.guards, *target.guards),
            warnings=tuple(warnings),
        )

    def plan(self, *, missing: Missing, retention_ms: int | None = None, rewind: bool = False) -> MigrationPlan:
        """Plan the migration, as :func:`make_plan` does; raises as :meth:`observe`."""
        return make_plan(
            self.source,
            self.target,
            self.session.address,
            self.observe(),
            missing=missing,
            retention_ms=retention_ms,
            now_ms=int(time.time() * 1000),
            rewind=rewind,
        )

    def verify(self, plan: MigrationPlan) -> tuple[VerifiedPartition, ...]:
        """Compare both ends with their plan, as :func:`verify` does; raises as :meth:`observe`."""
        planned = [row.partition for row in plan.partitions]
        present = self.offsets_of_target(planned, with_others=True)
        return verify(plan, self.observe([*planned, *present]))

    def place(self) -> Place:
        """What identifies the servers now."""
        node = self.session.get(CLUSTER_ID)
        in_zookeeper = _cluster_id(None if node is None else node.data)
        return Place(server_addresses(self.session.address).chroot, in_zookeeper, self.cluster.cluster_id())

    def observe_target(self, partitions: Collection[TopicPartition]) -> SeenEnd:
        """The target alone, with its conditions, such as that it has no members; raises as :meth:`observe`."""
        return self._target.as_target(partitions)

    def guards_beside_hold(self) -> list[Guard]:
        """Conditions of the target that a hold of the group in ZooKeeper does not keep; raises as :meth:`observe`."""
        if self.target.kind != "kafka":
            return []
        return [_empty_in_kafka(self.target.group, self.cluster.describe(self.target.group))]

    def offsets_of_source(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The source's offsets now, by partition; those without one are absent."""
        return self._source.offsets(partitions, with_others=False)

    def offsets_of_target(
        self, partitions: Collection[TopicPartition], *, with_others: bool = False
    ) -> dict[TopicPartition, int]:
        """The target's offsets now, as :meth:`offsets_of_source`.

        ``with_others`` adds those of all other partitions, which brokers before 0.10.2 do not list.
        """
        return self._target.offsets(partitions, with_others=with_others)


def _judged(
    session: ZkSession,
    cluster: Cluster,
    group: str | None,
    topics: Collection[str],
    stored: Mapping[TopicPartition, StoredOffset],
) -> dict[TopicPartition, JudgedOffset]:
    """The offsets at which consumers would continue, judged; ``group`` as of :func:`judge_stored`."""
    usable = {p: one for p, one in stored.items() if usable_offset(one.offset) is not None}
    return judge_stored(session, group, topic_identities(session, cluster, topics), usable)


def _those(
    partitions: Collection[TopicPartition], offsets: dict[TopicPartition, int], *, with_others: bool
) -> dict[TopicPartition, int]:
    if with_others:
        return offsets
    return {partition: offsets[partition] for partition in partitions if partition in offsets}


def _empty_in_kafka(group: str, described: KafkaGroup) -> Guard:
    if described.has_members:
        return Guard("kafka", False, f"group {group} lives in Kafka ({described.state}); stop its consumers")
    return Guard("kafka", True, f"group {group} in Kafka has no members ({described.state})")


def _readable(nodes: OffsetNodes) -> Guard:
    return Guard("znodes", not nodes.problems, "; ".join(nodes.problems) or "every offset znode holds an offset")


def _layout_guard(end: End, *, is_other: bool) -> Guard:
    if is_other:
        return Guard(
            "layout",
            False,
            f"the znodes of {end} are those of a receiver that stores the last processed offset; plan with "
            f"--from dibbhatt:{GroupPaths(end.group).root}",
        )
    return Guard("layout", True, "the znodes are those of a consumer that stores the next offset")


def _cluster_id(data: bytes | None) -> str | None:
    try:
        identity = parse_json(data or b"{}").get("id")
    except (ValueError, AttributeError):
        return None
    return identity if isinstance(identity, str) else None
