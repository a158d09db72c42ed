"""OffsetStore: the interface of the stores that can keep a group's offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from zkconsumer.errors import TopicUnreadable
from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.offsets.rules.topicorigins import TopicOrigin


class OffsetStore(Protocol):
    """Keeps, for one group, the next offset to consume of each partition."""

    def fetch(
        self, partitions: Collection[TopicPartition], kept: Collection[TopicPartition] = (), *, again: bool = False
    ) -> dict[TopicPartition, int | None]:
        """The stored offset of each partition, None if none is stored.

        A partition whose stored value cannot be read is logged, and is absent from the result. What is known of other
        partitions is forgotten, since other members own them now.

        Args:
            partitions: which ones.
            kept: those of them that this member has owned since it read or wrote them last. If the store would notice
                that another client writes one, it returns what it knows, so that the next commit reports such a write.
            again: these could not be read before, and are read again: what is known of other partitions stays.

        Raises:
            RetriableError, MembershipLost: no offset could be read.
            GroupAuthorizationFailed: Kafka stores the offsets, and a permission on the group is missing.
        """

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        stamp: Stamp | None = None,
        may_send: Callable[[], bool] = lambda: True,
        retry: bool = True,
    ) -> set[TopicPartition]:
        """Store offsets; returns the partitions whose offsets were stored.

        Args:
            offsets: next offset to consume, by partition.
            stamp: of these offsets (adr/0029); None for a client that stamps none.
            may_send: called right before each request that the store cannot fence, also before each further attempt:
                False while another member may own the partitions.
            retry: False makes one attempt, since other members wait for the partitions.

        Raises:
            LeaseLapsed: ``may_send`` returned False.
            RetriableError, MembershipLost: which of them were stored is unknown; storing them again is idempotent.
        """

    def sends(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """Those of these partitions whose offsets :meth:`commit` would send, and not skip since they are stored."""

    def consume(self, topics: Mapping[str, TopicOrigin]) -> None:
        """Offsets of these topics that are committed from now on belong to the topics with these identities.

        Of two stored offsets :meth:`stored` returns then the one that counts: not that of an earlier topic, if there is
        another one.
        """

    def invalidate(self, partitions: Collection[TopicPartition]) -> None:
        """Treat the known offsets of these as outdated, since others may write them: the next commit writes them."""

    def refused(self) -> Mapping[TopicPartition, TopicUnreadable]:
        """Partitions that are absent from the last result of :meth:`fetch` because a permission is missing."""

    def stored(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """The stored offset of each partition with its mark, as this store last read or wrote it; None if unknown.

        Raises:
            RetriableError, MembershipLost: a mark has to be looked up, and the store does not answer.
        """

    def commits(self) -> dict[str, int]:
        """Offsets written so far, by the storage that they went to: ``zookeeper``, ``kafka``."""

    def location(self, partition: TopicPartition) -> str:
        """Where the offset of a partition is kept, for messages."""

    def close(self) -> None:
        """Close what the store opened itself; what was passed to it stays open."""
