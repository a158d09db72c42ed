"""The JSON encoding of offsets: of batches in Spark's checkpoint, and of positions in options.

See spark.md#offsets-and-the-checkpoint.

Spark compares two offsets by their text, so equal offsets must have equal text: keys are sorted as strings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zkconsumer.core.offsets import Mark
from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.spark.microbatch import Span
from zkconsumer.spark.sourceoffset import KnownTopic, SourceOffset

VERSION = 2
_REPORT_VERSION = 1
EARLIEST = -2
LATEST = -1
"""The two named positions, which JSON can only contain as numbers, as in Spark's own Kafka source."""


def initial_offset(group: str) -> dict[str, Any]:
    """The start of a query without a checkpoint: constant, since Spark requests it twice.

    See notes.md#order-of-sparks-calls.
    """
    return encode_offset(SourceOffset(group=group, known={}))


def encode_offset(offset: SourceOffset) -> dict[str, Any]:
    """The JSON of an offset in version 2; for the values see :class:`~zkconsumer.spark.sourceoffset.SourceOffset`.

    ``{"group":"g","known":{"t":[4,"topic id"]},"n":17,"topics":{"t":{"0":[from,until,mark]}},"v":2}``

    If leader epochs are known, ``"epochs":{"t":{"0":5}}`` is added, which earlier releases ignore (adr/0027).
    """
    known = offset.known or {}
    return {
        **({"epochs": _by_topic(offset.epochs)} if offset.epochs else {}),
        "group": offset.group,
        "known": {topic: list(known[topic]) for topic in sorted(known)},
        "n": offset.number,
        "topics": _by_topic({p: [*span, offset.marks.get(p)] for p, span in offset.spans.items()}),
        "v": VERSION,
    }


def decode_offset(offset: Mapping[str, Any]) -> SourceOffset:
    """Parse the JSON of :func:`encode_offset`, or of version 1, ``{"v":1,"topics":{"t":{"0":[0,9]}}}``.

    Raises:
        UsageError: another source, or a newer release of this one, wrote the checkpoint.
    """
    version = offset.get("v")
    if version not in (1, VERSION):
        raise UsageError(
            f"the checkpoint holds an offset of version {version!r}, but this release reads versions 1 and {VERSION}: "
            "check that the checkpoint belongs to this query, or use the release that wrote it"
        )
    try:
        return _version_1(offset) if version == 1 else _version_2(offset)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"the checkpoint holds {json.dumps(offset)[:200]}, not an offset of this source ({error}): check that "
            "the checkpoint belongs to this query"
        ) from None


def encode_report(group: str, available: Mapping[TopicPartition, Span], acknowledge: str | None) -> dict[str, Any]:
    """The JSON that a query's progress shows as ``latestOffset``: position and log end of each owned partition.

    Args:
        group: consumer group of the query.
        available: span of each partition from its position to its log end.
        acknowledge: path of the socket that takes acknowledgements of finished batches; None if there is none.
    """
    topics = _by_topic({partition: list(span) for partition, span in available.items()})
    socket = {} if acknowledge is None else {"acknowledge": acknowledge}
    return {**socket, "group": group, "topics": topics, "v": _REPORT_VERSION}


def _version_1(offset: Mapping[str, Any]) -> SourceOffset:
    return SourceOffset(spans={p: Span(*_integers(span, 2)) for p, span in _partitions(offset["topics"])})


def _version_2(offset: Mapping[str, Any]) -> SourceOffset:
    spans: dict[TopicPartition, Span] = {}
    marks: dict[TopicPartition, Mark | None] = {}
    for partition, [start, until, mark] in _partitions(offset["topics"]):
        spans[partition] = Span(*_integers([start, until], 2))
        marks[partition] = _mark(mark)
    known = {}
    for topic, [partitions, identity] in offset["known"].items():
        recorded = _mark(identity)
        if recorded is None:
            raise ValueError(f"topic {topic} has no identity")
        known[topic] = KnownTopic(_integers([partitions], 1)[0], recorded)
    (number,) = _integers([offset["n"]], 1)
    group = offset["group"]
    if not isinstance(group, str):
        raise TypeError(f"not a group: {group!r}")
    epochs = {p: _integers([epoch], 1)[0] for p, epoch in _partitions(offset.get("epochs", {}))}
    return SourceOffset(group, number, known, spans, marks, epochs)


def _by_topic(values: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, {})[str(partition)] = value
    return {topic: dict(sorted(topics[topic].items())) for topic in sorted(topics)}


def _partitions(topics: Mapping[str, Any]) -> list[tuple[TopicPartition, Any]]:
    return [
        (TopicPartition(topic, int(number)), value)
        for topic, partitions in topics.items()
        for number, value in partitions.items()
    ]


def _integers(values: object, count: int) -> list[int]:
    if isinstance(values, list) and len(values) == count and all(type(value) is int for value in values):
        return values
    raise ValueError(f"not {count} integers: {values!r}")


def _mark(value: object) -> Mark | None:
    if value is None or type(value) is int or isinstance(value, str):
        return value
    raise ValueError(f"neither a number nor a text: {value!r}")


def decode_positions(text: str) -> dict[TopicPartition, int]:
    """Parse ``startingOffsets`` or ``endingOffsets``: ``{"t":{"0":23,"1":-2}}``, -2 earliest and -1 latest.

    Raises:
        ValueError: malformed; its text follows the option's name.
    """
    return _numbers_by_partition(text, "offset", EARLIEST)


def decode_timestamps(text: str) -> dict[TopicPartition, int]:
    """Parse ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp``: ``{"t":{"0":1700000000000}}``, in ms.

    Raises:
        ValueError: as :func:`decode_positions`.
    """
    return _numbers_by_partition(text, "timestamp", 0)


def _numbers_by_partition(text: str, what: str, minimum: int) -> dict[TopicPartition, int]:
    try:
        topics = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
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
