"""What is fuzzed: bytes of a broker through the response parser and the decoder, and what must hold whatever they are.

An input is one byte that says what it is, then the bytes: 0 for the records of a partition, n + 1 for the body of a
response to a Fetch of version n.
"""

import itertools
import struct
import zlib

from tests.fix_kafka import calc_crc32c
from zkconsumer.errors import CorruptRecord, ProtocolError, RecordTooLarge
from zkconsumer.fetch.decode import Decoder
from zkconsumer.fetch.messages import records
from zkconsumer.kafka.fetch_protocol import NEWEST_VERSION, decode_fetch

CAP = 1 << 20
"""Most that a chunk may decompress to here."""
_LONGEST_ROW = 64  # bytes of memory for the columns of a record, which takes at least seven bytes in a batch
_LEAST_HELD = 1 << 20

CHECKED = Decoder(headers=True, max_decompressed_bytes=CAP)
UNCHECKED = Decoder(headers=True, check_crcs=False, max_decompressed_bytes=CAP)


def run(data: bytes) -> None:
    """Put one input through everything.

    Raises:
        AssertionError: something does not hold.
        Exception: whatever must not come out of the decoder or the parser.
    """
    if not data:
        return
    if data[0] == 0:
        decode(data[1:])
    else:
        parse((data[0] - 1) % (NEWEST_VERSION + 1), data[1:])


def parse(version: int, body: bytes) -> None:
    """A response, and the records in it."""
    try:
        fetched = decode_fetch(version, memoryview(body)).partitions
    except ProtocolError:
        return
    for partition in fetched:
        assert len(partition.records) <= len(body)
        assert len(partition.aborted) * 16 <= len(body)
        read(UNCHECKED, 0, bytes(partition.records), partition.aborted)


def decode(data: bytes) -> None:
    """Records of a partition, from several offsets, as they are and under right checksums."""
    first = int.from_bytes(data[:8], "big", signed=True)
    for requested in {0, max(0, min(first + 1, 2**63 - 1)), 7}:
        read(UNCHECKED, requested, data)
        read(UNCHECKED, requested, data, [(number, 0) for number in range(-1, 20)])
        sealed = seal(data)
        checked, unchecked = read(CHECKED, requested, sealed), read(UNCHECKED, requested, sealed)
        # Checksums inside compressed messages are as they were, so the check may end earlier, and do nothing else.
        assert checked is None or checked[0] == unchecked[0][: len(checked[0])]


def read(decoder, requested, data, aborted=()):
    """The rows and the next offset, or None for bytes of which nothing can be read."""
    chunk = part(decoder, requested, data, lambda: decoder.decode("t", 0, requested, memoryview(data), aborted))
    if chunk is None:
        return None
    rows = rows_of(chunk, requested, data)
    while chunk.rest is not None:
        begin, rest = chunk.next_offset, chunk.rest
        following = part(decoder, begin, data, lambda: decoder.finish(rest))  # noqa: B023 - called at once
        if following is None:
            break
        chunk = following
        assert chunk.next_offset > begin, "no progress"
        rows += rows_of(chunk, begin, data)
    return rows, chunk.next_offset


def part(decoder, requested, data, decode):
    """What ``decode`` gives, or None for a fault; either within the limits of memory."""
    chunk = fault = None
    try:
        chunk = decode()
    except CorruptRecord as error:
        fault = error
    except RecordTooLarge:
        pass
    held = decoder._table.nbytes + decoder._notes.nbytes + decoder._unpacker.scratch.data.nbytes
    assert held <= _LEAST_HELD + _LONGEST_ROW * (CAP + len(data)), "memory beyond all limits"
    assert fault is None or fault.resume_at is None or fault.resume_at > requested
    return chunk


def rows_of(chunk, requested, data):
    """The rows of a chunk that was fetched from an offset."""
    assert chunk.next_offset >= requested
    if chunk.batch is None:
        return ()
    chunk.batch.validate(full=True)
    rows = tuple(tuple(message) for message in records(chunk.batch))
    offsets = [row[2] for row in rows]
    assert all(a < b for a, b in itertools.pairwise(offsets))
    assert requested <= offsets[0]
    assert offsets[-1] < chunk.next_offset
    assert chunk.nbytes <= _LONGEST_ROW * (CAP + len(data))
    return rows


def seal(data: bytes) -> bytes:
    """The same with right checksums, as far as batches and messages can be found."""
    sealed = bytearray(data)
    for start, end, magic in frames(data):
        if magic < 2 and end - start >= 18:
            struct.pack_into(">I", sealed, start + 12, zlib.crc32(sealed[start + 16 : end]))
        elif magic == 2 and end - start >= 21:
            struct.pack_into(">I", sealed, start + 17, calc_crc32c(bytes(sealed[start + 21 : end])))
    return bytes(sealed)


def frames(data: bytes) -> list[tuple[int, int, int]]:
    """(start, end, magic) of each complete batch or message."""
    found, at = [], 0
    while len(data) - at > 16:
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if end <= at + 16 or end > len(data):
            break
        found.append((at, end, data[at + 16]))
        at = end
    return found
