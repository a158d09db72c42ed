"""UnfinishedItems: the unfinished items of one queue: which object is one of them, and how many there may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zkconsumer.errors import UsageError
from zkconsumer.fetch.unfinished import Items, Unfinished, UnfinishedBatch
from zkconsumer.fetch.waitingchunks import PausedBy
from zkconsumer.model import Message, TopicPartition

if TYPE_CHECKING:
    from zkconsumer.fetch.chunks import QueuedPartition
    from zkconsumer.fetch.queueroom import QueueRoom
    from zkconsumer.fetch.waitingchunks import WaitingChunks
    from zkconsumer.process.wakeup import WakeUp

BACKSTOP_S: Final = 1.0
"""How long a reader waits before it looks for itself whether enough items are done: an interrupt may end
:meth:`UnfinishedItems.finish` between its two steps."""


class _HandedOut(NamedTuple):
    """Which offsets of a partition a stream has handed out: from ``first`` on, up to before ``end``.

    What is below ``repeated`` may be handed out a second time, in other objects.
    """

    first: int
    end: int
    repeated: int = 0


class UnfinishedItems:
    """The unfinished items of one queue, and their bound. Used under its lock, except :meth:`finish`.

    A partition with as many unfinished records as the limit is paused, as by the user; it continues when half of them
    are done, since otherwise each record would cost a pause.

    Args:
        limit: unfinished records of one partition from which on no more is handed out (``max.unfinished.records``).
        waiting: the chunks of the queue.
        room: of the queue.
        changed: wakes its reader.
    """

    def __init__(self, limit: int, waiting: WaitingChunks, room: QueueRoom, changed: WakeUp) -> None:
        self._limit = limit
        self._waiting = waiting
        self._room = room
        self._changed = changed
        self._of: dict[tuple[Any, ...], Unfinished] = {}
        self._handed_out: dict[tuple[Any, ...], _HandedOut] = {}

    # -- any thread -------------------------------------------------------------------------------------------------

    def finish(self, item: Any) -> None:
        """An item is done. No effect if it was done before, or if its partition was lost.

        Raises:
            UsageError: the queue has not handed out this object.
        """
        place = item[:2] if isinstance(item, Message) else _place_of_batch(item)
        unfinished = self._of.get(place)
        if unfinished is None or unfinished.items.pop(id(item), None) is None:
            self._require_late(item, place, unfinished)
        # Also after an item that was done before: an interrupt may have come between the two steps.
        if unfinished is not None and unfinished.wake is not None and len(unfinished.items) <= self._limit // 2:
            unfinished.wake.set()

    def holds(self, message: Message) -> bool:
        """False if this object was done, or its partition was lost, which makes the record another member's."""
        unfinished = self._of.get(message[:2])
        return unfinished is not None and id(message) in unfinished.items

    def _require_late(self, item: Any, place: tuple[Any, ...], unfinished: Unfinished | None) -> None:
        """Refuse an item unless it was handed out before, and is done or of a former generation."""
        handed_out = self._handed_out.get(place)
        offset = item.offset if isinstance(item, Message) else item.column("offset")[0].as_py()
        if handed_out is None or not handed_out.first <= offset < handed_out.end:
            raise UsageError(
                f"{_name(place, offset)} was not handed out by this stream; call done() of the stream that did"
            )
        items = [] if unfinished is None or offset < handed_out.repeated else list(unfinished.items.values())
        if any(_covers(held, offset) for held in items):
            raise UsageError(
                f"{_name(place, offset)} is a copy or a part of what this stream handed out; call done() with the same "
                "object that the stream returned"
            )

    # -- under the lock ---------------------------------------------------------------------------------------------

    def admit(self, infos: Iterable[QueuedPartition]) -> None:
        """Record the items of these partitions from now on."""
        for info in infos:
            if info.unfinished is None:
                info.unfinished = Unfinished()
            info.unfinished.wake = None
            if self._of.get(info.partition) is not info.unfinished:
                self._repeat(info.partition)
                self._of[info.partition] = info.unfinished

    def add(self, info: QueuedPartition, items: Items) -> None:
        """Record what is about to be handed out of a partition."""
        if info.unfinished is None or not items:
            return
        held = list(items.values())
        first, end = held[0].offset, (held[-1].last if isinstance(held[-1], UnfinishedBatch) else held[-1].offset) + 1
        if info.unfinished.add(items, first, end):
            self._repeat(info.partition)
        before = self._handed_out.get(info.partition, _HandedOut(first, end))
        self._handed_out[info.partition] = before._replace(first=min(first, before.first), end=max(end, before.end))

    def _repeat(self, partition: TopicPartition) -> None:
        """What was handed out so far may be handed out again."""
        before = self._handed_out.get(partition)
        if before is not None:
            self._handed_out[partition] = before._replace(repeated=before.end)

    def room(self, info: QueuedPartition) -> int:
        """How many single records of a partition may be handed out; at least one."""
        return self._limit if info.unfinished is None else max(1, self._limit - info.unfinished.count())

    def holds_back(self, info: QueuedPartition) -> bool:
        """True if too many records of a partition are unfinished; it is paused then."""
        unfinished = info.unfinished
        if unfinished is None or unfinished.count() < self._limit:
            return False
        unfinished.wake = self._changed  # what is done from now on wakes the reader, who reviews before it waits
        self._room.review()
        self._waiting.pause(info.partition, PausedBy.UNFINISHED)
        return True

    def is_holding_back(self) -> bool:
        """True if a partition is paused."""
        return bool(self._waiting.paused_by(PausedBy.UNFINISHED))

    def review(self) -> bool:
        """Let the partitions continue of which enough records are done; True if there are any."""
        resumed = False
        for partition in self._waiting.paused_by(PausedBy.UNFINISHED):
            unfinished = self._of[partition]
            if unfinished.count() <= self._limit // 2:
                self._room.review()
                self._waiting.resume(partition, PausedBy.UNFINISHED)
                unfinished.wake = None
                resumed = True
        return resumed


def _covers(held: Message | UnfinishedBatch, offset: int) -> bool:
    return held.offset <= offset <= (held.last if isinstance(held, UnfinishedBatch) else held.offset)


def _name(place: tuple[Any, ...], offset: int) -> str:
    return f"{TopicPartition(*place)} offset {offset}"


def _place_of_batch(batch: Any) -> tuple[Any, ...]:
    """The partition of a batch."""
    try:
        return batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
    except (AttributeError, KeyError, IndexError, TypeError):
        kind = type(batch).__name__
        raise UsageError(f"done() needs a record or batch that the stream has handed out, not a {kind}") from None
