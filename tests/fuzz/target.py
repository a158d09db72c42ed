"""The fuzz target: bytes of a broker through the response parser and the decoder, and the invariants for any bytes.

An input is one byte for its kind, then the bytes: 0 for the records of a partition, n + 1 for the body of a response to
a Fetch of version n.
"""

import itertools
import random
import struct
import zlib
from collections.abc import Callable, Collection, Iterator

from tests.fixtures.decoding import messages_of
from tests.fixtures.fetchresponses import decode_fetch
from tests.fuzz.frames import frames, seal
from tests.fuzz.guard import guarded_copy, guarded_decoder
from zkconsumer.decode.batchdecoder import BatchDecoder, DecodedChunk
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.decode.messages import build
from zkconsumer.decode.schema import SCHEMA_WITH_HEADERS
from zkconsumer.decode.transactions import AbortedTransaction
from zkconsumer.errors import CorruptRecord, ProtocolError, RecordTooLarge
from zkconsumer.model import Message
from zkconsumer.wire.fetchmessages import NEWEST_VERSION

CAP = 1 << 20
"""Limit of the decompressed bytes of a chunk."""
_LONGEST_ROW = 64  # bytes of memory for the columns of a record, which takes at least seven bytes in a batch
_LEAST_HELD = 1 << 20

_ALL = tuple(SCHEMA_WITH_HEADERS.names)
_MOST_PARTS = 100
"""Number of batches of an input that are also read one by one: more take long without new results."""
Rows = tuple[list[Message], int]
"""The messages of some bytes, and the next offset."""
_CONTROL, _TRANSACTIONAL = 0x20, 0x10
_HEADER = 61

CHECKED = guarded_decoder(DecoderSettings(max_decompressed_bytes=CAP))
UNCHECKED = guarded_decoder(DecoderSettings(check_crcs=False, max_decompressed_bytes=CAP))


def run(data: bytes) -> None:
    """Run all checks with one input.

    Raises:
        AssertionError: an invariant does not hold.
        Exception: an error that the decoder or the parser must not raise.
    """
    if not data:
        return
    if data[0] == 0:
        decode(data[1:])
    else:
        parse((data[0] - 1) % (NEWEST_VERSION + 1), data[1:])


def parse(version: int, body: bytes) -> None:
    """Parse a response, and decode the records in it."""
    try:
        fetched = decode_fetch(version, memoryview(body)).partitions
    except ProtocolError:
        return
    for partition in fetched:
        assert len(partition.records) <= len(body)
        assert len(partition.aborted) * 16 <= len(body)
        read(UNCHECKED, 0, bytes(partition.records), partition.aborted)


def decode(data: bytes) -> None:
    """Decode the records of a partition, from several offsets, unchanged and with right checksums."""
    first = int.from_bytes(data[:8], "big", signed=True)
    places = sorted({0, max(0, min(first + 1, 2**63 - 1)), 7})
    draw = random.Random(zlib.crc32(data))
    compared = draw.choice(places)
    for requested in places:
        read(UNCHECKED, requested, data)
        read(UNCHECKED, requested, data, [(number, 0) for number in range(-1, 20)])
        sealed = seal(data)
        checked, unchecked = read(CHECKED, requested, sealed), read(UNCHECKED, requested, sealed)
        # Checksums inside compressed messages are unchanged, so the check may only end earlier.
        assert checked is None or (unchecked is not None and checked[0] == unchecked[0][: len(checked[0])])
        if requested == compared:
            compare(requested, sealed, checked, draw)


def compare(requested: int, data: bytes, whole: Rows | None, draw: random.Random) -> None:
    """Read the same bytes in other ways, with equal results."""
    assert read(CHECKED, requested, data, foreseen=draw.choice(["first", "again"])) == whole
    columns_are_the_same(requested, data, draw)
    if whole is None:
        return
    rows, end = whole
    if len(frames(data)) <= _MOST_PARTS:
        assert [row for row in one_by_one(requested, data) if row.offset < end] == rows
    aborted = [(producer, draw.choice(bases)) for producer, bases in producers(data).items() for _ in range(2)]
    if aborted:
        committed = read(CHECKED, requested, data, aborted)
        assert committed is not None
        # Skipped batches are not decompressed and not read, so their faults are not detected.
        assert committed[1] >= end
        spans = aborted_spans(data, aborted)
        kept = [row for row in rows if not any(first <= row.offset <= last for first, last in spans)]
        assert [row for row in committed[0] if row.offset < end] == kept


def columns_are_the_same(requested: int, data: bytes, draw: random.Random) -> None:
    """Check that a decoder for fewer columns builds equal ones."""
    chosen = tuple(draw.sample(_ALL, draw.randrange(1, len(_ALL) + 1)))
    all_columns = list(chunks(CHECKED, requested, data))
    CHECKED.choose_columns(chosen)
    try:
        fewer = list(chunks(CHECKED, requested, data))
    finally:
        CHECKED.choose_columns(_ALL)
    assert [chunk.next_offset for chunk in fewer] == [chunk.next_offset for chunk in all_columns]
    for few, whole in zip(fewer, all_columns, strict=True):
        assert (few.batch is None) == (whole.batch is None)
        if few.batch is not None:
            few.batch.validate(full=True)
            assert few.batch.equals(whole.batch.select(chosen))


