"""How much goes into one request to ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

MOST_BYTES: Final = 0x40000
"""Paths and data in one request; the servers' limit (jute.maxbuffer) is 1 MiB unless it is lowered."""

T = TypeVar("T")


def in_parts(items: Iterable[T], most: int, size_of: Callable[[T], int], together: int = 1) -> Iterator[list[T]]:
    """The items in parts of at most ``most`` items and :data:`MOST_BYTES`, unless one alone is larger, in their order.

    Args:
        items: of the request.
        most: number of items in a part.
        size_of: returns the bytes of an item.
        together: so many items that follow each other are never parted, counted from the first one.
    """
    part: list[T] = []
    size = 0
    remaining = iter(items)
    while unit := list(islice(remaining, together)):
        weight = sum(map(size_of, unit))
        if part and (len(part) + len(unit) > most or size + weight > MOST_BYTES):
            yield part
            part, size = [], 0
        part += unit
        size += weight
    if part:
        yield part
