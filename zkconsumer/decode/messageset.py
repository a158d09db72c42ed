"""The decode kernel for message formats 0 and 1, used by brokers before 0.11 and in the logs that they wrote.

A set is a sequence of messages, each with its own offset, length and CRC-32. The value of a compressed message is a
set. In format 0 the offsets inside are absolute. In format 1 (KIP-31, KIP-32) they are relative, and the message around
them has the absolute offset of the last one; if its attributes specify log-append time, its timestamp applies to all.
Nested compression was never allowed. The layouts are "Message sets" in the protocol documentation.

:func:`scan` finds rows of the batch table, :func:`verify` checks them and, after decompression, :func:`verify_inside`
checks the inner messages; :func:`index` reads the records of verified rows and moves their values together, as
``kernel.index`` does.
"""

# ruff: noqa: ARG001, PLR0913, PLR0917, C901 - as in kernel.py

from __future__ import annotations

from typing import Any, Final

import numpy as np

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.checksums import crc32
from zkconsumer.decode.compiled import BYTES, INDEX, TABLE, compiled, copy, int32_at, int64_at, move, njit, types

_ATTRIBUTES_AT: Final = 17
_CRC_AT: Final = 12
_CRC_END: Final = 16  # the checksum covers the bytes after it
_TIMESTAMP_AT: Final = 18
_SMALLEST: Final = 14  # length of a message of format 0 without key and value; format 1 adds the timestamp
_TIMESTAMP_BYTES: Final = 8


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _smallest(magic: Any) -> Any:
    return _SMALLEST + _TIMESTAMP_BYTES * np.int64(magic)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _fields(data: Any, at: Any, end: Any) -> Any:
    """Key and value of the message at ``at``: position and length (-1: null) of each, or a length of -2."""
    bad = (np.int64(0), np.int64(-2), np.int64(0), np.int64(-2))
    key = at + b.LENGTH_END + _smallest(data[at + b.MAGIC_AT]) - 4
    key_length = int32_at(data, key - 4)
    if key_length < -1 or key_length > end - key - 4:
        return bad
    value = key + max(key_length, 0) + 4
    value_length = int32_at(data, value - 4)
    if value_length < -1 or max(value_length, 0) != end - value:
        return bad
    return key, key_length, value, value_length


@compiled(types.UniTuple(types.int64, 4)(BYTES, TABLE, types.int64, types.int64, types.int64, types.int64))
def scan(raw, table, at, rows, last, requested):  # type: ignore[no-untyped-def]
    """Find messages of formats 0 and 1; arguments and results as for ``kernel.scan``."""
    size = np.int64(len(raw))
    first = rows
    while size - at > b.MAGIC_AT:
        magic = raw[at + b.MAGIC_AT]
        if magic > 1:
            return rows, at, last, b.OTHER_FORMAT
        length = int32_at(raw, at + b.LENGTH_AT)
        if length < _smallest(magic):
            return rows, at, last, b.BAD_LENGTH
        if length > size - at - b.LENGTH_END:
            break
        end = at + b.LENGTH_END + length
        offset = int64_at(raw, at)
        attributes = np.int64(raw[at + _ATTRIBUTES_AT])
        if offset <= last or offset > b.MAX_BASE_OFFSET:
            return rows, at, last, b.BAD_HEADER
        compressed = attributes & b.CODEC_MASK
        if not compressed and rows > first:
            row = table[rows - 1]
            if row[b.FORMAT] == magic and row[b.ATTRIBUTES] == attributes and offset - row[b.BASE_OFFSET] < 2**31:
                row[b.END] = row[b.BODY_END] = at = end
                row[b.COUNT] += 1
                row[b.LAST_DELTA] = offset - row[b.BASE_OFFSET]
                last = offset
                if offset >= requested:
                    row[b.SOURCE] = b.RAW
                continue
        if rows == len(table):
            return rows, at, last, b.TABLE_FULL
        row = table[rows]
        row[:] = 0
        row[b.START] = row[b.BODY] = at
        row[b.END] = row[b.BODY_END] = end
        row[b.BASE_OFFSET] = offset
        row[b.FORMAT] = magic
        row[b.ATTRIBUTES] = attributes
        row[b.PRODUCER_ID] = -1
        row[b.COUNT] = 1
        row[b.SOURCE] = b.RAW if offset >= requested else b.NOTHING
        if compressed:
            _, _, value, value_length = _fields(raw, at, end)
            if value_length < 0:
                return rows, at, last, b.BAD_HEADER
            row[b.BODY] = value
            row[b.MAX_TIMESTAMP] = int64_at(raw, at + _TIMESTAMP_AT) if magic == 1 else b.NO_TIMESTAMP
        last = offset
        at = end
        rows += 1
    return rows, at, last, b.COMPLETE


