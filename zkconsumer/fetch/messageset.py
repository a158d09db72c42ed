"""The decode kernel for message formats 0 and 1, which brokers before 0.11 and logs that they wrote hold.

A set is messages one after the other, each with an offset, a length and a CRC-32 of its own. A compressed message has a
set as its value. In format 0 the offsets inside are absolute. In format 1 (KIP-31, KIP-32) they are relative, and the
message around them has the absolute offset of the last one; where its attributes say log-append time, its timestamp
counts for all. Compression inside compression was never allowed. The layouts are "Message sets" in the protocol
documentation.

:func:`scan` finds rows of the batch table, :func:`verify` checks one row and, after decompression, what was inside,
:func:`index` reads the records of verified rows and moves their values together, as ``kernel.index`` does.
"""

# ruff: noqa: ARG001, PLR0913, PLR0917, C901 - as in kernel.py

from __future__ import annotations

from typing import Any, Final

import numpy as np

from zkconsumer.fetch import batchtable as b
from zkconsumer.fetch.compiled import BYTES, INDEX, TABLE, big_endian, compiled, copy, move, njit, types

# What verify finds.
SOUND: Final = 0
CUT_OFF: Final = 1  # lengths contradict each other
BAD_CRC: Final = 2
BAD_ORDER: Final = 3  # an offset is not between its neighbours
NESTED: Final = 4  # compressed where it must not be, or not where it must be
BAD_FORMAT: Final = 5  # a message of another format inside a compressed one

_ATTRIBUTES_AT: Final = 17
_CRC_AT: Final = 12
_TIMESTAMP_AT: Final = 18
_SMALLEST: Final = 14  # length of a message of format 0 without key and value; format 1 adds the timestamp
_TIMESTAMP_BYTES: Final = 8

_CRC_POLYNOMIAL: Final = 0xEDB88320  # of CRC-32, as in zlib


def _crc_table() -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Eight tables of 256: the effect of a byte that is followed by 0 to 7 others ("slicing by eight")."""
    table = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_CRC_POLYNOMIAL if value & 1 else 0)
        table[0, byte] = value
    for following in range(1, 8):
        table[following] = table[following - 1] >> 8 ^ table[0][table[following - 1] & 0xFF]
    return table


_CRCS: Final = _crc_table()


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _crc32(data: Any, at: Any, end: Any) -> Any:
    """CRC-32 of ``data[at:end]``; zlib's cannot be called without the interpreter lock for each message."""
    crc = np.uint64(0xFFFFFFFF)
    byte = np.uint64(0xFF)
    while end - at >= 8:
        low = crc ^ (
            np.uint64(data[at])
            | np.uint64(data[at + 1]) << np.uint64(8)
            | np.uint64(data[at + 2]) << np.uint64(16)
            | np.uint64(data[at + 3]) << np.uint64(24)
        )
        crc = np.uint64(
            _CRCS[7, low & byte]
            ^ _CRCS[6, low >> np.uint64(8) & byte]
            ^ _CRCS[5, low >> np.uint64(16) & byte]
            ^ _CRCS[4, low >> np.uint64(24)]
            ^ _CRCS[3, data[at + 4]]
            ^ _CRCS[2, data[at + 5]]
            ^ _CRCS[1, data[at + 6]]
            ^ _CRCS[0, data[at + 7]]
        )
        at += 8
    while at < end:
        crc = crc >> np.uint64(8) ^ np.uint64(_CRCS[0, (crc ^ np.uint64(data[at])) & byte])
        at += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _smallest(magic: Any) -> Any:
    return _SMALLEST + _TIMESTAMP_BYTES * np.int64(magic)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _fields(data: Any, at: Any, end: Any) -> Any:
    """Key and value of the message at ``at``: position and length (-1: null) of each, or a length of -2."""
    bad = (np.int64(0), np.int64(-2), np.int64(0), np.int64(-2))
    key = at + b.LENGTH_END + _smallest(data[at + b.MAGIC_AT]) - 4
    key_length = big_endian(data, key - 4, 4)
    if key_length < -1 or key_length > end - key - 4:
        return bad
    value = key + max(key_length, 0) + 4
    value_length = big_endian(data, value - 4, 4)
    if value_length < -1 or max(value_length, 0) != end - value:
        return bad
    return key, key_length, value, value_length


