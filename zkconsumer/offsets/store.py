"""OffsetStore: the protocol of all places in which a group's offsets can be kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from zkconsumer.core.offsets import Mark
from zkconsumer.errors import TopicUnreadable
from zkconsumer.model import TopicPartition


class OffsetStore(Protocol):
    """Keeps, for one group, the next offset to consume of each partition."""

    def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The stored offset of each partition, None where none is stored.

        A partition whose stored value cannot be read is reported in the log and left out of the answer.

        Raises:
            RetriableError, SessionExpired: nothing is known.
            GroupAuthorizationFailed: Kafka stores the offsets, and a permission on the group is missing.
        """

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        may_send: Callable[[], bool] = lambda: True,
        retry: bool = True,
    ) -> set[TopicPartition]:
        """Store offsets; returns the partitions for which that is done.

        Args:
            offsets: next offset to consume, by partition.
            may_send: asked right before each request, also before each further attempt, that the store cannot fence:
                False while another member may own the partitions.
            retry: False makes one attempt, since other members wait for the partitions.

        Raises:
            LeaseLapsed: ``may_send`` returned False.
            RetriableError, SessionExpired: which of them were stored is unknown; storing them again is harmless.
        """

    def invalidate(self, partitions: Collection[TopicPartition]) -> None:
        """Take what is known of these as outdated, since another client may write them: the next commit writes them."""

    def refused(self) -> Mapping[TopicPartition, TopicUnreadable]:
        """Of the partitions left out of the last answer of :meth:`fetch`, those for which a permission is missing."""

    def marks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Mark | None]:
        """Of each partition the mark of the stored offset that this store last read or wrote; None if unknown.

        Raises:
            RetriableError, SessionExpired: a mark has to be looked up, and the store does not answer.
        """

    def commits(self) -> dict[str, int]:
        """Offsets written so far, by the storage that they went to: ``zookeeper``, ``kafka``."""

    def location(self, partition: TopicPartition) -> str:
        """Where the offset of a partition is kept, for messages."""

    def close(self) -> None:
        """Let go of what the store holds on its own; what it was given stays open."""