@compiled(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64))
def extent(data, at, end):  # type: ignore[no-untyped-def]
    """Number of messages from ``at`` to ``end``, and the last one's offset; 0 if they do not end exactly there."""
    count = np.int64(0)
    offset = np.int64(-1)
    while at < end:
        if end - at < b.LENGTH_END + _SMALLEST:
            return np.int64(0), offset
        length = int32_at(data, at + b.LENGTH_AT)
        if data[at + b.MAGIC_AT] > 1 or length < _smallest(data[at + b.MAGIC_AT]) or length > end - at - b.LENGTH_END:
            return np.int64(0), offset
        offset = int64_at(data, at)
        at += b.LENGTH_END + length
        count += 1
    return count, offset


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _verify(
    data: Any, at: Any, end: Any, magic: Any, shift: Any, floor: Any, compressed: Any, requested: Any, check: Any
) -> Any:
    """See :func:`verify`; ``compressed`` is True if each message must be compressed, False if none may be."""
    start = np.intp(data.ctypes.data)
    count = np.int64(0)
    while at < end:
        stop = at + b.LENGTH_END + int32_at(data, at + b.LENGTH_AT)
        offset = int64_at(data, at)
        if offset < 0 or offset > b.MAX_BASE_OFFSET or offset + shift < floor:
            return count, at, floor - 1, b.BAD_ORDER
        offset += shift
        if data[at + b.MAGIC_AT] != magic:
            return count, at, floor - 1, b.BAD_INNER_FORMAT
        if ((data[at + _ATTRIBUTES_AT] & b.CODEC_MASK) != 0) != compressed:
            return count, at, floor - 1, b.NESTED
        if check and offset >= requested:
            stored = int32_at(data, at + _CRC_AT) & 0xFFFFFFFF
            if crc32(start + at + _CRC_END, stop - at - _CRC_END) != stored:
                return count, at, floor - 1, b.BAD_CRC
        if _fields(data, at, stop)[1] < -1:
            return count, at, floor - 1, b.CUT_OFF
        floor = offset + 1
        at = stop
        count += 1
    return count, at, floor - 1, b.VALID


@compiled(
    types.UniTuple(types.int64, 4)(
        BYTES, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, types.boolean
    )
)
def verify_inside(data, at, end, magic, shift, floor, requested, check):  # type: ignore[no-untyped-def]
    """Check the messages inside a compressed one that :func:`extent` has found.

    Args:
        data: the bytes that hold them.
        at: position of the first.
        end: position after the last.
        magic: the format that all of them must have.
        shift: number to add to their offsets.
        floor: smallest offset that the first may have.
        requested: checksums of messages before this offset are not checked.
        check: whether to verify checksums.

    Returns:
        The number of valid messages, the position after them, the last one's offset (``floor`` - 1 if there are none),
        and the result for the next one: b.VALID or another code.
    """
    return _verify(data, at, end, magic, shift, floor, False, requested, check)


