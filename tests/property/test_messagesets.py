"""Formats 0 and 1, and all formats in one log: written records are read, and damage causes no crash."""

import contextlib
import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.batches import build
from tests.fixtures.decoding import decode, sent
from tests.fixtures.messagesets import LOG_APPEND_TIME, OLD_CODECS, compressed_set, message_set, reseal, wrap
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.sandbox.producer import Record

DECODER = BatchDecoder(DecoderSettings(max_decompressed_bytes=1 << 22), headers=True)
UNCHECKED = BatchDecoder(DecoderSettings(check_crcs=False, max_decompressed_bytes=1 << 22), headers=True)
APPEND_MS = 1_800_000_000_000

optional_bytes = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
record = st.builds(Record, value=optional_bytes, key=optional_bytes, timestamp=st.integers(0, 4_000_000_000_000))
piece = st.fixed_dictionaries(
    {
        "records": st.lists(record, min_size=1, max_size=6),
        "magic": st.integers(0, 2),
        "codec": st.sampled_from(["none", *OLD_CODECS]),
        "gaps": st.lists(
            st.integers(0, 3), min_size=7, max_size=7
        ),  # offsets that compaction removed before each record
        "base": st.integers(0, 5),  # distance of the first inner offset before the first record
        "append_time": st.booleans(),
    }
)
slow = settings(suppress_health_check=[HealthCheck.too_slow])
pieces = st.lists(piece, min_size=1, max_size=6)


def encode(log):
    """The bytes of a log, with their rows and end offset."""
    data, rows, following = b"", [], 0
    for part in log:
        magic, codec, content = part["magic"], part["codec"], part["records"]
        offsets = []
        for gap in part["gaps"][: len(content)]:
            offsets.append(following + gap)
            following = offsets[-1] + 1
        append = part["append_time"] and magic > 0
        attributes = LOG_APPEND_TIME if append else 0
        times = [APPEND_MS if append else r.timestamp for r in content]
        if magic == 2:
            codec = codec.removesuffix("-wrong-checksum")
            offsets = list(range(offsets[0], offsets[0] + len(content)))
            following = offsets[-1] + 1
            data += build(content, offset=offsets[0], codec=codec, attributes=attributes, max_timestamp=APPEND_MS)
        elif codec == "none":
            written = [r._replace(timestamp=at) for r, at in zip(content, times, strict=True)]
            data += message_set(written, magic, offsets, attributes)
        else:
            base = max(0, offsets[0] - part["base"])
            outer = {"timestamp": APPEND_MS, "attributes": attributes}
            data += compressed_set(content, magic, offsets, codec, base=base, **outer)
        kinds = [(at, int(append)) if magic else (None, None) for at in times]
        headers = [tuple(r.headers) if magic == 2 else () for r in content]
        parts = zip(offsets, kinds, content, headers, strict=True)
        rows += [(o, *kind, r.key, r.value, theirs) for o, kind, r, theirs in parts]
    return data, rows, following


@slow
@given(pieces, st.data())
def test_written_records_are_read(log, data):
    encoded, rows, end = encode(log)
    requested = data.draw(st.integers(0, end))
    read, next_offset = decode(DECODER, requested, sent(encoded, requested), end)
    assert read == [row for row in rows if row[0] >= requested]
    assert next_offset == end


@slow
@given(pieces, st.data())
def test_a_cut_chunk_gives_a_prefix(log, data):
    encoded, rows, end = encode(log)
    read, next_offset = decode(DECODER, 0, encoded[: data.draw(st.integers(0, len(encoded)))])
    assert read == [row for row in rows if row[0] < next_offset]
    assert next_offset <= end


@slow
@given(pieces, st.data())
def test_a_flipped_bit_is_noticed(log, data):
    """Checksums cover all but offsets, lengths and (format 2) the leader epoch."""
    encoded, rows, end = encode(log)
    requested = data.draw(st.integers(0, end - 1))
    damaged = bytearray(sent(encoded, requested))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(CorruptRecord, RecordTooLarge):
        read, next_offset = decode(DECODER, requested, damaged, end)
        written = [row[1:] for row in rows]
        assert all(row[1:] in written for row in read)
        assert next_offset <= end


plain_pieces = st.lists(piece.map(lambda part: part | {"codec": "none", "gaps": [0] * 7}), min_size=1, max_size=6)


def starts(log):
    """Positions of the batches and messages of a log."""
    found = [0]
    while found[-1] < len(log):
        found.append(found[-1] + 12 + int.from_bytes(log[found[-1] + 8 : found[-1] + 12], "big"))
    return found[:-1]


@slow
@given(plain_pieces, st.data())
def test_a_flipped_bit_of_an_offset_loses_no_message(log, data):
    """In a log without gaps, of messages and batches that are not compressed."""
    encoded, rows, end = encode(log)
    requested = data.draw(st.integers(0, end - 1))
    damaged = bytearray(sent(encoded, requested))
    at = data.draw(st.sampled_from(starts(damaged)))
    bit = data.draw(st.integers(0, 63))
    damaged[at + bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(CorruptRecord):
        read, next_offset = decode(DECODER, requested, damaged, end)
        assert at == 0 or read == [row for row in rows if requested <= row[0] < next_offset]


@slow
@given(st.lists(record, min_size=1, max_size=6), st.integers(0, 1), st.sampled_from(OLD_CODECS), st.data())
def test_damage_inside_under_a_valid_checksum_causes_no_crash(content, magic, codec, data):
    inner = bytearray(message_set(content, magic, range(len(content))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(inner) - 1))
        inner[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255))
    with contextlib.suppress(CorruptRecord, RecordTooLarge):
        decode(UNCHECKED, 0, wrap(bytes(inner), magic, len(content) - 1, codec))


@slow
@given(record, st.integers(0, 1), st.data())
def test_wrong_lengths_cause_no_crash(content, magic, data):
    """Key and value lengths of a message with a right checksum."""
    damaged = bytearray(message_set([content], magic, [0]))
    at = data.draw(st.sampled_from([len(damaged) - 4, 18 + 8 * magic, 22 + 8 * magic + len(content.key or b"")]))
    struct.pack_into(">i", damaged, at, data.draw(st.integers(-(2**31), 2**31 - 1)))
    with contextlib.suppress(CorruptRecord, RecordTooLarge):
        decode(DECODER, 0, reseal(damaged))
