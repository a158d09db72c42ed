"""Reads both ends of a migration, and the guards of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from zkconsumer.clusterchoice import open_registry
from zkconsumer.core.kafkagroup import why_no_groups
from zkconsumer.core.migrationend import End
from zkconsumer.core.migrationlayouts import parse_starting_offsets
from zkconsumer.core.migrationplan import Guard, Observation, Place
from zkconsumer.core.znodes import parse_json
from zkconsumer.errors import name_some
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.tools.groupznodes import read_group
from zkconsumer.tools.migrationlayouts import LayoutOffsets, read_layout
from zkconsumer.tools.migrationsurvey import stores_last_processed
from zkconsumer.tools.offsetplan import Guards
from zkconsumer.tools.offsetstores import Cluster, OffsetNodes, offset_nodes, partitions_to_hold
from zkconsumer.zookeeper.registry import Registry
from zkconsumer.zookeeper.session import ZkSession

CLUSTER_ID: Final = "/cluster/id"
"""Znode of the cluster's id, which brokers since 0.10.1 write."""


@dataclass(slots=True)
class _Seen:
    """What was read of one end.

    Attributes:
        topics: of the end, also those without an offset.
        offsets: by partition.
        guards: conditions of this end.
        warnings: what the operator should know.
    """

    topics: set[str]
    offsets: Mapping[TopicPartition, int]
    guards: list[Guard] = field(default_factory=list)
    warnings: tuple[str, ...] = ()


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
        self._source_session = source_session or session

    def observe(self, planned: Collection[TopicPartition] = ()) -> Observation:
        """Read everything that a plan consists of, or is compared with. Nothing is written.

        Args:
            planned: partitions of a plan, which are read in any case.

        Raises:
            ZkConsumerError: a store or a log cannot be read.
            OSError: a file cannot be read.
        """
        source = self._read_source()
        topics = source.topics | {partition.topic for partition in planned}
        existing = self.cluster.partitions(topics)
        target = self._read_target(existing)
        warnings = [*source.warnings, *target.warnings]
        if gone := sorted(source.offsets.keys() - existing):
            warnings.append(f"offsets of {name_some(gone)} are not migrated: the cluster has no such partitions")
        return Observation(
            place=self.place(),
            source={p: offset for p, offset in source.offsets.items() if p in existing},
            target={p: offset for p, offset in target.offsets.items() if p in existing},
            logs=self.cluster.log_ranges(existing),
            identities=self._identities(topics),
            guards=(*source.guards, *target.guards),
            warnings=tuple(warnings),
        )

    def place(self) -> Place:
        """What identifies the servers now."""
        _, slash, chroot = self.session.address.partition("/")
        node = self.session.get(CLUSTER_ID)
        in_zookeeper = _cluster_id(None if node is None else node.data)
        return Place((slash + chroot).rstrip("/"), in_zookeeper, self.cluster.cluster_id())

    def guards_of_target(self, partitions: Collection[TopicPartition]) -> list[Guard]:
        """Conditions of the target alone, such as that it has no members; raises as :meth:`observe`."""
        return self._read_target(partitions).guards

    def offsets_of_source(
        self, partitions: Collection[TopicPartition], *, others: bool = False
    ) -> dict[TopicPartition, int]:
        """The source's offsets now, by partition; those without one are absent.

        With ``others`` those of all partitions, which brokers before 0.10.2 do not list.
        """
        return self._offsets(self.source, partitions, others=others)

    def offsets_of_target(
        self, partitions: Collection[TopicPartition], *, others: bool = False
    ) -> dict[TopicPartition, int]:
        """The target's offsets now, as :meth:`offsets_of_source`."""
        return self._offsets(self.target, partitions, others=others)

    def _offsets(self, end: End, partitions: Collection[TopicPartition], *, others: bool) -> dict[TopicPartition, int]:
        if end.kind == "kafka" and others:
            stored = self.cluster.committed_known(end.group, partitions)
            return {p: one.offset for p, one in stored.items() if one.offset is not None}
        if end.kind == "kafka":
            return self._committed(end.group, partitions)
        if end.kind == "zookeeper":
            nodes = offset_nodes(self.session, end.group, None if others else {p.topic for p in partitions})
            found = {p: offset for p in nodes.nodes if (offset := nodes.offset(p)) is not None}
        else:
            found = dict(_in_file(end) if end is self.target else self._read_layout().offsets)
        return found if others else {p: found[p] for p in partitions if p in found}

    def _committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        stored = self.cluster.committed(group, partitions)
        return {partition: one.offset for partition, one in stored.items() if one.offset is not None}

    # -- the source ---------------------------------------------------------------------------------------------------

    def _read_source(self) -> _Seen:
        if self.source.kind == "kafka":
            return self._kafka_source(self.source.group)
        if self.source.kind == "zookeeper":
            znodes = read_group(self.session, self._registry(), self.source.group)
            seen = self._group_in_zookeeper(self.source.group, {partition.topic for partition in znodes.partitions})
            seen.guards.append(_layout_guard(self.source, is_other=stores_last_processed(self.session, znodes)))
            return seen
        first, second = self._read_layout(), self._read_layout()
        holds = first.offsets == second.offsets
        # Consumers pause between writes, and write nothing if there is nothing to do; so `run` compares with the plan.
        text = f"two reads of the offsets of {self.source} {'are equal' if holds else 'differ; stop its consumers'}"
        topics = {partition.topic for partition in second.offsets}
        return _Seen(topics, second.offsets, [Guard("source", holds, text)], second.warnings)

    def _read_layout(self) -> LayoutOffsets:
        return read_layout(self._source_session, self.source)

    def _kafka_source(self, group: str) -> _Seen:
        """All offsets of the group in Kafka, which must not have members: before, after, and with equal reads."""
        before, first = self.cluster.describe(group), self.cluster.committed_all(group)
        second, after = self.cluster.committed_all(group), self.cluster.describe(group)
        offsets = {partition: one.offset for partition, one in second.items() if one.offset is not None}
        live = next((one for one in (before, after) if one.has_members), None)
        if live is not None:
            guard = Guard("kafka", False, f"group {group} lives in Kafka ({live.state}); stop its consumers")
        elif first != second:
            guard = Guard("kafka", False, f"offsets of group {group} in Kafka change; stop what commits them")
        else:
            guard = Guard("kafka", True, f"group {group} in Kafka has no members ({after.state})")
        return _Seen({partition.topic for partition in offsets}, offsets, [guard])

    # -- the target ---------------------------------------------------------------------------------------------------

    def _read_target(self, existing: Collection[TopicPartition]) -> _Seen:
        topics = {partition.topic for partition in existing}
        if self.target.kind == "zookeeper":
            return self._group_in_zookeeper(self.target.group, topics)
        if self.target.kind == "kafka":
            group, can_have_groups = self.target.group, self._can_have_groups()
            if not can_have_groups.holds:  # such brokers refuse the further requests
                return _Seen(topics, {}, [can_have_groups])
            guards = [can_have_groups, self._empty_in_kafka(group), self._may_commit(group, topics)]
            return _Seen(topics, self._committed(group, existing), guards)
        return _Seen(topics, _in_file(self.target))

    def _can_have_groups(self) -> Guard:
        reason = why_no_groups(self.cluster.releases())
        return Guard("brokers", reason is None, reason or "the brokers coordinate consumer groups")

    def _empty_in_kafka(self, group: str) -> Guard:
        found = self.cluster.describe(group)
        if found.has_members:
            return Guard("kafka", False, f"group {group} lives in Kafka ({found.state}); stop its consumers")
        return Guard("kafka", True, f"group {group} in Kafka has no members ({found.state})")

    def _may_commit(self, group: str, topics: Collection[str]) -> Guard:
        denied = self.cluster.unwritable(group, topics) if topics else []
        if denied is None:
            return Guard("permission", True, "the brokers are older than 2.3, and do not report permissions")
        if denied:
            return Guard("permission", False, f"commits need Read on {name_some(denied)}; add the ACLs")
        return Guard("permission", True, "offsets may be committed")

    # -- both ---------------------------------------------------------------------------------------------------------

    def _group_in_zookeeper(self, group: str, topics: set[str]) -> _Seen:
        nodes = offset_nodes(self.session, group, topics)
        offsets = {p: offset for p in nodes.nodes if (offset := nodes.offset(p)) is not None}
        checked = Guards(self.session, forceable=False)
        checked.check_group(group, partitions_to_hold(self.session, self.cluster.config, group, nodes.nodes), nodes)
        text = "; ".join(checked.refusals) or f"group {group} in ZooKeeper has no members"
        guards = [Guard("zookeeper", not checked.refusals, text), _readable(nodes)]
        return _Seen(topics, offsets, guards, tuple(checked.warnings))

    def _registry(self) -> Registry:
        return open_registry(self.session, self.cluster.config)

    def _identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        described = self._registry().describe_topics(sorted(topics))
        return {topic: one.identity for topic, one in described.items()}


def _in_file(end: End) -> dict[TopicPartition, int]:
    """The offsets in a file that may not exist yet."""
    path = Path(end.group)
    return parse_starting_offsets(str(path), path.read_text(encoding="utf-8")) if path.exists() else {}


def _readable(nodes: OffsetNodes) -> Guard:
    return Guard("znodes", not nodes.problems, "; ".join(nodes.problems) or "every offset znode holds an offset")


def _layout_guard(end: End, *, is_other: bool) -> Guard:
    if is_other:
        return Guard(
            "layout",
            False,
            f"the znodes of {end} are those of a receiver that stores the last processed offset; plan with "
            f"--from dibbhatt:/consumers/{end.group}",
        )
    return Guard("layout", True, "the znodes are those of a consumer that stores the next offset")


def _cluster_id(data: bytes | None) -> str | None:
    try:
        found = parse_json(data or b"{}").get("id")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
