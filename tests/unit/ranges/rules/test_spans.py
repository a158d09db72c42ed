"""Offsets of one partition from a start to an end."""

from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.spans import OffsetRange, Span


def test_a_range_is_a_span_of_a_partition():
    assert Span(3, 10).size == 7
    piece = OffsetRange("t", 1, 3, 10)
    assert (piece.size, piece.topic_partition, piece.span) == (7, TopicPartition("t", 1), Span(3, 10))
