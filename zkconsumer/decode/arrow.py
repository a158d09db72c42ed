"""BatchMaker: ``pyarrow.RecordBatch`` objects of records, which share their memory; and records of such batches."""

from __future__ import annotations

from itertools import islice, repeat
from typing import Any, Final

import pyarrow as pa

from zkconsumer.decode.columns import ConstantColumns
from zkconsumer.decode.kernels import kernels
from zkconsumer.decode.records import ALL_COLUMNS, BinaryColumn, Buffers, HeaderBytes, Records
from zkconsumer.decode.schema import HEADERS, TIMESTAMP, schema_of


class BatchMaker:
    """Makes batches. One thread uses it."""

    def __init__(self) -> None:
        self.constants: Final = ConstantColumns()

    def batch(self, records: Records, columns: tuple[str, ...]) -> Any:
        """The records as a batch with these columns."""
        return pa.RecordBatch.from_arrays([self._column(records, name) for name in columns], schema=schema_of(columns))

    def _column(self, records: Records, name: str) -> Any:
        rows, buffers = records.num_rows, records.buffers
        match name:
            case "key" | "value":
                column = buffers.key if name == "key" else buffers.value
                return self.constants.no_keys(rows) if column is None else _binary(column, records)
            case "topic":
                return self.constants.topic(records.topic, rows)
            case "partition":
                return self.constants.integer(records.partition, rows)
            case "offset":
                return _fixed(pa.int64(), buffers.offset, records)
            case "timestamp":
                return _fixed(TIMESTAMP, buffers.timestamp, records)
            case "timestampType":
                kind = buffers.types
                return (
                    self.constants.integer(kind, rows) if isinstance(kind, int) else _fixed(pa.int32(), kind, records)
                )
            case _:
                return self._headers(records)

    def _headers(self, records: Records) -> Any:
        """The column; null, and not an empty list, for a record without headers."""
        headers = records.buffers.headers
        if headers is None:
            return self.constants.no_headers(records.num_rows)
        return _header_lists(headers, records.start, records.num_rows)


def _fixed(kind: Any, data: memoryview, records: Records) -> Any:
    return pa.Array.from_buffers(kind, records.num_rows, [None, pa.py_buffer(data)], offset=records.start)


def _binary(column: BinaryColumn, records: Records) -> Any:
    return _variable(pa.binary(), records.num_rows, *column, records.start)


def _header_lists(headers: HeaderBytes, start: int, rows: int) -> Any:
    found = kernels().header_columns(headers, start, rows)
    total = len(found.content_valid)
    present, _ = kernels().bitmap(found.present)
    valid, _ = kernels().bitmap(found.content_valid)
    names = _variable(pa.string(), total, None, found.name_end, found.names)
    contents = _variable(pa.binary(), total, valid, found.content_end, found.contents)
    pairs = pa.StructArray.from_arrays([_text(names), contents], fields=list(HEADERS.value_type))
    lists = [pa.py_buffer(present), pa.py_buffer(found.list_end)]
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


def _words(array: Any, kind: str, rows: int, more: int = 0) -> memoryview:
    """The integers of an array, or the ends of a binary one."""
    size = 8 if kind == "q" else 4
    start = array.offset * size
    return memoryview(array.buffers()[1]).cast("B")[start : start + (rows + more) * size].cast(kind)


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
