import pytest

from zkconsumer.model import Broker, TopicPartition
from zkconsumer.ranges.rules.spans import OffsetRange, Span
from zkconsumer.spark.rules.microbatch import (
    RangePartition,
    cap_offsets,
    leaves_cores_idle,
    make_tasks,
    size_matters,
    split_tasks,
    stream_counts,
    with_epochs,
)

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))


def test_a_cap_is_shared_in_proportion():
    available = {T0: Span(10, 311), T1: Span(0, 101), T2: Span(5, 5)}
    assert cap_offsets(available, 42) == {T0: Span(10, 41), T1: Span(0, 11)}


def test_the_rest_goes_to_the_largest_remainder_then_the_first():
    assert cap_offsets({T0: Span(0, 5), T1: Span(0, 5)}, 3) == {T0: Span(0, 2), T1: Span(0, 1)}
    assert cap_offsets({T0: Span(0, 2), T1: Span(0, 9)}, 3) == {T0: Span(0, 1), T1: Span(0, 2)}


def test_a_cap_of_what_is_there_changes_nothing():
    assert cap_offsets({T0: Span(0, 1)}, 1) == {T0: Span(0, 1)}
    assert cap_offsets({T0: Span(0, 5), T1: Span(0, 5)}, 10) == {T0: Span(0, 5), T1: Span(0, 5)}


def test_spans_are_in_the_order_of_partitions():
    backwards = {TopicPartition("t", number): Span(0, 9) for number in range(5, -1, -1)}
    assert list(cap_offsets(backwards, 20)) == sorted(backwards)
    assert list(cap_offsets(backwards, None)) == sorted(backwards)


def test_a_small_partition_beside_a_large_one_is_read():
    small = {TopicPartition("small", number): Span(0, 10) for number in range(5)}
    capped = cap_offsets({**small, T0: Span(0, 200_000)}, 1000)
    assert capped == {**dict.fromkeys(small, Span(0, 1)), T0: Span(0, 995)}


def test_a_cap_below_the_number_of_partitions_reads_one_offset_each():
    assert cap_offsets({T0: Span(0, 5), T1: Span(7, 8), T2: Span(1, 9)}, 2) == {
        T0: Span(0, 1),
        T1: Span(7, 8),
        T2: Span(1, 2),
    }


@pytest.mark.parametrize(
    ("partitions", "streams", "parallelism", "tasks"),
    [
        (1000, 2, None, 2),
        (1000, 2, 300, 300),
        (1000, 400, 300, 400),
        (100, 2, 300, 100),
        (1, 8, 8, 1),
        (0, 8, 8, 0),
    ],
)
def test_there_are_as_many_tasks_as_the_cluster_or_the_streams_can_run(partitions, streams, parallelism, tasks):
    spans = {TopicPartition("t", number): Span(0, 1 + number) for number in range(partitions)}
    made = make_tasks({**spans, TopicPartition("empty", 0): Span(7, 7)}, streams, parallelism)
    assert len(made) == tasks
    assert sorted(piece for task in made for piece in task) == [OffsetRange(*p, *span) for p, span in spans.items()]
    sizes = [sum(piece.size for piece in task) for task in made]
    assert not sizes or max(sizes) - min(sizes) <= partitions, "they differ by one partition at most"


@pytest.mark.parametrize(
    ("mebibytes", "streams", "parallelism", "tasks"), [(0, 2, None, 2), (64, 2, None, 2), (65, 2, None, 3)]
)
def test_large_batches_have_a_task_for_each_32_mib(mebibytes, streams, parallelism, tasks):
    spans = {TopicPartition("t", number): Span(0, 100) for number in range(10)}
    assert len(make_tasks(spans, streams, parallelism, mebibytes << 20)) == tasks
    assert len(make_tasks(spans, streams, 9, mebibytes << 20)) == 9
    assert len(make_tasks(spans, streams, parallelism, 1 << 40)) == 10, "one for each partition at most"


def test_the_size_of_records_matters_for_large_batches_of_more_partitions_than_tasks():
    assert size_matters({T0: Span(0, 50), T1: Span(0, 50)}, 1, None)
    assert not size_matters({T0: Span(0, 16), T1: Span(0, 16)}, 1, None), "not even of the largest records"
    assert not size_matters({T0: Span(0, 1000), T1: Span(5, 5)}, 1, None)
    assert not size_matters({T0: Span(0, 1000), T1: Span(0, 1000)}, 1, 2)


