"""The column of headers, for chunks whose records have any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.columns import bitmap, variable_column
from zkconsumer.decode.compiled import BYTES, INT32S, INT64S, OUT_BYTES, compiled, copy, types, varint
from zkconsumer.decode.schema import HEADERS

if TYPE_CHECKING:
    from zkconsumer.decode.assemble import Notes


@compiled(types.void(BYTES, INT32S, INT64S, INT32S, INT32S, OUT_BYTES, OUT_BYTES, OUT_BYTES))
def _gather(  # type: ignore[no-untyped-def]
    headers, header_end, header_at, name_end, content_end, content_valid, name_data, content_data
):
    """Copy the headers of all records into columns; ``kernel.index`` has checked their lengths.

    ``header_end`` has one entry more than there are records. ``name_end`` and ``content_end`` are Arrow offsets of
    length headers + 1, beginning with a 0; ``content_valid`` gets one byte per header, 0 for a null value.
    """
    source = np.intp(headers.ctypes.data)
    names = np.intp(name_data.ctypes.data)
    contents = np.intp(content_data.ctypes.data)
    end = np.int64(len(headers))
    header = np.int64(0)
    for record in range(len(header_end) - 1):
        at = header_at[record]
        for _ in range(header_end[record + 1] - header_end[record]):
            length, at = varint(headers, at, end)
            copy(names + np.int64(name_end[header]), source + at, length)
            name_end[header + 1] = name_end[header] + length
            at += length
            length, at = varint(headers, at, end)
            content_valid[header] = length >= 0
            length = max(length, 0)
            copy(contents + np.int64(content_end[header]), source + at, length)
            content_end[header + 1] = content_end[header] + length
            at += length
            header += 1


def header_lists(notes: Notes, totals: list[int]) -> Any:
    """The column; null, and not an empty list, for a record without headers.

    Args:
        notes: output of ``kernel.index``.
        totals: totals of ``kernel.index``; there is at least one header.
    """
    count, total = totals[b.RECORDS], totals[b.HEADER_COUNT]
    header_end = notes.header_end[: count + 1].copy()
    name_end = np.zeros(total + 1, np.int32)
    content_end = np.zeros(total + 1, np.int32)
    valid = np.empty(total, np.uint8)
    name_data = np.empty(totals[b.HEADER_KEY_BYTES], np.uint8)
    content_data = np.empty(totals[b.HEADER_VALUE_BYTES], np.uint8)
    _gather(notes.headers, header_end, notes.header_at, name_end, content_end, valid, name_data, content_data)  # type: ignore[no-untyped-call]
    names = _text(variable_column(pa.string(), total, name_end, name_data))
    contents = variable_column(pa.binary(), total, content_end, content_data, valid)
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADERS.value_type))
    present = bitmap(np.diff(header_end) > 0)
    return pa.Array.from_buffers(HEADERS, count, [present, pa.py_buffer(header_end)], children=[pairs])


def _text(names: Any) -> Any:
    """``names`` with invalid UTF-8 replaced as in Java, since a string column must be valid UTF-8."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([raw.decode(errors="replace") for raw in names.cast(pa.binary()).to_pylist()], pa.string())
    return names
