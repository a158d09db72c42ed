"""Span and OffsetRange: offsets of one partition from a start to an end."""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.model import TopicPartition


class Span(NamedTuple):
    """Offsets ``start`` (included) to ``until`` (excluded) of one partition."""

    start: int
    until: int

    @property
    def size(self) -> int:
        """Number of offsets; compaction and transactions may have left fewer records."""
        return self.until - self.start


class OffsetRange(NamedTuple):
    """A span with its partition."""

    topic: str
    partition: int
    start: int
    until: int

    @property
    def size(self) -> int:
        """Number of offsets in the range."""
        return self.until - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition to read."""
        return TopicPartition(self.topic, self.partition)

    @property
    def span(self) -> Span:
        """The offsets."""
        return Span(self.start, self.until)
