"""KafkaOffsetStore: offsets in Kafka's own ``__consumer_offsets`` (SPEC 8.4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from zkconsumer.errors import ConsumerClosed, RetriableError
from zkconsumer.kafka.coordinator import OffsetCoordinator
from zkconsumer.kafka.errorcodes import error_name
from zkconsumer.model import TopicPartition

_log = logging.getLogger(__name__)

T = TypeVar("T")


class KafkaOffsetStore:
    """Offsets of one group at its coordinator; an :class:`~zkconsumer.offsets.store.OffsetStore`.

    Every commit names all partitions, also unchanged ones, as the JVM's does: brokers forget offsets that nobody
    commits for ``offsets.retention.minutes`` (KAFKA-1510). It cannot be fenced (DESIGN 4.5): a commit that was sent in
    time may arrive late.

    Args:
        coordinator: of the group.
        retries: ``offsets.commit.max.retries``; attempts after the first.
        pause: waits before the next attempt; True if there should be none, since the consumer closes.
        may_commit: asked right before sending; False while another member may own the partitions.
        on_close: called by :meth:`close`.
    """

    def __init__(
        self,
        coordinator: OffsetCoordinator,
        *,
        retries: int,
        pause: Callable[[], bool],
        may_commit: Callable[[], bool] = lambda: True,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._coordinator = coordinator
        self._retries = retries
        self._pause = pause
        self._may_commit = may_commit
        self._on_close = on_close
        self._written = 0

    def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """See :meth:`OffsetStore.fetch <zkconsumer.offsets.store.OffsetStore.fetch>`."""
        return self._attempt(lambda: self._coordinator.fetch(partitions)) if partitions else {}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """See :meth:`OffsetStore.commit <zkconsumer.offsets.store.OffsetStore.commit>`."""
        if not offsets:
            return set()
        if not self._may_commit():
            raise RetriableError("not committed to Kafka: another member may own the partitions by now")
        outcome = self._attempt(lambda: self._coordinator.commit(offsets))
        for partition, code in outcome.refused.items():
            _log.error("offset %d of %s was refused: %s", offsets[partition], partition, error_name(code))
        self._written += len(outcome.accepted)
        return outcome.accepted

    def commits(self) -> dict[str, int]:
        """See :meth:`OffsetStore.commits <zkconsumer.offsets.store.OffsetStore.commits>`."""
        return {"kafka": self._written}

    def location(self, partition: TopicPartition) -> str:  # noqa: ARG002 - every partition's is there
        """The topic; brokers have no shorter name for one offset."""
        return "__consumer_offsets"

    def close(self) -> None:
        """See :meth:`OffsetStore.close <zkconsumer.offsets.store.OffsetStore.close>`."""
        self._on_close()

    def _attempt(self, request: Callable[[], T]) -> T:
        for _ in range(self._retries):
            try:
                return request()
            except RetriableError as error:
                _log.info("offset coordinator: %s; tried again", error)
                if self._pause():
                    raise ConsumerClosed(f"gave up while closing: {error}") from error
        return request()
