"""KafkaOffsetStore: offsets in Kafka's own ``__consumer_offsets`` (jvm-consumer.md#offsets-in-kafka)."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping

from zkconsumer.errors import LeaseLapsed, TopicUnreadable
from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.offsetmessages import StoredOffsets
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.offsets.rules.storedoffsets import (
    NO_OFFSET,
    StoredOffset,
    is_unique,
    our_metadata,
    stamp_of,
)
from zkconsumer.offsets.rules.topicorigins import TopicOrigin, WrittenFor, judge_offset
from zkconsumer.wire.attempts import Attempts
from zkconsumer.wire.errorcodes import NO_SUCH_TOPIC, error_name, is_refusal
from zkconsumer.wire.rules.denials import PATIENCE
from zkconsumer.wire.rules.retrypolicy import RetryPolicy

_log = logging.getLogger(__name__)


class KafkaOffsetStore:
    """Offsets of one group at its coordinator; an :class:`~zkconsumer.offsets.offsetstore.OffsetStore`.

    Every commit names all partitions, also unchanged ones, as the JVM's does: brokers delete offsets that were not
    committed for ``offsets.retention.minutes`` (KAFKA-1510). The metadata of a commit is unique to the offset that it
    stores, so that a later reader can recognise this very commit, and has the id of the topic that the offset belongs
    to; other clients ignore it. Of a group that ZooKeeper coordinates a commit cannot be fenced
    (architecture.md#fencing): one that was sent in time may arrive late.

    Args:
        coordinator: coordinator of the group.
        policy: how often a commit or a fetch is tried, and how long it may take in all.
        wait_before_retry: waits for the given seconds; True if there should be no further attempt, since other members
            wait for this one.
        is_fenced: True if the coordinator refuses offsets of clients that do not own a partition. Then the offset of
            one that this member has owned all the time is the one that it knows, and is not read again.
        on_close: called by :meth:`close`.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        coordinator: OffsetCoordinator,
        *,
        policy: RetryPolicy,
        wait_before_retry: Callable[[float], bool],
        is_fenced: bool = False,
        on_close: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator = coordinator
        self._policy = policy
        self._wait_before_retry = wait_before_retry
        self._is_fenced = is_fenced
        self._clock = clock
        self._on_close = on_close
        self._written = 0
        self._stored: dict[TopicPartition, StoredOffset] = {}
        self._unsure: set[TopicPartition] = set()  # a commit was not answered: their stored offset is unknown
        self._errors: Mapping[TopicPartition, int] = {}
        self._topics: dict[str, TopicOrigin] = {}

    def fetch(
        self,
        partitions: Collection[TopicPartition],
        kept: Collection[TopicPartition] = (),
        *,
        again: bool = False,
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`.OffsetStore.fetch`."""
        if not partitions:
            return {}
        known = {p: self._stored[p] for p in kept if p in self._stored and p not in self._unsure and self._is_fenced}
        unknown = [partition for partition in partitions if partition not in known]
        stored = self._read(unknown) if unknown else StoredOffsets({}, {}, 0)
        for partition, code in stored.errors.items():
            _log.log(
                logging.DEBUG if self._errors.get(partition) == code else logging.ERROR,
                "%s is not consumed, since its offset in Kafka cannot be read: %s; %s",
                partition,
                error_name(code),
                _advice(code),
            )
        others = {p: code for p, code in self._errors.items() if p not in partitions} if again else {}
        self._errors = {**others, **stored.errors}
        self._stored.update(stored.found)
        self._unsure.difference_update(stored.found)
        return {partition: offset.offset for partition, offset in (known | stored.found).items()}

    def _read(self, partitions: Collection[TopicPartition]) -> StoredOffsets:
        """Read offsets, and again where a permission is newly missing: it may have been granted meanwhile."""
        attempts = self._attempts(self._policy)
        stored = self._coordinator.fetch(partitions, attempts)
        for _ in range(1, PATIENCE):
            refused = {p for p, code in stored.errors.items() if is_refusal(code) and p not in self._errors}
            if not refused or not attempts.pause():
                break
            again = self._coordinator.fetch(refused, attempts)
            left = {partition: code for partition, code in stored.errors.items() if partition not in refused}
            stored = StoredOffsets(stored.found | again.found, left | again.errors, 0)
        return stored

    def refused(self) -> dict[TopicPartition, TopicUnreadable]:
        """See :meth:`.OffsetStore.refused`."""
        refused = {partition: code for partition, code in self._errors.items() if is_refusal(code)}
        return {partition: self._coordinator.refusal(partition.topic, code) for partition, code in refused.items()}

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        stamp: Stamp | None = None,
        may_send: Callable[[], bool] = lambda: True,
        retry: bool = True,
    ) -> set[TopicPartition]:
        """See :meth:`.OffsetStore.commit`."""
        if not offsets:
            return set()

        def require_lease() -> None:
            if not may_send():
                raise LeaseLapsed(
                    "not committed to Kafka: another member may own the partitions by now, since the lease lapsed or "
                    "they were released"
                )

        marked = {partition: self._marked(partition, offset, stamp) for partition, offset in offsets.items()}
        attempts = self._attempts(self._policy if retry else self._policy.once())
        self._unsure.update(offsets)
        outcome = self._coordinator.commit(marked, before_send=require_lease, attempts=attempts)
        self._unsure.difference_update(offsets)
        for partition, code in outcome.refused.items():
            _log.error(
                "offset %d of %s is not stored in Kafka: %s; %s",
                offsets[partition],
                partition,
                error_name(code),
                _advice(code),
            )
        self._written += len(outcome.accepted)
        self._stored.update((partition, marked[partition]) for partition in outcome.accepted)
        return outcome.accepted

    def sends(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """See :meth:`.OffsetStore.sends`: brokers delete offsets that are not committed for long (adr/0004)."""
        return offsets.keys()

    def consume(self, topics: Mapping[str, TopicOrigin]) -> None:
        """See :meth:`.OffsetStore.consume`."""
        self._topics.update(topics)

    def invalidate(self, partitions: Collection[TopicPartition]) -> None:
        """See :meth:`.OffsetStore.invalidate`."""
        for partition in partitions:
            self._stored.pop(partition, None)

    def stored(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """See :meth:`.OffsetStore.stored`: marked by their metadata."""
        stored = {partition: self._stored.get(partition, NO_OFFSET) for partition in partitions}
        return {partition: offset._replace(stamp=stamp_of(offset.mark)) for partition, offset in stored.items()}

    def _marked(self, partition: TopicPartition, offset: int, stamp: Stamp | None) -> StoredOffset:
        """The offset with metadata that no other commit has; an unchanged one of the same topic keeps its metadata."""
        known, origin = self._stored.get(partition), self._topics.get(partition.topic)
        unchanged = known is not None and known.offset == offset and is_unique(known.mark)
        if known is not None and unchanged and judge_offset(origin, known).written_for is not WrittenFor.EARLIER:
            return known
        topic_id = None if origin is None else origin.identity.topic_id
        return StoredOffset(offset, our_metadata(uuid.uuid4().hex, topic_id, stamp))

    def commits(self) -> dict[str, int]:
        """See :meth:`.OffsetStore.commits`."""
        return {"kafka": self._written}

    def location(self, partition: TopicPartition) -> str:  # noqa: ARG002 - the same for every partition
        """The internal topic; brokers have no name for the place of one offset."""
        return OFFSETS_TOPIC

    def close(self) -> None:
        """See :meth:`.OffsetStore.close`."""
        self._on_close()

    def _attempts(self, policy: RetryPolicy) -> Attempts:
        """The attempts of an operation that begins now."""
        return Attempts(policy, self._wait_before_retry, self._clock)


def _advice(code: int) -> str:
    return "the topic was deleted" if code in NO_SUCH_TOPIC else "check the ACLs of group and topic"
