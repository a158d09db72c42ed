"""The decode kernel: numba functions, free of the interpreter lock, that turn record batches into Arrow buffers.

A chunk is decoded by one call of each function: :func:`scan` finds the batches, :func:`verify` checks their checksums,
:func:`index` reads every record once and writes all columns; between the two the caller decompresses. Functions that
few chunks need are in separate modules, since compiling takes seconds: ``messageset.py``, ``headerlists.py``,
``transactions.py``.

Values are most of the bytes, so they stay in their memory: each is only moved down to the end of the previous one, over
the bytes between them. So the received bytes become the buffer of an Arrow column. No byte is overwritten before it was
read, since values are shorter than the records that hold them.

The layout of record batches is Kafka's message format 2 (KIP-98; "Record Batch" in the protocol documentation);
``messageset.py`` reads the older formats.

Bytes come from the network, so every length is checked against the enclosing one before it is used.
"""

# Functions here are longer and take more arguments than elsewhere on purpose: numba takes arrays and not objects, and
# the loops are one state machine over bytes.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0913, PLR0915, PLR0917

from __future__ import annotations

from typing import Final

import numpy as np

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.checksums import crc32c
from zkconsumer.decode.compiled import (
    BYTES,
    INDEX,
    TABLE,
    compiled,
    copy,
    int16_at,
    int32_at,
    int64_at,
    move,
    types,
    varint,
)

_MAGIC: Final = 2


@compiled(types.UniTuple(types.int64, 4)(BYTES, TABLE, types.int64, types.int64, types.int64, types.int64))
def scan(raw, table, at, rows, last, requested):  # type: ignore[no-untyped-def]
    """Find the batches in ``raw`` and fill ``table``, one row per batch.

    Args:
        raw: the bytes of one partition from a fetch response.
        table: int64, shape (rows, COLUMNS); overwritten.
        at: position of the first batch.
        rows: number of rows of the table that are filled already.
        last: last offset before ``at``, -1 at the beginning.
        requested: batches that end before this offset get the source NOTHING, as do control batches.

    Returns:
        Number of filled rows, position after the last one, last offset before that position, and why the scan stopped.
    """
    size = np.int64(len(raw))
    while size - at > b.MAGIC_AT:
        if raw[at + b.MAGIC_AT] < _MAGIC:
            return rows, at, last, b.OTHER_FORMAT
        length = int32_at(raw, at + b.LENGTH_AT)
        if raw[at + b.MAGIC_AT] > _MAGIC or length < b.BATCH_HEADER_BYTES - b.LENGTH_END:
            return rows, at, last, b.BAD_LENGTH
        if length > size - at - b.LENGTH_END:
            break
        if rows == len(table):
            return rows, at, last, b.TABLE_FULL
        row = table[rows]
        row[b.START] = at
        row[b.END] = at + b.LENGTH_END + length
        row[b.BASE_OFFSET] = int64_at(raw, at)
        row[b.FORMAT] = _MAGIC
        row[b.CRC] = int32_at(raw, at + 17) & 0xFFFFFFFF
        row[b.ATTRIBUTES] = int16_at(raw, at + b.CRC_START)
        row[b.LAST_DELTA] = int32_at(raw, at + b.LAST_DELTA_AT)
        row[b.BASE_TIMESTAMP] = int64_at(raw, at + 27)
        row[b.MAX_TIMESTAMP] = int64_at(raw, at + 35)
        row[b.PRODUCER_ID] = int64_at(raw, at + 43)
        row[b.COUNT] = int32_at(raw, at + 57)
        row[b.BODY] = at + b.BATCH_HEADER_BYTES
        row[b.BODY_END] = row[b.END]
        row[b.SHIFT] = 0
        row[b.KEPT] = 0
        if row[b.BASE_OFFSET] <= last or row[b.BASE_OFFSET] > b.MAX_BASE_OFFSET or row[b.LAST_DELTA] < 0:
            return rows, at, last, b.BAD_HEADER
        if row[b.COUNT] < 0 or row[b.COUNT] > row[b.LAST_DELTA] + 1:
            return rows, at, last, b.BAD_HEADER
        if row[b.ATTRIBUTES] & b.CODEC_MASK == 0 and row[b.COUNT] * b.SMALLEST_RECORD > row[b.END] - row[b.BODY]:
            return rows, at, last, b.BAD_HEADER
        last = row[b.BASE_OFFSET] + row[b.LAST_DELTA]
        row[b.SOURCE] = b.NOTHING if last < requested or row[b.ATTRIBUTES] & b.CONTROL else b.RAW
        at = row[b.END]
        rows += 1
    return rows, at, last, b.COMPLETE


