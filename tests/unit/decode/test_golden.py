"""Captured answers of real brokers of every release, decoded, compared with an independent client's rows."""

import pytest

from tests.fixtures.decoding import rows, sent
from tests.golden.captures import captures
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.wire.errorcodes import ErrorCode

CAPTURES = list(captures())
UNSUPPORTED_COMPRESSION_TYPE = 76


def in_format(rows, magic):
    """The rows as in older formats, to which a broker converts for older versions of Fetch."""
    if magic == 2:
        return rows
    times = [(None, None) if magic == 0 else row[1:3] for row in rows]
    return [(row[0], *time, *row[3:5], ()) for row, time in zip(rows, times, strict=True)]


@pytest.mark.parametrize("capture", CAPTURES, ids=str)
@pytest.mark.parametrize("start", ["beginning", "middle"])
def test_records_equal_those_of_librdkafka(capture, start):
    fetched = capture.fetched
    if is_refused(capture):
        assert fetched.error == UNSUPPORTED_COMPRESSION_TYPE
        return
    assert fetched.error == ErrorCode.NONE
    requested = 0 if start == "beginning" else capture.rows[1][0]
    data = memoryview(sent(fetched.records, requested))
    chunk = BatchDecoder(headers=True).decode("t", 0, requested, data, fetched.aborted, fetched.high_watermark)
    read = rows(chunk)
    expected = in_format([row for row in capture.rows if row[0] >= requested], fetched.records[16])
    if converted_on_the_way(capture):
        expected = expected[: len(read)]
    assert read == expected
    assert read[-1][0] < chunk.next_offset <= fetched.high_watermark


def is_refused(capture):
    """Brokers before 4 refuse zstd to clients that do not know Fetch version 10 (KIP-110)."""
    return capture.topic.startswith("zstd") and capture.version < 10 and int(capture.release[0]) < 4


def converted_on_the_way(capture):
    """Brokers since 2.0 announce the size of the records in the log, then convert, and cut longer results."""
    return capture.version < 4 and int(capture.release[0]) >= 2


def test_the_captures_hold_every_format_and_codec():
    """As (format, codec) of first batches."""
    seen = set()
    for capture in CAPTURES:
        data = bytes(capture.fetched.records)
        if data:
            magic = data[16]
            seen.add((magic, data[22 if magic == 2 else 17] & 7))
    assert seen >= {(magic, codec) for magic in (0, 1, 2) for codec in range(5)} - {(0, 4), (1, 4)}
    assert {capture.release for capture in CAPTURES} == {"0.8.2.2", "0.10.2.2", "1.1.1", "2.4.1", "3.9.1", "4.2.0"}
