"""Message formats 0 and 1 through the decoder."""

import struct

import pytest

from tests.fixtures.batches import build, compress
from tests.fixtures.decoding import rows, sent
from tests.fixtures.messagesets import (
    LOG_APPEND_TIME,
    OLD_CODECS,
    OVERHEAD,
    compressed_set,
    message,
    message_set,
    reseal,
    wrap,
)
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.decode.messages import records
from zkconsumer.decode.schema import SCHEMA_WITH_HEADERS
from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.sandbox.producer import Record

SAMPLE = [
    Record(b"first", b"k", 1_700_000_000_000),
    Record(None, b"tombstone", 1_700_000_000_005),
    Record(b"", None, 1_699_999_999_999),
    Record(b"x" * 5000, b"", 1_700_000_000_010),
]
TO_CUT = [*SAMPLE[:3], SAMPLE[3]._replace(value=b"x" * 200)]
"""The same with fewer places inside a value."""
FORMATS = pytest.mark.parametrize("magic", [0, 1])
CODECS = pytest.mark.parametrize("codec", OLD_CODECS)


@pytest.fixture
def decoder():
    return BatchDecoder(headers=True)


def expected(batch, magic, offsets):
    return [
        (at, r.timestamp if magic else None, 0 if magic else None, r.key, r.value, ())
        for at, r in zip(offsets, batch, strict=True)
    ]


@FORMATS
def test_plain_messages(decoder, magic):
    chunk = decoder.decode("t", 3, 10, memoryview(message_set(SAMPLE, magic, range(10, 14))))
    assert rows(chunk) == expected(SAMPLE, magic, range(10, 14))
    assert chunk.next_offset == 14
    assert chunk.batch.schema.equals(SCHEMA_WITH_HEADERS, check_metadata=True)
    assert chunk.batch.column("headers").null_count == 4


@FORMATS
@CODECS
def test_compressed_messages(decoder, magic, codec):
    data = compressed_set(SAMPLE, magic, range(10, 14), codec) + compressed_set(SAMPLE, magic, range(14, 18), codec)
    chunk = decoder.decode("t", 0, 10, memoryview(data))
    assert rows(chunk) == expected(SAMPLE * 2, magic, range(10, 18))
    assert chunk.next_offset == 18


@FORMATS
@CODECS
def test_a_compacted_compressed_message(decoder, magic, codec):
    """Inner offsets have gaps; those of format 1 are relative to the original first record, or to the remaining one."""
    data = compressed_set(SAMPLE[:3], magic, [12, 15, 18], codec, base=10) + compressed_set(
        SAMPLE, magic, [20, 22, 23, 29], codec
    )
    chunk = decoder.decode("t", 0, 10, memoryview(data))
    assert [row[0] for row in rows(chunk)] == [12, 15, 18, 20, 22, 23, 29]
    assert chunk.next_offset == 30


def test_the_position_moves_past_compacted_inner_messages(decoder):
    data = wrap(message_set(SAMPLE[:2], 0, [3, 4]), 0, 9, "gzip")
    chunk = decoder.decode("t", 0, 3, memoryview(data))
    assert ([row[0] for row in rows(chunk)], chunk.next_offset) == ([3, 4], 10)


def test_offsets_inside_format_1_may_be_absolute(decoder):
    chunk = decoder.decode("t", 0, 0, memoryview(compressed_set(SAMPLE, 1, range(7, 11), "gzip", base=0)))
    assert [row[0] for row in rows(chunk)] == [7, 8, 9, 10]


@FORMATS
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_messages_before_the_requested_offset_are_dropped(decoder, magic, codec):
    if codec == "none":
        data = message_set(SAMPLE * 3, magic, range(12))
    else:
        data = b"".join(compressed_set(SAMPLE, magic, range(at, at + 4), codec) for at in (0, 4, 8))
    for requested in range(13):
        chunk = decoder.decode("t", 0, requested, memoryview(sent(data, requested)))
        assert [row[0] for row in rows(chunk)] == list(range(requested, 12))
        assert chunk.next_offset == 12


@FORMATS
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_partial_message_at_the_end_is_left_for_the_next_fetch(decoder, magic, codec):
    encoded = [message(r, magic, at) for at, r in enumerate(TO_CUT)]
    if codec != "none":
        encoded = [compressed_set([r], magic, [at], codec) for at, r in enumerate(TO_CUT)]
    whole, ends = b"".join(encoded), [sum(map(len, encoded[: n + 1])) for n in range(4)]
    for length in range(len(whole)):
        chunk = decoder.decode("t", 0, 0, memoryview(whole)[:length])
        assert chunk.next_offset == sum(end <= length for end in ends)
        assert len(rows(chunk)) == chunk.next_offset


def test_log_append_time_of_plain_messages_is_their_own(decoder):
    data = message_set(SAMPLE, 1, range(4), LOG_APPEND_TIME)
    assert [row[1:3] for row in rows(decoder.decode("t", 0, 0, memoryview(data)))] == [(r.timestamp, 1) for r in SAMPLE]


