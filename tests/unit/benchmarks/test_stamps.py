"""Records with the time of their creation, and the log of those that were read."""

import math

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.stamps import (
    VALUE_BYTES,
    Delays,
    LogFile,
    LogWriter,
    all_created_ns,
    created_ns,
    stampable_batch,
    with_stamp,
)
from zkconsumer.decode.batchdecoder import BatchDecoder

MS = 1_000_000


@pytest.fixture
def log(tmp_path):
    return LogFile(tmp_path / "log", 100)


def test_a_stamped_batch_is_intact_and_all_its_values_have_the_time():
    stampable = stampable_batch(3)
    values = decoded_values(with_stamp(stampable, 123_456_789))
    assert [created_ns(value.as_py()) for value in values] == [123_456_789] * 3
    assert {len(value.as_py()) for value in values} == {VALUE_BYTES}
    assert all_created_ns(decoded_values(with_stamp(stampable, 5))).tolist() == [5, 5, 5]


def decoded_values(batch):
    return BatchDecoder().decode("topic", 0, 0, memoryview(batch)).batch.column("value")


def test_the_times_of_a_slice_are_those_of_its_values():
    values = pa.array([number.to_bytes(8, "big").ljust(VALUE_BYTES) for number in range(10)], pa.binary())
    assert all_created_ns(values.slice(3, 4)).tolist() == [3, 4, 5, 6]


def test_the_log_has_records_one_by_one_and_together(log):
    writer = LogWriter(log.path)
    assert len(log) == 0
    writer.note(10 * MS, 11 * MS)
    writer.note_all(np.array([20 * MS, 21 * MS], ">i8"), 25 * MS)
    writer.note(30 * MS, 31 * MS)
    assert len(log) == 4
    assert log.delays(0, 100 * MS) == Delays(4, 1.0, 5.0)


def test_only_records_that_were_created_in_the_time_count(log):
    writer = LogWriter(log.path)
    for created in (9, 10, 19, 20):
        writer.note(created * MS, 30 * MS)
    assert log.delays(10 * MS, 20 * MS) == Delays(2, 11.0, 20.0)
    records, p50, p99 = log.delays(50 * MS, 60 * MS)
    assert records == 0
    assert math.isnan(p50)
    assert math.isnan(p99)


def test_percentiles_are_those_of_records(log):
    """Of a hundred, the fiftieth and the ninety-ninth."""
    writer = LogWriter(log.path)
    for number in range(100, 0, -1):
        writer.note(MS, (1 + number) * MS)
    assert log.delays(MS, 2 * MS) == Delays(100, 50.0, 99.0)


def test_a_log_that_is_full_is_an_error(tmp_path):
    log = LogFile(tmp_path / "log", 1)
    writer = LogWriter(log.path)
    writer.note(1, 2)
    with pytest.raises(IndexError):
        writer.note(1, 2)
