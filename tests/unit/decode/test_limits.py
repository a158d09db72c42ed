import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.batches import build
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.decode.limits import rows_within
from zkconsumer.sandbox.producer import Record


def batch_of(records, *, headers=True):
    chunk = BatchDecoder(headers=headers).decode("t", 0, 0, memoryview(build(records)))
    return chunk.records


def size_of(record, *, headers):
    value, key, _, pairs = record
    size = len(value or b"") + len(key or b"")
    return size + sum(len(name) + len(content or b"") for name, content in pairs) * headers


CONTENT = st.none() | st.binary(max_size=9)
RECORDS = st.builds(Record, CONTENT, CONTENT, st.just(0), st.lists(st.tuples(st.text("ab", max_size=4), CONTENT)))


@given(st.lists(RECORDS, min_size=1, max_size=20), st.integers(0, 19), st.integers(1, 200), st.booleans())
def test_as_many_rows_as_fit_and_at_least_one(records, skipped, max_bytes, headers):
    skipped %= len(records)
    batch = batch_of(records, headers=headers).slice(skipped)
    expected = total = 0
    for record in records[skipped:]:
        total += size_of(record, headers=headers)
        expected += total <= max_bytes
    assert rows_within(batch, max_bytes) == max(1, expected)


@pytest.mark.parametrize(("max_bytes", "rows"), [(1, 1), (199, 1), (200, 2), (1 << 40, 3)])
def test_limits(max_bytes, rows):
    assert rows_within(batch_of([Record(b"x" * 100)] * 3), max_bytes) == rows