@compiled(types.UniTuple(types.int64, 2)(BYTES, TABLE, types.int64))
def verify(raw, table, requested):  # type: ignore[no-untyped-def]
    """Check the checksums of rows that :func:`scan` has found, up to the first wrong one.

    Returns:
        Number of rows before it, which are valid or end before the requested offset, and the checksum computed for it.
    """
    start = np.intp(raw.ctypes.data)
    for current in range(len(table)):
        row = table[current]
        if row[b.BASE_OFFSET] + row[b.LAST_DELTA] >= requested:
            at = row[b.START] + b.CRC_START
            found = crc32c(start + at, row[b.END] - at)
            if found != row[b.CRC]:
                return current, found
    return len(table), 0


@compiled(types.UniTuple(types.int64, 4)(TABLE))
def survey(table):  # type: ignore[no-untyped-def]
    """Sums over the batches of a table; batches without a source are ignored.

    Returns:
        The number of records that they announce, the length of all bodies together, the ``b.IN_...`` bits of their
        sources and states, and the ``b.TIME_...`` bits of their timestamps' types.
    """
    records = np.int64(0)
    body_bytes = np.int64(0)
    sources = np.int64(0)
    times = np.int64(0)
    for current in range(len(table)):
        row = table[current]
        if row[b.SOURCE] == b.NOTHING:
            continue
        records += row[b.COUNT]
        body_bytes += row[b.BODY_END] - row[b.BODY]
        if row[b.SOURCE] == b.SCRATCH:
            sources |= b.IN_SCRATCH
        elif row[b.ATTRIBUTES] & b.CODEC_MASK:
            sources |= b.IN_COMPRESSED
        else:
            sources |= b.IN_RAW
        if row[b.FORMAT] < _MAGIC:
            sources |= b.IN_OLD_FORMAT
        if row[b.FORMAT] == 0:
            times |= b.TIME_NONE
        else:
            times |= b.TIME_APPENDED if row[b.ATTRIBUTES] & b.LOG_APPEND_TIME else b.TIME_CREATED
    return records, body_bytes, sources, times


