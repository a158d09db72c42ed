"""The kernels in C and in Python make the same of any bytes: of intact logs, of cut ones, and of damaged ones."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.batches import ABORT, COMMIT, build, control
from tests.fixtures.examples import examples
from tests.fixtures.kernels import NATIVE, REFERENCE
from tests.fixtures.messagesets import LOG_APPEND_TIME, OLD_CODECS, compressed_set, message_set
from tests.fuzz.frames import seal
from zkconsumer.decode.batchdecoder import BatchDecoder, ChunkLimits
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.model import Message
from zkconsumer.sandbox.producer import Record

TRANSACTIONAL = 0x10

content = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=9)), max_size=3)
record = st.builds(Record, content, content, st.integers(0, 2**44), st.just([]) | headers)
piece = st.tuples(
    st.lists(record, min_size=1, max_size=6),
    st.integers(0, 2),
    st.sampled_from(["none", "zstd", *OLD_CODECS]),
    st.sampled_from([0, LOG_APPEND_TIME, TRANSACTIONAL]),
    st.integers(0, 3),
)
damage = st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 7)), max_size=3)


def log_of(pieces):
    data, offset = b"", 0
    for records, magic, codec, attributes, gap in pieces:
        offset += gap
        offsets = range(offset, offset + len(records))
        offset = offsets.stop
        if magic == 2:
            settings = {"attributes": attributes, "producer": gap, "max_timestamp": 7}
            data += build(records, offset=offsets.start, codec=codec.removesuffix("-wrong-checksum"), **settings)
            if attributes == TRANSACTIONAL:
                data += control(offset, ABORT if len(records) % 2 else COMMIT, producer=gap)
                offset += 1
        elif codec in ("none", "zstd"):
            data += message_set(records, magic, offsets, attributes & LOG_APPEND_TIME)
        else:
            data += compressed_set(records, magic, offsets, codec, attributes=attributes & LOG_APPEND_TIME)
    return data


def outcome(kernels, data, requested, aborted, *, check_crcs):
    """Everything that the decoder makes of some bytes."""
    decoder = BatchDecoder(
        DecoderSettings(check_crcs, max_decompressed_bytes=1 << 16),
        headers=True,
        limits=ChunkLimits(records=7, batches=64),
        functions=kernels,
    )
    found, chunk = [], None
    try:
        chunk = decoder.scan("t", 1, requested, memoryview(bytearray(data)), aborted)
        while chunk is not None:
            decoded, chunk = decoder.finish(chunk).parts()
            for part in decoded:
                found.append((part.next_offset, part.nbytes, *parts_of(kernels, part.records)))
    except (CorruptRecord, RecordTooLarge) as error:
        found.append((type(error), str(error)))
    return found


def parts_of(kernels, records):
    if records is None:
        return ()
    pairs = records.buffers.headers
    tuples = None if pairs is None else kernels.header_tuples(pairs, records.start, records.num_rows)
    messages = kernels.messages(Message, records, tuples)
    columns = () if pairs is None else map(bytes, kernels.header_columns(pairs, records.start, records.num_rows))
    return messages, list(map(hash, messages)), [*columns], bytes(records.buffers.timestamp[: records.num_rows])


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(piece, min_size=1, max_size=5),
    damage,
    st.integers(0, 30),
    st.floats(0, 1),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_both_kernels_make_the_same_of_a_log(pieces, flips, requested, cut, aborted, check_crcs, sealed):
    """With bits flipped anywhere, also under right checksums, and cut anywhere."""
    damaged = bytearray(log_of(pieces))
    for place, bit in flips:
        damaged[place % len(damaged)] ^= 1 << bit
    data = bytes(damaged[: len(damaged) if cut > 0.5 else int(2 * cut * len(damaged))])
    data = seal(data) if sealed else data
    settings = data, requested, aborted
    assert outcome(NATIVE, *settings, check_crcs=check_crcs) == outcome(REFERENCE, *settings, check_crcs=check_crcs)


@given(st.binary(max_size=300), st.integers(0, 2**63 - 1))
def test_both_kernels_make_the_same_of_noise(noise, requested):
    assert outcome(NATIVE, noise, requested, (), check_crcs=False) == outcome(
        REFERENCE, noise, requested, (), check_crcs=False
    )
