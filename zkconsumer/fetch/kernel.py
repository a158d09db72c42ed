"""The decode kernel: numba functions, free of the interpreter lock, that turn record batches into Arrow buffers.

A chunk is decoded by one call of each function: :func:`scan` finds the batches, :func:`index` reads every record once
and writes all columns of fixed width and the ends of the variable ones, :func:`gather` copies keys and values into
buffers that are now known to the byte; :func:`gather_headers` is called only where there are headers. Between ``scan``
and ``index`` the caller verifies checksums and decompresses. The layout of record batches is Kafka's message format 2
(KIP-98; "Record Batch" in the protocol documentation).

Bytes come from the network, so every length is checked against what encloses it before it is used.

Importing this module compiles it (several seconds) or loads numba's cache (half a second). numba keeps the cache in
``NUMBA_CACHE_DIR`` where that is set, else in ``__pycache__`` beside this file, else, where the package cannot be
written, in the user's cache directory. Where none can be written it is compiled anew in every process, with a warning.
"""

# Functions here are longer and take more arguments than elsewhere on purpose: numba takes arrays and not objects, and
# the loops are one state machine over bytes.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0913, PLR0915, PLR0917

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba
import numpy as np
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic

# numba describes only a part of itself to type checkers, and in a way that fits neither its types nor its intrinsics.
njit: Any = numba.njit
types: Any = numba.types
cgutils: Any = numba_cgutils

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

# Columns of the batch table, one row per batch.
START: Final = 0  # position of the batch in the raw bytes
END: Final = 1  # position after it
BASE_OFFSET: Final = 2
LAST_DELTA: Final = 3  # last offset minus base offset; kept by compaction when records go
CRC: Final = 4
ATTRIBUTES: Final = 5
BASE_TIMESTAMP: Final = 6
MAX_TIMESTAMP: Final = 7
COUNT: Final = 8  # records, as announced
SOURCE: Final = 9  # where the records are: RAW, SCRATCH; or NOTHING
BODY: Final = 10  # position of the first record in the source
BODY_END: Final = 11
KEPT: Final = 12  # records at or after the requested offset
COLUMNS: Final = 13

RAW: Final = 0
SCRATCH: Final = 1
NOTHING: Final = -1

# Why scan stopped.
COMPLETE: Final = 0  # end of the bytes, or a batch that is cut off
TABLE_FULL: Final = 1
BAD_LENGTH: Final = 2
OLD_FORMAT: Final = 3
BAD_HEADER: Final = 4

# Indices of the totals that index reports.
ROWS: Final = 0  # rows that were read without a fault
RECORDS: Final = 1
KEY_BYTES: Final = 2
VALUE_BYTES: Final = 3
HEADER_COUNT: Final = 4
HEADER_KEY_BYTES: Final = 5
HEADER_VALUE_BYTES: Final = 6
HAS_NULL_KEY: Final = 7
HAS_NULL_VALUE: Final = 8
TOTALS: Final = 9

# Bits of the attributes.
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
CONTROL: Final = 0x20

HEADER_BYTES: Final = 61
"""Length of a batch header; the records follow."""
CRC_START: Final = 21
"""The checksum covers everything from here to the end of the batch."""
MAGIC_AT: Final = 16
"""Position of the format version in a batch and, by design, in a message of the older formats too."""
SMALLEST_RECORD: Final = 7
"""A record has at least seven one-byte fields."""

_LENGTH_END: Final = 12  # batch length counts from here
_SMALLEST_OLD_MESSAGE: Final = 14
_MAGIC: Final = 2
_MICROS: Final = 1000
_MAX_MILLIS: Final = (2**63 - 1) // _MICROS
_MAX_BASE_OFFSET: Final = 2**63 - 1 - 2**32

_BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
_OUT_BYTES: Final = types.uint8[::1]
_INT32S: Final = types.int32[::1]
_INT64S: Final = types.int64[::1]
_TABLE: Final = types.int64[:, ::1]


