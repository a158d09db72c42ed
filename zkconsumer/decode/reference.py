"""ReferenceKernels: the kernels in plain Python, for platforms without the library, and as a reference in tests.

See :class:`~zkconsumer.decode.kernels.Kernels` for the methods; the functions in C are explained in ``native/``.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.buffers import BinaryColumn, HeaderBytes
from zkconsumer.decode.kernels import CheckProgress, HeaderColumns, IndexTask, TableSurvey
from zkconsumer.decode.records import Records
from zkconsumer.model import Message

_BATCH: Final = struct.Struct(">qi4xbIhiqqqhii")
_MESSAGE: Final = struct.Struct(">qiIbb")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_SMALLEST: Final = (14, 22)  # length of a message without key and value, by format
_MOST_VARINT_BYTES: Final = 10


class _Contradiction(Exception):
    """A length does not fit into the enclosing one."""


class _Record(NamedTuple):
    """A record; ``headers`` are its bytes from the first header on."""

    offset: int
    millis: int
    key: bytes | None
    value: bytes | None
    header_count: int = 0
    name_bytes: int = 0
    content_bytes: int = 0
    headers: bytes = b""


class _FieldReader:
    """Reads one field of a record after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def varint(self) -> int:
        """A zigzag varint of 64 bits."""
        value = 0
        for place in range(_MOST_VARINT_BYTES):
            if self.at == len(self._data):
                break
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                value &= 2**64 - 1
                return value >> 1 ^ -(value & 1)
        raise _Contradiction

    def part(self, length: int) -> memoryview:
        """The next bytes."""
        if not 0 <= length <= len(self._data) - self.at:
            raise _Contradiction
        self.at += length
        return self._data[self.at - length : self.at]

    def field(self) -> bytes | None:
        """Bytes after their length; None for a length of -1."""
        length = self.varint()
        return None if length == -1 else bytes(self.part(length))

    def header(self) -> tuple[bytes, bytes | None]:
        """Name and content."""
        name = self.field()
        if name is None:
            raise _Contradiction
        return name, self.field()

    def is_at_end(self) -> bool:
        return self.at == len(self._data)


