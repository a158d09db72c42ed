"""Memory that ends at the end of a page, before an inaccessible page: access beyond the end is a crash.

The kernels load and store by address, and their library is usually built without checks.
"""

import ctypes
import mmap
import os

from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.decode.decompress import Scratch
from zkconsumer.decode.kernelloader import kernels
from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.decode.unpack import Unpacker

_PAGE = mmap.PAGESIZE
_NO_ACCESS = 0
_ALIGNMENT = 8
"""Alignment of columns; accesses further beyond their end are detected."""

_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(count: int, alignment: int = 1) -> memoryview:
    """Zeroed memory of ``count`` bytes, of which at most ``alignment`` - 1 bytes follow before the guard page."""
    before = -(-max(count, 1) // _PAGE) * _PAGE
    block = mmap.mmap(-1, before + _PAGE)
    if _mprotect(ctypes.addressof(ctypes.c_char.from_buffer(block)) + before, _PAGE, _NO_ACCESS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    start = (before - count) // alignment * alignment
    return memoryview(block)[start : start + count]


def guarded_copy(data: bytes) -> memoryview:
    """``data`` at the end of a page."""
    copy = guarded(len(data))
    copy[:] = data
    return copy


class GuardedMemory(ChunkMemory):
    """Blocks for a single use."""

    def take(self, count: int) -> memoryview:
        return guarded(count, _ALIGNMENT)


class GuardedScratch(Scratch):
    """After each batch the buffer ends with that batch. Its memory need not be guarded."""

    def add(self, codec: int, compressed: memoryview, limit: int, *, before_format_2: bool = False) -> None:
        super().add(codec, compressed, limit, before_format_2=before_format_2)
        self.data = guarded_copy(bytes(self.data[: self.used]))

    def fit(self) -> None:
        """Do nothing: the buffer fits already."""


def guarded_decoder(settings: DecoderSettings) -> BatchDecoder:
    """A decoder with all columns, which writes values and columns into guarded memory and decompresses into it."""
    decoder = BatchDecoder(settings, headers=True)
    decoder.memory = GuardedMemory()  # type: ignore[misc]  # only the fuzzer replaces it
    unpacker = Unpacker(kernels(), ChunkMemory(), settings)
    unpacker.scratch = GuardedScratch(ChunkMemory())
    decoder._unpacker = unpacker
    return decoder
