import contextlib
import os
import resource
import struct
import subprocess
import sys
import tracemalloc

import cramjam
import pyarrow as pa
import pytest

from tests.fixtures.batches import ABORT, COMMIT, HEADER, build, compress, control, empty, seal
from tests.fixtures.chunks import offsets
from tests.fixtures.decoding import decode, rows, sent
from tests.fixtures.messagesets import message, reseal, wrap
from zkconsumer.decode.batchdecoder import BatchDecoder, ChunkLimits
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.decode.messages import records
from zkconsumer.decode.schema import SCHEMA, SCHEMA_WITH_HEADERS
from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.sandbox.producer import Record

ALL_CODECS = ["none", "gzip", "snappy", "snappy-raw", "lz4", "zstd"]
SAMPLE = [
    Record(b"first", b"k", 1_700_000_000_000),
    Record(None, b"tombstone", 1_700_000_000_005),
    Record(b"", None, 1_699_999_999_999, [("a", b"1"), ("a", None), ("ü", b"")]),
    Record(b"x" * 5000, b"", 1_700_000_000_010, [("b", b"2")]),
]
TO_CUT = [*SAMPLE[:3], SAMPLE[3]._replace(value=b"x" * 200)]
"""The same with fewer places inside a value."""


@pytest.fixture
def decoder():
    return BatchDecoder(headers=True)


def expected(batch, offset=0, timestamp_type=0):
    return [
        (offset + index, r.timestamp, timestamp_type, r.key, r.value, tuple(r.headers)) for index, r in enumerate(batch)
    ]


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_all_fields_survive_in_every_codec(decoder, codec):
    chunk = decoder.decode("t", 3, 10, memoryview(build(SAMPLE, offset=10, codec=codec)))
    assert rows(chunk) == expected(SAMPLE, 10)
    assert chunk.next_offset == 14
    assert chunk.batch.schema.equals(SCHEMA_WITH_HEADERS, check_metadata=True)
    assert chunk.batch.column("topic").to_pylist() == ["t"] * 4
    assert chunk.batch.column("partition").to_pylist() == [3] * 4
    assert offsets(chunk.batch) == [10, 11, 12, 13]
    assert [m.topic for m in records(chunk.batch)] == ["t"] * 4


def test_codecs_may_change_from_batch_to_batch(decoder):
    data = b"".join(build(SAMPLE, offset=4 * i, codec=codec) for i, codec in enumerate(ALL_CODECS * 3))
    chunk = decoder.decode("t", 0, 0, memoryview(data))
    assert rows(chunk) == [row for i in range(18) for row in expected(SAMPLE, 4 * i)]


def test_without_headers_the_column_is_missing():
    chunk = BatchDecoder().decode("t", 0, 0, memoryview(build(SAMPLE)))
    assert chunk.batch.schema.equals(SCHEMA, check_metadata=True)
    assert [m.headers for m in records(chunk.batch)] == [(), (), (), ()]


def test_headers_are_null_where_there_are_none(decoder):
    lists = decoder.decode("t", 0, 0, memoryview(build(SAMPLE))).batch.column("headers").to_pylist()
    assert lists[0] is None
    assert lists[2] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "ü", "value": b""}]


def test_header_names_that_are_not_utf8_are_replaced(decoder):
    data = bytearray(build([Record(b"v", headers=[("abc", b"1")])]))
    data[data.index(b"abc") : data.index(b"abc") + 3] = b"a\xff\xfe"
    chunk = decoder.decode("t", 0, 0, memoryview(seal(data)))
    assert rows(chunk)[0][-1] == (("a\ufffd\ufffd", b"1"),)


def test_log_append_time_is_the_batch_s_time(decoder):
    data = build(SAMPLE, attributes=0x08, max_timestamp=1_800_000_000_123)
    assert [row[1:3] for row in rows(decoder.decode("t", 0, 0, memoryview(data)))] == [(1_800_000_000_123, 1)] * 4


def test_both_kinds_of_time_in_one_chunk(decoder):
    data = build(SAMPLE) + build(SAMPLE, offset=4, attributes=0x08, max_timestamp=5) + build(SAMPLE, offset=8)
    chunk = decoder.decode("t", 0, 2, memoryview(data))
    assert [row[2] for row in rows(chunk)] == [0, 0, 1, 1, 1, 1, 0, 0, 0, 0]


