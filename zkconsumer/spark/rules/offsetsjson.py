"""The JSON encoding of offsets: of batches in Spark's checkpoint, and of positions in options.

See spark.md#offsets-and-the-checkpoint.

Spark compares two offsets by their text, so equal offsets must have equal text: keys are sorted as strings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, Mark, StoredOffset
from zkconsumer.ranges.rules.rangepositions import EARLIEST
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.rules.sourceoffset import KnownTopic, SourceOffset

VERSION = 3
_REPORT_VERSION = 1


class Report(NamedTuple):
    """What the progress of a query shows as ``latestOffset``.

    Attributes:
        group: consumer group of the query.
        available: position of each owned partition, and up to where its log can be read.
        acknowledge: path of the socket that takes acknowledgements of finished batches; None if there is none.
        owned: each owned partition, also those whose position or log end is not known.
        rebalances: how many this run of the query has seen, with that of its joining.
    """

    group: str
    available: Mapping[TopicPartition, Span]
    acknowledge: str | None
    owned: Set[TopicPartition] = frozenset()
    rebalances: int = 0


def initial_offset(group: str) -> dict[str, Any]:
    """The start of a query without a checkpoint: constant, since Spark requests it twice.

    See notes.md#order-of-sparks-calls.
    """
    return encode_offset(SourceOffset(group))


def encode_offset(offset: SourceOffset) -> dict[str, Any]:
    """The JSON of an offset in version 3; for the values see ``SourceOffset``.

    ``{"group":"g","known":{"t":[4,"topic id"]},"n":17,"q":"id","topics":{"t":{"0":[from,until,mark,stored]}},"v":3}``

    If leader epochs are known, ``"epochs":{"t":{"0":5}}`` is added (adr/0027, adr/0029).
    """
    planned = {}
    for partition, span in offset.spans.items():
        stored = offset.stored.get(partition, NO_OFFSET)
        planned[partition] = [*span, stored.mark, stored.offset]
    return {
        **({"epochs": _by_topic(offset.epochs)} if offset.epochs else {}),
        "group": offset.group,
        "known": {topic: list(offset.known[topic]) for topic in sorted(offset.known)},
        "n": offset.number,
        "q": offset.query,
        "topics": _by_topic(planned),
        "v": VERSION,
    }


def decode_offset(offset: Mapping[str, Any]) -> SourceOffset:
    """Parse the JSON of :func:`encode_offset`, or of version 2, which has neither ``q`` nor ``stored``.

    Raises:
        UsageError: another source, or a newer release of this one, wrote the checkpoint.
    """
    version = offset.get("v")
    if version not in (2, VERSION):
        raise UsageError(
            f"the checkpoint holds an offset of version {version!r}, but this release reads versions 2 and {VERSION}: "
            "check that the checkpoint belongs to this query, or use the release that wrote it"
        )
    try:
        return _decode(offset, _stored_of_version_2 if version == 2 else _stored)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"the checkpoint holds {json.dumps(offset)[:200]}, not an offset of this source ({error}): check that "
            "the checkpoint belongs to this query"
        ) from None


def encode_report(report: Report) -> dict[str, Any]:
    """The JSON of a report."""
    owned: dict[str, list[int]] = {}
    for topic, partition in sorted(report.owned):
        owned.setdefault(topic, []).append(partition)
    return {
        **({} if report.acknowledge is None else {"acknowledge": report.acknowledge}),
        "group": report.group,
        "owned": owned,
        "rebalances": report.rebalances,
        "topics": _by_topic({partition: list(span) for partition, span in report.available.items()}),
        "v": _REPORT_VERSION,
    }


def decode_report(text: str | None) -> Report | None:
    """The report in a query's progress; None if there is none, or another source or another release made it.

    Keys that are not known are ignored, so that a release may add some.
    """
    try:
        report = json.loads(text or "null")
        if report["v"] != _REPORT_VERSION or not isinstance(report["group"], str):
            return None
        available = {partition: Span(*_integers(span, 2)) for partition, span in _partitions(report["topics"])}
        owned = {TopicPartition(topic, n) for topic, numbers in report["owned"].items() for n in numbers}
        return Report(report["group"], available, report.get("acknowledge"), owned, report["rebalances"])
    except (KeyError, AttributeError, TypeError, ValueError):
        return None


def _decode(offset: Mapping[str, Any], read_stored: Callable[..., StoredOffset]) -> SourceOffset:
    spans: dict[TopicPartition, Span] = {}
    stored: dict[TopicPartition, StoredOffset] = {}
    for partition, [start, until, *at_planning] in _partitions(offset["topics"]):
        if not (type(start) is int and type(until) is int):
            raise ValueError(f"not 2 integers: {[start, until]!r}")
        spans[partition] = Span(start, until)
        stored[partition] = read_stored(start, *at_planning)
    known = {}
    for topic, [partitions, identity] in offset["known"].items():
        recorded = _mark(identity)
        if recorded is None:
            raise ValueError(f"topic {topic} has no identity")
        known[topic] = KnownTopic(_integer(partitions), recorded)
    number = _integer(offset["n"])
    group, query = offset["group"], offset.get("q")
    if not isinstance(group, str) or not (query is None or isinstance(query, str)):
        raise TypeError(f"not a group and the id of a query: {group!r}, {query!r}")
    epochs = {p: _integer(epoch) for p, epoch in _partitions(offset.get("epochs", {}))}
    return SourceOffset(group, number, known, spans, stored, epochs, query)


def _stored(_start: int, mark: object, stored: object) -> StoredOffset:
    return StoredOffset(None if stored is None else _integer(stored), _mark(mark))


def _stored_of_version_2(start: int, mark: object) -> StoredOffset:
    """The rule of version 2: with a mark that is not unique, the group's offset was at the beginning of the batch.

    With a unique mark it does not matter which offset that write has stored.
    """
    return StoredOffset(None if mark is None else start, _mark(mark))


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


def _integer(value: object) -> int:
    if type(value) is int:
        return value
    raise ValueError(f"not an integer: {value!r}")


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


def decode_assignment(text: str) -> frozenset[TopicPartition]:
    """Parse ``assign``: ``{"t":[0,1]}``.

    Raises:
        ValueError: as :func:`decode_positions`.
    """
    topics = _parse(text)
    if not isinstance(topics, dict) or not topics or not all(map(_are_partitions, topics.values())):
        raise ValueError('must look like {"topic":[0,1]}')
    return frozenset(TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers)


def _are_partitions(numbers: object) -> bool:
    return isinstance(numbers, list) and bool(numbers) and all(type(n) is int and n >= 0 for n in numbers)


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None


def _numbers_by_partition(text: str, what: str, minimum: int) -> dict[TopicPartition, int]:
    topics = _parse(text)
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
