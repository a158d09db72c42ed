"""WaitingChunks: the chunks of a queue in their order, those that are paused, and the sums for its bounds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from zkconsumer.fetch.chunks import Chunk

if TYPE_CHECKING:
    from zkconsumer.fetch.partition_info import PartitionInfo
    from zkconsumer.model import TopicPartition


class WaitingChunks:
    """Used under the lock of its queue, which knows what the order means; nothing here waits or calls anybody.

    A paused partition keeps its chunks, but outside the sums: otherwise what waits for a paused partition could fill
    the queue and stop the others, which nobody paused.

    Attributes:
        nbytes: of all chunks that are not paused.
    """

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._paused: dict[TopicPartition, deque[Chunk]] = {}
        self._counts: Counter[TopicPartition] = Counter()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def count(self, partition: TopicPartition) -> int:
        """How many chunks of a partition have records and are not paused."""
        return self._counts[partition]

    def lacking(self, infos: Collection[PartitionInfo], most: int, coming: PartitionInfo | None) -> list[PartitionInfo]:
        """Partitions with fewer than ``most`` chunks; none while all that are not paused have more than half of that.

        Args:
            infos: the partitions.
            most: chunks of each that may wait.
            coming: the one of which a chunk more is on its way.
        """
        counts = {
            info: self._counts[info.partition] + (info is coming)
            for info in infos
            if info.partition not in self._paused
        }
        if 2 * sum(counts.values()) > most * len(counts):
            return []
        return [info for info, count in counts.items() if count < most]

    def is_paused(self, partition: TopicPartition) -> bool:
        """True between :meth:`pause` and :meth:`resume`."""
        return partition in self._paused

    def add(self, chunk: Chunk, *, in_front: bool = False) -> None:
        """Add a chunk behind all others, or in front of them; one of a paused partition among what is paused of it."""
        chunks = self._paused.get(chunk.info.partition)
        if chunks is None:
            chunks = self._chunks
            self._enter(chunk, 1)
        if in_front:
            chunks.appendleft(chunk)
        else:
            chunks.append(chunk)

    def first(self) -> Chunk | None:
        """The first chunk that has records and is not paused."""
        return next((chunk for chunk in self._chunks if chunk.has_records), None)

    def pop(self) -> Chunk | None:
        """Take out the first chunk that is not paused; if it is not decoded it stays where it is."""
        if not self._chunks:
            return None
        chunk = self._chunks[0]
        if chunk.scanned is None:
            self._chunks.popleft()
            self._enter(chunk, -1)
        return chunk

    def clear(self) -> None:
        """Drop everything, and forget what is paused."""
        self._chunks.clear()
        self._paused.clear()
        self._counts.clear()
        self.nbytes = 0

    def pause(self, partition: TopicPartition) -> bool:
        """Put what is here of a partition aside, and what will be added; False if that was done before."""
        if partition in self._paused:
            return False
        theirs = deque(chunk for chunk in self._chunks if chunk.info.partition == partition)
        self._chunks = deque(chunk for chunk in self._chunks if chunk.info.partition != partition)
        for chunk in theirs:
            self._enter(chunk, -1)
        self._paused[partition] = theirs
        return True

    def resume(self, partition: TopicPartition) -> None:
        """Undo :meth:`pause`: what was put aside comes after all others. Harmless if repeated."""
        for chunk in self._paused.pop(partition, ()):
            self.add(chunk)

    def replace(self, chunk: Chunk, parts: Sequence[Chunk]) -> bool:
        """Put ``parts`` in a chunk's place; False, and nothing is done, where it is not here any more."""
        chunks, at = self._find(chunk)
        if at < 0:
            return False
        if chunks is self._chunks:
            self._enter(chunk, -1)
            for part in parts:
                self._enter(part, 1)
        del chunks[at]
        for part in reversed(parts):
            chunks.insert(at, part)
        return True

    def drop_from(self, chunk: Chunk) -> bool:
        """Drop a chunk and those of its partition behind it; False, and nothing is done, where it is not here any more.

        Those in front of it stay: the end of a chunk that was being handed out may have been put back there.
        """
        chunks, at = self._find(chunk)
        if at < 0:
            return False
        behind = [one for number, one in enumerate(chunks) if number >= at]
        for _ in behind:
            chunks.pop()
        for one in behind:
            if one.info is not chunk.info:
                chunks.append(one)
            elif chunks is self._chunks:
                self._enter(one, -1)
        return True

    def _find(self, chunk: Chunk) -> tuple[deque[Chunk], int]:
        """Where a chunk is: among the others, or among what is paused, and at which place; -1 if it was dropped."""
        for chunks in (self._chunks, self._paused.get(chunk.info.partition, deque[Chunk]())):
            for at, one in enumerate(chunks):
                if one is chunk:
                    return chunks, at
        return self._chunks, -1

    def _enter(self, chunk: Chunk, sign: int) -> None:
        """Enter a chunk that is not paused into the sums; or take it out."""
        self.nbytes += sign * chunk.nbytes
        self._counts[chunk.info.partition] += sign * chunk.has_records