def test_times_beyond_the_column_stay_at_its_end(decoder):
    data = build([Record(b"v", timestamp=2**62)])
    assert rows(decoder.decode("t", 0, 0, memoryview(data)))[0][1] == (2**63 - 1) // 1000


def test_records_before_the_requested_offset_are_dropped(decoder):
    data = build(SAMPLE, offset=0) + build(SAMPLE, offset=4) + build(SAMPLE, offset=8)
    for requested in range(13):
        chunk = decoder.decode("t", 0, requested, memoryview(sent(data, requested)))
        assert [row[0] for row in rows(chunk)] == list(range(requested, 12))
        assert chunk.next_offset == 12


def test_a_partial_batch_at_the_end_is_left_for_the_next_fetch(decoder):
    whole = build(TO_CUT) + build(TO_CUT, offset=4)
    first = len(build(TO_CUT))
    for length in range(len(whole)):
        chunk = decoder.decode("t", 0, 0, memoryview(whole)[:length])
        assert chunk.next_offset == (4 if length >= first else 0)
        assert len(rows(chunk)) == chunk.next_offset


def test_no_bytes_give_no_records(decoder):
    assert decoder.decode("t", 0, 7, memoryview(b"")) == (None, 7, 0, None)


def test_control_batches_are_skipped_and_move_the_position(decoder):
    data = build(SAMPLE) + control(4) + build(SAMPLE, offset=5)
    assert [row[0] for row in rows(decoder.decode("t", 0, 0, memoryview(data)))] == [0, 1, 2, 3, 5, 6, 7, 8]
    alone = decoder.decode("t", 0, 4, memoryview(control(4)))
    assert (alone.batch, alone.next_offset) == (None, 5)


def values(chunk):
    return [m.value for m in records(chunk.batch)] if chunk.batch is not None else []


def transactional(value, offset, producer, **changes):
    return build([Record(value)], offset=offset, producer=producer, attributes=0x10, **changes)


def test_records_of_aborted_transactions_are_skipped(decoder):
    data = (
        transactional(b"a0", 0, 7)  # aborted, began before the fetched offset
        + transactional(b"b0", 1, 8, codec="lz4")  # committed
        + build([Record(b"plain")], offset=2)
        + transactional(b"a1", 3, 7, codec="zstd")
        + control(4, ABORT, producer=7)
        + transactional(b"a2", 5, 7)  # the same producer's next transaction, committed
        + transactional(b"b1", 6, 8)
        + control(7, COMMIT, producer=7)
        + control(8, COMMIT, producer=8)
        + transactional(b"b2", 9, 8)  # aborted
        + control(10, ABORT, producer=8)
        + transactional(b"b3", 11, 8)
    )
    everything = decoder.decode("t", 0, 0, memoryview(data))
    assert values(everything) == [b"a0", b"b0", b"plain", b"a1", b"a2", b"b1", b"b2", b"b3"]
    assert everything.next_offset == 12
    # As brokers list them: by their ends.
    chunk = decoder.decode("t", 0, 0, memoryview(data), [(7, 0), (8, 9)])
    assert values(chunk) == [b"b0", b"plain", b"a2", b"b1", b"b3"]
    assert chunk.next_offset == 12
    chunk = decoder.decode("t", 0, 0, memoryview(data), [(8, 9), (7, 0)])
    assert values(chunk) == [b"b0", b"plain", b"a2", b"b1", b"b3"]


def test_only_transactional_batches_of_that_producer_are_skipped(decoder):
    data = build([Record(b"idempotent")], offset=0, producer=7) + transactional(b"other", 1, 8)
    assert values(decoder.decode("t", 0, 0, memoryview(data), [(7, 0)])) == [b"idempotent", b"other"]


def test_a_chunk_of_only_aborted_records_moves_the_position(decoder):
    data = transactional(b"a", 3, 7) + transactional(b"b", 4, 7)
    assert decoder.decode("t", 0, 3, memoryview(data), [(7, 1)]) == (None, 5, 0, None)


def test_a_transaction_that_ended_before_the_requested_offset_is_over(decoder):
    data = control(4, ABORT, producer=7) + transactional(b"next", 5, 7)
    assert values(decoder.decode("t", 0, 4, memoryview(data), [(7, 2)])) == [b"next"]
    assert values(decoder.decode("t", 0, 5, memoryview(sent(data, 5)), [])) == [b"next"]


