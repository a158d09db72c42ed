"""Shared by the compiled parts of the decoder: compilation, the code cache, and functions that read bytes.

A module that defines compiled functions compiles them when it is imported (several seconds) or loads numba's cache
(half a second). numba keeps the cache in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__`` beside the module,
or, if the package is not writable, in the user's cache directory. A complete but read-only cache in one of these
places, as in an image, is used; numba itself would ignore it. If there is no cache and none can be written, every
process compiles, with a warning. ``codecache.py`` reads and writes the files.
"""

from __future__ import annotations

import logging
import pkgutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic

from zkconsumer.decode.codecache import CodeCache

# numba has type annotations only for a part, which fit neither its types nor its intrinsics.
njit: Any = numba.njit
types: Any = numba.types
cgutils: Any = numba_cgutils
intrinsic: Any = numba_intrinsic

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
OUT_BYTES: Final = types.uint8[::1]
INT32S: Final = types.int32[::1]
INT64S: Final = types.int64[::1]
TABLE: Final = types.int64[:, ::1]
INDEX: Final = types.void(
    BYTES, BYTES, TABLE, types.int64, OUT_BYTES, OUT_BYTES, OUT_BYTES,
    INT32S, INT32S, INT32S, OUT_BYTES, OUT_BYTES, INT64S, INT64S, INT64S, INT64S,
)  # fmt: skip
"""Signature of ``kernel.index`` and ``messageset.index``."""

SOURCES: Final = (
    "batchtable.py", "checksums.py", "compiled.py", "headerlists.py", "kernel.py", "messagekernel.py", "messageset.py",
    "transactions.py",
)  # fmt: skip
"""Modules with compiled functions, or with constants of these."""
_OPTIONS: Final = {"error_model": "numpy", "boundscheck": False}


def _stamp() -> int:
    """Checksum of all compiled source.

    numba compares the modification time of the one file that holds a function: it would miss changes of constants and
    functions from other files, and would compile again in a copied container image.
    """
    return zlib.crc32(b"".join(pkgutil.get_data(__package__, name) or b"" for name in SOURCES))


_STAMP: Final = _stamp()


def _require_directory(locator: Any) -> None:
    """Replaces numba's test whether the directory is writable."""
    if not Path(locator.get_cache_path()).is_dir():
        raise NotADirectoryError


def _ready_made_cache(dispatcher: Any, signature: Any) -> Any:
    """A read-only cache that has the code; None if there is none."""
    for locator in CodeCache._impl_class._locator_classes:
        as_it_is = type(locator.__name__, (locator,), {"ensure_cache_path": _require_directory})
        found = type("_Impl", (CodeCache._impl_class,), {"_locator_classes": [as_it_is]})
        try:
            cache = type("_ReadyMade", (CodeCache,), {"_impl_class": found})(dispatcher.py_func, _STAMP)
        except RuntimeError:  # numba: "no locator available"
            continue
        if cache.is_ready_made(signature, dispatcher.targetctx):
            return cache
    return None


def compiled(signature: Any, *, nogil: bool = True) -> Callable[[F], F]:
    """Compile for exactly one signature, now, and keep the machine code on disk if possible.

    Args:
        signature: types of the arguments and of the result.
        nogil: whether to release the interpreter lock while the function runs.
    """

    def decorate(function: F) -> F:
        dispatcher = njit(nogil=nogil, **_OPTIONS)(function)
        try:
            dispatcher._cache = _ready_made_cache(dispatcher, signature) or CodeCache(function, _STAMP)
        except RuntimeError as error:  # "no locator available", as above
            _log.warning(
                "compiling %s for this process only (%s); set NUMBA_CACHE_DIR to a writable directory",
                function.__name__,
                error,
            )
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher  # type: ignore[no-any-return]

    return decorate


def cache_directory(function: Any) -> str | None:
    """The directory that holds the machine code of a compiled function; None if it is not stored."""
    path = function._cache.cache_path
    return None if path is None else str(path)


def _memory_intrinsic(emit: Any) -> Any:
    """``f(target, source, count)`` between addresses: several times faster than assigning array slices."""

    def describe(_context: Any, _target: Any, _source: Any, _count: Any) -> Any:
        def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            target, source, count = arguments
            pointers = [builder.inttoptr(address, cgutils.voidptr_t) for address in (target, source)]
            emit(builder, pointers[0], pointers[1], count, 1)

        return types.void(types.intp, types.intp, types.intp), generate

    return intrinsic(describe)


copy: Any = _memory_intrinsic(cgutils.raw_memcpy)
"""The two must not overlap."""
move: Any = _memory_intrinsic(cgutils.raw_memmove)
"""The two may overlap."""


def _load_intrinsic(bits: int, *, swapped: bool) -> Any:
    """``f(address)``: an integer of ``bits`` bits at any address; with ``swapped`` a signed big-endian one."""

    def describe(_context: Any, _address: Any) -> Any:
        def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            value = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))
            value.align = 1
            if swapped:
                return builder.sext(builder.bswap(value), ir.IntType(64))
            return builder.zext(value, ir.IntType(64))

        return (types.int64 if swapped else types.uint64)(types.intp), generate

    return intrinsic(describe)


load_byte: Any = _load_intrinsic(8, swapped=False)
load_word: Any = _load_intrinsic(64, swapped=False)
"""Eight bytes, in the processor's order."""


@intrinsic  # type: ignore[untyped-decorator]
def store_word(_context: Any, _address: Any, _word: Any) -> Any:
    """``f(address, word)``: store eight bytes."""

    def generate(codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, word = arguments
        builder.store(word, builder.inttoptr(address, ir.IntType(64).as_pointer()))
        return codegen.get_dummy_value()

    return types.void(types.intp, types.intp), generate


_load_16: Any = _load_intrinsic(16, swapped=True)
_load_32: Any = _load_intrinsic(32, swapped=True)
_load_64: Any = _load_intrinsic(64, swapped=True)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def int16_at(data: Any, at: Any) -> Any:
    """Signed big-endian integer of two bytes."""
    return _load_16(np.intp(data.ctypes.data) + at)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def int32_at(data: Any, at: Any) -> Any:
    """Signed big-endian integer of four bytes."""
    return _load_32(np.intp(data.ctypes.data) + at)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def int64_at(data: Any, at: Any) -> Any:
    """Signed big-endian integer of eight bytes."""
    return _load_64(np.intp(data.ctypes.data) + at)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def varint(data: Any, at: Any, end: Any) -> Any:
    """Zigzag varint at ``at``: its value and the position after it, or -1 if it is cut off or too long."""
    if at < end and data[at] < 0x80:  # most have one byte
        return np.int64(data[at] >> 1) ^ -np.int64(data[at] & 1), at + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)