@pytest.mark.parametrize(
    ("ranges", "parallelism", "idle"),
    [
        ([200_000], 4, True),
        ([200_000, 200_000], 8, True),
        ([200_000], 3, False),
        ([199_999], 100, False),
        ([], 100, False),
    ],
)
def test_a_large_batch_of_few_tasks_leaves_most_of_a_cluster_idle(ranges, parallelism, idle):
    tasks = [(OffsetRange("t", number, 0, size),) for number, size in enumerate(ranges)]
    assert leaves_cores_idle(tasks, parallelism) is idle


def test_the_largest_task_is_halved_first():
    tasks = [(OffsetRange("t", 0, 0, 100),), (OffsetRange("t", 1, 0, 10),)]
    assert split_tasks(tasks, 3, None) == [
        (OffsetRange("t", 0, 0, 50),),
        (OffsetRange("t", 0, 50, 100),),
        (OffsetRange("t", 1, 0, 10),),
    ]
    assert split_tasks(tasks, 2, None) == tasks
    assert split_tasks(tasks, None, None) == tasks


def test_a_task_of_many_ranges_is_cut_between_or_through_them():
    task = (OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 0, 6))
    assert split_tasks([task], 2, None) == [
        (OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 0, 1)),
        (OffsetRange("t", 1, 1, 6),),
    ]


def test_tasks_keep_the_limit_and_reach_the_minimum_number():
    tasks = [(OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 0, 6)), (OffsetRange("t", 2, 0, 3),)]
    assert split_tasks(tasks, None, 4) == [
        (OffsetRange("t", 0, 0, 4),),
        (OffsetRange("t", 1, 0, 4),),
        (OffsetRange("t", 1, 4, 6),),
        (OffsetRange("t", 2, 0, 3),),
    ]
    assert len(split_tasks(tasks, 6, 4)) == 6
    assert split_tasks(tasks, None, None) == sorted(tasks)


def test_partitions_are_spread_the_largest_first():
    spans = {T0: Span(0, 4), T1: Span(0, 4), T2: Span(0, 8)}
    assert make_tasks(spans, 2, None) == [
        (OffsetRange("t", 2, 0, 8),),
        (OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 0, 4)),
    ]


def test_ranges_of_a_task_are_sorted():
    assert make_tasks({T1: Span(0, 10), T0: Span(0, 4)}, 1, None) == [
        (OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 0, 10))
    ]


def test_a_single_offset_is_read_and_an_empty_span_is_not():
    assert make_tasks({T0: Span(0, 1), T1: Span(3, 3)}, 2, None) == [(OffsetRange("t", 0, 0, 1),)]


def test_a_single_offset_is_not_halved():
    assert split_tasks([(OffsetRange("t", 0, 0, 2),)], 5, None) == [
        (OffsetRange("t", 0, 0, 1),),
        (OffsetRange("t", 0, 1, 2),),
    ]


def test_the_largest_task_is_found_wherever_it_is():
    tasks = [(OffsetRange("t", n, 0, size),) for n, size in enumerate((2, 4, 100))]
    assert split_tasks(tasks, 4, None) == [*tasks[:2], (OffsetRange("t", 2, 0, 50),), (OffsetRange("t", 2, 50, 100),)]


def test_a_task_of_the_limit_is_not_cut():
    assert split_tasks([(OffsetRange("t", 0, 0, 4),)], None, 4) == [(OffsetRange("t", 0, 0, 4),)]


@pytest.mark.parametrize(
    ("topics", "wanted", "cpus", "counts"),
    [
        ((), None, 4, {"t": 2, "u": 4, "empty": 1}),
        (("t", "missing"), None, 4, {"t": 2, "missing": 1}),
        (("u",), None, 2, {"u": 2}),
        (("u",), None, 0, {"u": 1}),
        (("t", "missing"), 7, 4, {"t": 7, "missing": 7}),
    ],
)
def test_streams_are_those_wanted_or_as_many_as_there_are_partitions_and_cpus(topics, wanted, cpus, counts):
    assert stream_counts(topics, {"t": 2, "u": 9, "empty": 0}, wanted, cpus) == counts


def test_tasks_name_the_epochs_that_are_known():
    task, brokers = (OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 0, 4)), (Broker(1, "h", 9092),)
    assert with_epochs([task], brokers, {T1: 7, T2: 8}) == [RangePartition(task, brokers, {T1: 7})]
