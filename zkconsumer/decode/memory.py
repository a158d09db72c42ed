"""ChunkMemory: memory that chunks are received into and that their batches keep, used again once these release it.

Memory that a process touches for the first time costs several times as much as copying into it. So a consumer that
keeps up uses a few blocks in turn, which stay in the processor's cache. Each block is a mapping of its own: what is not
used again goes back to the operating system with its last reference, on any thread, whether or not anything is taken
afterwards. Allocators keep such memory (docs/adr/0013).
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

_SMALLEST: Final = 1 << 15
"""Less is not worth a mapping: it comes from a slab, which is not used again."""
_SLAB_BYTES: Final = 1 << 18
_ALIGNMENT: Final = 64
_LARGEST: Final = 1 << 24
_SPARE_BYTES: Final = 1 << 24
"""Unused memory that is kept for later."""
_KNOWN_BYTES: Final = 1 << 25
"""Memory of all blocks that may be used again. Of a batch that is kept for long the block is forgotten."""
_KNOWN_BLOCKS: Final = 256
"""Blocks of one size that may be used again: all are looked at where all are in use."""
_TRIM_S: Final = 1.0
"""How often unused memory is looked for. More often, a consumer of large chunks would free what it needs next."""


def has_global_lock() -> bool:
    """False in an interpreter that runs threads in parallel. A count of references cannot be relied on there."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


class ChunkMemory:
    """Blocks of memory. One thread takes them; each is free again when nothing refers to it any more.

    What holds an Arrow buffer, a memoryview or an array on a block refers to it, so a free block is known by its count
    of references. Other threads can only lower that count: to get at a block that is free they would need a reference
    first. Without the interpreter's lock this does not hold, and no block is used twice.

    The blocks that may be used again are bounded. A caller that collects batches takes more: then the oldest ones are
    forgotten, and each is unmapped with its batch.

    Args:
        clock: seconds; when unused blocks are freed depends on it.
        pooled: use blocks again.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, pooled: bool | None = None) -> None:
        self._blocks: dict[int, list[Any]] = {}
        self._clock = clock
        self._largest = _LARGEST if (has_global_lock() if pooled is None else pooled) else 0
        self._trimmed_at = clock()
        self._slab: tuple[Any, int] = (np.empty(0, np.uint8), 0)  # and how much of it is taken

    def take(self, count: int) -> memoryview:
        """Memory for ``count`` bytes, writable, with anything in it."""
        self.trim()
        if count < _SMALLEST:
            return self._piece(count)
        if count > self._largest:
            return _view(_allocate(count), count)
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
        """Free unused blocks, but for a few; at most once per second. To be called also when nothing is taken."""
        now = self._clock()
        if self._blocks and now - self._trimmed_at >= _TRIM_S:
            self._trimmed_at = now
            self._drop_spare()

    @property
    def nbytes(self) -> int:
        """Memory of all blocks that may be used again, used or not."""
        return sum(size * len(blocks) for size, blocks in self._blocks.items())

    def _piece(self, count: int) -> memoryview:
        """Part of a slab. The process's allocator would keep what thousands of batches leave to it in small pieces."""
        slab, start = self._slab
        if start + count > len(slab):
            slab, start = _allocate(_SLAB_BYTES), 0
        self._slab = slab, start + -(-count // _ALIGNMENT) * _ALIGNMENT
        return memoryview(slab)[start : start + count]

    def _drop_spare(self) -> None:
        """Free all that is unused, but for what may be kept."""
        spare = 0
        for size, blocks in self._blocks.items():
            for number in reversed(list(_unused(blocks))):
                spare += size
                if spare > _SPARE_BYTES:
                    del blocks[number]

    def _make_room(self, size: int) -> None:
        """Forget blocks until one more of this size is within the bounds: unused ones first, then the oldest."""
        if self.nbytes + size > _KNOWN_BYTES:
            self._drop_spare()
        blocks = self._blocks[size]
        del blocks[: max(0, len(blocks) + 1 - _KNOWN_BLOCKS)]
        while (excess := self.nbytes + size - _KNOWN_BYTES) > 0:
            # Those of the size that has most: a size that is no longer in demand must not keep the others out.
            most = max(self._blocks, key=lambda each: each * len(self._blocks[each]))
            del self._blocks[most][: -(-excess // most)]


def _allocate(count: int) -> Any:
    """Memory that nothing refers to yet, as an array of bytes."""
    if count >= _SMALLEST:
        # Not shared: neighbouring private mappings count as one, of which the kernel allows some 65,000.
        with contextlib.suppress(OSError):
            return np.frombuffer(mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    return np.empty(count, np.uint8)


def _view(block: Any, count: int) -> memoryview:
    return memoryview(block)[:count]


def _references(blocks: Iterable[Any]) -> Iterator[int]:
    """How often each is referred to, the references of the list and of this function included."""
    for block in blocks:
        yield sys.getrefcount(block)


def _unused(blocks: Iterable[Any]) -> Iterator[int]:
    """The numbers of those that nothing refers to but the list."""
    return (number for number, count in enumerate(_references(blocks)) if count <= _OF_AN_UNUSED_ONE)


_OF_AN_UNUSED_ONE: Final = next(_references([np.empty(0, np.uint8)]))
