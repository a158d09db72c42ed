"""Columns of a batch: built from buffers, or of one repeated value, as slices of arrays that are built once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from zkconsumer.decode.schema import HEADERS

_KEPT_BYTES: Final = 64 << 20
_SMALLEST: Final = 1 << 12


class ConstantColumns:
    """Topic, partition and timestamp type repeat for all records of a chunk, so they cost nothing per record.

    One thread uses an object. The arrays together stay below 64 MiB (not counting those that batches still use): a
    consumer of very many partitions builds some of them again.
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, Any], Any] = {}
        self._bytes = 0

    def topic(self, name: str, length: int) -> Any:
        """A string array with ``length`` times the topic's name."""
        return self._constant(("topic", name), pa.string(), length)

    def integer(self, value: int, length: int) -> Any:
        """An int32 array with ``length`` times ``value``: partition or timestamp type."""
        return self._constant(("integer", value), pa.int32(), length)

    def no_keys(self, length: int) -> Any:
        """A binary array of ``length`` nulls."""
        return self._constant(("keys", None), pa.binary(), length)

    def no_headers(self, length: int) -> Any:
        """An array of ``length`` nulls of the headers type."""
        return self._constant(("headers", None), HEADERS, length)

    def _constant(self, key: tuple[str, Any], kind: Any, length: int) -> Any:
        array = self._arrays.get(key)
        if array is None or len(array) < length:
            size = max(_SMALLEST, 1 << (length - 1).bit_length())
            array = pa.repeat(pa.scalar(key[1], type=kind), size)
            if self._bytes + array.nbytes > _KEPT_BYTES:
                self._arrays.clear()
                self._bytes = 0
            self._arrays[key] = array
            self._bytes += array.nbytes
        return array.slice(0, length)


def variable_column(kind: Any, count: int, ends: Any, data: Any, valid: Any = None) -> Any:
    """A column of bytes or text, from the end of each value, all data, and a 0 for each null value."""
    present = None if valid is None else bitmap(valid)
    return pa.Array.from_buffers(kind, count, [present, pa.py_buffer(ends), pa.py_buffer(data)])


def bitmap(valid: Any) -> Any:
    """A buffer with one bit for each item."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
