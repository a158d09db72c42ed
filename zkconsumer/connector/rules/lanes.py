"""Lanes: which item is worked on next, so that items of one lane are worked on one by one, in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Set
from typing import Any, Final, Generic, Literal, TypeVar

from zkconsumer.errors import UsageError
from zkconsumer.model import Message, TopicPartition

T = TypeVar("T")

Order = Literal["partition", "key"]
Lane = tuple[Any, ...]
"""What items of one lane have in common; it begins with their topic and partition."""


class Lanes(Generic[T]):
    """Items that wait, by lane. Lanes take turns: a long one does not keep the others from being worked on."""

    def __init__(self) -> None:
        self._lines: dict[Lane, deque[T]] = {}  # of lanes that have items, or are worked on
        self._ready: deque[Lane] = deque()  # lanes that have items and are not worked on
        self._worked_on: set[Lane] = set()
        self._held: Set[TopicPartition] = frozenset()
        self._count = 0

    def __len__(self) -> int:
        """Number of items that wait or are worked on."""
        return self._count

    def put(self, lane: Lane, item: T) -> None:
        """Add an item at the end of its lane."""
        self._count += 1
        line = self._lines.get(lane)
        if line is None:
            self._lines[lane] = deque([item])
            self._ready.append(lane)
        else:
            line.append(item)

    def take(self, may_begin: Callable[[T], bool] = lambda _: True) -> tuple[Lane, T] | None:
        """The next item to work on, with its lane; None if there is none.

        Nothing more of its lane is taken before :meth:`finish`.

        Args:
            may_begin: is given the first item of a lane; False if nothing of its partition may be begun now.
        """
        refused: set[Lane] = set()
        for _ in range(len(self._ready)):
            lane = self._ready.popleft()
            if not self.is_held(lane) and lane[:2] not in refused:
                if may_begin(self._lines[lane][0]):
                    self._worked_on.add(lane)
                    return lane, self._lines[lane].popleft()
                refused.add(lane[:2])
            self._ready.append(lane)
        return None

    def is_waiting(self) -> bool:
        """True if there are items that :meth:`take` returns as soon as they may be begun."""
        return not all(map(self.is_held, self._ready))

    def put_back(self, lane: Lane, item: T) -> None:
        """Put an item that was taken before the others of its lane; to be called before :meth:`finish`."""
        self._count += 1
        self._lines[lane].appendleft(item)

    def finish(self, lane: Lane) -> None:
        """The item that was taken of this lane is not worked on any more."""
        self._count -= 1
        self._worked_on.discard(lane)
        if self._lines[lane]:
            self._ready.append(lane)
        else:
            del self._lines[lane]

    def give_up(self, lane: Lane) -> None:
        """The item that was taken of this lane is never finished: nothing is taken of it any more."""
        self._worked_on.discard(lane)

    def is_held(self, lane: Lane) -> bool:
        """True if nothing may be taken of this lane."""
        return lane[:2] in self._held

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Let nothing more of these partitions be taken; what is worked on is not affected."""
        self._held |= frozenset(partitions)

    def is_busy(self) -> bool:
        """True if an item of a held partition is worked on."""
        return any(map(self.is_held, self._worked_on))

    def resume(self, kept: Collection[TopicPartition]) -> None:
        """End the hold: items of partitions that are not ``kept`` are dropped, those of the others can be taken."""
        dropped = self._held - frozenset(kept)
        self._held = frozenset()
        for lane in [lane for lane in self._lines if lane[:2] in dropped]:
            self._count -= len(self._lines[lane])
            self._lines[lane].clear()
            if lane not in self._worked_on:
                del self._lines[lane]
        self._ready = deque(lane for lane in self._ready if lane in self._lines)


def lane_by(order: str) -> Callable[[Message], Lane]:
    """Returns the function that gives the lane of a record.

    Args:
        order: ``partition`` or ``key``. Records without a key have no order among them then.

    Raises:
        UsageError: it is neither.
    """
    if order not in _LANES:
        raise UsageError(f"ordered_by must be one of {', '.join(_LANES)}, not {order!r}")
    return _LANES[order]


def _by_partition(message: Message) -> Lane:
    return message[:2]


def _by_key(message: Message) -> Lane:
    alone = message.offset if message.key is None else None
    return message.topic, message.partition, message.key, alone


_LANES: Final[dict[str, Callable[[Message], Lane]]] = {"partition": _by_partition, "key": _by_key}
