"""QueuedPartition: a partition as its queue knows it."""

from __future__ import annotations

from zkconsumer.model import TopicPartition


class QueuedPartition:
    """One partition from its acquisition to its release; the object is its identity, so that a later one differs.

    What the fetching side knows of it besides is in :class:`~zkconsumer.fetch.partition_info.PartitionInfo`.

    Args:
        partition: which one.

    Attributes:
        consumed: the offset after all chunks that the user is done with, or None. Written by the user's thread.
    """

    __slots__ = ("consumed", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.consumed: int | None = None
