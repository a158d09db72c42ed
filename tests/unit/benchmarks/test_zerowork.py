import itertools

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from benchmarks.zerowork import ZeroWorkDataSource, ZeroWorkStreamReader, prebuilt, shares, take
from zkconsumer.decode.schema import SCHEMA
from zkconsumer.spark.rows import COLUMNS


@pytest.mark.parametrize(
    ("records", "tasks", "expected"), [(10, 2, [5, 5]), (11, 3, [4, 4, 3]), (1, 2, [1]), (0, 2, [])]
)
def test_tasks_get_similar_numbers_of_records(records, tasks, expected):
    assert shares(records, tasks) == expected


@pytest.mark.parametrize("value_bytes", [100, 1024])
def test_a_batch_has_the_schema_of_the_real_source_and_about_its_size(value_bytes):
    (batch,) = prebuilt("t", value_bytes, 1)
    assert batch.schema.equals(SCHEMA)
    assert set(batch.column("topic").to_pylist()) == {"t"}
    values = batch.column("value")
    assert {len(value) for value in values.to_pylist()} == {value_bytes}
    assert batch.num_rows * value_bytes == pytest.approx(2 << 20, rel=0.15)


def test_distinct_batches_share_no_values_and_have_the_requested_size():
    batches = prebuilt("t", 1024, 10 << 20)
    values = [batch.column("value").buffers()[2] for batch in batches]
    assert sum(batch.num_rows for batch in batches) * 1024 >= 10 << 20
    assert len({buffer.address for buffer in values}) == len(batches) > 1
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("more", [0, 1, 7])
def test_batches_rotate_until_there_are_enough_rows(more):
    first, second = prebuilt("t", 1024, 3 << 20)
    rotation = itertools.cycle([first, second])
    rows = first.num_rows
    assert list(take(rotation, 3 * rows)) == [first, second, first]
    assert list(take(rotation, rows + more)) == [second] + ([first.slice(0, more)] if more else [])
    assert list(take(rotation, 0)) == []


def test_a_schema_chooses_columns_as_in_the_real_source():
    source = ZeroWorkDataSource({"topic": "t", "records": "9", "valueBytes": "100", "tasks": "1", "distinct": "false"})
    schema = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    reader = source.reader(schema)
    (task,) = reader.partitions()
    assert [tuple(row.values()) for b in reader.read(task) for row in b.to_pylist()] == [
        (n, b"v" * 100) for n in range(9)
    ]


def test_a_capped_stream_ends_at_its_last_record():
    options = {"topic": "t", "records": "25", "valueBytes": "100", "tasks": "2", "maxOffsetsPerTrigger": "10"}
    reader = ZeroWorkStreamReader(options, COLUMNS)
    offset, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        batches.append([partition.value for partition in reader.partitions(offset, end)])
        offset = end
    assert batches == [[5, 5], [5, 5], [3, 2]]