@compiled(types.UniTuple(types.int64, 4)(BYTES, TABLE, types.int64, types.int64, types.int64, types.int64))
def scan(raw, table, at, rows, last, requested):  # type: ignore[no-untyped-def]
    """Find messages of formats 0 and 1; arguments and results as of ``kernel.scan``."""
    size = np.int64(len(raw))
    first = rows
    while size - at > b.MAGIC_AT:
        magic = raw[at + b.MAGIC_AT]
        if magic > 1:
            return rows, at, last, b.OTHER_FORMAT
        length = big_endian(raw, at + b.LENGTH_AT, 4)
        if length < _smallest(magic):
            return rows, at, last, b.BAD_LENGTH
        if length > size - at - b.LENGTH_END:
            break
        end = at + b.LENGTH_END + length
        offset = big_endian(raw, at, 8)
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
            row[b.MAX_TIMESTAMP] = big_endian(raw, at + _TIMESTAMP_AT, 8) if magic == 1 else b.NO_TIMESTAMP
        last = offset
        at = end
        rows += 1
    return rows, at, last, b.COMPLETE


@compiled(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64))
def extent(data, at, end):  # type: ignore[no-untyped-def]
    """How many messages follow each other from ``at`` to ``end``, and the last one's offset; 0 if they do not fit."""
    count = np.int64(0)
    offset = np.int64(-1)
    while at < end:
        if end - at < b.LENGTH_END + _SMALLEST:
            return np.int64(0), offset
        length = big_endian(data, at + b.LENGTH_AT, 4)
        if data[at + b.MAGIC_AT] > 1 or length < _smallest(data[at + b.MAGIC_AT]) or length > end - at - b.LENGTH_END:
            return np.int64(0), offset
        offset = big_endian(data, at, 8)
        at += b.LENGTH_END + length
        count += 1
    return count, offset


@compiled(
    types.UniTuple(types.int64, 4)(
        BYTES, types.int64, types.int64, types.int64, types.int64, types.int64, types.boolean, types.int64,
        types.boolean,
    )
)  # fmt: skip
def verify(data, at, end, magic, shift, floor, compressed, requested, check):  # type: ignore[no-untyped-def]
    """Check messages that :func:`scan` or :func:`extent` has found.

    Args:
        data: the bytes that hold them.
        at: position of the first.
        end: position after the last.
        magic: the format that all of them must have.
        shift: what to add to their offsets.
        floor: smallest offset that the first may have.
        compressed: True if each must be compressed, False if none may be.
        requested: messages before this offset need no right checksum.
        check: verify checksums at all.

    Returns:
        How many are sound, the position after those, the last one's offset (``floor`` - 1 if there are none), and what
        is wrong with the next one: SOUND or another code.
    """
    count = np.int64(0)
    while at < end:
        stop = at + b.LENGTH_END + big_endian(data, at + b.LENGTH_AT, 4)
        offset = big_endian(data, at, 8)
        if offset < 0 or offset > b.MAX_BASE_OFFSET or offset + shift < floor:
            return count, at, floor - 1, BAD_ORDER
        offset += shift
        if data[at + b.MAGIC_AT] != magic:
            return count, at, floor - 1, BAD_FORMAT
        if ((data[at + _ATTRIBUTES_AT] & b.CODEC_MASK) != 0) != compressed:
            return count, at, floor - 1, NESTED
        stored = big_endian(data, at + _CRC_AT, 4) & 0xFFFFFFFF
        if check and offset >= requested and _crc32(data, at + _CRC_AT + 4, stop) != stored:
            return count, at, floor - 1, BAD_CRC
        if _fields(data, at, stop)[1] < -1:
            return count, at, floor - 1, CUT_OFF
        floor = offset + 1
        at = stop
        count += 1
    return count, at, floor - 1, SOUND


@compiled(INDEX)
def index(  # type: ignore[no-untyped-def]
    raw, scratch, table, requested, values, keys, headers,
    key_end, value_end, header_end, key_valid, value_valid, header_at, offset, timestamp, totals,
):  # fmt: skip
    """Read every record of rows of formats 0 and 1 that were verified; arguments as of ``kernel.index``."""
    value_data = np.intp(values.ctypes.data)
    key_data = np.intp(keys.ctypes.data)
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
            stop = at + b.LENGTH_END + big_endian(data, at + b.LENGTH_AT, 4)
            place = big_endian(data, at, 8) + row[b.SHIFT]
            if place >= requested:
                key, key_length, value, value_length = _fields(data, at, stop)
                millis: Any = np.int64(b.NO_TIMESTAMP)
                if row[b.FORMAT] == 1:
                    millis = big_endian(data, at + _TIMESTAMP_AT, 8) if own_time else row[b.MAX_TIMESTAMP]
                offset[records] = place
                timestamp[records] = min(max(millis, -b.MAX_MILLIS), b.MAX_MILLIS) * b.MICROS
                key_valid[records] = key_length >= 0
                value_valid[records] = value_length >= 0
                records += 1
                if key_length < 0:
                    totals[b.HAS_NULL_KEY] = 1
                elif key_length > 0:
                    copy(key_data + key_bytes, source + key, key_length)
                    key_bytes += key_length
                if value_length < 0:
                    totals[b.HAS_NULL_VALUE] = 1
                elif value_length > 0:
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