def test_a_marker_that_cannot_be_read_ends_no_transaction(decoder):
    data = transactional(b"a", 0, 7) + empty(1, 0, attributes=0x30, producer=7) + transactional(b"b", 2, 7)
    assert decoder.decode("t", 0, 0, memoryview(data), [(7, 0)]) == (None, 3, 0, None)


def test_the_position_moves_past_compacted_records(decoder):
    data = empty(0, 9) + build(SAMPLE[:2], offset=10, last_delta=7) + empty(18, 1)
    chunk = decoder.decode("t", 0, 3, memoryview(data))
    assert [row[0] for row in rows(chunk)] == [10, 11]
    assert chunk.next_offset == 20
    assert offsets(chunk.batch) == [10, 11]


def test_the_batch_owns_its_memory(decoder):
    data = bytearray(build(SAMPLE, codec="lz4") + build(SAMPLE, offset=4))
    chunk = decoder.decode("t", 0, 0, memoryview(data))
    data[:] = bytes(len(data))
    decoder.decode("t", 0, 0, memoryview(build([Record(b"y" * 6000)] * 4, codec="lz4")))
    assert rows(chunk) == expected(SAMPLE) + expected(SAMPLE, 4)
    assert chunk.nbytes > 10_000


# -- faults -------------------------------------------------------------------------------------------------------


def corrupt(data, **patches):
    """Overwrite fields of a batch header and make the checksum fit again, so that only the field is wrong."""
    fields = {"last_delta": (">i", 23), "count": (">i", 57), "attributes": (">h", 21)}
    batch = bytearray(data)
    for name, value in patches.items():
        struct.pack_into(fields[name][0], batch, fields[name][1], value)
    return seal(batch)


def wrong_checksum(data):
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "bad",
    [
        corrupt(build(SAMPLE, offset=4), count=3),
        corrupt(build(SAMPLE, offset=4), count=5, last_delta=9),
        corrupt(build(SAMPLE, offset=4), count=-1),
        corrupt(build(SAMPLE, offset=4), count=2**31 - 1, last_delta=2**31 - 1),
        corrupt(build(SAMPLE, offset=4), last_delta=2),
        corrupt(build(SAMPLE, offset=4), last_delta=-1),
        corrupt(build(SAMPLE, offset=4), attributes=5),
        corrupt(build(SAMPLE, offset=4), attributes=1),
        corrupt(build(SAMPLE, offset=4), attributes=2),
        corrupt(build(SAMPLE, offset=4), attributes=3),
        corrupt(build(SAMPLE, offset=4), attributes=4),
        corrupt(build(SAMPLE, offset=4, codec="zstd"), count=2**31 - 1, last_delta=2**31 - 1),
        build(SAMPLE, offset=-5),
        build(SAMPLE, offset=2**63 - 1),
        build(SAMPLE, offset=4)[:8] + struct.pack(">i", 3) + bytes(60),
        build(SAMPLE, offset=4)[:8] + struct.pack(">i", -3) + bytes(60),
        build(SAMPLE, offset=4)[:16] + b"\x03" + bytes(60),
    ],
)
def test_a_fault_ends_the_chunk_and_is_raised_when_fetched_first(decoder, bad):
    good = build(SAMPLE)
    chunk = decoder.decode("clicks", 2, 1, memoryview(good + bad + build(SAMPLE, offset=100)))
    assert rows(chunk) == expected(SAMPLE)[1:]
    assert chunk.next_offset == 4
    with pytest.raises(CorruptRecord, match=r"clicks-2 at offset -?\d+ \(fetched from 4\)"):
        decoder.decode("clicks", 2, 4, memoryview(bad))


@pytest.mark.parametrize(
    ("bad", "alone", "followed"),
    [
        (wrong_checksum(build(SAMPLE, offset=4)), 8, 8),
        (wrong_checksum(build(SAMPLE, offset=4, last_delta=5)), 10, 10),  # compacted
        (corrupt(build(SAMPLE, offset=4), last_delta=2**31 - 1, count=5), 4 + 2**31, 10),
        (corrupt(build(SAMPLE, offset=4), last_delta=-1), None, 10),
        (build(SAMPLE, offset=-5), None, 10),
        (build(SAMPLE, offset=2**63 - 1), None, 10),
        (build(SAMPLE, offset=4)[:8] + struct.pack(">i", 3) + bytes(60), None, None),
        (wrong_checksum(message(SAMPLE[0], 1, 4)), 5, 5),
        (wrap(b"no set", 0, 7, "gzip"), 8, 8),
    ],
)
def test_a_fault_has_the_offset_to_continue_at(decoder, bad, alone, followed):
    with pytest.raises(CorruptRecord) as caught:
        decoder.decode("t", 0, 4, memoryview(bad))
    assert caught.value.resume_at == alone
    assert ("on.corrupt=skip" in str(caught.value)) == (alone is not None)
    with pytest.raises(CorruptRecord) as caught:
        decoder.decode("t", 0, 4, memoryview(bad + build(SAMPLE, offset=10)))
    assert caught.value.resume_at == followed


