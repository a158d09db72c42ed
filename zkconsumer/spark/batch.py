"""Planning of a batch read: from the group's offsets to the ends of the logs, without joining the group."""

from __future__ import annotations

import os
from collections.abc import Mapping

from zkconsumer.core.znodes import GroupPaths
from zkconsumer.errors import LeaderUnknown, MalformedZnode, OffsetOutOfRange, UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.spark.cluster import ClusterView, read_cluster
from zkconsumer.spark.logends import LogEnds
from zkconsumer.spark.offsets_json import LATEST
from zkconsumer.spark.options import Position, SourceOptions
from zkconsumer.spark.planning import RangePartition, Span, group_by_thread, split_to
from zkconsumer.spark.positions import locate, start_positions


def plan_batch_read(options: SourceOptions) -> list[RangePartition]:
    """Read ZooKeeper and the brokers once, and plan the tasks.

    Nothing is registered and nothing committed. Partitions without a committed offset start where
    ``auto.offset.reset`` says, so by default at the end; ``startingOffsets=earliest`` reads everything.

    Raises:
        UsageError: topics given by name do not exist, or offsets are given for partitions that do not.
        LeaderUnknown: a partition has no leader, so its end is unknown.
        MalformedZnode: the group's offset of a partition is to be used and cannot be read.
        OffsetOutOfRange: offsets to read are gone and ``failOnDataLoss`` is true.
        ZkConsumerError: ZooKeeper or the brokers cannot be reached.
    """
    view = read_cluster(options)
    _check_existence(options, view.partitions)
    committed = committed_offsets(options, view)
    ends = LogEnds(options.config, lambda: view.brokers)
    try:
        partitions = sorted(committed)
        earliest, latest = ends.earliest(partitions), ends.latest(partitions)
    finally:
        ends.close()
    leaderless = [p for p in partitions if p not in earliest or p not in latest]
    if leaderless:
        raise LeaderUnknown(f"no leader answers for {', '.join(map(str, leaderless))}; check that all brokers run")
    until = ending_offsets(options.ending, latest)
    spans = {p: Span(start, max(start, until[p])) for p, start in _starts(options, committed, earliest, latest)}
    tasks = group_by_thread(spans, {}, options.num_streams or os.cpu_count() or 1)
    return [RangePartition(task, view.brokers) for task in split_to(tasks, options.min_partitions)]


def committed_offsets(options: SourceOptions, view: ClusterView) -> dict[TopicPartition, int | None]:
    """The group's offset of every partition; None also where an unreadable one is not needed.

    Raises:
        MalformedZnode: an unreadable one is needed; without the partition the read would not be whole.
    """
    unreadable = sorted(view.partitions - view.committed.keys())
    starting = options.starting
    for partition in unreadable:
        if starting == "group" or (isinstance(starting, Mapping) and partition not in starting):
            raise MalformedZnode(
                GroupPaths(options.config.group_id).offset(partition),
                f"holds no offset, so where {partition} begins is unknown; write one, or give startingOffsets",
            )
    return {**view.committed, **dict.fromkeys(unreadable)}


def ending_offsets(ending: Position | None, latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Where each partition ends: what ``endingOffsets`` says, else the end of its log.

    Raises:
        OffsetOutOfRange: an offset is given beyond the end of a log.
    """
    given = {} if not isinstance(ending, Mapping) else {p: o for p, o in ending.items() if o != LATEST}
    beyond = [f"{p}: {o}, the log ends at {latest[p]}" for p, o in sorted(given.items()) if o > latest.get(p, o)]
    if beyond:
        raise OffsetOutOfRange(f"endingOffsets lie beyond the end of the log: {', '.join(beyond)}")
    return {**latest, **given}


def _starts(
    options: SourceOptions,
    committed: Mapping[TopicPartition, int | None],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[tuple[TopicPartition, int]]:
    reset = options.config.auto_offset_reset
    start = start_positions(committed, {}, starting=options.starting, seen_before=committed.keys(), reset=reset)
    located = locate(start.offsets, earliest, latest, reset)
    if located.lost and options.fail_on_data_loss:
        story = ", ".join(f"{p}: wanted {w}, the log has [{e}, {u})" for p, (w, e, u) in sorted(located.lost.items()))
        raise OffsetOutOfRange(
            f"offsets to read are not in the log ({story}). Check retention, or set failOnDataLoss=false to start "
            "where auto.offset.reset says"
        )
    return sorted(located.offsets.items())


def _check_existence(options: SourceOptions, partitions: frozenset[TopicPartition]) -> None:
    topics = {partition.topic for partition in partitions}
    missing = [f"topic {topic}" for topic in options.topics if topic not in topics]
    for position in (options.starting, options.ending):
        if isinstance(position, Mapping):
            missing += [f"partition {p}" for p in sorted(position.keys() - partitions) if p.topic in topics]
    if missing:
        raise UsageError(f"{', '.join(missing)} does not exist in the cluster of {options.config.zookeeper_connect}")
