"""Invariants of a micro-batch's arithmetic, for any partitions, sizes and limits."""

from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.spans import OffsetRange, Span
from zkconsumer.spark.rules.microbatch import cap_offsets, make_tasks, split_tasks

partitions = st.builds(TopicPartition, st.sampled_from(["t", "a-b", "ü"]), st.integers(0, 30))
spans = st.builds(lambda start, size: Span(start, start + size), st.integers(0, 2**62), st.integers(0, 5000))
batches = st.dictionaries(partitions, spans, max_size=12)


def offsets(ranges: list[OffsetRange]) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Spans by partition, adjacent ones joined; fails on an overlap."""
    joined: dict[TopicPartition, list[tuple[int, int]]] = {}
    for piece in sorted(ranges):
        of_partition = joined.setdefault(piece.topic_partition, [])
        if of_partition and of_partition[-1][1] == piece.start:
            of_partition[-1] = (of_partition[-1][0], piece.until)
        else:
            assert not of_partition or of_partition[-1][1] < piece.start, "ranges overlap"
            of_partition.append((piece.start, piece.until))
    return joined


def whole(batch: dict[TopicPartition, Span]) -> dict[TopicPartition, list[tuple[int, int]]]:
    return {partition: [tuple(span)] for partition, span in batch.items() if span.size}


@given(batches, st.none() | st.integers(1, 20_000))
def test_a_cap_takes_its_limit_and_something_of_every_partition(batch, limit):
    capped = cap_offsets(batch, limit)
    non_empty = {partition for partition, span in batch.items() if span.size}
    total = sum(span.size for span in batch.values())
    wanted = total if limit is None else min(max(limit, len(non_empty)), total)
    assert sum(span.size for span in capped.values()) == wanted
    assert capped.keys() == non_empty
    for partition, span in capped.items():
        assert span.start == batch[partition].start
        assert 0 < span.size <= batch[partition].size


@given(batches, st.integers(1, 20_000))
def test_beyond_the_first_offset_a_cap_is_proportional(batch, limit):
    capped = cap_offsets(batch, limit)
    more = sum(batch[partition].size - 1 for partition in capped)
    shared = min(max(0, limit - len(capped)), more)
    for partition, span in capped.items():
        assert abs((span.size - 1) * more - (batch[partition].size - 1) * shared) <= more


@given(batches, st.integers(1, 6), st.none() | st.integers(1, 20), st.none() | st.integers(1, 60))
def test_tasks_read_every_offset_once(batch, streams, parallelism, minimum):
    tasks = split_tasks(make_tasks(batch, streams, parallelism), minimum, None)
    assert offsets([piece for task in tasks for piece in task]) == whole(batch)
    assert all(task and all(piece.size > 0 for piece in task) for task in tasks)


@given(batches, st.integers(1, 6), st.integers(1, 60))
def test_min_partitions_is_reached_or_every_task_is_a_single_offset(batch, streams, minimum):
    total = sum(span.size for span in batch.values())
    assert len(split_tasks(make_tasks(batch, streams, None), minimum, None)) >= min(minimum, total)