def one_by_one(requested: int, data: bytes) -> list[Message]:
    """The rows of batches that are fetched one by one, as by a consumer with small fetches."""
    rows: list[Message] = []
    for start, stop, _ in frames(data):
        found = read(CHECKED, requested, data[start:stop])
        if found is None:
            break
        more, requested = found
        rows += more
    return rows


def producers(data: bytes) -> dict[int, list[int]]:
    """The first offsets of the batches of each producer."""
    found: dict[int, list[int]] = {}
    for start, stop, magic in frames(data):
        if magic == 2 and stop - start >= _HEADER:
            offset, producer = (int.from_bytes(data[start + at : start + at + 8], "big", signed=True) for at in (0, 43))
            found.setdefault(producer, []).append(offset)
    return found


def aborted_spans(data: bytes, aborted: Collection[AbortedTransaction]) -> list[tuple[int, int]]:
    """First and last offset of each batch of an aborted transaction, up to a batch that is out of order."""
    spans, is_open, left, previous = [], set(), sorted(aborted, key=lambda transaction: transaction[1]), -1
    for start, stop, magic in frames(data):
        first = last = int.from_bytes(data[start : start + 8], "big", signed=True)
        if first <= previous or magic > 2 or (magic == 2 and stop - start < _HEADER):
            break
        if magic == 2:
            attributes, delta = struct.unpack_from(">hi", data, start + 21)
            (producer,) = struct.unpack_from(">q", data, start + 43)
            last += delta
            while left and left[0][1] <= last:
                is_open.add(left.pop(0)[0])
            if attributes & _CONTROL:
                if is_abort(data[start + _HEADER : stop]):
                    is_open.discard(producer)
            elif producer in is_open and attributes & _TRANSACTIONAL:
                spans.append((first, last))
        previous = last
    return spans


def is_abort(body: bytes) -> bool:
    """True if the key of the first record begins with a version and the type 0."""
    at = varint_end(body, 0) + 1  # after the length and the attributes
    for _ in range(3):
        at = varint_end(body, at)
    return body[at + 2 : at + 4] == b"\0\0"


def varint_end(body: bytes, at: int) -> int:
    """The position after a varint, or the end of the data if the varint does not end."""
    for end in range(at, min(at + 10, len(body))):
        if body[end] < 0x80:
            return end + 1
    return len(body) + 1


def read(
    decoder: BatchDecoder, requested: int, data: bytes, aborted: Collection[AbortedTransaction] = (), foreseen: str = ""
) -> Rows | None:
    """The rows and the next offset, or None if the bytes cannot be read."""
    rows, end = [], None
    for chunk in chunks(decoder, requested, data, aborted, foreseen):
        rows += rows_of(chunk, requested if end is None else end, data)
        end = chunk.next_offset
    return None if end is None else (rows, end)


def chunks(
    decoder: BatchDecoder, requested: int, data: bytes, aborted: Collection[AbortedTransaction] = (), foreseen: str = ""
) -> Iterator[DecodedChunk]:
    """The decoded chunks, up to the first fault.

    Args:
        decoder: decoder to use.
        requested: the offset that was fetched.
        data: the bytes.
        aborted: transactions.
        foreseen: "first" to read the headers first, as fetchers do; "again" to read those of other bytes then.
    """
    records = guarded_copy(data)
    expected = decoder.next_offset(requested, records) if foreseen else None
    if foreseen == "again":
        decoder.next_offset(requested, guarded_copy(data[: len(data) // 2]))
    chunk = part(decoder, requested, data, lambda: decoder.decode("t", 0, requested, records, aborted))
    while chunk is not None:
        decoded, rest = chunk.parts()
        yield from decoded
        begin = decoded[-1].next_offset
        if rest is None:
            assert expected in {None, begin}
            return
        chunk = part(decoder, begin, data, lambda: decoder.finish(rest))  # noqa: B023 - called at once
        assert chunk is None or chunk.next_offset > begin, "no progress"


def part(decoder: BatchDecoder, requested: int, data: bytes, decode: Callable[[], DecodedChunk]) -> DecodedChunk | None:
    """The result of ``decode``, or None for a fault; both within the limits of memory."""
    chunk = fault = None
    try:
        chunk = decode()
    except CorruptRecord as error:
        fault = error
    except RecordTooLarge:
        pass
    notes = 0 if decoder._notes is None else decoder._notes.nbytes  # of other columns
    held = decoder._table.words.nbytes + notes + decoder._unpacker.scratch.data.nbytes
    assert held <= _LEAST_HELD + _LONGEST_ROW * (CAP + len(data)), "memory beyond all limits"
    assert fault is None or fault.resume_at is None or fault.resume_at > requested
    return chunk


def rows_of(chunk: DecodedChunk, requested: int, data: bytes) -> list[Message]:
    """The messages of a chunk that was fetched from an offset."""
    assert chunk.next_offset >= requested
    if chunk.batch is None:
        return []
    chunk.batch.validate(full=True)
    rows = build(Message, chunk.records)
    assert rows == messages_of(chunk.batch) == build(Message, chunk.batch)
    offsets = [row.offset for row in rows]
    assert all(a < b for a, b in itertools.pairwise(offsets))
    assert requested <= offsets[0]
    assert offsets[-1] < chunk.next_offset
    assert chunk.nbytes <= _LONGEST_ROW * (CAP + len(data))
    return rows