def log_from(*offsets, content=SAMPLE):
    """Batches of four records with these first offsets."""
    return b"".join(build(content, offset=offset) for offset in offsets)


def refused(decoder, requested, data, end=-1):
    """The error at a requested offset, and the offset after the damage that it has."""
    with pytest.raises(CorruptRecord) as caught:
        decode(decoder, requested, data, end)
    return str(caught.value), caught.value.resume_at


def test_a_batch_that_begins_before_the_one_before_it_ends_is_corrupt(decoder):
    assert decode(decoder, 0, log_from(0, 3, 8))[1] == 4
    assert decode(decoder, 4, log_from(4, 2))[1] == 8
    assert decode(decoder, 0, log_from(0, 10, 2))[1] == 14


@pytest.mark.parametrize("lowered", [0, 512, 999 - 3])
def test_a_first_batch_that_ends_before_the_requested_offset_is_corrupt(decoder, lowered):
    """Its records would vanish: they would be dropped like those before the requested offset of another batch."""
    expected = f"t-1 at offset 1000 (fetched from 1000): the batch that should hold it has the offsets {lowered} to"
    text, resume_at = refused(decoder, 1000, log_from(lowered, 1004), 1008)
    assert expected in text
    assert resume_at == 1004
    assert refused(decoder, 1000, log_from(lowered), 1004)[1] is None
    control_batch = control(lowered)
    assert refused(decoder, 1000, control_batch, 1001)[1] is None


@pytest.mark.parametrize("raised", [5, 6, 36, 4 + 2**40])
def test_a_raised_offset_is_known_by_the_next_batch(decoder, raised):
    data = log_from(0, raised, 8, 12)
    assert decode(decoder, 0, data) == (expected(SAMPLE), 4)
    text, resume_at = refused(decoder, 4, log_from(raised, 8, 12))
    assert f"has the offsets {raised} to {raised + 3}, and the next one begins at 8" in text
    assert resume_at == 8


def test_the_next_batch_is_evidence_though_it_is_cut_off(decoder):
    data = log_from(0, 36, 8, content=TO_CUT)
    for missing in range(1, len(build(TO_CUT)) - 17):
        assert decode(decoder, 0, data[:-missing])[1] == 4


def test_a_raised_offset_is_known_by_the_high_watermark(decoder):
    data = log_from(0, 36)
    assert decode(decoder, 0, data, 8) == (expected(SAMPLE), 4)
    text, resume_at = refused(decoder, 4, log_from(36), 8)
    assert "t-1 at offset 4 (fetched from 4): a batch has the offsets 36 to 39, but the partition ends at 8" in text
    assert resume_at == 8
    assert decode(decoder, 0, data)[1] == decode(decoder, 0, data, 40)[1] == 40


def test_a_high_watermark_before_the_requested_offset_gives_no_offset_to_continue_at(decoder):
    assert refused(decoder, 4, log_from(4), 4)[1] is None


def test_batches_of_a_compacted_log_are_plausible(decoder):
    """Batches and records are missing between others, and what is left of a batch keeps its first and last offset."""
    log = empty(0, 9) + build(SAMPLE, offset=20, last_delta=9) + build(SAMPLE, offset=90, codec="lz4") + control(94)
    for requested in range(95):
        assert decode(decoder, requested, sent(log, requested), 95)[1] == 95


def test_foreseen_offsets_end_before_an_implausible_batch(decoder):
    data = memoryview(log_from(0, 36))
    assert decoder.next_offset(0, data, 8) == 4
    assert decoder.scan("t", 0, 0, data, (), 8).next_offset == 4


