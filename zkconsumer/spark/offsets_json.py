"""The JSON texts that hold offsets: a batch in Spark's checkpoint, and positions in an option (DESIGN 4.7).

Spark compares two offsets by their text, so equal offsets must be written equally: every key is sorted as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.spark.planning import Span

VERSION = 1
EARLIEST = -2
LATEST = -1
"""The two names of a position that JSON can only spell as numbers, as in Spark's own Kafka source."""


def initial_offset() -> dict[str, Any]:
    """Where a query without a checkpoint begins: a constant, because Spark asks for it twice (FACTS C.2b)."""
    return {"v": VERSION, "topics": {}}


def encode_batch(spans: Mapping[TopicPartition, Span]) -> dict[str, Any]:
    """The end offset of a batch: what it read of each partition, ``{"v":1,"topics":{"t":{"0":[from,until]}}}``."""
    topics: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), (start, until) in spans.items():
        topics.setdefault(topic, {})[str(partition)] = [start, until]
    return {"v": VERSION, "topics": {topic: dict(sorted(topics[topic].items())) for topic in sorted(topics)}}


def decode_batch(offset: Mapping[str, Any]) -> dict[TopicPartition, Span]:
    """Read what :func:`encode_batch` wrote, perhaps a release ago.

    Raises:
        UsageError: the checkpoint was written by another source or by a newer release of this one.
    """
    if offset.get("v") != VERSION:
        raise UsageError(
            f"the checkpoint holds an offset of version {offset.get('v')!r}, this release reads version {VERSION}: "
            "check that the checkpoint belongs to this query, or use the release that wrote it"
        )
    try:
        return {
            TopicPartition(topic, int(number)): Span(*_two_integers(span))
            for topic, partitions in offset["topics"].items()
            for number, span in partitions.items()
        }
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"the checkpoint holds {json.dumps(offset)[:200]}, which is no offset of this source ({error}): check that "
            "the checkpoint belongs to this query"
        ) from None


def _two_integers(span: object) -> tuple[int, int]:
    if isinstance(span, list) and len(span) == 2:
        start, until = span
        if type(start) is int and type(until) is int:
            return start, until
    raise ValueError(f"not a pair of integers: {span!r}")


def decode_positions(text: str) -> dict[TopicPartition, int]:
    """Read ``startingOffsets`` or ``endingOffsets``: ``{"t":{"0":23,"1":-2}}``, -2 earliest and -1 latest.

    Raises:
        ValueError: with what is wrong, to be prefixed by the option's name.
    """
    return _numbers_by_partition(text, "offset", EARLIEST)


def decode_timestamps(text: str) -> dict[TopicPartition, int]:
    """Read ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp``: ``{"t":{"0":1700000000000}}``, in ms.

    Raises:
        ValueError: as :func:`decode_positions`.
    """
    return _numbers_by_partition(text, "timestamp", 0)


def _numbers_by_partition(text: str, what: str, minimum: int) -> dict[TopicPartition, int]:
    try:
        topics = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(topics, dict) or not all(isinstance(partitions, dict) for partitions in topics.values()):
        raise ValueError('must look like {"topic":{"0":23,"1":42}}')
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        for partition, number in partitions.items():
            if not (partition.isascii() and partition.isdigit()):
                raise ValueError(f"has {partition!r} as a partition of topic {topic}")
            if type(number) is not int or number < minimum:
                raise ValueError(f"has {number!r} as the {what} of {topic}-{partition}")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers
