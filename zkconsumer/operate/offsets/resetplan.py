"""``offsets reset``: move the offsets of a group (KIP-122)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkconsumer.errors import WriteRefused, name_some
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.groupstores import Cluster, Store
from zkconsumer.operate.offsets.judgedoffsets import counting_offsets
from zkconsumer.operate.offsets.offsetnodes import offset_nodes
from zkconsumer.operate.offsets.rules.offsetmoves import OffsetRow
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec, reset_offset
from zkconsumer.operate.offsets.writeplan import (
    Guards,
    WritePlan,
    WriteTarget,
    group_exists,
    plan_offsets,
    read_kafka,
)
from zkconsumer.zookeeper.session import ZkSession


def plan_reset(  # noqa: PLR0913 - each has its keyword and its default
    session: ZkSession,
    cluster: Cluster,
    group: str,
    topics: Mapping[str, Collection[int] | None] | None,
    spec: ResetSpec,
    *,
    store: Store | None = None,
    live: bool = False,
    approximate: bool = False,
    create: bool = False,
) -> WritePlan:
    """Plan to move the offsets of a group.

    Args:
        session: an open session.
        cluster: brokers, which have the logs and the offsets in Kafka.
        group: name of the group.
        topics: topic to its partitions, None for all of them; None for all topics that the group has offsets of, in
            the stores that are written, or ever owned. Brokers before 0.10.2 do not list a group's offsets, so of
            those in Kafka only topics count that ZooKeeper has of the group, too.
        spec: where the offsets move to.
        store: where to write; None for the store that the group uses.
        live: see :class:`~zkconsumer.operate.offsets.writeplan.WritePlan`.
        approximate: see :meth:`Cluster.offsets_at <zkconsumer.operate.offsets.groupstores.Cluster.offsets_at>`.
        create: a group that neither ZooKeeper nor Kafka has is created; otherwise the plan has a refusal.

    Raises:
        WriteRefused: offsets by time would be approximate, there is no such topic or partition, or the scenario does
            not fit a partition.
        ZkConsumerError: ZooKeeper or the brokers cannot be asked.
    """
    guards = Guards(session, live)
    nodes = offset_nodes(session, group)
    partitions = _partitions(session, cluster, group, nodes.nodes, topics, spec)
    in_kafka = read_kafka(cluster, group, partitions, store)
    stores = guards.choose_store(group, store, nodes.has_offsets(), lambda: bool(in_kafka()))
    stored = in_kafka() if "kafka" in stores else {}
    if not (create or group_exists(session, cluster, group, stores, stored)):
        name = "its name" if session.is_absent else "its name and the chroot"
        guards.refusals.append(f"group {group} does not exist; check {name}, or give --create")
    if not {p.topic for p in stored} <= {p.topic for p in partitions}:
        partitions = _partitions(session, cluster, group, {*nodes.nodes, *stored}, topics, spec)
    if not partitions:
        raise WriteRefused(f"group {group} has no topics that exist; check its name, or name topics")
    if spec.begins_at_stored and "zookeeper" in stores:
        guards.refusals += (nodes.unreadable[p] for p in partitions if p in nodes.unreadable)
        partitions = [p for p in partitions if p not in nodes.unreadable]
    old, outdated = counting_offsets(session, cluster, group, partitions, nodes, stored, stores, guards.warnings)
    if spec.begins_at_stored and (without := [p for p in partitions if p in outdated and old[p] is None]):
        guards.refusals.append(f"no stored offset of {name_some(without)} counts; reset it to an offset instead")
        partitions = [p for p in partitions if p not in without]
    ranges = cluster.log_ranges(partitions)
    times: dict[TopicPartition, int | None] = {}
    if spec.kind == "time":
        times = cluster.offsets_at(partitions, spec.value, approximate=approximate)
    rows: dict[TopicPartition, OffsetRow] = {}
    faults = []
    for partition in partitions:
        try:
            rows[partition] = reset_offset(spec, partition, old[partition], ranges[partition], times.get(partition))
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise WriteRefused(f"nothing is reset: {name_some(faults)}")
    target = WriteTarget(group, rows, nodes, stored, stores, outdated)
    return WritePlan(f"reset {group}", (plan_offsets(session, cluster, guards, target),), live, names_its_group=True)


def _partitions(
    session: ZkSession,
    cluster: Cluster,
    group: str,
    stored: Collection[TopicPartition],
    topics: Mapping[str, Collection[int] | None] | None,
    spec: ResetSpec,
) -> list[TopicPartition]:
    if spec.kind == "file":
        wanted = set(spec.offsets)
        existing = cluster.partitions({partition.topic for partition in wanted})
    elif topics is None:
        owned = () if session.is_absent else GroupReader(session).owned_topics(group)
        names = {partition.topic for partition in stored}.union(owned)
        wanted = existing = cluster.partitions(names)
    else:
        existing = cluster.partitions(topics)
        whole = {topic for topic, numbers in topics.items() if numbers is None}
        wanted = {partition for partition in existing if partition.topic in whole}
        wanted |= {TopicPartition(topic, 0) for topic in whole - {partition.topic for partition in existing}}
        wanted |= {TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers or ()}
    if missing := sorted(wanted - existing):
        raise WriteRefused(f"partitions do not exist: {name_some(missing)}; check the names of topics")
    return sorted(wanted)