def _compiled(signature: Any) -> Callable[[F], F]:
    """Compile for exactly one signature, now, and keep the machine code on disk where that is possible."""

    def decorate(function: F) -> F:
        options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
        try:
            return njit(signature, cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError as error:  # numba: "no locator available"
            _log.warning("compiling %s for this process only (%s); set NUMBA_CACHE_DIR", function.__name__, error)
            return njit(signature, **options)(function)  # type: ignore[no-any-return]

    return decorate


def _memcpy(_context: Any, _target: Any, _source: Any, _count: Any) -> Any:
    """``memcpy(target, source, count)`` between addresses: several times faster than assigning array slices."""

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, source, count = arguments
        pointers = [builder.inttoptr(address, cgutils.voidptr_t) for address in (target, source)]
        cgutils.raw_memcpy(builder, pointers[0], pointers[1], count, 1)

    return types.void(types.intp, types.intp, types.intp), generate


_copy: Any = intrinsic(_memcpy)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _big_endian(data: Any, at: Any, width: Any) -> Any:
    """Signed big-endian integer of ``width`` bytes."""
    value = np.int64(data[at])
    if value >= 128:
        value -= 256
    for index in range(1, width):
        value = (value << 8) | np.int64(data[at + index])
    return value


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _varint(data: Any, at: Any, end: Any) -> Any:
    """Zigzag varint at ``at``: its value and the position after it, or -1 where it is cut off or too long."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@_compiled(types.UniTuple(types.int64, 3)(_BYTES, _TABLE, types.int64))
def scan(raw, table, requested):  # type: ignore[no-untyped-def]
    """Find the batches in ``raw`` and fill ``table``, a row each.

    Args:
        raw: the bytes of one partition from a fetch response.
        table: int64, shape (rows, COLUMNS); is overwritten.
        requested: batches that end before this offset get the source NOTHING, as do control batches.

    Returns:
        Rows filled, position after the last one, and why it stopped.
    """
    at = np.int64(0)
    rows = np.int64(0)
    size = np.int64(len(raw))
    last = np.int64(-1)
    while size - at > MAGIC_AT:
        length = _big_endian(raw, at + 8, 4)
        if length < _SMALLEST_OLD_MESSAGE:
            return rows, at, BAD_LENGTH
        if raw[at + MAGIC_AT] < _MAGIC:
            return rows, at, OLD_FORMAT
        if raw[at + MAGIC_AT] > _MAGIC or length < HEADER_BYTES - _LENGTH_END:
            return rows, at, BAD_LENGTH
        if length > size - at - _LENGTH_END:
            break
        if rows == len(table):
            return rows, at, TABLE_FULL
        row = table[rows]
        row[START] = at
        row[END] = at + _LENGTH_END + length
        row[BASE_OFFSET] = _big_endian(raw, at, 8)
        row[CRC] = _big_endian(raw, at + 17, 4) & 0xFFFFFFFF
        row[ATTRIBUTES] = _big_endian(raw, at + CRC_START, 2)
        row[LAST_DELTA] = _big_endian(raw, at + 23, 4)
        row[BASE_TIMESTAMP] = _big_endian(raw, at + 27, 8)
        row[MAX_TIMESTAMP] = _big_endian(raw, at + 35, 8)
        row[COUNT] = _big_endian(raw, at + 57, 4)
        row[BODY] = at + HEADER_BYTES
        row[BODY_END] = row[END]
        row[KEPT] = 0
        if row[BASE_OFFSET] <= last or row[BASE_OFFSET] > _MAX_BASE_OFFSET or row[LAST_DELTA] < 0:
            return rows, at, BAD_HEADER
        if row[COUNT] < 0 or row[COUNT] > row[LAST_DELTA] + 1:
            return rows, at, BAD_HEADER
        if row[ATTRIBUTES] & CODEC_MASK == 0 and row[COUNT] * SMALLEST_RECORD > row[END] - row[BODY]:
            return rows, at, BAD_HEADER
        last = row[BASE_OFFSET] + row[LAST_DELTA]
        row[SOURCE] = NOTHING if last < requested or row[ATTRIBUTES] & CONTROL else RAW
        at = row[END]
        rows += 1
    return rows, at, COMPLETE


@_compiled(
    types.void(
        _BYTES, _BYTES, _TABLE, types.int64, _INT32S, _INT32S, _INT32S, _INT64S, _INT64S, _INT64S, _INT64S, _INT64S,
        _INT64S,
    )
)  # fmt: skip
def index(  # type: ignore[no-untyped-def]
    raw, scratch, table, requested,
    key_end, value_end, header_end, key_at, value_at, header_at, offset, timestamp,
    totals,
):  # fmt: skip
    """Read every record of the batches in ``table`` up to the first fault.

    Args:
        raw: the bytes that were scanned.
        scratch: decompressed batches.
        table: rows from :func:`scan`, with source and body as they are now; column KEPT is written.
        requested: records before this offset are left out.
        key_end: Arrow offsets of the keys; like the next two, of length records + 1 and beginning with a 0.
        value_end: Arrow offsets of the values.
        header_end: Arrow offsets of the lists of headers.
        key_at: position of each key in its source, -1 for null.
        value_at: position of each value in its source, -1 for null.
        header_at: position of the first header of each record.
        offset: column.
        timestamp: column, in microseconds; what does not fit becomes the nearest that does.
        totals: int64, length TOTALS. Everything before row ``totals[ROWS]`` is sound; that row, where there is one,
            is at fault, and the other totals are those of the rows before it.
    """
    records = np.int64(0)
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    headers = np.int64(0)
    header_key_bytes = np.int64(0)
    header_value_bytes = np.int64(0)
    for current in range(len(table)):
        totals[ROWS] = current
        totals[RECORDS] = records
        totals[KEY_BYTES] = key_bytes
        totals[VALUE_BYTES] = value_bytes
        totals[HEADER_COUNT] = headers
        totals[HEADER_KEY_BYTES] = header_key_bytes
        totals[HEADER_VALUE_BYTES] = header_value_bytes
        row = table[current]
        if row[SOURCE] == NOTHING:
            continue
        data = raw if row[SOURCE] == RAW else scratch
        at = row[BODY]
        end = row[BODY_END]
        previous = np.int64(-1)
        before = records
        for _ in range(row[COUNT]):
            length, at = _varint(data, at, end)
            if at < 0 or length < 1 or length > end - at:
                return
            stop = at + length
            delta_ms, at = _varint(data, at + 1, stop)  # one byte of attributes, unused
            if at < 0:
                return
            delta, at = _varint(data, at, stop)
            if at < 0 or delta <= previous or delta > row[LAST_DELTA]:
                return
            previous = delta
            key_length, at = _varint(data, at, stop)
            if at < 0 or key_length < -1 or key_length > stop - at:
                return
            key = at
            if key_length > 0:
                at += key_length
            value_length, at = _varint(data, at, stop)
            if at < 0 or value_length < -1 or value_length > stop - at:
                return
            value = at
            if value_length > 0:
                at += value_length
            count, at = _varint(data, at, stop)
            if at < 0 or count < 0:
                return
            header = at
            keep = row[BASE_OFFSET] + delta >= requested
            for _ in range(count):
                name_length, at = _varint(data, at, stop)
                if at < 0 or name_length < 0 or name_length > stop - at:
                    return
                at += name_length
                content_length, at = _varint(data, at, stop)
                if at < 0 or content_length < -1 or content_length > stop - at:
                    return
                if content_length > 0:
                    at += content_length
                if keep:
                    header_key_bytes += name_length
                    header_value_bytes += max(content_length, 0)
            if at != stop:
                return
            if not keep:
                continue
            offset[records] = row[BASE_OFFSET] + delta
            millis = row[MAX_TIMESTAMP] if row[ATTRIBUTES] & LOG_APPEND_TIME else row[BASE_TIMESTAMP] + delta_ms
            timestamp[records] = min(max(millis, -_MAX_MILLIS), _MAX_MILLIS) * _MICROS
            if key_length < 0:
                key = -1
                key_length = 0
                totals[HAS_NULL_KEY] = 1
            if value_length < 0:
                value = -1
                value_length = 0
                totals[HAS_NULL_VALUE] = 1
            key_bytes += key_length
            value_bytes += value_length
            headers += count
            key_at[records] = key
            value_at[records] = value
            header_at[records] = header
            records += 1
            key_end[records] = key_bytes
            value_end[records] = value_bytes
            header_end[records] = headers
        if at != end:
            return
        row[KEPT] = records - before
    totals[ROWS] = len(table)
    totals[RECORDS] = records
    totals[KEY_BYTES] = key_bytes
    totals[VALUE_BYTES] = value_bytes
    totals[HEADER_COUNT] = headers
    totals[HEADER_KEY_BYTES] = header_key_bytes
    totals[HEADER_VALUE_BYTES] = header_value_bytes


@_compiled(types.void(_BYTES, _BYTES, _TABLE, _INT32S, _INT32S, _INT64S, _INT64S, _OUT_BYTES, _OUT_BYTES))
def gather(  # type: ignore[no-untyped-def]
    raw, scratch, table, key_end, value_end, key_at, value_at, key_data, value_data
):
    """Copy keys and values, found by :func:`index`, into one buffer each."""
    keys = np.intp(key_data.ctypes.data)
    values = np.intp(value_data.ctypes.data)
    record = np.int64(0)
    for current in range(len(table)):
        row = table[current]
        source = np.intp(raw.ctypes.data) if row[SOURCE] == RAW else np.intp(scratch.ctypes.data)
        for _ in range(row[KEPT]):
            start = np.int64(key_end[record])
            count = key_end[record + 1] - start
            if count > 0:
                _copy(keys + start, source + key_at[record], count)
            start = np.int64(value_end[record])
            count = value_end[record + 1] - start
            if count > 0:
                _copy(values + start, source + value_at[record], count)
            record += 1


@_compiled(types.void(_BYTES, _BYTES, _TABLE, _INT32S, _INT64S, _INT32S, _INT32S, _OUT_BYTES, _OUT_BYTES, _OUT_BYTES))
def gather_headers(  # type: ignore[no-untyped-def]
    raw, scratch, table, header_end, header_at, name_end, content_end, content_valid, name_data, content_data
):
    """Copy the headers of all records, whose lengths :func:`index` has checked.

    ``name_end`` and ``content_end`` are Arrow offsets of length headers + 1, beginning with a 0; ``content_valid`` gets
    one byte per header, 0 for a null value.
    """
    names = np.intp(name_data.ctypes.data)
    contents = np.intp(content_data.ctypes.data)
    record = np.int64(0)
    header = np.int64(0)
    for current in range(len(table)):
        row = table[current]
        data = raw if row[SOURCE] == RAW else scratch
        source = np.intp(data.ctypes.data)
        end = row[BODY_END]
        for _ in range(row[KEPT]):
            at = header_at[record]
            for _ in range(header_end[record + 1] - header_end[record]):
                length, at = _varint(data, at, end)
                _copy(names + np.int64(name_end[header]), source + at, length)
                name_end[header + 1] = name_end[header] + length
                at += length
                length, at = _varint(data, at, end)
                content_valid[header] = length >= 0
                length = max(length, 0)
                _copy(contents + np.int64(content_end[header]), source + at, length)
                content_end[header + 1] = content_end[header] + length
                at += length
                header += 1
            record += 1
