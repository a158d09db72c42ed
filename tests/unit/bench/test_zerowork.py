import pytest

from zkconsumer.bench.zerowork import ZeroWorkStreamReader, prebuilt, repeat, shares
from zkconsumer.fetch.schema import SCHEMA


@pytest.mark.parametrize(
    ("records", "tasks", "expected"), [(10, 2, [5, 5]), (11, 3, [4, 4, 3]), (1, 2, [1]), (0, 2, [])]
)
def test_tasks_get_alike_shares_of_everything(records, tasks, expected):
    assert shares(records, tasks) == expected


@pytest.mark.parametrize("value_bytes", [100, 1024])
def test_a_batch_has_the_schema_of_the_real_source_and_about_its_size(value_bytes):
    batch = prebuilt("t", value_bytes)
    assert batch.schema.equals(SCHEMA)
    assert set(batch.column("topic").to_pylist()) == {"t"}
    values = batch.column("value")
    assert {len(value) for value in values.to_pylist()} == {value_bytes}
    assert batch.num_rows * value_bytes == pytest.approx(2 << 20, rel=0.15)


@pytest.mark.parametrize("more", [0, 1, 7])
def test_batches_are_repeated_until_there_are_enough_rows(more):
    batch = prebuilt("t", 1024)
    wanted = 2 * batch.num_rows + more
    sizes = [part.num_rows for part in repeat(batch, wanted)]
    assert sizes == [batch.num_rows, batch.num_rows] + ([more] if more else [])


def test_a_capped_stream_ends_at_its_last_record():
    options = {"topic": "t", "records": "25", "valueBytes": "100", "tasks": "2", "maxOffsetsPerTrigger": "10"}
    reader = ZeroWorkStreamReader(options)
    offset, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        batches.append([partition.value for partition in reader.partitions(offset, end)])
        offset = end
    assert batches == [[5, 5], [5, 5], [3, 2]]
