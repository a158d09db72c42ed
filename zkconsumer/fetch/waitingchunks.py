"""WaitingChunks: the chunks of a queue in their order, the paused chunks, and the sums for the queue's bounds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from zkconsumer.fetch.chunks import Chunk, QueuedPartition

if TYPE_CHECKING:
    from zkconsumer.model import TopicPartition

Line = deque[Chunk]
P = TypeVar("P", bound=QueuedPartition)


class PausedBy(Enum):
    """Why a partition is paused. It continues when there is no reason any more."""

    USER = "user"
    UNFINISHED = "unfinished"
    """Too many of its records are unfinished (``max.unfinished.records``)."""


class _Lines(NamedTuple):
    """The chunks that are not paused, and those of each paused partition. The tuple and the dict are never changed."""

    active: Line
    paused: dict[TopicPartition, Line]

    def of(self, partition: TopicPartition) -> Line:
        """The line that holds the chunks of a partition."""
        return self.paused.get(partition, self.active)

    def replaced(self, line: Line, by: Line) -> _Lines:
        """A copy with one line replaced by another."""
        if line is self.active:
            return self._replace(active=by)
        return self._replace(
            paused={key: by if paused_line is line else paused_line for key, paused_line in self.paused.items()}
        )


class _Sums:
    """Sums of the chunks that are not paused."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.nbytes = 0
        self.counts: Counter[TopicPartition] = Counter()
        for chunk in chunks:
            self.enter(chunk, 1)

    def enter(self, chunk: Chunk, sign: int) -> None:
        """Add a chunk (1) or subtract it (-1)."""
        self.nbytes += sign * chunk.nbytes
        self.counts[chunk.info.partition] += sign * (not chunk.seen)


