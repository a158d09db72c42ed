"""ChunkMemory: memory to receive chunks into, which their batches keep, reused once these release it.

The first access of a process to memory costs several times as much as copying into it. So a consumer that keeps up uses
a few blocks in turn, which stay in the processor's cache. Each block is a separate mapping: a block that is not reused
returns to the operating system with its last reference, on any thread, whether or not memory is taken afterwards.
Allocators would keep such memory (adr/0013).
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

_SMALLEST: Final = 1 << 15
"""Minimum size of a mapping in bytes. Less memory comes from a slab, which is not reused."""
_SLAB_BYTES: Final = 1 << 18
_ALIGNMENT: Final = 64
_LARGEST: Final = 1 << 24
_SPARE_BYTES: Final = 1 << 24
"""Bytes of unused memory that are kept for later."""
_KNOWN_BYTES: Final = 1 << 25
"""Limit of the bytes of all reusable blocks. The block of a batch that is kept for long is forgotten."""
_KNOWN_BLOCKS: Final = 256
"""Limit of reusable blocks of one size, since all are checked if all are in use."""
_TRIM_S: Final = 1.0
"""Seconds between searches for unused memory. With fewer, a consumer of large chunks would free blocks it needs
next."""


def has_global_lock() -> bool:
    """False in an interpreter that runs threads in parallel, where reference counts are not reliable."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


class ChunkMemory:
    """Blocks of memory. One thread takes them; a block is free again when it is not referenced any more.

    Arrow buffers and memoryviews on a block reference it, so a free block is recognised by its reference count.
    Other threads can only lower the count of a free block: to raise it they would need a reference first. Without the
    interpreter lock this does not hold, and no block is used twice.

    The number and size of reusable blocks are bounded. If a caller collects batches and so takes more, the oldest
    blocks are forgotten, and each is unmapped with its batch.

    Args:
        clock: returns seconds; controls when unused blocks are freed.
        pooled: whether to reuse blocks; None: if the interpreter has a global lock.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, pooled: bool | None = None) -> None:
        self._blocks: dict[int, list[Any]] = {}
        self._clock = clock
        self._largest = _LARGEST if (has_global_lock() if pooled is None else pooled) else 0
        self._trimmed_at = clock()
        self._slab: tuple[Any, int] = (bytearray(), 0)  # and the number of bytes taken from it

    def take(self, count: int) -> memoryview:
        """Writable memory for ``count`` bytes, not initialised."""
        self.trim()
        if count < _SMALLEST:
            return self._piece(count)
        if count > self._largest:
            return allocate(count)
        size = 1 << (count - 1).bit_length()
        blocks = self._blocks.setdefault(size, [])
        free = next(_unused(blocks), None)
        if free is not None:
            return _view(blocks[free], count)
        self._make_room(size)
        block = _allocate(size)
        blocks.append(block)
        return _view(block, count)

    def trim(self) -> None:
        """Free all but a few unused blocks, at most once per second. Must also be called while no memory is taken."""
        now = self._clock()
        if self._blocks and now - self._trimmed_at >= _TRIM_S:
            self._trimmed_at = now
            self._drop_spare()

    @property
    def nbytes(self) -> int:
        """Bytes of all reusable blocks, in use or not."""
        return sum(size * len(blocks) for size, blocks in self._blocks.items())

    def _piece(self, count: int) -> memoryview:
        """Part of a slab. The process's allocator would keep the small pieces that thousands of batches release."""
        slab, start = self._slab
        if start + count > len(slab):
            slab, start = _allocate(_SLAB_BYTES), 0
        self._slab = slab, start + -(-count // _ALIGNMENT) * _ALIGNMENT
        return memoryview(slab)[start : start + count]

    def _drop_spare(self) -> None:
        """Free unused blocks, except those that may be kept."""
        spare = 0
        for size, blocks in self._blocks.items():
            for number in reversed(list(_unused(blocks))):
                spare += size
                if spare > _SPARE_BYTES:
                    del blocks[number]

    def _make_room(self, size: int) -> None:
        """Forget blocks until another one of this size is within the bounds: unused blocks first, then the oldest."""
        if self.nbytes + size > _KNOWN_BYTES:
            self._drop_spare()
        blocks = self._blocks[size]
        del blocks[: max(0, len(blocks) + 1 - _KNOWN_BLOCKS)]
        while (excess := self.nbytes + size - _KNOWN_BYTES) > 0:
            # From the size with the most blocks: a size that is no longer used must not displace the others.
            most = max(self._blocks, key=lambda block_size: block_size * len(self._blocks[block_size]))
            del self._blocks[most][: -(-excess // most)]


def allocate(count: int) -> memoryview:
    """New memory, zeroed, which is not reused."""
    return _view(_allocate(count), count)


def _allocate(count: int) -> Any:
    """New memory: an object of ``count`` bytes."""
    if count >= _SMALLEST:
        # Not shared: neighbouring private mappings count as one, of which the kernel allows some 65,000.
        with contextlib.suppress(OSError):
            return mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return bytearray(count)


def _view(block: Any, count: int) -> memoryview:
    return memoryview(block)[:count]


def _references(blocks: Iterable[Any]) -> Iterator[int]:
    """The reference count of each block, including the references of the list and of this function."""
    for block in blocks:
        yield sys.getrefcount(block)


def _unused(blocks: Iterable[Any]) -> Iterator[int]:
    """The indices of the blocks that only the list references."""
    return (number for number, count in enumerate(_references(blocks)) if count <= _OF_AN_UNUSED_ONE)


_OF_AN_UNUSED_ONE: Final = next(_references([bytearray()]))
