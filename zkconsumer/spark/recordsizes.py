"""RecordSizes: about how many bytes a batch has, for the number of its tasks (adr/0044)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.spans import Span

_log = logging.getLogger(__name__)

_VALID_S: Final = 60.0
_UNKNOWN_S: Final = 5.0
"""For how long the size of a topic's records is not asked for again, if it is known, and if it is not."""
_OF_TOPIC: Final = 8
_IN_ALL: Final = 64
"""Partitions that are asked for, of one topic and of all: a broker sends a batch of each."""


class RecordSizes:
    """Asks leaders for one batch of some partitions that are to be read, and remembers bytes per offset of each topic.

    One thread uses it.

    Args:
        ask: returns bytes per offset at some offsets, as far as brokers answer.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        ask: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, float]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._of_topic: dict[str, tuple[float, float]] = {}  # bytes per offset, and until when they are valid

    def bytes_of(self, spans: Mapping[TopicPartition, Span]) -> int:
        """About how many bytes these offsets have; 0 if that is unknown."""
        self._refresh(spans)
        known = [(self._of_topic[p.topic][0], span.size) for p, span in spans.items() if p.topic in self._of_topic]
        return round(sum(per_offset * size for per_offset, size in known))

    def _refresh(self, spans: Mapping[TopicPartition, Span]) -> None:
        now = self._clock()
        unknown = {p.topic for p in spans}.difference(t for t, (_, until) in self._of_topic.items() if until > now)
        if not unknown:
            return
        chosen: dict[str, list[TopicPartition]] = {}
        for partition, span in sorted(spans.items(), key=lambda item: -item[1].size):
            if partition.topic not in unknown or not span.size:
                continue
            of_topic = chosen.setdefault(partition.topic, [])
            if len(of_topic) < _OF_TOPIC and sum(map(len, chosen.values())) < _IN_ALL:
                of_topic.append(partition)
        if not chosen:
            return
        try:
            sizes = self._ask({p: spans[p].start for partitions in chosen.values() for p in partitions})
        except ZkConsumerError as error:  # the plan does not need it
            _log.debug("the size of records is unknown: %s", error)
            sizes = {}
        for topic, partitions in chosen.items():
            found = [sizes[p] for p in partitions if p in sizes]
            if found:
                self._of_topic[topic] = sum(found) / len(found), now + _VALID_S
            else:
                self._of_topic[topic] = self._of_topic.get(topic, (0.0, now))[0], now + _UNKNOWN_S
