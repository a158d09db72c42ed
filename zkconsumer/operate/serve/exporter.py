"""Metrics for Prometheus, under the names of kafka_exporter, so that dashboards and alerts made for it work.

What is unknown has no series; kafka_exporter has -1 for some of it. A group that could not be read, and each of a stale
snapshot, has only its status, UNKNOWN, and its former one: Prometheus would take old values for present ones.

The text is made here and not by prometheus_client, which took 0.7 s of CPU for 50,000 series: a scrape would cost as
much as a sample. This takes about a fifth of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import lag
from zkconsumer.offsets.rules.storedoffsets import usable_offset
from zkconsumer.operate.groups.rules.lagstatus import GroupLag
from zkconsumer.operate.serve.groupsnapshots import GroupSnapshot, GroupsSnapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\"", "\0": "\N{REPLACEMENT CHARACTER}"})
"""What Prometheus requires; its parser takes a null character for the end of the page."""

METRICS: Final = {
    "kafka_consumergroup_lag": "Records of a partition that the group has not committed yet.",
    "kafka_consumergroup_lag_sum": "The sum over the partitions of a topic whose lag is known.",
    "kafka_consumergroup_current_offset": "The committed offset: the next one to consume.",
    "kafka_consumergroup_current_offset_sum": "The sum over the partitions of a topic that have a committed offset.",
    "kafka_consumergroupzookeeper_lag_zookeeper": "The lag by the offset that is stored in ZooKeeper.",
    "kafka_consumergroup_members": "Registered members.",
    "zkconsumer_consumergroup_status": "1; the label status is what groups status prints.",
    "zkconsumer_consumergroup_former_status": "1 while the status is UNKNOWN since something cannot be read; the label "
    "status is the last one that could be judged.",
    "zkconsumer_consumergroup_lag_seconds": "The age of the oldest record of a partition that is not consumed.",
    "zkconsumer_consumergroup_missing_topics": "Topics that members subscribe to and that do not exist.",
    "kafka_topic_partitions": "Partitions of a topic that a group subscribes to, owned or committed.",
    "kafka_topic_partition_current_offset": "The log end: the next offset to be written.",
    "kafka_topic_partition_oldest_offset": "The log start: the first offset in the log.",
    "zkconsumer_serve_sample_timestamp_seconds": "When the last sample began, in seconds since the epoch.",
    "zkconsumer_serve_sample_duration_seconds": "How long the last sample took.",
    "zkconsumer_serve_problems": "What the last sample could not read; 1 more if no newer one succeeds.",
}
"""Name of each metric and its meaning; all are gauges."""

Series = tuple[str, str, int | float]
"""Name of a metric, its labels as text, and its value."""


def exposition(
    snapshot: GroupsSnapshot | None, now: float, cluster: str | None = None, failure: str | None = None
) -> str:
    """The page ``/metrics``.

    Args:
        snapshot: the newest, None if there is none.
        now: see :meth:`GroupsSnapshot.is_stale`.
        cluster: label of each series; None for no such label.
        failure: why the last sample failed; None if it did not.
    """
    by_name: dict[str, list[str]] = {name: [] for name in METRICS}
    of_cluster = "" if cluster is None else f'cluster="{_escaped(cluster)}"'
    for name, labels, value in chain(
        [_problems(snapshot, failure)], () if snapshot is None else _series(snapshot, now)
    ):
        all_labels = f"{of_cluster}{',' if of_cluster and labels else ''}{labels}"
        by_name[name].append(f"{name}{{{all_labels}}} {value}\n" if all_labels else f"{name} {value}\n")
    return "".join(
        f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n" + "".join(lines)
        for name, lines in by_name.items()
        if lines
    )


def _problems(snapshot: GroupsSnapshot | None, failure: str | None) -> Series:
    """A sample that failed is a problem, besides those of the newest one that did not."""
    return "zkconsumer_serve_problems", "", (failure is not None) + (0 if snapshot is None else len(snapshot.problems))


def _series(snapshot: GroupsSnapshot, now: float) -> Iterator[Series]:
    yield "zkconsumer_serve_sample_timestamp_seconds", "", snapshot.at_ms / 1000
    yield "zkconsumer_serve_sample_duration_seconds", "", snapshot.seconds
    if snapshot.is_stale(now):
        for group in snapshot.groups.values():
            yield from _statuses(group.observed.group, group.lag.outdated(""))
        return
    topics: dict[str, int] = {}
    logs: dict[TopicPartition, tuple[int | None, int | None]] = {}
    for group in snapshot.groups.values():
        yield from _group_series(group)
        if group.unread is not None:
            continue
        topics.update({topic: len(partitions) for topic, partitions in group.observed.existing.items()})
        logs.update({p: (series[-1].log_end, series[-1].log_start) for p, series in group.samples.items()})
    for topic, count in sorted(topics.items()):
        yield "kafka_topic_partitions", f'topic="{_escaped(topic)}"', count
    for partition, (end, start) in sorted(logs.items()):
        labels = _labels(partition)
        if end is not None:
            yield "kafka_topic_partition_current_offset", labels, end
        if start is not None:
            yield "kafka_topic_partition_oldest_offset", labels, start


def _statuses(group: str, lag: GroupLag) -> Iterator[Series]:
    """The status of a group, and the one that it had. An alert on both outlasts a time in which it cannot be read."""
    for name, status in (("status", lag.status), ("former_status", lag.was)):
        if status is not None:
            labels = f'consumergroup="{_escaped(group)}",status="{status.value}"'
            yield f"zkconsumer_consumergroup_{name}", labels, 1


def _group_series(group: GroupSnapshot) -> Iterator[Series]:
    of_group = f'consumergroup="{_escaped(group.observed.group)}"'
    yield from _statuses(group.observed.group, group.lag)
    if group.unread is not None:
        return
    yield "kafka_consumergroup_members", of_group, len(group.observed.live)
    yield "zkconsumer_consumergroup_missing_topics", of_group, len(group.lag.absent)
    for partition, evaluated in group.lag.partitions.items():
        if evaluated.lag_s is not None:
            yield "zkconsumer_consumergroup_lag_seconds", f"{of_group},{_labels(partition)}", round(evaluated.lag_s, 3)
    lags: dict[str, list[int]] = {}
    offsets: dict[str, list[int]] = {}
    for partition, samples in group.samples.items():
        newest = samples[-1]
        labels = f"{of_group},{_labels(partition)}"
        if (offset := usable_offset(newest.committed)) is not None:
            offsets.setdefault(partition.topic, []).append(offset)
            yield "kafka_consumergroup_current_offset", labels, offset
        if newest.lag is not None:
            lags.setdefault(partition.topic, []).append(newest.lag)
            yield "kafka_consumergroup_lag", labels, newest.lag
        in_zookeeper = lag(group.observed.in_zookeeper(partition), newest.log_end)
        if in_zookeeper is not None:
            yield "kafka_consumergroupzookeeper_lag_zookeeper", labels, in_zookeeper
    yield from _sums("kafka_consumergroup_lag_sum", of_group, lags.items())
    yield from _sums("kafka_consumergroup_current_offset_sum", of_group, offsets.items())


def _sums(name: str, of_group: str, by_topic: Iterable[tuple[str, list[int]]]) -> Iterator[Series]:
    for topic, values in by_topic:
        yield name, f'{of_group},topic="{_escaped(topic)}"', sum(values)


def _labels(partition: TopicPartition) -> str:
    return f'topic="{_escaped(partition.topic)}",partition="{partition.partition}"'


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES)
