import pytest

from tests.fixtures.batches import HEADER, build, empty
from tests.fixtures.messagesets import message
from zkconsumer.ranges.rules.batchsizes import bytes_per_offset
from zkconsumer.sandbox.producer import Record

RECORDS = [Record(b"v" * 100)] * 20


def test_a_batch_has_its_length_over_its_offsets():
    batch = build(RECORDS, offset=7)
    assert bytes_per_offset(memoryview(batch + build([Record(b"")]))) == len(batch) / 20
    assert bytes_per_offset(memoryview(batch[:HEADER])) == len(batch) / 20, "the header is enough"
    assert bytes_per_offset(memoryview(empty(7, 9))) == HEADER / 10, "compaction has removed the records"


def test_compressed_records_count_as_they_are_sent():
    assert bytes_per_offset(memoryview(build(RECORDS, codec="gzip"))) < 20


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_is_one_offset_unless_it_is_compressed(magic):
    plain = message(RECORDS[0], magic, 5)
    assert bytes_per_offset(memoryview(plain)) == len(plain)
    assert bytes_per_offset(memoryview(message(RECORDS[0], magic, 5, attributes=1))) is None


def test_without_a_header_the_size_is_unknown():
    assert bytes_per_offset(memoryview(b"")) is None
    assert bytes_per_offset(memoryview(build(RECORDS)[:26])) is None


def test_a_batch_of_one_record_has_one_offset():
    batch = build([Record(b"v")])
    assert bytes_per_offset(memoryview(batch)) == len(batch)


def test_the_header_ends_with_the_last_offset():
    shortest = build(RECORDS)[:27]
    assert bytes_per_offset(memoryview(shortest)) == len(build(RECORDS)) / 20