def test_a_wrong_checksum_is_a_fault_unless_it_is_not_checked(decoder):
    data = bytearray(build(SAMPLE))
    data[data.index(b"first")] ^= 0x20
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 0 .*checksum 0x"):
        decoder.decode("t", 0, 0, memoryview(data))
    assert rows(BatchDecoder(DecoderSettings(check_crcs=False)).decode("t", 0, 0, memoryview(data)))[0][4] == b"First"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "snappy-raw", "lz4", "zstd"])
def test_a_decompression_bomb_is_refused_without_allocating_memory(codec):
    decoder = BatchDecoder(DecoderSettings(max_decompressed_bytes=1 << 20))
    bomb = build([Record(bytes(50 << 20))], codec=codec)
    with pytest.raises(RecordTooLarge, match=r"more than 1048576 bytes; raise decompressed\.max\.bytes"):
        decoder.decode("t", 0, 0, memoryview(bomb))
    assert len(decoder._unpacker.scratch.data) <= 2 << 20


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_chunk_that_decompresses_to_too_much_is_cut_between_batches(codec):
    decoder = BatchDecoder(DecoderSettings(max_decompressed_bytes=1 << 20))
    data = b"".join(build([Record(bytes(300_000), b"%d" % i)], offset=i, codec=codec) for i in range(10))
    seen, position = [], 0
    while position < 10:
        chunk = decoder.decode("t", 0, position, memoryview(sent(data, position)))
        assert chunk.next_offset - position in (1, 3)
        seen += [row[3] for row in rows(chunk)]
        position = chunk.next_offset
    assert seen == [b"%d" % i for i in range(10)]


def test_cramjam_s_message_for_an_output_that_is_too_small():
    """On this message the decoder tries again with more room, so a new cramjam must keep it."""
    for stream in (cramjam.gzip, cramjam.lz4, cramjam.zstd):
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            stream.decompress_into(bytes(stream.compress(bytes(1000))), bytearray(999))


def test_many_small_batches(decoder):
    data = b"".join(build([Record(b"%d" % i)], offset=i) for i in range(1000))
    assert [row[4] for row in rows(decoder.decode("t", 0, 0, memoryview(data)))] == [b"%d" % i for i in range(1000)]


def test_more_records_than_the_work_buffers_hold(decoder):
    data = build([Record(b"v", timestamp=i) for i in range(40_000)])
    chunk = decoder.decode("t", 0, 0, memoryview(data))
    assert chunk.batch.num_rows == chunk.next_offset == 40_000
    assert chunk.batch.column("timestamp").cast(pa.int64())[-1].as_py() == 39_999_000


def test_all_keys_null_and_all_values_null(decoder):
    chunk = decoder.decode("t", 0, 0, memoryview(build([Record(None)] * 9)))
    assert chunk.batch.column("key").null_count == chunk.batch.column("value").null_count == 9
    assert [m[5:7] for m in records(chunk.batch)] == [(None, None)] * 9


def test_lz4_frames_with_several_blocks(decoder):
    big = [Record(bytes(range(256)) * 1000, timestamp=i) for i in range(10)]
    assert rows(decoder.decode("t", 0, 0, memoryview(build(big, codec="lz4")))) == expected(big)
    assert len(compress("lz4", b"x" * 10)) > 10


