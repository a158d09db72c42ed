"""ChunkMemory: memory that chunks are received into and that their batches keep, used again when these let go of it.

Memory that a process touches for the first time costs several times as much as copying into it. So a consumer that
keeps up goes round in a few blocks, which stay in the processor's cache.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

_SMALLEST: Final = 1 << 15
"""Less is not worth being kept: the allocator of the process has it at hand."""
_LARGEST: Final = 1 << 24
_SPARE_BYTES: Final = 1 << 24
"""Unused memory that is kept for what may come."""
_TRIM_S: Final = 1.0
"""How often unused memory is looked for. More often, a consumer of large chunks would free what it needs next."""


def has_global_lock() -> bool:
    """False in an interpreter that runs threads in parallel. A count of references cannot be relied on there."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


class ChunkMemory:
    """Blocks of memory. One thread takes them; they are free again when nobody refers to them any more.

    Whoever holds an Arrow buffer, a memoryview or an array on a block refers to it, so a block that is in nobody's
    hands is known by its count of references. Other threads can only lower that count: to get at a block that is free
    they would need a reference first. Without the interpreter's lock this does not hold, and no block is used twice.

    Args:
        clock: seconds; when unused blocks are freed depends on it.
        pooled: use blocks again.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, pooled: bool | None = None) -> None:
        self._blocks: dict[int, list[Any]] = {}
        self._clock = clock
        self._largest = _LARGEST if (has_global_lock() if pooled is None else pooled) else 0
        self._trimmed_at = clock()

    def take(self, count: int) -> memoryview:
        """Memory for ``count`` bytes, writable, with anything in it."""
        self.trim()
        if not _SMALLEST <= count <= self._largest:
            return _view(np.empty(count, np.uint8), count)
        size = 1 << (count - 1).bit_length()
        blocks = self._blocks.get(size, [])
        free = _unused(blocks)
        if not free:
            self._drop_spare()
            block = np.empty(size, np.uint8)
            self._blocks.setdefault(size, []).append(block)
            return _view(block, count)
        if len(free) * size > _SPARE_BYTES:
            del blocks[free[-1]]
        return _view(blocks[free[0]], count)

    def trim(self) -> None:
        """Free unused blocks, but for a few; at most once per second. To be called also when nothing is taken."""
        now = self._clock()
        if self._blocks and now - self._trimmed_at >= _TRIM_S:
            self._trimmed_at = now
            self._drop_spare()

    @property
    def nbytes(self) -> int:
        """Memory of all blocks, used or not."""
        return sum(size * len(blocks) for size, blocks in self._blocks.items())

    def _drop_spare(self) -> None:
        """Give up all that is unused, but for what may be kept."""
        spare = 0
        for size, blocks in self._blocks.items():
            for number in reversed(_unused(blocks)):
                spare += size
                if spare > _SPARE_BYTES:
                    del blocks[number]


def _view(block: Any, count: int) -> memoryview:
    return memoryview(block)[:count]


def _references(blocks: Iterable[Any]) -> list[int]:
    """How often each is referred to, the references of the list and of this function included."""
    return [sys.getrefcount(block) for block in blocks]


def _unused(blocks: Iterable[Any]) -> list[int]:
    """The numbers of those that nobody refers to but the list."""
    return [number for number, count in enumerate(_references(blocks)) if count <= _OF_AN_UNUSED_ONE]


_OF_AN_UNUSED_ONE: Final = _references([np.empty(0, np.uint8)])[0]