def _wrapped(value: int) -> int:
    """As signed 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def _records_of_batch(body: memoryview, row: list[int]) -> Iterator[_Record]:
    """The records of a batch of format 2. Raises _Contradiction at the first fault."""
    reader, previous = _FieldReader(body), -1
    for _ in range(row[b.COUNT]):
        length = reader.varint()
        if length < 1:
            raise _Contradiction
        record = _FieldReader(reader.part(length))
        record.part(1)  # attributes
        delta_ms, delta = record.varint(), record.varint()
        if not previous < delta <= row[b.LAST_DELTA]:
            raise _Contradiction
        previous = delta
        key, value, count = record.field(), record.field(), record.varint()
        if count < 0:
            raise _Contradiction
        first, name_bytes, content_bytes = record.at, 0, 0
        for _ in range(count):
            name, content = record.header()
            name_bytes += len(name)
            content_bytes += len(content or b"")
        if not record.is_at_end():
            raise _Contradiction
        appended = row[b.ATTRIBUTES] & b.LOG_APPEND_TIME
        millis = row[b.MAX_TIMESTAMP] if appended else _wrapped(row[b.BASE_TIMESTAMP] + delta_ms)
        record.at = first
        headers = bytes(record.part(length - first))
        yield _Record(row[b.BASE_OFFSET] + delta, millis, key, value, count, name_bytes, content_bytes, headers)
    if not reader.is_at_end():
        raise _Contradiction


def _message_bytes(data: memoryview, at: int, end: int) -> int | None:
    """The length of the message at a position, from its offset on; None if it is not inside, or too short."""
    if end - at < b.LENGTH_END + _SMALLEST[0] or data[at + b.MAGIC_AT] > 1:
        return None
    (length,) = _INT32.unpack_from(data, at + b.LENGTH_AT)
    if length < _SMALLEST[data[at + b.MAGIC_AT]] or length > end - at - b.LENGTH_END:
        return None
    return int(b.LENGTH_END + length)


def _fields(message: memoryview) -> tuple[int, int, int, int] | None:
    """Position and length (-1: null) of key and value of a message; None if they contradict its length."""
    key = b.LENGTH_END + _SMALLEST[message[b.MAGIC_AT]] - 4
    (key_length,) = _INT32.unpack_from(message, key - 4)
    if not -1 <= key_length <= len(message) - key - 4:
        return None
    value = key + max(key_length, 0) + 4
    (value_length,) = _INT32.unpack_from(message, value - 4)
    if value_length < -1 or max(value_length, 0) != len(message) - value:
        return None
    return key, key_length, value, value_length


def _records_of_set(body: memoryview, row: list[int]) -> Iterator[_Record]:
    """The records of verified messages of formats 0 and 1."""
    own_time = row[b.SOURCE] != b.SCRATCH or not row[b.ATTRIBUTES] & b.LOG_APPEND_TIME
    at = 0
    for _ in range(row[b.COUNT]):
        length = _message_bytes(body, at, len(body))
        fields = None if length is None else _fields(body[at : at + length])
        if length is None or fields is None:
            raise SystemError("the table of batches contradicts itself")
        message = body[at : at + length]
        millis = b.NO_TIMESTAMP
        if row[b.FORMAT] == 1:
            millis = _INT64.unpack_from(message, 18)[0] if own_time else row[b.MAX_TIMESTAMP]
        key, key_length, value, value_length = fields
        yield _Record(
            _wrapped(_INT64.unpack_from(message)[0] + row[b.SHIFT]),
            millis,
            None if key_length < 0 else bytes(message[key : key + key_length]),
            None if value_length < 0 else bytes(message[value:]),
        )
        at += length


def _verify(
    data: memoryview, magic: int, shift: int, floor: int, *, compressed: bool, requested: int, check: bool
) -> tuple[int, int, int, int]:
    """Check messages, see ``check_messages`` in C: number of valid ones, position after, last offset, result."""
    at = count = 0
    while at < len(data):
        length = _message_bytes(data, at, len(data))
        if length is None:
            return count, at, floor - 1, b.CUT_OFF
        message = data[at : at + length]
        offset, _, crc, own_magic, attributes = _MESSAGE.unpack_from(message)
        if not 0 <= offset <= b.MAX_BASE_OFFSET or _wrapped(offset + shift) < floor:
            return count, at, floor - 1, b.BAD_ORDER
        offset = _wrapped(offset + shift)
        if own_magic != magic:
            return count, at, floor - 1, b.BAD_INNER_FORMAT
        if bool(attributes & b.CODEC_MASK) != compressed:
            return count, at, floor - 1, b.NESTED
        if check and offset >= requested and zlib.crc32(message[16:]) != crc:
            return count, at, floor - 1, b.BAD_CRC
        if _fields(message) is None:
            return count, at, floor - 1, b.CUT_OFF
        floor, at, count = offset + 1, at + length, count + 1
    return count, at, floor - 1, b.VALID


class ReferenceKernels:
    """See :class:`~zkconsumer.decode.kernels.Kernels` for the methods."""

    def scan(self, raw: memoryview, table: BatchTable, state: array[int], requested: int, *, messages: bool) -> int:
        step = _scan_message if messages else _scan_batch
        first, why = state[1], None
        while why is None:
            why = b.COMPLETE if len(raw) - state[0] <= b.MAGIC_AT else step(raw, table, state, requested, first)
        return why

    def verify(self, raw: memoryview, table: BatchTable, requested: int) -> tuple[int, int]:
        for number in range(len(table)):
            row = table.row(number)
            if row[b.BASE_OFFSET] + row[b.LAST_DELTA] >= requested:
                checksum = crc32c(raw[row[b.START] + b.CRC_START : row[b.END]])
                if checksum != row[b.CRC]:
                    return number, checksum
        return len(table), 0

    def verify_messages(
        self, raw: memoryview, table: BatchTable, floor: int, requested: int, *, check: bool
    ) -> CheckProgress:
        for number in range(len(table)):
            row = table.row(number)
            last = row[b.BASE_OFFSET] + row[b.LAST_DELTA]
            if last >= requested:
                messages, compressed = raw[row[b.START] : row[b.END]], row[b.ATTRIBUTES] & b.CODEC_MASK != 0
                count, stop, reached, why = _verify(
                    messages, row[b.FORMAT], 0, floor, compressed=compressed, requested=requested, check=check
                )
                if why != b.VALID:
                    return CheckProgress(number, count, row[b.START] + stop, reached, why)
            floor = last + 1
        return CheckProgress(len(table), 0, 0, floor - 1, b.VALID)

    def extent(self, data: memoryview) -> tuple[int, int]:
        at, count, last = 0, 0, -1
        while at < len(data):
            length = _message_bytes(data, at, len(data))
            if length is None:
                return 0, last
            (last,) = _INT64.unpack_from(data, at)
            at, count = at + length, count + 1
        return count, last

    def verify_inside(
        self, data: memoryview, magic: int, shift: int, floor: int, requested: int, *, check: bool
    ) -> int:
        return _verify(data, magic, shift, floor, compressed=False, requested=requested, check=check)[-1]

    def survey(self, table: BatchTable) -> TableSurvey:
        records = body_bytes = sources = times = 0
        for number in range(len(table)):
            row = table.row(number)
            if row[b.SOURCE] == b.NOTHING:
                continue
            records += row[b.COUNT]
            body_bytes += row[b.BODY_END] - row[b.BODY]
            if row[b.SOURCE] == b.SCRATCH:
                sources |= b.IN_SCRATCH
            else:
                sources |= b.IN_COMPRESSED if row[b.ATTRIBUTES] & b.CODEC_MASK else b.IN_RAW
            if row[b.FORMAT] < 2:
                sources |= b.IN_OLD_FORMAT
            appended = row[b.ATTRIBUTES] & b.LOG_APPEND_TIME
            times |= b.TIME_NONE if row[b.FORMAT] == 0 else b.TIME_APPENDED if appended else b.TIME_CREATED
        return TableSurvey(records, body_bytes, sources, times)

    def piece(self, table: BatchTable) -> int:
        is_old = [table.row(number)[b.FORMAT] < 2 for number in range(len(table))]
        return next((number for number, old in enumerate(is_old) if old != is_old[0]), len(table))

    def compressed(self, table: BatchTable) -> list[int]:
        rows = map(table.row, range(len(table)))
        return [
            number for number, row in enumerate(rows) if row[b.SOURCE] == b.RAW and row[b.ATTRIBUTES] & b.CODEC_MASK
        ]

    def within(self, table: BatchTable, most_records: int) -> int:
        records = 0
        for number in range(len(table)):
            row = table.row(number)
            if row[b.SOURCE] == b.NOTHING:
                continue
            if records and records + row[b.COUNT] > most_records:
                return number
            records += row[b.COUNT]
        return len(table)

    def exclude_aborted(
        self, raw: memoryview, table: BatchTable, producers: array[int], of_producer: array[int], firsts: array[int]
    ) -> None:
        is_open, begun = set(), 0
        for number in range(len(table)):
            row = table.row(number)
            while begun < len(firsts) and firsts[begun] <= row[b.BASE_OFFSET] + row[b.LAST_DELTA]:
                is_open.add(producers[of_producer[begun]])
                begun += 1
            if row[b.PRODUCER_ID] not in is_open:
                continue
            if row[b.ATTRIBUTES] & b.CONTROL:
                if _is_abort(raw[row[b.BODY] : row[b.BODY_END]]):
                    is_open.remove(row[b.PRODUCER_ID])
            elif row[b.ATTRIBUTES] & b.TRANSACTIONAL:
                row[b.SOURCE] = b.NOTHING
                table.put(number, row)

    def index(self, task: IndexTask, *, messages: bool) -> None:
        totals, read = task.totals, _records_of_set if messages else _records_of_batch
        for number in range(len(task.table)):
            totals[b.ROWS] = number
            row = task.table.row(number)
            if row[b.SOURCE] == b.NOTHING:
                continue
            source = task.raw if row[b.SOURCE] == b.RAW else task.scratch
            try:
                decoded = list(read(source[row[b.BODY] : row[b.BODY_END]], row))
            except _Contradiction:
                return
            kept = [record for record in decoded if record.offset >= task.requested]
            for record in kept:
                _write(task, record)
            row[b.KEPT] = len(kept)
            task.table.put(number, row)
        totals[b.ROWS] = len(task.table)

    def bitmap(self, valid: memoryview) -> tuple[bytearray, int]:
        bits, valid_count = bytearray((len(valid) + 7) // 8), 0
        for number, byte in enumerate(valid):
            if byte:
                bits[number // 8] |= 1 << number % 8
                valid_count += 1
        return bits, valid_count

    def header_columns(self, headers: HeaderBytes, start: int, rows: int) -> HeaderColumns:
        lists = list(_headers(headers, start, rows))
        pairs = [pair for of_record in lists for pair in of_record]
        names, contents = ([pair[side] for pair in pairs] for side in (0, 1))
        return HeaderColumns(
            _ends(map(len, lists)),
            memoryview(bytearray(map(bool, lists))),
            memoryview(b"".join(names)),  # type: ignore[arg-type]
            _ends(len(name or b"") for name in names),
            memoryview(b"".join(content or b"" for content in contents)),
            _ends(len(content or b"") for content in contents),
            memoryview(bytearray(content is not None for content in contents)),
        )

    def header_tuples(self, headers: HeaderBytes, start: int, rows: int) -> list[tuple[Any, ...]]:
        lists = _headers(headers, start, rows)
        return [tuple((name.decode(errors="replace"), content) for name, content in of_record) for of_record in lists]

    def messages(self, kind: type[Any], records: Records, headers: list[Any] | None) -> list[Any]:
        buffers, messages = records.buffers, []
        for number in range(records.num_rows):
            row = records.start + number
            type_of_time = buffers.types if isinstance(buffers.types, int) else buffers.types[row]
            timed = type_of_time != b.NO_TIMESTAMP
            fields = (
                records.topic,
                records.partition,
                buffers.offset[row],
                buffers.timestamp[row] // b.MICROS if timed else None,
                min(type_of_time, 1) if timed else None,
                None if buffers.key is None else _value(buffers.key, row),
                _value(buffers.value, row),
                () if headers is None else headers[number],
            )
            messages.append(kind._make(fields) if kind is Message else tuple.__new__(kind, fields))
        return messages


def _scan_batch(raw: memoryview, table: BatchTable, state: array[int], requested: int, _first: int) -> int | None:
    """Find one batch; None, or why the scan stops."""
    at, rows, last = state
    if raw[at + b.MAGIC_AT] < 2:
        return b.OTHER_FORMAT
    (length,) = _INT32.unpack_from(raw, at + b.LENGTH_AT)
    if raw[at + b.MAGIC_AT] > 2 or length < b.BATCH_HEADER_BYTES - b.LENGTH_END:
        return b.BAD_LENGTH
    if length > len(raw) - at - b.LENGTH_END:
        return b.COMPLETE
    if rows == len(table):
        return b.TABLE_FULL
    base, _, _, crc, attributes, delta, base_ms, max_ms, producer, _, _, count = _BATCH.unpack_from(raw, at)
    body, end = at + b.BATCH_HEADER_BYTES, at + b.LENGTH_END + length
    if not last < base <= b.MAX_BASE_OFFSET or delta < 0 or not 0 <= count <= delta + 1:
        return b.BAD_HEADER
    if not attributes & b.CODEC_MASK and count * b.SMALLEST_RECORD > end - body:
        return b.BAD_HEADER
    source = b.NOTHING if base + delta < requested or attributes & b.CONTROL else b.RAW
    table.put(
        rows, [at, end, base, delta, 2, crc, attributes, base_ms, max_ms, producer, count, source, body, end, 0, 0]
    )
    state[0], state[1], state[2] = end, rows + 1, base + delta
    return None


def _scan_message(raw: memoryview, table: BatchTable, state: array[int], requested: int, first: int) -> int | None:
    """Find one message; None, or why the scan stops."""
    at, rows, last = state
    magic = raw[at + b.MAGIC_AT]
    (length,) = _INT32.unpack_from(raw, at + b.LENGTH_AT)
    if magic > 1:
        return b.OTHER_FORMAT
    if length < _SMALLEST[magic]:
        return b.BAD_LENGTH
    end = at + b.LENGTH_END + length
    if end > len(raw):
        return b.COMPLETE
    offset, attributes = _INT64.unpack_from(raw, at)[0], raw[at + 17]
    if not last < offset <= b.MAX_BASE_OFFSET:
        return b.BAD_HEADER
    if not _extended(table, rows, first, (magic, attributes, offset, end), requested):
        if rows == len(table):
            return b.TABLE_FULL
        row = [0] * b.COLUMNS
        row[b.START], row[b.END], row[b.BODY], row[b.BODY_END] = at, end, at, end
        row[b.BASE_OFFSET], row[b.FORMAT], row[b.ATTRIBUTES] = offset, magic, attributes
        row[b.PRODUCER_ID], row[b.COUNT], row[b.SOURCE] = -1, 1, b.RAW if offset >= requested else b.NOTHING
        if attributes & b.CODEC_MASK:
            fields = _fields(raw[at:end])
            if fields is None or fields[3] < 0:
                return b.BAD_HEADER
            row[b.BODY] = at + fields[2]
            row[b.MAX_TIMESTAMP] = _INT64.unpack_from(raw, at + 18)[0] if magic == 1 else b.NO_TIMESTAMP
        table.put(rows, row)
        state[1] = rows + 1
    state[0], state[2] = end, offset
    return None


def _extended(table: BatchTable, rows: int, first: int, message: tuple[int, int, int, int], requested: int) -> bool:
    """Add an uncompressed message to the last row, if it is a run of the same kind."""
    magic, attributes, offset, end = message
    if attributes & b.CODEC_MASK or rows == first:
        return False
    row = table.row(rows - 1)
    same = (row[b.FORMAT], row[b.ATTRIBUTES]) == (magic, attributes) and offset - row[b.BASE_OFFSET] < 2**31
    if same:
        row[b.END], row[b.BODY_END], row[b.LAST_DELTA] = end, end, offset - row[b.BASE_OFFSET]
        row[b.COUNT] += 1
        if offset >= requested:
            row[b.SOURCE] = b.RAW
        table.put(rows - 1, row)
    return same


def _is_abort(body: memoryview) -> bool:
    """True for an abort marker: the key of its record is a version and a type of two bytes each; the type is 0."""
    reader = _FieldReader(body)
    try:
        reader.varint()
        reader.part(1)
        for _ in range(3):
            reader.varint()
        return bool(_INT16.unpack(reader.part(4)[2:])[0] == 0)
    except _Contradiction:
        return False


def _write(task: IndexTask, record: _Record) -> None:
    """Write a record to the columns."""
    columns, notes, totals = task.columns, task.notes, task.totals
    place = totals[b.RECORDS]
    columns.offset[place] = record.offset
    columns.timestamp[place] = min(max(record.millis, -b.MAX_MILLIS), b.MAX_MILLIS) * b.MICROS
    totals[b.HEADER_KEY_BYTES] += record.name_bytes
    totals[b.HEADER_VALUE_BYTES] += record.content_bytes
    for data, target, column, null in (
        (record.key, notes.keys, b.KEY_BYTES, b.HAS_NULL_KEY),
        (record.value, task.values, b.VALUE_BYTES, b.HAS_NULL_VALUE),
    ):
        if data is None:
            totals[null] = 1
        elif len(target):
            at = totals[column]
            target[at : at + len(data)] = data
            totals[column] += len(data)
    if record.header_count and len(notes.headers):
        at = totals[b.HEADER_BYTES]
        notes.headers[at : at + len(record.headers)] = record.headers
        notes.header_at[place] = at
        totals[b.HEADER_BYTES] += len(record.headers)
        totals[b.HEADER_COUNT] += record.header_count
    notes.key_valid[place], notes.value_valid[place] = record.key is not None, record.value is not None
    notes.key_end[place + 1], columns.value_end[place + 1] = totals[b.KEY_BYTES], totals[b.VALUE_BYTES]
    notes.header_end[place + 1] = totals[b.HEADER_COUNT]
    totals[b.RECORDS] = place + 1


def _headers(headers: HeaderBytes, start: int, rows: int) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """The headers of each record."""
    for row in range(start, start + rows):
        count = headers.end[row + 1] - headers.end[row]
        reader = _FieldReader(headers.data[headers.at[row] :] if count else headers.data)
        yield [reader.header() for _ in range(count)]


def _ends(lengths: Any) -> memoryview:
    ends = array("i", [0])
    for length in lengths:
        ends.append(ends[-1] + length)
    return memoryview(ends)


def _value(column: BinaryColumn, row: int) -> bytes | None:
    if column.valid is not None and not column.valid[row // 8] >> row % 8 & 1:
        return None
    return bytes(column.data[column.end[row] : column.end[row + 1]])