def test_log_append_time_of_a_compressed_message_applies_to_all_inside(decoder):
    data = compressed_set(SAMPLE, 1, range(4), "gzip", timestamp=1_800_000_000_000, attributes=LOG_APPEND_TIME)
    data += compressed_set(SAMPLE, 1, range(4, 8), "gzip", timestamp=1_800_000_000_000)
    read = [row[1:3] for row in rows(decoder.decode("t", 0, 0, memoryview(data)))]
    assert read == [(1_800_000_000_000, 1)] * 4 + [(r.timestamp, 0) for r in SAMPLE]


def test_format_0_has_no_timestamps_as_in_spark_s_kafka_source(decoder):
    batch = decoder.decode(
        "t", 0, 0, memoryview(message_set(SAMPLE, 0, range(4)) + message_set(SAMPLE, 1, range(4, 8)))
    ).batch
    assert batch.column("timestampType").to_pylist() == [-1] * 4 + [0] * 4
    assert batch.column("timestamp").view("int64").to_pylist()[:4] == [-1000] * 4
    assert [(m.timestamp, m.timestamp_type) for m in records(batch)][3:5] == [(None, None), (SAMPLE[0].timestamp, 0)]


def test_all_formats_in_one_response(decoder):
    """A log that was converted while it was written to."""
    data = (
        message_set(SAMPLE, 0, range(4))
        + compressed_set(SAMPLE, 0, range(4, 8), "snappy")
        + message_set(SAMPLE, 1, range(8, 12))
        + compressed_set(SAMPLE, 1, range(12, 16), "lz4")
        + build(SAMPLE, offset=16, codec="zstd")
        + message_set(SAMPLE, 1, range(20, 24))
        + build(SAMPLE, offset=24)
    )
    chunk = decoder.decode("t", 0, 2, memoryview(sent(data, 2)))
    formats = [0] * 8 + [1] * 20
    assert rows(chunk) == [
        row for n, f in enumerate(formats) for row in expected([SAMPLE[n % 4]], f, [n])
    ][2:]  # fmt: skip
    assert chunk.next_offset == 28


def test_a_log_that_changes_its_format_often_is_read_in_pieces(decoder):
    encoded = [message(SAMPLE[0], 1, n) if n % 2 else build(SAMPLE[:1], offset=n) for n in range(1000)]
    seen, chunks = [], 0
    while len(seen) < 1000:
        chunk = decoder.decode("t", 0, len(seen), memoryview(b"".join(encoded[len(seen) :])))
        seen += [row[0] for row in rows(chunk)]
        assert chunk.next_offset == len(seen)
        chunks += 1
    assert seen == list(range(1000))
    assert 10 < chunks < 20


# -- faults -------------------------------------------------------------------------------------------------------


def patched(data, at, value):
    """One message with bytes replaced under a right checksum."""
    changed = bytearray(data)
    changed[at : at + len(value)] = value
    return reseal(changed)


