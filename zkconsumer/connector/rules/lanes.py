"""Lanes: which item is worked on next, so that items of one lane are worked on one by one, in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, Literal, TypeVar

from zkconsumer.errors import UsageError
from zkconsumer.model import Message

T = TypeVar("T")

Order = Literal["partition", "key"]


class Lanes(Generic[T]):
    """Items that wait, by lane. Lanes take turns: a long one does not keep the others from being worked on."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[T]] = {}  # of lanes that have items, or are worked on
        self._ready: deque[Hashable] = deque()  # lanes that have items and are not worked on
        self._count = 0

    def __len__(self) -> int:
        """Number of items that wait or are worked on."""
        return self._count

    def put(self, lane: Hashable, item: T) -> None:
        """Add an item at the end of its lane."""
        self._count += 1
        line = self._lines.get(lane)
        if line is None:
            self._lines[lane] = deque([item])
            self._ready.append(lane)
        else:
            line.append(item)

    def take(self) -> tuple[Hashable, T] | None:
        """The next item to work on, with its lane; None if there is none.

        Nothing more of its lane is taken before :meth:`finish`.
        """
        if not self._ready:
            return None
        lane = self._ready.popleft()
        return lane, self._lines[lane].popleft()

    def finish(self, lane: Hashable) -> None:
        """The item that was taken of this lane is not worked on any more."""
        self._count -= 1
        if self._lines[lane]:
            self._ready.append(lane)
        else:
            del self._lines[lane]


def lane_by(order: str) -> Callable[[Message], Hashable]:
    """Returns the function that gives the lane of a record.

    Args:
        order: ``partition`` or ``key``. Records without a key have no order among them then.

    Raises:
        UsageError: it is neither.
    """
    if order not in _LANES:
        raise UsageError(f"ordered_by must be one of {', '.join(_LANES)}, not {order!r}")
    return _LANES[order]


def _by_partition(message: Message) -> Hashable:
    return message[:2]


def _by_key(message: Message) -> Hashable:
    alone = message.offset if message.key is None else None
    return message.topic, message.partition, message.key, alone


_LANES: Final[dict[str, Callable[[Message], Hashable]]] = {"partition": _by_partition, "key": _by_key}