@compiled(INDEX)
def index(  # type: ignore[no-untyped-def]
    raw, scratch, table, requested, values, keys, headers,
    key_end, value_end, header_end, key_valid, value_valid, header_at, offset, timestamp, totals,
):  # fmt: skip
    """Read every record of the batches in ``table``, all of format 2, up to the first fault.

    Args:
        raw: the bytes that were scanned.
        scratch: decompressed batches.
        table: rows from :func:`scan`, with current source and body; column KEPT is written.
        requested: records before this offset are skipped.
        values: receives the values one after the other. It may be ``raw`` or ``scratch``, if that is the source of all
            rows. An empty array means that values are not wanted: they are checked, but not copied, and their Arrow
            offsets stay 0. The same holds for the next two.
        keys: receives the keys; as long as all bodies in the table together, like the next.
        headers: receives the headers of each record unchanged.
        key_end: Arrow offsets of the keys; like the next two, of length records + 1 and beginning with a 0.
        value_end: Arrow offsets of the values.
        header_end: Arrow offsets of the lists of headers.
        key_valid: per record, 0 if the key is null, else 1.
        value_valid: the same for the values.
        header_at: position of each record's headers in ``headers``.
        offset: column.
        timestamp: column, in microseconds; a value out of range becomes the nearest one in range.
        totals: int64, length TOTALS: on entry the totals of earlier rows of the chunk. On return all rows before
            ``totals[ROWS]`` of this table are valid; that row, if there is one, is faulty, and the other totals are
            those of the rows before it.
    """
    value_data = np.intp(values.ctypes.data)
    key_data = np.intp(keys.ctypes.data)
    header_data = np.intp(headers.ctypes.data)
    with_keys = len(keys) > 0
    with_values = len(values) > 0
    with_headers = len(headers) > 0
    records = totals[b.RECORDS]
    key_bytes = totals[b.KEY_BYTES]
    value_bytes = totals[b.VALUE_BYTES]
    header_count = totals[b.HEADER_COUNT]
    header_key_bytes = totals[b.HEADER_KEY_BYTES]
    header_value_bytes = totals[b.HEADER_VALUE_BYTES]
    header_bytes = totals[b.HEADER_BYTES]
    for current in range(len(table)):
        totals[b.ROWS] = current
        totals[b.RECORDS] = records
        totals[b.KEY_BYTES] = key_bytes
        totals[b.VALUE_BYTES] = value_bytes
        totals[b.HEADER_COUNT] = header_count
        totals[b.HEADER_KEY_BYTES] = header_key_bytes
        totals[b.HEADER_VALUE_BYTES] = header_value_bytes
        totals[b.HEADER_BYTES] = header_bytes
        row = table[current]
        if row[b.SOURCE] == b.NOTHING:
            continue
        data = raw if row[b.SOURCE] == b.RAW else scratch
        source = np.intp(data.ctypes.data)
        at = row[b.BODY]
        end = row[b.BODY_END]
        previous = np.int64(-1)
        before = records
        for _ in range(row[b.COUNT]):
            length, at = varint(data, at, end)
            if at < 0 or length < 1 or length > end - at:
                return
            stop = at + length
            delta_ms, at = varint(data, at + 1, stop)  # one byte of attributes, unused
            if at < 0:
                return
            delta, at = varint(data, at, stop)
            if at < 0 or delta <= previous or delta > row[b.LAST_DELTA]:
                return
            previous = delta
            key_length, at = varint(data, at, stop)
            if at < 0 or key_length < -1 or key_length > stop - at:
                return
            key = at
            if key_length > 0:
                at += key_length
            value_length, at = varint(data, at, stop)
            if at < 0 or value_length < -1 or value_length > stop - at:
                return
            value = at
            if value_length > 0:
                at += value_length
            count, at = varint(data, at, stop)
            if at < 0 or count < 0:
                return
            header = at
            keep = row[b.BASE_OFFSET] + delta >= requested
            for _ in range(count):
                name_length, at = varint(data, at, stop)
                if at < 0 or name_length < 0 or name_length > stop - at:
                    return
                at += name_length
                content_length, at = varint(data, at, stop)
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
            offset[records] = row[b.BASE_OFFSET] + delta
            millis = row[b.MAX_TIMESTAMP] if row[b.ATTRIBUTES] & b.LOG_APPEND_TIME else row[b.BASE_TIMESTAMP] + delta_ms
            timestamp[records] = min(max(millis, -b.MAX_MILLIS), b.MAX_MILLIS) * b.MICROS
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
            if count > 0 and with_headers:
                copy(header_data + header_bytes, source + header, stop - header)
                header_at[records - 1] = header_bytes
                header_bytes += stop - header
                header_count += count
            key_valid[records - 1] = key_length >= 0
            value_valid[records - 1] = value_length >= 0
            key_end[records] = key_bytes
            value_end[records] = value_bytes
            header_end[records] = header_count
        if at != end:
            return
        row[b.KEPT] = records - before
    totals[b.ROWS] = len(table)
    totals[b.RECORDS] = records
    totals[b.KEY_BYTES] = key_bytes
    totals[b.VALUE_BYTES] = value_bytes
    totals[b.HEADER_COUNT] = header_count
    totals[b.HEADER_KEY_BYTES] = header_key_bytes
    totals[b.HEADER_VALUE_BYTES] = header_value_bytes
    totals[b.HEADER_BYTES] = header_bytes
