"""Assembler: from the index of a chunk's records to a ``pyarrow.RecordBatch`` whose buffers are written once."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from zkconsumer.fetch import batchtable as b
from zkconsumer.fetch.columns import ConstantColumns
from zkconsumer.fetch.schema import HEADERS, SCHEMA, SCHEMA_WITH_HEADERS, TIMESTAMP


class Columns(NamedTuple):
    """The arrays that :func:`zkconsumer.fetch.kernel.index` writes, in its order; they may be longer than needed."""

    key_end: Any
    value_end: Any
    header_end: Any
    key_at: Any
    value_at: Any
    header_at: Any
    offset: Any
    timestamp: Any


class Indexed(NamedTuple):
    """What ``index`` read: the bytes, the batches in them, the columns that it wrote, and its totals."""

    raw: Any
    scratch: Any
    table: Any
    columns: Columns
    totals: list[int]


class Assembler:
    """Builds batches. One thread uses it.

    Args:
        kernel: the module :mod:`zkconsumer.fetch.kernel`.
        headers: add the column ``headers``.
    """

    def __init__(self, kernel: ModuleType, *, headers: bool) -> None:
        self._k = kernel
        self._headers = headers
        self._constants = ConstantColumns()

    def batch(self, topic: str, partition: int, indexed: Indexed) -> tuple[Any, int]:
        """The batch, and the bytes of memory that it alone holds."""
        k, totals, columns = self._k, indexed.totals, indexed.columns
        count = totals[b.RECORDS]
        source = (indexed.raw, indexed.scratch, indexed.table)
        key_data = np.empty(totals[b.KEY_BYTES], np.uint8)
        value_data = np.empty(totals[b.VALUE_BYTES], np.uint8)
        k.gather(*source, columns.key_end, columns.value_end, columns.key_at, columns.value_at, key_data, value_data)
        keys_valid = columns.key_at[:count] >= 0 if totals[b.HAS_NULL_KEY] else None
        values_valid = columns.value_at[:count] >= 0 if totals[b.HAS_NULL_VALUE] else None
        arrays = [
            _variable(pa.binary(), count, columns.key_end, key_data, keys_valid),
            _variable(pa.binary(), count, columns.value_end, value_data, values_valid),
            self._constants.topic(topic, count),
            self._constants.integer(partition, count),
            pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offset)]),
            pa.Array.from_buffers(TIMESTAMP, count, [None, pa.py_buffer(columns.timestamp)]),
            self._timestamp_types(indexed.table, count),
        ]
        written = (key_data, value_data, columns.key_end, columns.value_end, columns.offset, columns.timestamp)
        nbytes = sum(array.nbytes for array in written)
        if not self._headers:
            return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), nbytes
        headers = self._header_lists(indexed, count)
        nbytes += headers.nbytes if totals[b.HEADER_COUNT] else 0
        return pa.RecordBatch.from_arrays([*arrays, headers], schema=SCHEMA_WITH_HEADERS), nbytes

    def _timestamp_types(self, table: Any, count: int) -> Any:
        """0 for create time, 1 for log-append time, -1 for none.

        It differs inside a chunk only where the topic was reconfigured.
        """
        kept = table[:, b.KEPT]
        types = (table[:, b.ATTRIBUTES] & b.LOG_APPEND_TIME != 0).astype(np.int32)
        types[table[:, b.FORMAT] == 0] = b.NO_TIMESTAMP
        types = types[kept > 0]
        if (types == types[0]).all():
            return self._constants.integer(int(types[0]), count)
        return pa.array(np.repeat(types, kept[kept > 0]))

    def _header_lists(self, indexed: Indexed, count: int) -> Any:
        k, columns = self._k, indexed.columns
        total = indexed.totals[b.HEADER_COUNT]
        if total == 0:
            return self._constants.no_headers(count)
        source = (indexed.raw, indexed.scratch, indexed.table)
        name_end = np.zeros(total + 1, np.int32)
        content_end = np.zeros(total + 1, np.int32)
        valid = np.empty(total, np.uint8)
        name_data = np.empty(indexed.totals[b.HEADER_KEY_BYTES], np.uint8)
        content_data = np.empty(indexed.totals[b.HEADER_VALUE_BYTES], np.uint8)
        out = (name_end, content_end, valid, name_data, content_data)
        k.gather_headers(*source, columns.header_end, columns.header_at, *out)
        names = _text(_variable(pa.string(), total, name_end, name_data))
        contents = _variable(pa.binary(), total, content_end, content_data, valid)
        pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADERS.value_type))
        present = _bitmap(np.diff(columns.header_end[: count + 1]) > 0)
        return pa.Array.from_buffers(HEADERS, count, [present, pa.py_buffer(columns.header_end)], children=[pairs])


def _variable(kind: Any, count: int, ends: Any, data: Any, valid: Any = None) -> Any:
    bitmap = None if valid is None else _bitmap(valid)
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(ends), pa.py_buffer(data)])


def _bitmap(valid: Any) -> Any:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _text(names: Any) -> Any:
    """``names`` with what is not UTF-8 replaced as Java does it; a string column must not hold anything else."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([raw.decode(errors="replace") for raw in names.cast(pa.binary()).to_pylist()], pa.string())
    return names
