"""Columns of one repeated value: slices of arrays that are built once. pyarrow is loaded with the first one."""

from __future__ import annotations

import struct
import threading
import time
from array import array
from collections.abc import Callable
from itertools import accumulate, repeat
from typing import Any, Final

_KEPT_BYTES: Final = 1 << 25
_LARGE: Final = 1 << 20
_SMALLEST: Final = 1 << 12
_WASTE: Final = 4
_AGE_S: Final = 1.0


class ConstantColumns:
    """Topic, partition and timestamp type repeat for all records of a chunk, so they cost nothing per record.

    One thread uses an object. The arrays together stay below 32 MiB (not counting those that batches still use): a
    consumer of very many partitions builds some of them again. An array of more than 1 MiB is dropped when no batch
    has needed a quarter of it for a second.

    Args:
        clock: returns seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._arrays: dict[tuple[str, Any], Any] = {}
        self._needed_at: dict[tuple[str, Any], float] = {}  # of large arrays
        self._clock = clock
        self._trimmed_at = clock()
        self.nbytes = 0
        """Bytes of all arrays."""

    def trim(self) -> None:
        """Drop large arrays that were not needed lately. Must also be called while no batch is built."""
        now = self._clock()
        if self._needed_at and now - self._trimmed_at >= _AGE_S:
            self._trimmed_at = now
            for key in [key for key, at in self._needed_at.items() if now - at >= _AGE_S]:
                self._drop(key)

    def topic(self, name: str, length: int) -> Any:
        """A string array with ``length`` times the topic's name."""
        import pyarrow as pa

        return self._constant(("topic", name), pa.string(), length)

    def integer(self, value: int, length: int) -> Any:
        """An int32 array with ``length`` times ``value``: partition or timestamp type."""
        import pyarrow as pa

        return self._constant(("integer", value), pa.int32(), length)

    def no_keys(self, length: int) -> Any:
        """A binary array of ``length`` nulls."""
        import pyarrow as pa

        return self._constant(("keys", None), pa.binary(), length)

    def no_headers(self, length: int) -> Any:
        """An array of ``length`` nulls of the headers type."""
        from zkconsumer.decode.schema import HEADERS

        return self._constant(("headers", None), HEADERS, length)

    def _constant(self, key: tuple[str, Any], kind: Any, length: int) -> Any:
        column = self._arrays.get(key)
        if column is None or len(column) < length:
            column = self._new(key, kind, length)
        elif key in self._needed_at and _WASTE * length >= len(column):
            self._needed_at[key] = self._clock()
        return column.slice(0, length)

    def _new(self, key: tuple[str, Any], kind: Any, length: int) -> Any:
        column = _repeated(key[1], kind, max(_SMALLEST, 1 << (length - 1).bit_length()))
        if key in self._arrays:
            self._drop(key)
        if self.nbytes + column.nbytes > _KEPT_BYTES:
            self._arrays.clear()
            self._needed_at.clear()
            self.nbytes = 0
        if column.nbytes > _LARGE:
            self._needed_at[key] = self._clock()
        self._arrays[key] = column
        self.nbytes += column.nbytes
        return column

    def _drop(self, key: tuple[str, Any]) -> None:
        self.nbytes -= self._arrays.pop(key).nbytes
        self._needed_at.pop(key, None)


def _repeated(value: str | int | None, kind: Any, length: int) -> Any:
    """An array of one repeated value. ``pa.repeat`` takes a scalar, and making one imports pandas if there is any."""
    import pyarrow as pa

    if value is None:
        return pa.nulls(length, kind)
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(struct.pack("<i", value) * length)])
    name = value.encode()
    ends = array("i", accumulate(repeat(len(name), length), initial=0))
    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(ends), pa.py_buffer(name * length)])


_of_thread = threading.local()


def constants() -> ConstantColumns:
    """The columns of this thread."""
    columns: ConstantColumns | None = getattr(_of_thread, "columns", None)
    if columns is None:
        columns = _of_thread.columns = ConstantColumns()
    return columns


def trim() -> None:
    """Drop columns of this thread that were not needed lately."""
    columns: ConstantColumns | None = getattr(_of_thread, "columns", None)
    if columns is not None:
        columns.trim()