@compiled(types.UniTuple(types.int64, 5)(BYTES, TABLE, types.int64, types.int64, types.boolean))
def verify(raw, table, floor, requested, check):  # type: ignore[no-untyped-def]
    """Check rows that :func:`scan` has found, up to the first fault. Rows before the requested offset are not checked.

    Args:
        raw: the bytes that hold them.
        table: the rows, all of formats 0 and 1.
        floor: smallest offset that the first message may have.
        requested: checksums of messages before this offset are not checked.
        check: whether to verify checksums.

    Returns:
        The number of valid rows; for the row after them the number of valid messages, the position after these, the
        last one's offset, and the result for the next message: b.VALID if there is no such row, or another code.
    """
    for current in range(len(table)):
        row = table[current]
        last = row[b.BASE_OFFSET] + row[b.LAST_DELTA]
        if last >= requested:
            compressed = row[b.ATTRIBUTES] & b.CODEC_MASK != 0
            count, stop, reached, why = _verify(
                raw, row[b.START], row[b.END], row[b.FORMAT], 0, floor, compressed, requested, check
            )
            if why != b.VALID:
                return current, count, stop, reached, why
        floor = last + 1
    return len(table), 0, 0, floor - 1, b.VALID


@compiled(INDEX)
def index(  # type: ignore[no-untyped-def]
    raw, scratch, table, requested, values, keys, headers,
    key_end, value_end, header_end, key_valid, value_valid, header_at, offset, timestamp, totals,
):  # fmt: skip
    """Read every record of verified rows of formats 0 and 1; arguments as for ``kernel.index``."""
    value_data = np.intp(values.ctypes.data)
    key_data = np.intp(keys.ctypes.data)
    with_keys = len(keys) > 0
    with_values = len(values) > 0
    records = totals[b.RECORDS]
    key_bytes = totals[b.KEY_BYTES]
    value_bytes = totals[b.VALUE_BYTES]
    for current in range(len(table)):
        row = table[current]
        if row[b.SOURCE] == b.NOTHING:
            continue
        data = raw if row[b.SOURCE] == b.RAW else scratch
        source = np.intp(data.ctypes.data)
        own_time = row[b.SOURCE] != b.SCRATCH or row[b.ATTRIBUTES] & b.LOG_APPEND_TIME == 0
        before = records
        at = row[b.BODY]
        for _ in range(row[b.COUNT]):
            stop = at + b.LENGTH_END + int32_at(data, at + b.LENGTH_AT)
            place = int64_at(data, at) + row[b.SHIFT]
            if place >= requested:
                key, key_length, value, value_length = _fields(data, at, stop)
                millis: Any = np.int64(b.NO_TIMESTAMP)
                if row[b.FORMAT] == 1:
                    millis = int64_at(data, at + _TIMESTAMP_AT) if own_time else row[b.MAX_TIMESTAMP]
                offset[records] = place
                timestamp[records] = min(max(millis, -b.MAX_MILLIS), b.MAX_MILLIS) * b.MICROS
                key_valid[records] = key_length >= 0
                value_valid[records] = value_length >= 0
                records += 1
                if key_length < 0:
                    totals[b.HAS_NULL_KEY] = 1
                elif key_length > 0 and with_keys:
                    copy(key_data + key_bytes, source + key, key_length)
                    key_bytes += key_length
                if value_length < 0:
                    totals[b.HAS_NULL_VALUE] = 1
                elif value_length > 0 and with_values:
                    move(value_data + value_bytes, source + value, value_length)
                    value_bytes += value_length
                key_end[records] = key_bytes
                value_end[records] = value_bytes
                header_end[records] = totals[b.HEADER_COUNT]
            at = stop
        row[b.KEPT] = records - before
    totals[b.ROWS] = len(table)
    totals[b.RECORDS] = records
    totals[b.KEY_BYTES] = key_bytes
    totals[b.VALUE_BYTES] = value_bytes