def test_reading_messages_loads_neither_pyarrow_nor_numpy():
    code = (
        "import sys\n"
        "from zkconsumer.decode.batchdecoder import BatchDecoder\n"
        "from zkconsumer.decode.limits import rows_within\n"
        "from zkconsumer.decode.messages import records\n"
        f"data = memoryview({build([Record(b'v', b'k', 5, [('h', None)])])})\n"
        "decoded = BatchDecoder(headers=True).decode('t', 0, 0, data)\n"
        "found = decoded.records\n"
        "assert [message.value for message in records(found)] == [b'v']\n"
        "assert rows_within(found, 1) == 1\n"
        "assert not {'pyarrow', 'numpy', 'kafka'} & sys.modules.keys()\n"
        "assert decoded.batch.num_rows == 1 and 'pyarrow' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_chunk_of_very_many_records_is_cut_between_batches():
    decoder = BatchDecoder(limits=ChunkLimits(records=10, batches=64))
    many = build([Record(b"v")] * 15) + control(15) + b"".join(build(SAMPLE, offset=16 + 4 * n) for n in range(200))
    seen, position = [], 0
    while position < 816:
        chunk = decoder.decode("t", 0, position, memoryview(sent(many, position)))
        assert position < chunk.next_offset
        assert len(rows(chunk)) <= 15
        seen += [row[0] for row in rows(chunk)]
        position = chunk.next_offset
    assert seen == [n for n in range(816) if n != 15]


def claims():
    """At most a kilobyte of bytes that claims a length, or a decompressed length, of a gigabyte."""
    gigabyte = 1 << 30
    huge = struct.pack(">i", 2**31 - 1)
    one = bytearray(message(Record(b"v"), 1, 0))
    snappy = b"\x80\x80\x80\x80\x04" + b"\x00" * 20  # a block that announces its length
    lz4 = bytearray(cramjam.lz4.compress(b"v" * 100))
    lz4[4] |= 0x08  # the length of the content follows
    lz4 = lz4[:6] + struct.pack("<q", gigabyte) + lz4[6:]
    zstd = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<i", gigabyte) + b"\x01\x00\x00"
    count = {"count": 2**31 - 1, "last_delta": 2**31 - 1}
    return {
        "batch length": build(SAMPLE)[:8] + huge + build(SAMPLE)[12:],
        "message length": bytes(one[:8]) + huge + bytes(one[12:]),
        "key length": reseal(one[:26] + huge + one[30:]),
        "value length": reseal(one[:30] + huge + one[34:]),
        "count": corrupt(build(SAMPLE), **count),
        "count, compressed": corrupt(build(SAMPLE, codec="zstd"), **count),
        "snappy": seal(bytearray(build(SAMPLE, attributes=2)[:HEADER]) + snappy),
        "lz4": seal(bytearray(build(SAMPLE, attributes=3)[:HEADER]) + lz4),
        "zstd": seal(bytearray(build(SAMPLE, attributes=4)[:HEADER]) + zstd),
        "snappy, format 0": message(Record(snappy), 0, 0, 2),
        "lz4, format 0": message(Record(bytes(lz4)), 0, 0, 3),
    }


@pytest.mark.parametrize("name", claims())
def test_claimed_lengths_are_not_allocated(decoder, name):
    data = memoryview(claims()[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with contextlib.suppress(CorruptRecord):
            decoder.decode("t", 0, 0, data)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB; outside of Python's memory


def test_a_very_large_response_is_read_in_parts():
    """So that a column stays below 2 GiB, where Arrow's offsets end."""
    decoder = BatchDecoder(limits=ChunkLimits(received_bytes=3 * len(build(SAMPLE)) - 1))
    chunk = decoder.decode("t", 0, 0, memoryview(b"".join(build(SAMPLE, offset=4 * n) for n in range(9))))
    assert chunk.next_offset == 8


def test_the_rest_of_a_chunk_is_not_changed_by_other_chunks():
    decoder = BatchDecoder(limits=ChunkLimits(records=3))
    mine, others = (
        b"".join(build([Record(name * 9)] * 2, offset=offset, codec="lz4") for offset in (0, 2))
        for name in (b"a", b"b")
    )
    first = decoder.decode("t", 0, 0, memoryview(mine))
    decoder.decode("t", 1, 0, memoryview(others))
    rest = decoder.finish(first.rest)
    assert values(first) + values(rest) == [b"a" * 9] * 4
    assert (rest.next_offset, rest.rest) == (4, None)


def test_a_snappy_block_that_claims_an_impossible_length_is_corrupt():
    """More than any snappy block can hold: damaged, so on.corrupt=skip may skip it."""
    data = build([Record(b"v" * 100)], codec="snappy-raw")
    body = HEADER
    claim = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x0F])  # 4 GiB
    with pytest.raises(CorruptRecord, match="announces 4294967295"):
        BatchDecoder(DecoderSettings(check_crcs=False)).decode(
            "t", 0, 0, memoryview(data[:body] + claim + data[body + 5 :])
        )


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_small_batch_keeps_little_memory_after_a_large_one(codec):
    decoder = BatchDecoder()
    decoder.decode("t", 0, 0, memoryview(build([Record(os.urandom(12 << 20))], codec=codec)))
    for _ in range(5):
        prepared = decoder.prepare(decoder.scan("t", 0, 0, memoryview(build(SAMPLE, codec=codec))))
        assert len(decoder._unpacker.scratch.data) <= 1 << 16
        assert decoder.complete(prepared).batch.num_rows == len(SAMPLE)
        decoder.recycle(prepared)
