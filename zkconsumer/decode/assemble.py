"""Assembler: builds :class:`~zkconsumer.decode.records.Records` of a chunk, without copying the values."""

from __future__ import annotations

from typing import Final, NamedTuple

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.buffers import BinaryColumn, Buffers, Columns, HeaderBytes, Notes
from zkconsumer.decode.kernels import Kernels
from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.decode.records import Records

_TIMESTAMP_TYPES: Final = {b.TIME_CREATED: 0, b.TIME_APPENDED: 1, b.TIME_NONE: b.NO_TIMESTAMP}

_SMALL: Final = 1 << 20
"""Constant columns up to this size do not count as memory of their batch: usually others share them."""
_BATCH_BYTES: Final = 1 << 24
_OTHER_WIDTHS: Final = 20  # partition, timestamp type, null keys and null headers; the name of the topic comes to it

_WRITTEN_BY_INDEX: Final = frozenset({"offset", "timestamp", "value"})
"""Columns that are built from a part of ``Columns``."""


def constant_bytes(topic: str, rows: int) -> int:
    """The size of the constant columns of a batch, at most."""
    return rows * (len(topic) + _OTHER_WIDTHS)


def most_rows(topic: str) -> int:
    """The number of rows up to which the constant columns of a batch take at most 16 MiB; a power of two.

    A record may take less than a byte in a compressed batch, but the name of its topic takes up to 249.
    """
    return 1 << (_BATCH_BYTES // constant_bytes(topic, 1)).bit_length() - 1


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
