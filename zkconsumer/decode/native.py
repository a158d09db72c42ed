"""NativeKernels: the kernels in C (``native/``), called through ctypes.

Functions that only touch buffers release the interpreter lock while they run.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from ctypes import c_int, c_int64, c_uint32, c_void_p, py_object
from typing import Any, ClassVar, Final

from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.buffers import BinaryColumn, HeaderBytes
from zkconsumer.decode.kernels import CheckProgress, HeaderColumns, IndexTask, TableSurvey
from zkconsumer.decode.records import Records
from zkconsumer.model import Message

KEEPS_HASH: Final = sys.version_info >= (3, 14)
"""From Python 3.14 on, a tuple keeps its hash, and a mark until it is computed."""

_FUNCTIONS: Final[dict[str, tuple[Any, list[Any]]]] = {
    "zk_scan": (c_int, [c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64]),
    "zk_scan_messages": (c_int, [c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64]),
    "zk_verify": (c_int64, [c_void_p, c_int64, c_void_p, c_int64, c_int64, c_void_p]),
    "zk_verify_messages": (c_int, [c_void_p, c_int64, c_void_p, c_int64, c_int64, c_int64, c_int, c_void_p]),
    "zk_extent": (c_int64, [c_void_p, c_int64, c_void_p]),
    "zk_verify_inside": (c_int, [c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64, c_int]),
    "zk_survey": (None, [c_void_p, c_int64, c_void_p]),
    "zk_piece": (c_int64, [c_void_p, c_int64]),
    "zk_compressed": (c_int64, [c_void_p, c_int64, c_void_p]),
    "zk_within": (c_int64, [c_void_p, c_int64, c_int64]),
    "zk_exclude_aborted": (
        None,
        [c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p],
    ),
    "zk_index": (c_int, [c_void_p]),
    "zk_index_messages": (c_int, [c_void_p]),
    "zk_bitmap": (c_int64, [c_void_p, c_int64, c_void_p]),
    "zk_headers": (c_int, [c_void_p, c_int64, c_void_p, c_void_p, c_int64, *[c_void_p] * 8]),
    "zk_crc32c": (c_uint32, [c_void_p, c_int64]),
    "zk_crc32": (c_uint32, [c_void_p, c_int64]),
    "zk_use_instructions": (c_int, [c_int]),
}
_OBJECT_FUNCTIONS: Final[dict[str, tuple[Any, list[Any]]]] = {
    "zk_address": (c_void_p, [py_object]),
    "zk_messages": (c_int64, [c_void_p]),
    "zk_header_tuples": (py_object, [c_void_p, c_int64, c_void_p, c_void_p, c_int64, py_object, py_object]),
}


class _IndexTask(ctypes.Structure):
    """``index_task`` in ``native/kernels.h``; see :class:`~zkconsumer.decode.kernels.IndexTask`."""

    _fields_: ClassVar = [
        ("raw", c_void_p), ("raw_bytes", c_int64), ("scratch", c_void_p), ("scratch_bytes", c_int64),
        ("table", c_void_p), ("rows", c_int64), ("requested", c_int64), ("values", c_void_p),
        ("values_room", c_int64), ("keys", c_void_p), ("keys_room", c_int64), ("headers", c_void_p),
        ("headers_room", c_int64), ("capacity", c_int64), ("offset", c_void_p), ("timestamp", c_void_p),
        ("value_end", c_void_p), ("key_end", c_void_p), ("header_end", c_void_p), ("header_at", c_void_p),
        ("key_valid", c_void_p), ("value_valid", c_void_p), ("totals", c_void_p),
    ]  # fmt: skip


class _BinaryColumn(ctypes.Structure):
    """``binary_column`` in ``native/messages.c``."""

    _fields_: ClassVar = [
        ("valid", c_void_p), ("valid_at", c_int64), ("end", c_void_p), ("data", c_void_p), ("bytes", c_int64),
    ]  # fmt: skip


class _MessageTask(ctypes.Structure):
    """``message_task`` in ``native/messages.c``.

    ``out`` receives a message for each row; ``headers`` is a list of the headers of each row, or NULL if no row has
    any. ``type`` is the type of all timestamps if ``types`` is NULL. ``is_tracked`` is 0 if the class of the messages
    refers to nothing that could refer to a message.
    """

    _fields_: ClassVar = [
        ("out", py_object), ("kind", py_object), ("topic", py_object), ("partition", py_object), ("none", py_object),
        ("created", py_object), ("appended", py_object), ("no_headers", py_object), ("headers", py_object),
        ("tuple", py_object), ("rows", c_int64), ("offset", c_void_p), ("timestamp", c_void_p), ("types", c_void_p),
        ("type", c_int64), ("key", _BinaryColumn), ("value", _BinaryColumn), ("is_tracked", c_int64),
        ("keeps_hash", c_int64),
    ]  # fmt: skip


def _words(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")


def _ends(count: int) -> memoryview:
    return memoryview(bytearray(4 * (count + 1))).cast("i")


class NativeKernels:
    """See :class:`~zkconsumer.decode.kernels.Kernels` for the methods.

    Args:
        library: the library, for functions that release the interpreter lock.
        objects: the same, for functions that need it.
        keeps_hash: whether tuples of this interpreter keep their hash.
    """

    def __init__(self, library: ctypes.CDLL, objects: ctypes.PyDLL, *, keeps_hash: bool = KEEPS_HASH) -> None:
        self._keeps_hash = keeps_hash
        for source, functions in ((library, _FUNCTIONS), (objects, _OBJECT_FUNCTIONS)):
            for name, (result, arguments) in functions.items():
                function = getattr(source, name)
                function.restype, function.argtypes = result, arguments
        self.library: Final = library
        self.address_of: Final = objects.zk_address
        """The address of a buffer, which the caller keeps."""
        self._messages: Final = objects.zk_messages
        self._header_tuples: Final = objects.zk_header_tuples
        self._scans: Final = (library.zk_scan, library.zk_scan_messages)
        self._indexes: Final = (library.zk_index, library.zk_index_messages)

    def scan(self, raw: memoryview, table: BatchTable, state: array[int], requested: int, *, messages: bool) -> int:
        address = self.address_of
        why: int = self._scans[messages](
            address(raw), len(raw), address(table.words), len(table), address(state), requested
        )
        return why

    def verify(self, raw: memoryview, table: BatchTable, requested: int) -> tuple[int, int]:
        checksum = c_int64()
        good: int = self.library.zk_verify(
            self.address_of(raw),
            len(raw),
            self.address_of(table.words),
            len(table),
            requested,
            ctypes.addressof(checksum),
        )
        return good, checksum.value

    def verify_messages(
        self, raw: memoryview, table: BatchTable, floor: int, requested: int, *, check: bool
    ) -> CheckProgress:
        result = array("q", bytes(32))
        address = self.address_of
        why = self.library.zk_verify_messages(
            address(raw), len(raw), address(table.words), len(table), floor, requested, check, address(result)
        )
        rows, messages, stop, last = result
        return CheckProgress(rows, messages, stop, last, why)

    def extent(self, data: memoryview) -> tuple[int, int]:
        last = c_int64()
        count: int = self.library.zk_extent(self.address_of(data), len(data), ctypes.addressof(last))
        return count, last.value

    def verify_inside(
        self, data: memoryview, magic: int, shift: int, floor: int, requested: int, *, check: bool
    ) -> int:
        why: int = self.library.zk_verify_inside(
            self.address_of(data), len(data), magic, shift, floor, requested, check
        )
        return why

    def survey(self, table: BatchTable) -> TableSurvey:
        sums = array("q", bytes(32))
        self.library.zk_survey(self.address_of(table.words), len(table), self.address_of(sums))
        return TableSurvey(*sums)

    def piece(self, table: BatchTable) -> int:
        count: int = self.library.zk_piece(self.address_of(table.words), len(table))
        return count

    def compressed(self, table: BatchTable) -> list[int]:
        numbers = _words(len(table))
        count = self.library.zk_compressed(self.address_of(table.words), len(table), self.address_of(numbers))
        return numbers[:count].tolist()

    def within(self, table: BatchTable, most_records: int) -> int:
        count: int = self.library.zk_within(self.address_of(table.words), len(table), most_records)
        return count

    def exclude_aborted(
        self, raw: memoryview, table: BatchTable, producers: array[int], of_producer: array[int], firsts: array[int]
    ) -> None:
        address, is_open = self.address_of, bytearray(len(producers))
        self.library.zk_exclude_aborted(
            address(raw), len(raw), address(table.words), len(table),
            address(producers), len(producers), address(of_producer), address(firsts), len(firsts), address(is_open),
        )  # fmt: skip

    def index(self, task: IndexTask, *, messages: bool) -> None:
        address, columns, notes = self.address_of, task.columns, task.notes
        packed = _IndexTask(
            address(task.raw), len(task.raw), address(task.scratch), len(task.scratch),
            address(task.table.words), len(task.table), task.requested,
            address(task.values), len(task.values), address(notes.keys), len(notes.keys),
            address(notes.headers), len(notes.headers), min(len(columns.offset), notes.capacity),
            address(columns.offset), address(columns.timestamp), address(columns.value_end), address(notes.key_end),
            address(notes.header_end), address(notes.header_at), address(notes.key_valid), address(notes.value_valid),
            address(task.totals),
        )  # fmt: skip
        if self._indexes[messages](ctypes.addressof(packed)):
            raise SystemError("the table of batches contradicts itself")

    def bitmap(self, valid: memoryview) -> tuple[bytearray, int]:
        bits = bytearray((len(valid) + 7) // 8)
        return bits, self.library.zk_bitmap(self.address_of(valid), len(valid), self.address_of(bits))

    def header_columns(self, headers: HeaderBytes, start: int, rows: int) -> HeaderColumns:
        address, total = self.address_of, headers.end[start + rows] - headers.end[start]
        sizes = array("q", bytes(16))
        end, at = headers.end[start:], headers.at[start:]
        source = (address(headers.data), len(headers.data), address(end), address(at), rows)
        read = self.library.zk_headers
        if not read(*source, *[None] * 7, address(sizes)):
            raise SystemError("headers contradict their lengths")
        names, contents = (memoryview(bytearray(size)) for size in sizes)
        columns = HeaderColumns(
            _ends(rows), memoryview(bytearray(rows)), names, _ends(total), contents, _ends(total),
            memoryview(bytearray(total)),
        )  # fmt: skip
        outputs = (columns.list_end, columns.present, columns.name_end, columns.content_end, columns.content_valid)
        read(*source, *map(address, outputs), address(names), address(contents), address(sizes))
        return columns

    def header_tuples(self, headers: HeaderBytes, start: int, rows: int) -> list[tuple[Any, ...]]:
        end, at = headers.end[start:], headers.at[start:]
        address = self.address_of
        tuples: list[tuple[Any, ...]] = self._header_tuples(
            address(headers.data), len(headers.data), address(end), address(at), rows, None, ()
        )
        return tuples

    def messages(self, kind: type[Any], records: Records, headers: list[Any] | None) -> list[Any]:
        rows, start, buffers, address = records.num_rows, records.start, records.buffers, self.address_of
        out: list[Any] = [None] * rows
        types = buffers.types
        task = _MessageTask(out, kind, records.topic, records.partition, None, 0, 1, ())
        if headers is not None:
            task.headers = headers
        task.tuple, task.rows = tuple, rows
        task.offset = address(buffers.offset) + 8 * start
        task.timestamp = address(buffers.timestamp) + 8 * start
        if isinstance(types, int):
            task.type = types
        else:
            task.types = address(types) + 4 * start
        no_keys = BinaryColumn(bytes(start // 8 + rows // 8 + 2), _ends(0), memoryview(b""))
        key = no_keys if buffers.key is None else buffers.key
        for place, column in ((task.key, key), (task.value, buffers.value)):
            if column.valid is not None:
                place.valid, place.valid_at = address(column.valid), start
            place.end, place.data = address(column.end) + 4 * start, address(column.data)
            place.bytes = len(column.data)
        task.is_tracked, task.keeps_hash = kind is not Message, self._keeps_hash
        built = self._messages(ctypes.addressof(task))
        return out if built == rows else out[:built]
