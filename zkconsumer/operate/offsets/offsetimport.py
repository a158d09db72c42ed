"""``offsets import`` and ``offsets copy``: offsets of a file, or of another group, for a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from zkconsumer.errors import NoCommonVersion, WriteRefused, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import outside_log
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, offsets_of
from zkconsumer.offsets.rules.topicorigins import WrittenFor, describe_before, that_are
from zkconsumer.operate.offsets.groupstores import Cluster, Store
from zkconsumer.operate.offsets.judgedoffsets import counting_offsets, judge_stored, topic_identities
from zkconsumer.operate.offsets.offsetfiles import FileFault, FileRefused, GroupOffset, OffsetFile
from zkconsumer.operate.offsets.offsetnodes import offset_nodes
from zkconsumer.operate.offsets.rules.offsetguards import nearest_in_log, outside_logs
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange, OffsetRow
from zkconsumer.operate.offsets.writeplan import (
    GroupPlan,
    Guards,
    WritePlan,
    WriteTarget,
    group_exists,
    plan_offsets,
    read_kafka,
)
from zkconsumer.zookeeper.session import ZkSession


def plan_import(
    session: ZkSession,
    cluster: Cluster,
    file: OffsetFile,
    *,
    store: Store | None = None,
    live: bool = False,
    skip_missing: bool = False,
    clamp: bool = False,
) -> WritePlan:
    """Plan to store the offsets of a file.

    Args:
        session: an open session.
        cluster: the brokers.
        file: what to import.
        store: where to; None for the store that a group uses.
        live: see :class:`~zkconsumer.operate.offsets.writeplan.WritePlan`.
        skip_missing: a partition that does not exist is skipped with a warning, unless none of the file's exists.
        clamp: in place of an offset outside its log the nearest one that the log has is stored, with a warning.

    Raises:
        FileRefused: a topic or partition does not exist, or an offset is outside its log; with every such line.
        ZkConsumerError: ZooKeeper or the brokers cannot be asked.
    """
    partitions = {row.partition for row in file.offsets}
    existing = cluster.partitions({partition.topic for partition in partitions})
    ranges = cluster.log_ranges(partitions & existing)
    groups: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    faults, remarks = [], []
    for row in file.offsets:
        log = ranges.get(row.partition)
        new = None if log is None else nearest_in_log(row.partition, row.offset, ranges)
        if new is not None:
            groups[row.group][row.partition] = new
        if log is None or outside_log(row.offset, log.start, log.end):
            fault = FileFault(file.lines[row[:2]], _fault(row, log, existing))
            is_accepted = (skip_missing and bool(ranges)) if log is None else clamp
            if is_accepted:
                remarks.append(f"{fault}: {'skipped' if new is None else f'{new} is stored instead'}")
            else:
                faults.append(fault)
    if faults:
        raise FileRefused(file.name, faults)
    plans = [
        _plan_group(session, cluster, group, wanted, ranges, store, live, of_file=True)
        for group, wanted in sorted(groups.items())
    ]
    return WritePlan(f"import {file.name}", tuple(plans), live, remarks=tuple(remarks))


def _fault(row: GroupOffset, log: LogRange | None, existing: Collection[TopicPartition]) -> str:
    """What is wrong with an offset outside its log, or, without a log, with its partition."""
    topic, partition = row.partition.topic, row.partition
    if log is not None:
        return f"offset {row.offset} of {partition} is outside its log, which has {log.start} to {log.end}"
    count = sum(one.topic == topic for one in existing)
    if not count:
        return f"topic {topic} does not exist"
    return f"topic {topic} has {count} partitions, {partition} is not among them"


def _plan_group(
    session: ZkSession,
    cluster: Cluster,
    group: str,
    wanted: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, LogRange],
    store: Store | None,
    live: bool,
    *,
    of_file: bool = False,
) -> GroupPlan:
    guards = Guards(session, live)
    nodes = offset_nodes(session, group)
    in_kafka = read_kafka(cluster, group, tuple(wanted), store)
    stores = guards.choose_store(group, store, nodes.has_offsets(), lambda: bool(in_kafka()))
    stored = in_kafka() if "kafka" in stores else {}
    if not group_exists(session, cluster, group, stores, stored):
        guards.warnings.append(f"group {group} does not exist, and is created")
    elif of_file and stores == {"kafka"} and (new := sorted({p.topic for p in wanted} - {p.topic for p in stored})):
        guards.warnings.append(  # brokers delete offsets with their topic, and a file does not identify it
            f"group {group} has no offsets of {name_some(new)} in Kafka; if a topic was deleted and created again "
            "since the file was written, the offsets in it are of other records"
        )
    old, outdated = counting_offsets(session, cluster, group, wanted, nodes, stored, stores, guards.warnings)
    rows = {p: OffsetRow(p, old[p], offset, ranges.get(p)) for p, offset in wanted.items()}
    target = WriteTarget(group, rows, nodes, stored, stores, outdated)
    return plan_offsets(session, cluster, guards, target)


def plan_copy(
    session: ZkSession,
    cluster: Cluster,
    source: str,
    destination: str,
    topics: Mapping[str, Collection[int] | None] | None = None,
    *,
    store: Store | None = None,
    live: bool = False,
) -> WritePlan:
    """Plan to store the offsets of one group for another.

    Args:
        session: an open session.
        cluster: brokers, which have the logs and the offsets in Kafka.
        source: group whose offsets in ZooKeeper are read, or in Kafka where there is none; it may have members.
        destination: group that gets the offsets.
        topics: topic to its partitions, None for all of them; None for all topics.
        store: where to write; None for the store that the destination uses.
        live: see :class:`~zkconsumer.operate.offsets.writeplan.WritePlan`.

    Raises:
        WriteRefused: the source has no such offsets, one is unknown, or outside its log.
        ZkConsumerError: ZooKeeper or the brokers cannot be asked.
    """
    if source == destination:
        raise WriteRefused(f"the offsets of group {source} cannot be copied to itself")
    stored = {p: one for p, one in _stored(session, cluster, source, topics).items() if _is_wanted(p, topics)}
    wanted = offsets_of(stored)
    for topic, numbers in (topics or {}).items():
        for number in numbers or ():
            if TopicPartition(topic, number) not in wanted:
                raise WriteRefused(f"group {source} has no offset of {TopicPartition(topic, number)}")
    if not wanted:
        where = "Kafka" if session.is_absent else "ZooKeeper"
        raise WriteRefused(f"group {source} has no such offsets in {where}; check its name and --topic")
    topics_of_source = {partition.topic for partition in wanted}
    if gone := sorted(wanted.keys() - cluster.partitions(topics_of_source)):
        raise WriteRefused(
            f"partitions do not exist any more, so nothing is copied: {name_some(gone)}; name the others with --topic"
        )
    identities = topic_identities(session, cluster, topics_of_source)
    judged = judge_stored(session, None if session.is_absent else source, identities, stored)
    if outdated := that_are(judged, WrittenFor.EARLIER):
        raise WriteRefused(
            f"offsets of group {source} were stored for earlier topics of that name, so nothing is copied: "
            f"{name_some(outdated)}; reset those of group {destination} (`zkconsumer offsets reset`), and name "
            "the others with --topic"
        )
    ranges = cluster.log_ranges(wanted)
    if outside := outside_logs(wanted, ranges):
        raise WriteRefused(
            f"offsets of group {source} are outside their logs, so nothing is copied: {name_some(outside)}; reset them "
            "first (`zkconsumer offsets reset`), or name the others with --topic"
        )
    plan = _plan_group(session, cluster, destination, wanted, ranges, store, live)
    of_source = Guards(session)
    if not session.is_absent:
        of_source.warn_of_mark(source)
    of_source.warnings += describe_before(that_are(judged, WrittenFor.BEFORE))
    return WritePlan(f"copy {source} to {destination}", (plan,), live, remarks=tuple(of_source.warnings))


def _stored(
    session: ZkSession, cluster: Cluster, source: str, topics: Mapping[str, Collection[int] | None] | None
) -> Mapping[TopicPartition, StoredOffset]:
    """The offsets of a group that is copied."""
    if session.is_absent:
        named = {p for p in cluster.partitions(topics or ()) if _is_wanted(p, topics)}
        if topics is not None:
            return cluster.committed_known(source, named)
        try:
            return cluster.committed_all(source)
        except NoCommonVersion:
            raise WriteRefused(
                "brokers before 0.10.2 do not list the offsets of a group; name its topics with --topic"
            ) from None
    nodes = offset_nodes(session, source, None if topics is None else tuple(topics))
    if unknown := [reason for p, reason in nodes.unreadable.items() if _is_wanted(p, topics)]:
        raise WriteRefused([*unknown, f"group {source} is not copied without them; name the others with --topic"])
    return nodes.stored()


def _is_wanted(partition: TopicPartition, topics: Mapping[str, Collection[int] | None] | None) -> bool:
    if topics is None:
        return True
    numbers = topics.get(partition.topic, ())
    return numbers is None or partition.partition in numbers
