"""Arithmetic of a micro-batch: how far to read, and which task reads which offsets (architecture.md#spark-source).

Pure: values in, values out. The driver passes the state read from ZooKeeper and the brokers.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from zkconsumer.model import Broker, TopicPartition
from zkconsumer.ranges.rules.spans import OffsetRange, Span

_TASK_BYTES: Final = 32 << 20
_LARGEST_RECORD: Final = 1 << 20
"""By the default of brokers and producers."""
_FAR_MORE: Final = 4
_WORTH_SPLITTING: Final = 200_000
"""Offsets of a task that takes several times as long as what Spark does for each task (spark.md#making-it-fast)."""


@dataclass(frozen=True, slots=True)
class RangePartition:
    """The work of one Spark task, sent pickled from the driver to an executor.

    Attributes:
        ranges: ranges to read, in this order if one broker leads several of them.
        brokers: live brokers known to the driver; the executor asks them for leaders, and never ZooKeeper.
        epochs: the leader epoch in whose log the driver has seen the end of each range, as far as known.
    """

    ranges: tuple[OffsetRange, ...]
    brokers: tuple[Broker, ...]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


def with_epochs(
    tasks: Iterable[tuple[OffsetRange, ...]], brokers: tuple[Broker, ...], epochs: Mapping[TopicPartition, int]
) -> list[RangePartition]:
    """The tasks as they are sent to executors, each with the epochs of its ranges."""
    planned = []
    for task in tasks:
        known = {partition: epochs[partition] for piece in task if (partition := piece.topic_partition) in epochs}
        planned.append(RangePartition(task, brokers, known))
    return planned


def cap_offsets(available: Mapping[TopicPartition, Span], limit: int | None) -> dict[TopicPartition, Span]:
    """Reduce the available spans to ``limit`` offsets in total: one of each partition, the others in proportion.

    No partition is starved, as in Spark's Kafka source. Otherwise: 1. a partition has a few records, another one a
    large backlog; 2. the share of the first is less than one offset in every batch; 3. the watermark passes its
    records, which are dropped then.

    The result has exactly ``limit`` offsets if there are as many, but at least one of each non-empty partition. The
    remainder from rounding goes to the partitions with the largest fraction, then to the first in order, so the result
    is deterministic. Empty spans are excluded.

    Args:
        available: span of each partition from its position to its end.
        limit: ``maxOffsetsPerTrigger``, None for no limit.
    """
    spans = {partition: available[partition] for partition in sorted(available) if available[partition].size > 0}
    beyond_first = sum(span.size for span in spans.values()) - len(spans)
    to_share = max(0, limit - len(spans)) if limit is not None else beyond_first
    if to_share >= beyond_first:
        return spans
    scaled = {partition: (span.size - 1) * to_share for partition, span in spans.items()}
    shares = {partition: 1 + product // beyond_first for partition, product in scaled.items()}
    left = to_share - sum(product // beyond_first for product in scaled.values())
    by_remainder = sorted(spans, key=lambda partition: (-(scaled[partition] % beyond_first), partition))
    for partition in by_remainder[:left]:
        shares[partition] += 1
    return {partition: Span(span.start, span.start + shares[partition]) for partition, span in spans.items()}


def make_tasks(
    spans: Mapping[TopicPartition, Span], streams: int, parallelism: int | None, nbytes: int = 0
) -> list[tuple[OffsetRange, ...]]:
    """Tasks of about equal size: as many as the query has streams, as the cluster runs at a time, or one per 32 MiB.

    The largest of these numbers counts. A partition is in one task, so there are at most as many tasks as partitions
    with data.

    Args:
        spans: offsets to read; empty spans are excluded.
        streams: number of the query's streams, at least 1.
        parallelism: how many tasks the cluster runs at a time; None if unknown.
        nbytes: about how many bytes the offsets have; 0 if unknown.
    """
    pieces = [OffsetRange(*partition, *span) for partition, span in spans.items() if span.size > 0]
    count = min(len(pieces), max(streams, parallelism or 0, -(-nbytes // _TASK_BYTES)))
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    pieces.sort()
    for piece in sorted(pieces, key=operator.attrgetter("size"), reverse=True):  # stable
        load, number = loads[0]
        tasks[number].append(piece)
        heapq.heapreplace(loads, (load + piece.size, number))
    return [tuple(sorted(task)) for task in tasks]


def size_matters(spans: Mapping[TopicPartition, Span], streams: int, parallelism: int | None) -> bool:
    """True if the number of tasks may depend on the size of records."""
    tasks = max(streams, parallelism or 0)
    sizes = [span.size for span in spans.values() if span.size > 0]
    return len(sizes) > tasks and sum(sizes) * _LARGEST_RECORD > tasks * _TASK_BYTES


def leaves_cores_idle(tasks: Sequence[tuple[OffsetRange, ...]], parallelism: int) -> bool:
    """True if a batch is large, and has far fewer tasks than the cluster runs at a time."""
    large = sum(map(_size, tasks)) >= _WORTH_SPLITTING * len(tasks)
    return bool(tasks) and large and parallelism >= _FAR_MORE * len(tasks)


def stream_counts(
    topics: Iterable[str], partitions: Mapping[str, int], wanted: int | None, cpus: int
) -> dict[str, int]:
    """Consumer threads to register for each topic.

    Args:
        topics: subscribed names; empty with a pattern, which counts every topic that it matches now.
        partitions: number of partitions of each topic that exists.
        wanted: ``numStreams``, used unchanged; None for one per CPU, but at most one per partition.
        cpus: CPUs that the driver's source process may use.
    """
    names = list(topics) or list(partitions)
    return {topic: wanted or max(1, min(cpus, partitions.get(topic, 1))) for topic in names}


def split_tasks(
    tasks: Iterable[tuple[OffsetRange, ...]], minimum: int | None, largest: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Cut tasks so that none holds more than ``largest`` offsets, then halve the largest until there are ``minimum``.

    There are fewer if each holds a single offset.
    """
    pieces = [piece for task in tasks for piece in (_cut(task, largest) if largest else [task])]
    queue = [(-_size(task), task) for task in pieces]
    heapq.heapify(queue)
    while queue and len(queue) < (minimum or 0) and -queue[0][0] > 1:
        size, task = heapq.heappop(queue)
        for half in _cut_at(task, -size // 2):
            heapq.heappush(queue, (-_size(half), half))
    return sorted(task for _, task in queue)


def _cut(task: tuple[OffsetRange, ...], largest: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Pieces of ``largest`` offsets; the last one may have fewer."""
    while _size(task) > largest:
        first, task = _cut_at(task, largest)
        yield first
    yield task


def _size(task: tuple[OffsetRange, ...]) -> int:
    return sum(piece.size for piece in task)


def _cut_at(task: tuple[OffsetRange, ...], offsets: int) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """Cut a task of more than ``offsets`` offsets after that many, inside a range if necessary."""
    first: list[OffsetRange] = []
    wanted = offsets
    for index, piece in enumerate(task):
        if piece.size > wanted:
            cut = piece.start + wanted
            after = [piece._replace(start=cut), *task[index + 1 :]]
            return (*first, piece._replace(until=cut)) if wanted else tuple(first), tuple(after)
        first.append(piece)
        wanted -= piece.size
    raise AssertionError("a task of more offsets has an offset to cut at")
