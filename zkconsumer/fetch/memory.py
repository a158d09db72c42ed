"""ChunkMemory: memory that chunks are received into and that their batches keep, used again when these let go of it.

Memory that a process touches for the first time costs several times as much as copying into it. So a consumer that
keeps up goes round in a few blocks, which stay in the processor's cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

_SMALLEST: Final = 1 << 15
"""Less is not worth being kept: the allocator of the process has it at hand."""
_LARGEST: Final = 1 << 24
_SPARE_BYTES: Final = 1 << 24
"""Unused memory that is kept for what may come."""


class ChunkMemory:
    """Blocks of memory. One thread takes them; they are free again when nobody refers to them any more.

    Whoever holds an Arrow buffer, a memoryview or an array on a block refers to it, so a block that is in nobody's
    hands is known by its count of references. Other threads can only lower that count: to get at a block that is free
    they would need a reference first.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, list[Any]] = {}

    def take(self, count: int) -> memoryview:
        """Memory for ``count`` bytes, writable, with anything in it."""
        if not _SMALLEST <= count <= _LARGEST:
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
