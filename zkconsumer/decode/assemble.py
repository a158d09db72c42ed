"""Assembler: builds a ``pyarrow.RecordBatch`` from the index of a chunk's records, without copying the values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.columns import ConstantColumns, constant_bytes, most_rows, variable_column
from zkconsumer.decode.kernelloader import headerlists
from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.decode.schema import TIMESTAMP, schema_of

_TIMESTAMP_TYPES: Final = {b.TIME_CREATED: 0, b.TIME_APPENDED: 1, b.TIME_NONE: b.NO_TIMESTAMP}

_SMALL: Final = 1 << 20
"""Constant columns up to this size do not count as memory of their batch: usually others share them."""

_WRITTEN_BY_INDEX: Final = frozenset({"offset", "timestamp", "value"})
"""Columns that are built from a part of :class:`Columns`."""


class Columns(NamedTuple):
    """Arrays that the batch keeps, written by an index function; they may be longer than needed."""

    offset: Any
    timestamp: Any
    value_end: Any

    @classmethod
    def allocate(cls, memory: ChunkMemory, capacity: int) -> Columns:
        """Allocate arrays for ``capacity`` records."""
        wide = 8 * capacity
        block = memory.take(2 * wide + 4 * (capacity + 1))
        value_end = np.frombuffer(block[2 * wide :], np.int32)
        value_end[0] = 0
        return cls(np.frombuffer(block[:wide], np.int64), np.frombuffer(block[wide : 2 * wide], np.int64), value_end)


class Notes:
    """The output of an index function for the assembler, valid until the next chunk is indexed.

    Args:
        capacity: maximum number of records of a chunk.
        body_bytes: maximum size of all their bodies together.
        columns: columns of the batches; keys and headers are written only if they are among them.

    Attributes:
        keys: bytes of the keys; for this and the other attributes see ``kernel.index``.
        headers: bytes of the headers.
    """

    def __init__(self, capacity: int, body_bytes: int, columns: Collection[str]) -> None:
        self._body_bytes = body_bytes
        self.keys = np.empty(body_bytes if "key" in columns else 0, np.uint8)
        self.headers = np.empty(body_bytes if "headers" in columns else 0, np.uint8)
        self.key_end = np.zeros(capacity + 1, np.int32)
        self.header_end = np.zeros(capacity + 1, np.int32)
        self.key_valid = np.empty(capacity, np.uint8)
        self.value_valid = np.empty(capacity, np.uint8)
        self.header_at = np.empty(capacity, np.int64)
        self.nbytes = sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))
        """Memory of all arrays."""

    def are_too_small(self, capacity: int, body_bytes: int) -> bool:
        """True if the arrays are too small for these sizes."""
        return len(self.key_valid) < capacity or self._body_bytes < body_bytes


class Indexed(NamedTuple):
    """The result of an index function: the batches, types of their timestamps, their values, and the other columns."""

    table: Any
    times: int
    values: Any
    columns: Columns
    notes: Notes
    totals: list[int]


class Assembler:
    """Builds batches. One thread uses it.

    Args:
        memory: provides the memory for copied bytes.
    """

    def __init__(self, memory: ChunkMemory) -> None:
        self._memory = memory
        self.constants: Final = ConstantColumns()

    def batches(self, topic: str, partition: int, indexed: Indexed, columns: tuple[str, ...]) -> tuple[list[Any], int]:
        """The records in batches with these columns, and the size of the memory that these batches hold together.

        One batch, unless its constant columns would be too large.
        """
        named = topic if "topic" in columns else ""
        count = indexed.totals[b.RECORDS]
        rows = min(count, most_rows(named))
        built = [self._column(name, topic, partition, indexed, rows) for name in columns]
        arrays, schema = [array for array, _ in built], schema_of(columns)
        nbytes = sum(held for _, held in built)
        if not _WRITTEN_BY_INDEX.isdisjoint(columns):
            nbytes += sum(array.nbytes for array in indexed.columns)  # they share one block
        if (constants := constant_bytes(named, rows)) > _SMALL:
            nbytes += constants
        if rows == count:
            return [pa.RecordBatch.from_arrays(arrays, schema=schema)], nbytes
        return [
            pa.RecordBatch.from_arrays(
                [array.slice(start if len(array) == count else 0, rows)[: count - start] for array in arrays],
                schema=schema,
            )
            for start in range(0, count, rows)
        ], nbytes

    def _column(self, name: str, topic: str, partition: int, indexed: Indexed, rows: int) -> tuple[Any, int]:
        """A column, and its size without the arrays of ``indexed.columns``; constant ones have size 0, and ``rows``."""
        count = indexed.totals[b.RECORDS]
        match name:
            case "key":
                return self._keys(indexed, count, rows)
            case "value":
                return _values(indexed, count)
            case "topic":
                return self.constants.topic(topic, rows), 0
            case "partition":
                return self.constants.integer(partition, rows), 0
            case "offset":
                return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(indexed.columns.offset)]), 0
            case "timestamp":
                return pa.Array.from_buffers(TIMESTAMP, count, [None, pa.py_buffer(indexed.columns.timestamp)]), 0
            case "timestampType":
                return self._timestamp_types(indexed, rows), 0
            case _:
                return self._headers(indexed, rows)

    def _headers(self, indexed: Indexed, rows: int) -> tuple[Any, int]:
        if indexed.totals[b.HEADER_COUNT] == 0:
            return self.constants.no_headers(rows), 0
        headers = headerlists().header_lists(indexed.notes, indexed.totals)
        return headers, headers.nbytes

    def _keys(self, indexed: Indexed, count: int, rows: int) -> tuple[Any, int]:
        totals, notes = indexed.totals, indexed.notes
        valid = notes.key_valid[:count] if totals[b.HAS_NULL_KEY] else None
        if valid is not None and not valid.any():
            return self.constants.no_keys(rows), 0
        ends, data = self._copy(notes.key_end[: count + 1]), self._copy(notes.keys[: totals[b.KEY_BYTES]])
        return variable_column(pa.binary(), count, ends, data, valid), ends.nbytes + data.nbytes

    def _copy(self, array: Any) -> Any:
        copied = np.frombuffer(self._memory.take(array.nbytes), array.dtype)
        copied[:] = array
        return copied

    def _timestamp_types(self, indexed: Indexed, rows: int) -> Any:
        """0 for create time, 1 for log-append time, -1 for none.

        It differs inside a chunk only if the topic was reconfigured.
        """
        if indexed.times in _TIMESTAMP_TYPES:
            return self.constants.integer(_TIMESTAMP_TYPES[indexed.times], rows)
        table = indexed.table
        types = (table[:, b.ATTRIBUTES] & b.LOG_APPEND_TIME != 0).astype(np.int32)
        types[table[:, b.FORMAT] == 0] = b.NO_TIMESTAMP
        return pa.array(np.repeat(types, table[:, b.KEPT]))


def _values(indexed: Indexed, count: int) -> tuple[Any, int]:
    """The column, and its size in bytes."""
    totals = indexed.totals
    values, held = _without_slack(indexed.values, totals[b.VALUE_BYTES])
    valid = indexed.notes.value_valid[:count] if totals[b.HAS_NULL_VALUE] else None
    return variable_column(pa.binary(), count, indexed.columns.value_end, values, valid), held


def _without_slack(values: Any, used: int) -> tuple[Any, int]:
    """The values' bytes and their memory size; copied if they would hold more than twice the memory that they need."""
    return (values[:used], len(values)) if 2 * used >= len(values) else (values[:used].copy(), used)
