"""Columns of records in plain buffers: those that an index function writes, and those that records keep."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from zkconsumer.decode.memory import ChunkMemory, allocate

HEADERS_COLUMN: Final = "headers"
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Names of the columns of a batch without headers; ``schema.py`` has their types."""
ALL_COLUMNS: Final = (*COLUMNS, HEADERS_COLUMN)


class BinaryColumn(NamedTuple):
    """A column of bytes.

    Attributes:
        valid: a bit for each row, the lowest first; 0 for a null. None if no row is null.
        end: end of each row in ``data``, preceded by the beginning of the first.
        data: the bytes of all rows.
    """

    valid: Any
    end: memoryview
    data: memoryview


class HeaderBytes(NamedTuple):
    """The headers of records, as they are in the records.

    Attributes:
        data: the bytes.
        end: the number of headers up to the end of each record, preceded by a 0.
        at: position of the headers of each record that has any.
    """

    data: memoryview
    end: memoryview
    at: memoryview


class Buffers(NamedTuple):
    """The columns of a chunk. They may be longer than needed.

    Attributes:
        offset: of each record.
        timestamp: in microseconds.
        types: types of the timestamps: one for all records, or one for each.
        key: None if all keys are null.
        value: the values.
        headers: None if no record has any.
    """

    offset: memoryview
    timestamp: memoryview
    types: int | memoryview
    key: BinaryColumn | None
    value: BinaryColumn
    headers: HeaderBytes | None


class Columns(NamedTuple):
    """Arrays that the records keep, written by an index function; they may be longer than needed."""

    offset: memoryview
    timestamp: memoryview
    value_end: memoryview

    @classmethod
    def allocate(cls, memory: ChunkMemory, capacity: int) -> Columns:
        """Allocate arrays for ``capacity`` records."""
        wide = 8 * capacity
        block = memory.take(2 * wide + 4 * (capacity + 1))
        value_end = block[2 * wide :].cast("i")
        value_end[0] = 0
        return cls(block[:wide].cast("q"), block[wide : 2 * wide].cast("q"), value_end)


class Notes:
    """The output of an index function for the assembler, valid until the next chunk is indexed.

    Args:
        capacity: maximum number of records of a chunk.
        body_bytes: maximum size of all their bodies together.
        columns: columns of the batches; keys and headers are written only if they are among them.

    Attributes:
        keys: bytes of the keys.
        headers: bytes of the headers, as they are in the records.
        key_end: end of each key, preceded by a 0.
        header_end: number of headers up to the end of each record, preceded by a 0.
        key_valid: per record, 0 if the key is null, else 1.
        value_valid: the same for the values.
        header_at: position of each record's headers in ``headers``.
        nbytes: memory of all arrays.
    """

    def __init__(self, capacity: int, body_bytes: int, columns: Collection[str]) -> None:
        self.capacity: Final = capacity
        self._body_bytes = body_bytes
        key_bytes, header_bytes = body_bytes * ("key" in columns), body_bytes * ("headers" in columns)
        ends = 4 * (capacity + 1)
        sizes = [8 * capacity, ends, ends, capacity, capacity, key_bytes, header_bytes]
        self.nbytes: Final = sum(sizes)
        block, parts, at = allocate(self.nbytes), [], 0
        for size in sizes:
            parts.append(block[at : at + size])
            at += size
        self.header_at: Final = parts[0].cast("q")
        self.key_end: Final = parts[1].cast("i")
        self.header_end: Final = parts[2].cast("i")
        self.key_valid, self.value_valid, self.keys, self.headers = parts[3:]

    def are_too_small(self, capacity: int, body_bytes: int) -> bool:
        """True if the arrays are too small for these sizes."""
        return self.capacity < capacity or self._body_bytes < body_bytes
