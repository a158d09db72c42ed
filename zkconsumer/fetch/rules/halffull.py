"""When a queue is filled up again: once no more than half of what it may hold waits in it (adr/0009)."""

from __future__ import annotations


def beyond_half(held: int, limit: int) -> int:
    """How much has to be taken until no more than half is held; 0 if that is so now.

    Args:
        held: what waits now, in bytes or in chunks.
        limit: what may wait, in the same unit.
    """
    return max(0, (2 * held - limit + 1) // 2)
