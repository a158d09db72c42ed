"""Which partitions a fetch request names: as many as the response has room for.

A broker before 0.10.1 has no limit for the whole response (KIP-74). It sends as many bytes of each partition as were
requested, so the client keeps the limit by naming fewer partitions: :func:`turn`. The caller moves the named partitions
to the end of its list, so that each has its turn.

A later broker keeps the limit. But it processes every requested partition, even when the response is full, and the
client would encode a thousand partitions of which ten fit. So partitions with data are named as far as they fit, and
those that wait for data are all named: :func:`fitting`. The caller moves those that had data to the end of its list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def turn(sizes: Mapping[T, int], limit: int) -> list[T]:
    """The partitions of the next request: as many as fit, from the first on, and at least one.

    Args:
        sizes: partitions in their order, with the bytes to request of each.
        limit: bytes for the whole response.

    >>> turn({"a": 3, "b": 3, "c": 3}, 7), turn({"a": 9, "b": 1}, 7), turn({}, 7)
    (['a', 'b'], ['a'], [])
    """
    named: list[T] = []
    total = 0
    for partition, size in sizes.items():
        total += size
        if named and total > limit:
            break
        named.append(partition)
    return named


def fitting(expected: Mapping[T, int], limit: int) -> list[T]:
    """The partitions of the next request, in their order: those that fit, and all from which no bytes are expected.

    Args:
        expected: partitions in their order, with the expected bytes of each. 0: none, or unknown.
        limit: bytes for the whole response. The last partition may be cut short by it.

    >>> fitting({"a": 3, "b": 3, "c": 0, "d": 3, "e": 0, "f": 1}, 5), fitting({"a": 3}, 0), fitting({}, 7)
    (['a', 'b', 'c', 'e'], [], [])
    """
    named: list[T] = []
    for partition, size in expected.items():
        if size == 0 or limit > 0:
            named.append(partition)
            limit -= size
    return named


def wait_ms(limit_ms: int, named: int, wanted: int) -> int:
    """How long the broker may wait for data, in ms, so that a whole round of turns takes about ``limit_ms``.

    >>> wait_ms(100, 5, 5), wait_ms(100, 5, 50), wait_ms(100, 1, 1000), wait_ms(0, 1, 2)
    (100, 10, 1, 0)
    """
    return limit_ms if named == wanted else min(limit_ms, max(1, limit_ms * named // wanted))
