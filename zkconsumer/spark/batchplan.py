"""Planning of a batch read: from the group's offsets to the ends of the logs, without joining the group."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, partial

from zkconsumer.cluster.brokercatalog import require_described
from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import unmarked
from zkconsumer.process.cpus import available_cpus
from zkconsumer.ranges.logends import LogEnds
from zkconsumer.ranges.rangeplan import plan_ranges
from zkconsumer.ranges.rules.rangepositions import LATEST, Wanted
from zkconsumer.ranges.rules.spans import OffsetRange, Span
from zkconsumer.spark.clusterview import ClusterView, read_cluster
from zkconsumer.spark.querypositions import accept_losses, unreadable_offset
from zkconsumer.spark.recordsizes import RecordSizes
from zkconsumer.spark.rules.microbatch import (
    RangePartition,
    leaves_cores_idle,
    make_tasks,
    size_matters,
    split_tasks,
    with_epochs,
)
from zkconsumer.spark.rules.options import SourceOptions
from zkconsumer.spark.rules.positions import Choice, Reason, choose_starts, position_of
from zkconsumer.spark.rules.sourceoffset import SourceOffset

_log = logging.getLogger(__name__)


def plan_batch_read(options: SourceOptions) -> list[RangePartition]:
    """Read the group and the brokers once, and plan the tasks.

    Nothing is registered and nothing committed. Partitions without a committed offset start where ``auto.offset.reset``
    specifies, by default at the end; ``startingOffsets=earliest`` reads all records.

    Raises:
        UsageError: topics given by name, or partitions for which offsets are given, do not exist.
        LeaderUnknown: a partition has no leader, so its end is unknown.
        MalformedZnode: the group's offset of a partition is needed and cannot be parsed.
        TopicUnreadable: it is stored in Kafka, and a permission is missing; or a topic is not described.
        OffsetOutOfRange: offsets to read are not in the log any more and ``failOnDataLoss`` is true.
        ZkConsumerError: ZooKeeper or the brokers cannot be reached.
    """
    view = read_cluster(options, with_offsets=True)
    ends = LogEnds(options.config, lambda: view.brokers, f"group {options.config.group_id}")
    try:
        spans = plan_spans(options, view, ends)
        epochs = ends.epochs({partition: span.until for partition, span in spans.items()})
        tasks = choose_tasks(options, spans, None, RecordSizes(ends.bytes_per_offset))
    finally:
        ends.close()
    return with_epochs(tasks, view.brokers, epochs)


def choose_tasks(
    options: SourceOptions, spans: Mapping[TopicPartition, Span], parallelism: int | None, sizes: RecordSizes
) -> list[tuple[OffsetRange, ...]]:
    """The tasks that read these offsets, with a warning if most of the cluster will be idle."""
    streams = options.num_streams or available_cpus()
    nbytes = sizes.bytes_of(spans) if size_matters(spans, streams, parallelism) else 0
    tasks = make_tasks(spans, streams, parallelism, nbytes)
    tasks = split_tasks(tasks, options.min_partitions, options.max_records_per_partition)
    if parallelism is not None and leaves_cores_idle(tasks, parallelism):
        _warn_of_idle_cores(options.config.group_id, len(tasks), parallelism)
    return tasks


@cache  # a query may have the same with every batch
def _warn_of_idle_cores(group: str, tasks: int, parallelism: int) -> None:
    _log.warning(
        "group %s: a large batch has %d tasks, one for each partition with data, but the cluster runs %d tasks at a "
        "time: set minPartitions=%d to read parts of a partition in parallel",
        group,
        tasks,
        parallelism,
        parallelism,
    )


def plan_spans(options: SourceOptions, view: ClusterView, ends: LogEnds) -> dict[TopicPartition, Span]:
    """The offsets to read of each partition; errors are those of :func:`plan_batch_read`."""
    require_described(options.config, view.brokers, view.undescribed)
    view.require(options, options.topics)
    if options.assigned is not None:
        committed = {p: offset for p, offset in view.committed.items() if p in options.assigned}
        view = replace(view, partitions=options.assigned, committed=committed)
    committed = committed_offsets(options, view)
    choices = choose_starts(
        unmarked(committed),
        {},
        SourceOffset(),
        starting=options.starting,
        reset=options.config.auto_offset_reset,
        outdated=view.outdated,
    )
    if of_former_topics := sorted(p for p, choice in choices.items() if choice.reason is Reason.OLDER_THAN_TOPIC):
        _log.warning(
            "group %s: %s: read from the earliest offset: %s",
            options.config.group_id,
            name_some([f"{p} (offset {committed[p]})" for p in of_former_topics]),
            Reason.OLDER_THAN_TOPIC.value,
        )
    if at_the_end := sorted(p for p, choice in choices.items() if choice == Choice(LATEST, Reason.RESET)):
        _log.warning(
            "group %s has no committed offset of %s: no record of %s is read, as auto.offset.reset=largest starts at "
            "the end of the log. Set the option startingOffsets=earliest to read the existing records, as "
            'format("kafka") does by default, or startingOffsets=latest to read nothing without this warning',
            options.config.group_id,
            name_some(at_the_end),
            "it" if len(at_the_end) == 1 else "them",
        )
    starts = {partition: choices[partition].place for partition in sorted(committed)}
    return plan_ranges(ends, starts, _given_ends(options, starts), partial(accept_losses, options))


def committed_offsets(options: SourceOptions, view: ClusterView) -> dict[TopicPartition, int | None]:
    """The group's offset of every partition; also None if an unreadable one is not needed.

    Raises:
        MalformedZnode, BrokerUnavailable, TopicUnreadable: an unreadable offset is needed; without the partition the
            read would be incomplete.
    """
    unreadable = sorted(view.partitions - view.committed.keys())
    starting = options.starting
    for partition in unreadable:
        if position_of(partition, starting) is None:
            if partition in view.refused:
                raise view.refused[partition]
            raise unreadable_offset(options.config, partition)
    return {**view.committed, **dict.fromkeys(unreadable)}


def _given_ends(options: SourceOptions, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Wanted]:
    ending = options.ending
    places = {} if ending is None else {p: position_of(p, ending) for p in partitions}
    return {partition: place for partition, place in places.items() if place is not None}
