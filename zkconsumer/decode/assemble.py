"""Assembler: builds :class:`~zkconsumer.decode.records.Records` of a chunk, without copying the values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.kernels import Kernels
from zkconsumer.decode.memory import ChunkMemory, allocate
from zkconsumer.decode.records import BinaryColumn, Buffers, HeaderBytes, Records

_TIMESTAMP_TYPES: Final = {b.TIME_CREATED: 0, b.TIME_APPENDED: 1, b.TIME_NONE: b.NO_TIMESTAMP}

_SMALL: Final = 1 << 20
"""Constant columns up to this size do not count as memory of their batch: usually others share them."""
_BATCH_BYTES: Final = 1 << 24
_OTHER_WIDTHS: Final = 20  # partition, timestamp type, null keys and null headers; the name of the topic comes to it

_WRITTEN_BY_INDEX: Final = frozenset({"offset", "timestamp", "value"})
"""Columns that are built from a part of :class:`Columns`."""


def constant_bytes(topic: str, rows: int) -> int:
    """The size of the constant columns of a batch, at most."""
    return rows * (len(topic) + _OTHER_WIDTHS)


def most_rows(topic: str) -> int:
    """The number of rows up to which the constant columns of a batch take at most 16 MiB; a power of two.

    A record may take less than a byte in a compressed batch, but the name of its topic takes up to 249.
    """
    return 1 << (_BATCH_BYTES // constant_bytes(topic, 1)).bit_length() - 1


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


class Indexed(NamedTuple):
    """The result of an index function: the batches, types of their timestamps, their values, and the other columns."""

    table: BatchTable
    times: int
    values: memoryview
    columns: Columns
    notes: Notes
    totals: list[int]


class Assembler:
    """Builds records. One thread uses it.

    Args:
        kernels: the kernels.
        memory: provides the memory for copied bytes.
    """

    def __init__(self, kernels: Kernels, memory: ChunkMemory) -> None:
        self._kernels = kernels
        self._memory = memory

    def records(self, topic: str, partition: int, indexed: Indexed, columns: tuple[str, ...]) -> list[Records]:
        """The records of a chunk, whose batches have these columns.

        One object, unless the constant columns of its batch would be too large.
        """
        count = indexed.totals[b.RECORDS]
        rows = min(count, most_rows(topic if "topic" in columns else ""))
        buffers = Buffers(
            indexed.columns.offset,
            indexed.columns.timestamp,
            self._timestamp_types(indexed),
            self._keys(indexed, count) if "key" in columns else None,
            self._values(indexed, count),
            self._headers(indexed, count),
        )
        everything = Records(topic, partition, columns, buffers, 0, count)
        return [everything.slice(start, rows) for start in range(0, count, rows)]

    def _keys(self, indexed: Indexed, count: int) -> BinaryColumn | None:
        totals, notes = indexed.totals, indexed.notes
        valid = None
        if totals[b.HAS_NULL_KEY]:
            valid, present = self._kernels.bitmap(notes.key_valid[:count])
            if not present:
                return None
        return BinaryColumn(
            valid, self._copy(notes.key_end[: count + 1]), self._copy(notes.keys[: totals[b.KEY_BYTES]])
        )

    def _values(self, indexed: Indexed, count: int) -> BinaryColumn:
        totals = indexed.totals
        values = _without_slack(indexed.values, totals[b.VALUE_BYTES])[: totals[b.VALUE_BYTES]]
        valid = None
        if totals[b.HAS_NULL_VALUE]:
            valid, _ = self._kernels.bitmap(indexed.notes.value_valid[:count])
        return BinaryColumn(valid, indexed.columns.value_end, values)

    def _headers(self, indexed: Indexed, count: int) -> HeaderBytes | None:
        totals, notes = indexed.totals, indexed.notes
        if not totals[b.HEADER_COUNT]:
            return None
        data = self._copy(notes.headers[: totals[b.HEADER_BYTES]])
        return HeaderBytes(data, self._copy(notes.header_end[: count + 1]), self._copy(notes.header_at[:count]))

    def _copy(self, array: memoryview) -> memoryview:
        copied = self._memory.take(array.nbytes)
        copied[:] = array.cast("B")
        return copied.cast(array.format)  # type: ignore[call-overload, no-any-return]

    def _timestamp_types(self, indexed: Indexed) -> int | memoryview:
        """0 for create time, 1 for log-append time, -1 for none: for all records, or for each.

        It differs inside a chunk only if the topic was reconfigured.
        """
        if indexed.times in _TIMESTAMP_TYPES:
            return _TIMESTAMP_TYPES[indexed.times]
        types = bytearray()
        for number in range(len(indexed.table)):
            row = indexed.table.row(number)
            value = b.NO_TIMESTAMP if row[b.FORMAT] == 0 else int(row[b.ATTRIBUTES] & b.LOG_APPEND_TIME != 0)
            types += value.to_bytes(4, "little", signed=True) * row[b.KEPT]
        return memoryview(types).cast("i")


def memory_of(indexed: Indexed, records: Records, rows: int) -> int:
    """The size of the memory that the records of a chunk hold together.

    Args:
        indexed: what the records were built of.
        records: the first of them.
        rows: number of rows of one batch.
    """
    columns, key, headers = records.columns, records.buffers.key, records.buffers.headers
    nbytes = 0
    if not _WRITTEN_BY_INDEX.isdisjoint(columns):
        nbytes += sum(array.nbytes for array in indexed.columns)  # they share one block
    if "value" in columns:
        used = indexed.totals[b.VALUE_BYTES]
        nbytes += len(indexed.values) if _fits(indexed.values, used) else used
    if key is not None:
        nbytes += key.end.nbytes + key.data.nbytes
    if headers is not None:
        nbytes += 2 * headers.data.nbytes + headers.end.nbytes + headers.at.nbytes  # also as columns of a batch
    constants = constant_bytes(records.topic if "topic" in columns else "", rows)
    return nbytes + constants if constants > _SMALL else nbytes


def _fits(values: memoryview, used: int) -> bool:
    """False if the values would hold more than twice the memory that they need."""
    return 2 * used >= len(values)


def _without_slack(values: memoryview, used: int) -> memoryview:
    """The values' bytes; copied if they would hold too much memory."""
    return values[:used] if _fits(values, used) else memoryview(bytearray(values[:used]))