class WaitingChunks:
    """Used under the lock of its queue; no method blocks or calls user code.

    A paused partition keeps its chunks, but they do not count in the sums: otherwise they could fill the queue and stop
    the partitions that are not paused.

    An interrupt may end any method at any point. So each change of the chunks is one atomic step, a method of a deque
    or an assignment. The sums are dropped before the step and updated only after it. If an interrupt came in between,
    they are missing, and are computed from the chunks when needed.
    """

    def __init__(self) -> None:
        self._lines = _Lines(deque(), {})
        self._reasons: dict[TopicPartition, frozenset[PausedBy]] = {}
        self._sums: _Sums | None = None

    def __len__(self) -> int:
        return len(self._lines.active)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._lines.active)

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks that are not paused."""
        return self._summed().nbytes

    def count(self, partition: TopicPartition) -> int:
        """Number of chunks of a partition that are not paused, without those that the reader has seen."""
        return self._summed().counts[partition]

    def counts(self, infos: Collection[P]) -> tuple[Collection[P], list[int]]:
        """Those of the partitions that are not paused, and :meth:`count` of each."""
        counts, paused = self._summed().counts, self._lines.paused
        active = [info for info in infos if info.partition not in paused] if paused else infos
        return active, [counts.get(info.partition, 0) for info in active]  # its index calls Python if a key is missing

    def holds(self, chunk: Chunk) -> bool:
        """True if this chunk object is in the queue, paused or not."""
        return self._find(chunk)[1] >= 0

    def front(self) -> Chunk | None:
        """The first chunk that is not paused."""
        active = self._lines.active
        return active[0] if active else None

    def first(self) -> Chunk | None:
        """The first chunk that has records and is not paused."""
        for chunk in self._lines.active:
            if chunk.has_records:
                return chunk
        return None

    def see(self) -> None:
        """Do not count the chunks that are not paused, which have no records: the reader needs others after them."""
        active = self._lines.active
        self._sums = None
        for at, chunk in enumerate(active):
            if not chunk.seen:
                active[at] = chunk._replace(seen=True)

    def add(self, chunk: Chunk, *, in_front: bool = False) -> None:
        """Add a chunk after all others, or before them; a chunk of a paused partition among the partition's chunks."""
        line = self._lines.of(chunk.info.partition)
        sums, self._sums = self._sums, None
        if in_front:
            line.appendleft(chunk)
        else:
            line.append(chunk)
        if sums is not None:
            if line is self._lines.active:
                sums.enter(chunk, 1)
            self._sums = sums

    def drop_front(self) -> None:
        """Drop the first chunk that is not paused."""
        sums, self._sums = self._sums, None
        chunk = self._lines.active.popleft()
        if sums is not None:
            sums.enter(chunk, -1)
            self._sums = sums

    def drop_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Drop all chunks of these partitions, and forget whether they are paused."""
        active, paused = self._lines
        still_paused = {key: line for key, line in paused.items() if key not in partitions}
        self._reasons = {key: reasons for key, reasons in self._reasons.items() if key not in partitions}
        self._sums = None
        self._lines = _Lines(deque(chunk for chunk in active if chunk.info.partition not in partitions), still_paused)

    def clear(self) -> None:
        """Drop all chunks, and forget which partitions are paused."""
        self._reasons = {}
        self._sums = None
        self._lines = _Lines(deque(), {})

    def paused_by(self, reason: PausedBy) -> list[TopicPartition]:
        """The partitions that are paused for a reason, and perhaps for another one, too; also without the lock."""
        reasons_now = list(self._reasons.items())  # one step; an iteration would fail if another thread pauses one
        return [partition for partition, reasons in reasons_now if reason in reasons]

    def pause(self, partition: TopicPartition, reason: PausedBy = PausedBy.USER) -> bool:
        """Set the chunks of a partition aside, also those added later; False if it is paused already."""
        active, paused = self._lines
        self._reasons[partition] = self._reasons.get(partition, frozenset()) | {reason}
        if partition in paused:
            return False
        set_aside = deque(chunk for chunk in active if chunk.info.partition == partition)
        remaining = deque(chunk for chunk in active if chunk.info.partition != partition)
        self._sums = None
        self._lines = _Lines(remaining, {**paused, partition: set_aside})
        return True

    def resume(self, partition: TopicPartition, reason: PausedBy = PausedBy.USER) -> None:
        """Undo :meth:`pause`: the chunks that were set aside come after all others. Idempotent.

        The partition stays paused while there is another reason.
        """
        if others := self._reasons.get(partition, frozenset()) - {reason}:
            self._reasons[partition] = others
            return
        active, paused = self._lines
        if partition in paused:
            still_paused = {key: line for key, line in paused.items() if key != partition}
            self._sums = None
            self._lines = _Lines(active + paused[partition], still_paused)
        self._reasons.pop(partition, None)  # last: an interrupt before it leaves a reason, and resuming is repeated

    def replace(self, chunk: Chunk, parts: Sequence[Chunk]) -> bool:
        """Replace a chunk by ``parts``; False, without any effect, if the chunk is not in the queue any more."""
        line, at = self._find(chunk)
        if at < 0:
            return False
        sums, self._sums = self._sums, None
        if len(parts) == 1:
            line[at] = parts[0]
        else:
            self._lines = self._lines.replaced(line, deque([*islice(line, at), *parts, *islice(line, at + 1, None)]))
        if sums is not None and line is self._lines.active:
            sums.enter(chunk, -1)
            for part in parts:
                sums.enter(part, 1)
            self._sums = sums
        return True

    def following(self, chunk: Chunk) -> list[Chunk]:
        """A chunk and those of its partition after it; none if the chunk is not here."""
        line, at = self._find(chunk)
        return [] if at < 0 else [queued for queued in islice(line, at, None) if queued.info is chunk.info]

    def drop_from(self, chunk: Chunk) -> bool:
        """Drop what :meth:`following` returns; False, without any effect, if the chunk is not here.

        Chunks before it stay: the rest of a chunk that was being handed out may have been put back there.
        """
        line, at = self._find(chunk)
        if at < 0:
            return False
        kept = deque(queued for number, queued in enumerate(line) if number < at or queued.info is not chunk.info)
        self._sums = None
        self._lines = self._lines.replaced(line, kept)
        return True

    def _find(self, chunk: Chunk) -> tuple[Line, int]:
        """The line of a chunk and its place there, -1 if it was dropped."""
        line = self._lines.of(chunk.info.partition)
        for at, queued in enumerate(line):
            if queued is chunk:
                return line, at
        return line, -1

    def _summed(self) -> _Sums:
        if self._sums is None:
            self._sums = _Sums(self._lines.active)
        return self._sums
