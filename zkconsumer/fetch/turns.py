"""Which partitions a request names where the broker knows no limit for the whole response: before 0.10.1 (KIP-74).

Such a broker sends as many bytes of each partition as were asked for, so the limit is kept by naming fewer partitions.
The caller puts those that were named at the end of its list, so that each has its turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def turn(sizes: Mapping[T, int], limit: int) -> list[T]:
    """The partitions of the next request: as many as fit, from the first on, and at least one.

    Args:
        sizes: partitions in their order, with the bytes that are asked for each.
        limit: bytes for the whole response.

    >>> turn({"a": 3, "b": 3, "c": 3}, 7), turn({"a": 9, "b": 1}, 7), turn({}, 7)
    (['a', 'b'], ['a'], [])
    """
    named: list[T] = []
    total = 0
    for one, size in sizes.items():
        total += size
        if named and total > limit:
            break
        named.append(one)
    return named


def wait_ms(limit_ms: int, named: int, wanted: int) -> int:
    """How long the broker may wait for data: a whole round of turns takes about ``limit_ms``.

    >>> wait_ms(100, 5, 5), wait_ms(100, 5, 50), wait_ms(100, 1, 1000), wait_ms(0, 1, 2)
    (100, 10, 1, 0)
    """
    return limit_ms if named == wanted else min(limit_ms, max(1, limit_ms * named // wanted))
