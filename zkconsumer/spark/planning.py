"""Arithmetic of a micro-batch: how far to read, where to go on, and which task reads what (DESIGN 4.7).

Pure: values in, values out. The driver feeds it with what ZooKeeper and the brokers said.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from zkconsumer.model import Broker, TopicPartition


class Span(NamedTuple):
    """Offsets ``start`` (included) to ``until`` (excluded) of one partition."""

    start: int
    until: int

    @property
    def size(self) -> int:
        """Number of offsets; compaction and transactions may have left fewer records."""
        return self.until - self.start


class OffsetRange(NamedTuple):
    """A span and the partition it belongs to: the unit of work of an executor."""

    topic: str
    partition: int
    start: int
    until: int

    @property
    def size(self) -> int:
        """Number of offsets in the range."""
        return self.until - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition to read."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.until})"


@dataclass(frozen=True, slots=True)
class RangePartition:
    """What one Spark task reads; travels pickled from the driver to an executor.

    Attributes:
        ranges: what to read, in this order where one broker leads several of them.
        brokers: live brokers as the driver saw them; the executor asks them for leaders, never ZooKeeper.
    """

    ranges: tuple[OffsetRange, ...]
    brokers: tuple[Broker, ...]


def cap_offsets(available: Mapping[TopicPartition, Span], limit: int | None) -> dict[TopicPartition, Span]:
    """Cut what is available down to ``limit`` offsets in all, in proportion to what each partition has.

    Takes exactly ``min(limit, total)``. What rounding leaves goes to those with the largest remainder, then to the
    first in order, so a given input has one answer. Empty spans are left out.

    Args:
        available: from the position to the end of each partition.
        limit: ``maxOffsetsPerTrigger``, None for no limit.
    """
    spans = {partition: available[partition] for partition in sorted(available) if available[partition].size > 0}
    total = sum(span.size for span in spans.values())
    if limit is None or total <= limit:
        return spans
    shares = {partition: span.size * limit // total for partition, span in spans.items()}
    left = limit - sum(shares.values())
    by_remainder = sorted(spans, key=lambda partition: (-(spans[partition].size * limit % total), partition))
    for partition in by_remainder[:left]:
        shares[partition] += 1
    return {p: Span(span.start, span.start + shares[p]) for p, span in spans.items() if shares[p]}


def group_by_thread(
    spans: Mapping[TopicPartition, Span], threads: Mapping[TopicPartition, int], streams: int
) -> list[tuple[OffsetRange, ...]]:
    """One task for each consumer thread; ranges of partitions without a thread go to the task with the least to do.

    Args:
        spans: what to read; empty spans are left out.
        threads: number of the consumer thread of each owned partition. A replayed batch or a batch read may hold
            partitions that are not in it.
        streams: number of tasks over which partitions without a thread are spread, at least 1.
    """
    tasks: dict[int, list[OffsetRange]] = {}
    homeless = []
    for partition in sorted(spans):
        span = spans[partition]
        if span.size <= 0:
            continue
        piece = OffsetRange(*partition, *span)
        thread = threads.get(partition)
        if thread is None:
            homeless.append(piece)
        else:
            tasks.setdefault(thread, []).append(piece)
    loads = [(sum(r.size for r in tasks.get(n, ())), n) for n in sorted({*range(streams), *tasks})]
    heapq.heapify(loads)
    for piece in sorted(homeless, key=lambda r: (-r.size, r)):
        load, number = loads[0]
        tasks.setdefault(number, []).append(piece)
        heapq.heapreplace(loads, (load + piece.size, number))
    return [tuple(sorted(tasks[number])) for number in sorted(tasks)]


def stream_counts(
    topics: Iterable[str], partitions: Mapping[str, int], wanted: int | None, cpus: int
) -> dict[str, int]:
    """Consumer threads to register for each topic.

    Args:
        topics: names that are subscribed to; empty with a pattern, which counts every topic that it matches now.
        partitions: number of partitions of each topic that exists.
        wanted: ``numStreams``, taken as it is; None for one per CPU but not more than there are partitions.
        cpus: CPUs that the driver's source process may use.
    """
    names = list(topics) or list(partitions)
    return {topic: wanted or max(1, min(cpus, partitions.get(topic, 1))) for topic in names}


def split_tasks(
    tasks: Iterable[tuple[OffsetRange, ...]], minimum: int | None, largest: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Cut tasks so that none holds more than ``largest`` offsets, then so that there are at least ``minimum``."""
    pieces = [piece for task in tasks for piece in (_cut(task, largest) if largest else [task])]
    return split_to(pieces, minimum)


def _cut(task: tuple[OffsetRange, ...], largest: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Pieces of ``largest`` offsets, the last one perhaps of fewer."""
    while _size(task) > largest:
        first, task = _cut_at(task, largest)
        yield first
    yield task


def split_to(tasks: Iterable[tuple[OffsetRange, ...]], minimum: int | None) -> list[tuple[OffsetRange, ...]]:
    """Halve the largest task until there are ``minimum`` of them or each holds a single offset."""
    queue = [(-_size(task), task) for task in tasks]
    heapq.heapify(queue)
    while queue and len(queue) < (minimum or 0) and -queue[0][0] > 1:
        _, largest = heapq.heappop(queue)
        for half in _halves(largest):
            heapq.heappush(queue, (-_size(half), half))
    return sorted(task for _, task in queue)


def _size(task: tuple[OffsetRange, ...]) -> int:
    return sum(piece.size for piece in task)


def _halves(task: tuple[OffsetRange, ...]) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    return _cut_at(task, _size(task) // 2)


def _cut_at(task: tuple[OffsetRange, ...], offsets: int) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """Cut a task of more than ``offsets`` offsets after that many, through a range where need be."""
    first: list[OffsetRange] = []
    wanted = offsets
    for index, piece in enumerate(task):
        if piece.size > wanted:
            cut = piece.start + wanted
            rest = [piece._replace(start=cut), *task[index + 1 :]]
            return (*first, piece._replace(until=cut)) if wanted else tuple(first), tuple(rest)
        first.append(piece)
        wanted -= piece.size
    raise AssertionError("a task of more offsets has an offset to cut at")
