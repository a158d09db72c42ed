"""QueuedPartition: the part of a partition's state that its queue uses."""

from __future__ import annotations

from zkconsumer.model import TopicPartition


class QueuedPartition:
    """One partition from its acquisition to its release. Each acquisition has its own object, compared by identity.

    The state that the fetchers use is in :class:`~zkconsumer.fetch.partitioninfo.PartitionInfo`.

    Args:
        partition: which one.

    Attributes:
        consumed: the offset after all consumed chunks, or None. Written by the user's thread.
    """

    __slots__ = ("consumed", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.consumed: int | None = None
