"""OffsetCommitter: writes positions into the offset store. Used by the member's rebalance thread only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from zkconsumer.errors import CommitRefused, OffsetsNotStored
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.store import OffsetStore


class OffsetCommitter:
    """Commits positions, and remembers what is stored.

    Since one thread does both, no commit can run between the steps of a rebalance or for a share that was released
    (SPEC 8.2 tells of the JVM's timer, which can).

    Args:
        store: where offsets are kept.
        before_commit: makes durable what the application did with the records that a commit will cover.
    """

    def __init__(self, store: OffsetStore, before_commit: Callable[[], None] | None = None) -> None:
        self._store = store
        self._before_commit = before_commit
        self._stored: dict[TopicPartition, int | None] = {}

    def last_known(self, partition: TopicPartition) -> int | None:
        """What this member last read or wrote for the partition, None if nothing."""
        return self._stored.get(partition)

    def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Offsets stored for newly claimed partitions; unreadable ones are left out."""
        return self._store.fetch(partitions)

    def commits(self) -> dict[str, int]:
        """Offsets written so far, by storage."""
        return self._store.commits()

    def learn(self, stored: Mapping[TopicPartition, int | None]) -> None:
        """Replace what is known, once fetching really starts from it: an attempt that fails must change nothing."""
        self._stored = dict(stored)

    def location(self, partition: TopicPartition) -> str:
        """Where the offset of a partition is kept, for messages."""
        return self._store.location(partition)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets, after making durable what they cover.

        Raises:
            RetriableError, SessionExpired: some may not be stored; they are tried again by the next commit.
            CommitRefused: ``before_commit`` failed; nothing was stored.
            OffsetsNotStored: the store does not accept some; the others are stored.
        """
        if not offsets:
            return
        if self._before_commit is not None:
            try:
                self._before_commit()
            except Exception as error:
                raise CommitRefused(
                    f"offsets are not committed, what they cover could not be made durable: {error}"
                ) from error
        done = self._store.commit(offsets)
        self._stored.update((partition, offsets[partition]) for partition in done)
        missing = sorted(offsets.keys() - done)
        if missing:
            raise OffsetsNotStored(
                f"not stored, while the others were: {', '.join(map(str, missing))}; the log says why"
            )
