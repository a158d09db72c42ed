"""Unfinished: what was handed out of a partition and is not done yet, which bounds commits where ``commit.on=done``.

Items are recorded by the chunk, before the first one is claimed, and in the order of their offsets. An item that is
done is removed, which is one step of the interpreter. So the first item that remains has the lowest offset that is not
done, and no thread takes a lock for an item. What a rebalance or a pause takes back unclaimed is removed, too.

Items are found by their identity: a partition that is lost and comes back hands out the same offsets in other objects,
so an item of the former generation finishes nothing of the present one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zkconsumer.model import Message

if TYPE_CHECKING:
    from zkconsumer.process.wakeup import WakeUp


class UnfinishedBatch(NamedTuple):
    """A batch that was handed out.

    Attributes:
        batch: the object that the user has.
        rows: number of its records.
        offset: of its first record.
        last: offset of its last record.
    """

    batch: Any
    rows: int
    offset: int
    last: int


Items = Mapping[int, Message | UnfinishedBatch]
"""Items by the identity of the object that the user gets, in the order of their offsets."""
NOTHING: Final[Items] = MappingProxyType({})


def unfinished_messages(messages: Collection[Message]) -> Items:
    """What is unfinished once these messages are handed out."""
    return dict(zip(map(id, messages), messages, strict=True))


def unfinished_batch(batch: Any, rows: int, first: int, last: int) -> Items:
    """What is unfinished once this batch is handed out."""
    return {id(batch): UnfinishedBatch(batch, rows, first, last)}


class Unfinished:
    """The items of one partition, as long as this member continues where it is; a rebalance may come in between.

    Written under the lock of the queue that has the partition, except for items that are done.

    Attributes:
        items: those that are not done, the unclaimed ones of the chunk being handed out included.
        wake: wakes the reader that waits until fewer items are unfinished; None if none does.
    """

    __slots__ = ("_end", "_floor", "_has_batches", "items", "wake")

    def __init__(self) -> None:
        self.items: dict[int, Message | UnfinishedBatch] = {}
        self.wake: WakeUp | None = None
        self._end = 0
        self._floor: int | None = None
        self._has_batches = False

    def add(self, items: Items, first: int, end: int) -> int:
        """Record what is about to be handed out, from ``first`` on, up to before ``end``.

        Items at the same offsets or after them are forgotten: the log was cut off there, and has other records now.
        Returns the offset after these; 0 if there are none.
        """
        former = self._end if first < self._end else 0
        if former:
            for key, item in list(self.items.items()):
                if item.offset >= first:
                    self.items.pop(key, None)
        self._end = end
        self._has_batches |= isinstance(next(iter(items.values())), UnfinishedBatch)
        self.items.update(items)
        return former

    def withdraw(self, items: Items) -> None:
        """Remove items that were taken back unclaimed, and are handed out again. Idempotent."""
        for key, item in items.items():
            self.items.pop(key, None)
            self._end = min(self._end, item.offset)

    def discard(self) -> None:
        """End: what is done from now on has no effect, and the lowest offset stays. Idempotent."""
        self._floor = self.lowest()
        self.items.clear()

    def lowest(self) -> int | None:
        """The lowest offset that is not done, None if all is; unclaimed items count."""
        while self._floor is None:
            try:
                return next((item.offset for item in self.items.values()), None)
            except RuntimeError:  # another thread has finished an item in between
                continue
        return self._floor

    def count(self) -> int:
        """Number of records that are not done, the unclaimed ones included."""
        items = self.items
        if not self._has_batches:
            return len(items)
        return sum([item.rows if isinstance(item, UnfinishedBatch) else 1 for item in list(items.values())])
