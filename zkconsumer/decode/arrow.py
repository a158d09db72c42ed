"""``pyarrow.RecordBatch`` objects of records, which share their memory; and records of such batches."""

from __future__ import annotations

from itertools import islice, repeat
from typing import Any, Literal

import pyarrow as pa

from zkconsumer.decode.buffers import ALL_COLUMNS, BinaryColumn, Buffers, HeaderBytes
from zkconsumer.decode.columns import constants
from zkconsumer.decode.kernelloader import kernels
from zkconsumer.decode.records import Records
from zkconsumer.decode.schema import HEADERS, TIMESTAMP, schema_of


def batch_of(records: Records, columns: tuple[str, ...] | None = None) -> Any:
    """The records as a batch with these columns, in the schema of ``decode/schema.py``; None for all of them."""
    names = records.columns if columns is None else columns
    return pa.RecordBatch.from_arrays([_column(records, name) for name in names], schema=schema_of(names))


def _column(records: Records, name: str) -> Any:
    rows, buffers = records.num_rows, records.buffers
    match name:
        case "key" | "value":
            column = buffers.key if name == "key" else buffers.value
            return constants().no_keys(rows) if column is None else _binary(column, records)
        case "topic":
            return constants().topic(records.topic, rows)
        case "partition":
            return constants().integer(records.partition, rows)
        case "offset":
            return _fixed(pa.int64(), buffers.offset, records)
        case "timestamp":
            return _fixed(TIMESTAMP, buffers.timestamp, records)
        case "timestampType":
            kind = buffers.types
            return constants().integer(kind, rows) if isinstance(kind, int) else _fixed(pa.int32(), kind, records)
        case _:
            headers = buffers.headers  # null, and not an empty list, for a record without any
            return constants().no_headers(rows) if headers is None else _header_lists(headers, records.start, rows)


def _fixed(kind: Any, data: memoryview, records: Records) -> Any:
    return pa.Array.from_buffers(kind, records.num_rows, [None, pa.py_buffer(data)], offset=records.start)


def _binary(column: BinaryColumn, records: Records) -> Any:
    return _variable(pa.binary(), records.num_rows, *column, records.start)


def _header_lists(headers: HeaderBytes, start: int, rows: int) -> Any:
    columns = kernels().header_columns(headers, start, rows)
    total = len(columns.content_valid)
    present, _ = kernels().bitmap(columns.present)
    valid, _ = kernels().bitmap(columns.content_valid)
    names = _variable(pa.string(), total, None, columns.name_end, columns.names)
    contents = _variable(pa.binary(), total, valid, columns.content_end, columns.contents)
    pairs = pa.StructArray.from_arrays([_text(names), contents], fields=list(HEADERS.value_type))
    lists = [pa.py_buffer(present), pa.py_buffer(columns.list_end)]
    return pa.Array.from_buffers(HEADERS, rows, lists, children=[pairs])


def _variable(kind: Any, rows: int, valid: Any, end: memoryview, data: memoryview, start: int = 0) -> Any:
    present = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(kind, rows, [present, pa.py_buffer(end), pa.py_buffer(data)], offset=start)


def _text(names: Any) -> Any:
    """``names`` with invalid UTF-8 replaced as in Java, since a string column must be valid UTF-8."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([raw.decode(errors="replace") for raw in names.cast(pa.binary()).to_pylist()], pa.string())
    return names


def records_of(batch: Any) -> Records:
    """The records of a batch of one partition, which is not empty and shares its memory; without their headers."""
    offset, timestamp, types = (batch.column(name) for name in ("offset", "timestamp", "timestampType"))
    rows = batch.num_rows
    buffers = Buffers(
        _words(offset, "q", rows),
        _words(timestamp, "q", rows),
        _words(types, "i", rows),
        _column_of(batch.column("key"), rows),
        _column_of(batch.column("value"), rows),
        None,
    )
    topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
    return Records(topic, partition, ALL_COLUMNS, buffers, 0, rows)


def _words(array: Any, kind: Literal["q", "i"], rows: int, extra: int = 0) -> memoryview:
    """The integers of an array, or the ends of a binary one."""
    size = 8 if kind == "q" else 4
    start = array.offset * size
    words: memoryview = memoryview(array.buffers()[1]).cast("B")[start : start + (rows + extra) * size].cast(kind)
    return words


def _column_of(array: Any, rows: int) -> BinaryColumn:
    data = array.buffers()[2]
    valid = None
    if array.null_count:
        valid, _ = kernels().bitmap(memoryview(bytearray(array.is_valid().to_pylist())))
    return BinaryColumn(valid, _words(array, "i", rows, 1), memoryview(b"" if data is None else data).cast("B"))


def headers_of(batch: Any) -> list[tuple[tuple[str, bytes | None], ...]] | None:
    """The headers of each record of a batch; None if no record has any."""
    index = batch.schema.get_field_index("headers")
    column = None if index < 0 else batch.column(index)
    if column is None or column.null_count == len(column):
        return None
    flat = column.flatten()
    pairs = zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True)
    lengths = column.value_lengths().fill_null(0).to_pylist()
    return list(map(tuple, map(islice, repeat(pairs), lengths)))
