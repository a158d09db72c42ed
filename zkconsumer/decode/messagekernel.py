"""The message kernel: one compiled function that builds Python objects for the records of an Arrow batch.

It calls functions of Python's C API for every field, holding the interpreter lock. The same in Python, ``zip`` over
columns and a call for each record, costs twice as much, and builds each integer and each bytes object twice.

A message is a tuple, which Python's garbage collector tracks. The collector runs after some hundred tuples, and
repeatedly traverses objects that are all alive; with thousands of messages that costs more than building them. A
message holds bytes, text, integers and tuples of them, so it cannot be part of a cycle. So messages are untracked, as
the interpreter itself untracks plain tuples of such objects. Messages of a class that refers to decoders stay tracked:
a decoder may refer to an application that keeps messages.
"""

# ruff: noqa: PLR0913, PLR0917 - as in kernel.py

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from zkconsumer.decode.batchtable import MICROS, NO_TIMESTAMP
from zkconsumer.decode.compiled import BYTES, compiled, njit, store_word, types

FIELDS: Final = 8
"""Number of items of a message, see ``model.Message``."""
_ITEMS_AT: Final = tuple.__basicsize__
"""Position of a tuple's items: after the header of a variable-size object, and the tuple's own fields."""
_POINTER_BYTES: Final = 8
_HASH_AT: Final = _ITEMS_AT - _POINTER_BYTES
_KEEPS_HASH: Final = sys.version_info >= (3, 14)
"""From Python 3.14 on, a tuple keeps its hash right before its items, and -1 until it is computed."""

_OBJECT: Final = types.intp
_IN_INT32S: Final = types.Array(types.int32, 1, "C", readonly=True)
_IN_INT64S: Final = types.Array(types.int64, 1, "C", readonly=True)

_new_bytes: Any = types.ExternalFunction("PyBytes_FromStringAndSize", _OBJECT(types.intp, types.intp))
_new_integer: Any = types.ExternalFunction("PyLong_FromLongLong", _OBJECT(types.int64))
_new_tuple: Any = types.ExternalFunction("PyType_GenericAlloc", _OBJECT(_OBJECT, types.intp))
_set_item: Any = types.ExternalFunction("PyList_SetItem", types.int32(_OBJECT, types.intp, _OBJECT))
_get_item: Any = types.ExternalFunction("PyList_GetItem", _OBJECT(_OBJECT, types.intp))
_refer: Any = types.ExternalFunction("Py_IncRef", types.void(_OBJECT))
_release: Any = types.ExternalFunction("Py_DecRef", types.void(_OBJECT))
_untrack: Any = types.ExternalFunction("PyObject_GC_UnTrack", types.void(_OBJECT))
_clear_error: Any = types.ExternalFunction("PyErr_Clear", types.void())


@njit  # type: ignore[untyped-decorator]
def _put(message: Any, field: Any, value: Any) -> Any:
    """Set a field to a new object, without a further reference; False if the object is null."""
    store_word(message + _ITEMS_AT + field * _POINTER_BYTES, value)
    return value != 0


@njit  # type: ignore[untyped-decorator]
def _share(message: Any, field: Any, value: Any) -> None:
    """Set a field to an object that is shared, with a new reference."""
    _refer(value)
    store_word(message + _ITEMS_AT + field * _POINTER_BYTES, value)


@njit  # type: ignore[untyped-decorator]
def _copy(message: Any, field: Any, data: Any, start: Any, end: Any) -> Any:
    """Set a field to new bytes; False if there is no memory for them."""
    return _put(message, field, _new_bytes(data + np.intp(start), np.intp(end) - np.intp(start)))


@compiled(
    types.int64(
        _OBJECT, _OBJECT, _OBJECT, _OBJECT, _OBJECT, _OBJECT, _OBJECT, _OBJECT, _OBJECT,
        _IN_INT64S, _IN_INT64S, _IN_INT32S, BYTES, _IN_INT32S, BYTES, BYTES, _IN_INT32S, BYTES, types.boolean,
    ),
    nogil=False,
)  # fmt: skip
def build(  # type: ignore[no-untyped-def]
    out, kind, topic, partition, none, created, appended, no_headers, headers, offset, timestamp, timestamp_type,
    key_valid, key_end, key_data, value_valid, value_end, value_data, tracked,
):  # fmt: skip
    """Put a message for each row into a list. Objects are passed as addresses; the caller keeps them alive.

    Args:
        out: a list of as many items as there are rows, which are replaced.
        kind: class of the messages: a subclass of tuple, whose instances have :data:`FIELDS` items and nothing else.
        topic: topic of all messages.
        partition: partition of all messages.
        none: the object None.
        created: type of a timestamp that the producer set.
        appended: type of a timestamp that the broker set.
        no_headers: an empty tuple.
        headers: a list of the headers of each row; 0 if no row has any.
        offset: column; its length is the number of rows.
        timestamp: column, in microseconds.
        timestamp_type: column.
        key_valid: per row, 0 if the key is null; empty if no key is null.
        key_end: position after each key in ``key_data``, preceded by the position of the first.
        key_data: bytes of the keys.
        value_valid: as for the keys, like the next two.
        value_end: positions.
        value_data: bytes of the values.
        tracked: False if the class refers to nothing that could refer to a message.

    Returns:
        The number of messages built; less than the number of rows only if memory is exhausted.
    """
    keys = np.intp(key_data.ctypes.data)
    values = np.intp(value_data.ctypes.data)
    have_null_keys = len(key_valid) > 0
    have_null_values = len(value_valid) > 0
    for row in range(len(offset)):
        message = _new_tuple(kind, FIELDS)
        if message == 0:
            _clear_error()
            return row
        if _KEEPS_HASH:
            store_word(message + _HASH_AT, -1)
        _share(message, 0, topic)
        _share(message, 1, partition)
        complete = _put(message, 2, _new_integer(offset[row]))
        if timestamp_type[row] == NO_TIMESTAMP:
            _share(message, 3, none)
            _share(message, 4, none)
        else:
            complete &= _put(message, 3, _new_integer(timestamp[row] // MICROS))
            _share(message, 4, appended if timestamp_type[row] else created)
        if have_null_keys and not key_valid[row]:
            _share(message, 5, none)
        else:
            complete &= _copy(message, 5, keys, key_end[row], key_end[row + 1])
        if have_null_values and not value_valid[row]:
            _share(message, 6, none)
        else:
            complete &= _copy(message, 6, values, value_end[row], value_end[row + 1])
        _share(message, 7, _get_item(headers, row) if headers != 0 else no_headers)
        if not complete:
            _clear_error()
            _release(message)
            return row
        if not tracked:
            _untrack(message)
        _set_item(out, row, message)
    return len(offset)