def wrong_crc(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def bad_messages(magic):
    one = message(Record(b"value", b"key"), magic, 4)
    fixed = OVERHEAD[magic]
    inner = message_set(SAMPLE, magic, range(4))
    absolute = message_set(SAMPLE, magic, range(4, 8))
    return {
        "checksum": wrong_crc(one),
        "checksum of a compressed message": wrong_crc(compressed_set(SAMPLE, magic, range(4, 8), "gzip")),
        "checksum inside": wrap(wrong_crc(absolute), magic, 7, "gzip"),
        "key too long": patched(one, fixed - 8, struct.pack(">i", 100)),
        "key length negative": patched(one, fixed - 8, struct.pack(">i", -2)),
        "key length huge": patched(one, fixed - 8, struct.pack(">i", 2**31 - 1)),
        "value too long": patched(one, fixed - 1, struct.pack(">i", 6)),
        "value too short": patched(one, fixed - 1, struct.pack(">i", 4)),
        "value null but there": patched(one, fixed - 1, struct.pack(">i", -1)),
        "length too small": one[:8] + struct.pack(">i", fixed - 13) + one[12:],
        "length negative": one[:8] + struct.pack(">i", -1) + one[12:],
        "compressed null": message(Record(None), magic, 4, 1),
        "compressed nothing": wrap(b"", magic, 4, "gzip"),
        "codec 4": message(Record(compress("zstd", absolute)), magic, 7, 4),
        "codec 7": message(Record(absolute), magic, 7, 7),
        "not gzip": message(Record(absolute), magic, 7, 1),
        "not snappy": message(Record(absolute), magic, 7, 2),
        "not lz4": message(Record(absolute), magic, 7, 3),
        "nested": wrap(compressed_set(SAMPLE, magic, range(4, 8), "gzip"), magic, 7, "gzip"),
        "other format inside": wrap(message_set(SAMPLE, 1 - magic, range(4, 8)), magic, 7, "gzip"),
        "cut off inside": wrap(absolute[:-1], magic, 7, "gzip"),
        "rest inside": wrap(absolute + b"\0" * 5, magic, 7, "gzip"),
        "order inside": wrap(message_set(SAMPLE, magic, [4, 6, 5, 7]), magic, 7, "gzip"),
        "offset inside beyond": wrap(message_set(SAMPLE, magic, [4, 5, 6, 8]), magic, 7, "gzip"),
        "offset inside negative": wrap(message_set(SAMPLE, magic, [-4, 5, 6, 7]), magic, 7, "gzip"),
        "offset inside before": wrap(inner, magic, 5, "gzip") if magic else wrap(inner, magic, 7, "gzip"),
        "offset huge": message(SAMPLE[0], magic, 2**63 - 1),
        "format 2 inside": wrap(build(SAMPLE), magic, 7, "gzip"),
    }  # fmt: skip


@pytest.mark.parametrize(("magic", "name"), [(magic, name) for magic in (0, 1) for name in bad_messages(magic)])
def test_a_fault_ends_the_chunk_and_is_raised_when_fetched_first(decoder, magic, name):
    bad = bad_messages(magic)[name]
    bad += message_set(SAMPLE, magic, range(100, 104))
    chunk = decoder.decode("clicks", 2, 0, memoryview(message_set(SAMPLE, magic, range(4)) + bad))
    assert rows(chunk) == expected(SAMPLE, magic, range(4))
    assert chunk.next_offset == 4
    if name == "offset inside before":  # what was before is not known then
        return
    with pytest.raises(CorruptRecord, match=r"clicks-2 at offset -?\d+ \(fetched from 4\)"):
        decoder.decode("clicks", 2, 4, memoryview(bad))


@FORMATS
def test_checksums_are_not_verified_if_disabled(magic):
    unchecked = BatchDecoder(DecoderSettings(check_crcs=False))
    for name in ("checksum", "checksum inside"):
        chunk = unchecked.decode("t", 0, 0, memoryview(bad_messages(magic)[name]))
        assert chunk.next_offset in (5, 8)


@FORMATS
def test_a_first_message_before_the_requested_offset_is_corrupt(decoder, magic):
    data = message_set(SAMPLE[:2], magic, [3, 10])
    with pytest.raises(CorruptRecord, match="should hold it has the offsets 3 to 3") as caught:
        decoder.decode("t", 0, 9, memoryview(data))
    assert caught.value.resume_at == 10


@FORMATS
@pytest.mark.parametrize("at", range(1, 4))
def test_of_a_run_of_messages_one_with_a_raised_offset_is_corrupt(decoder, magic, at):
    """It is known by the next message, or by the high watermark."""
    changed = [*range(at), 500, *range(at + 1, 4)]
    data = message_set(SAMPLE, magic, changed)
    chunk = decoder.decode("t", 0, 0, memoryview(data), (), 4)
    assert (rows(chunk), chunk.next_offset) == (expected(SAMPLE[:at], magic, range(at)), at)
    with pytest.raises(CorruptRecord, match="offsets 500 to 500") as caught:
        decoder.decode("t", 0, at, memoryview(sent(data, at)), (), 4)
    assert caught.value.resume_at == at + 1


@FORMATS
@CODECS
def test_a_decompression_bomb_is_refused_without_allocating_memory(magic, codec):
    small = BatchDecoder(DecoderSettings(max_decompressed_bytes=1 << 20))
    bomb = compressed_set([Record(bytes(50 << 20))], magic, [0], codec)
    with pytest.raises(RecordTooLarge, match=r"more than 1048576 bytes; raise decompressed\.max\.bytes"):
        small.decode("t", 0, 0, memoryview(bomb))
    assert len(small._unpacker.scratch.data) <= 2 << 20


@FORMATS
def test_a_chunk_that_decompresses_to_too_much_is_cut_between_messages(magic):
    small = BatchDecoder(DecoderSettings(max_decompressed_bytes=1 << 20))
    data = b"".join(compressed_set([Record(bytes(300_000), b"%d" % n)], magic, [n], "gzip") for n in range(10))
    seen, position = [], 0
    while position < 10:
        chunk = small.decode("t", 0, position, memoryview(sent(data, position)))
        assert chunk.next_offset - position in (1, 3)
        seen += [row[3] for row in rows(chunk)]
        position = chunk.next_offset
    assert seen == [b"%d" % n for n in range(10)]


def test_a_chunk_that_is_verified_again_has_the_same_fault():
    """As after an interrupt: a run of messages must not be cut before its fault when more messages follow."""
    damaged = bytearray(message_set([Record(b"v", None, 1)] * 3, 1, range(3)))
    damaged[len(damaged) // 3 + 30] ^= 1
    decoder = BatchDecoder()
    scanned = decoder.scan("t", 0, 0, memoryview(bytes(damaged) + message(Record(b"w", None, 1), 0, 3)))
    first, second = decoder.verify(scanned), decoder.verify(scanned)
    assert first.fault == second.fault is not None
    assert first.next_offset == second.next_offset == 1
