"""Offsets as other consumers of the ZooKeeper era store them, and as Spark does: from bytes to the next offset.

=====================  ==========================================  =====================
layout                 place                                       the number means
=====================  ==========================================  =====================
Storm's spout          ``ROOT/ID/[TOPIC/]partition_N``, JSON       the next offset
receiver (dibbhatt)    ``PATH/ID/offsets/TOPIC/N``, a number       the last processed one
the same, older        ``PATH/ID/TOPIC/processed/partition_N``     the last processed one
Spark                  ``CHECKPOINT/offsets/N``, with commits/N    the next offset
Spark's option         ``startingOffsets``, JSON                   the next offset
=====================  ==========================================  =====================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from zkconsumer.errors import MalformedZnode, ZkConsumerError
from zkconsumer.model import TopicPartition

_PARTITION: Final = re.compile(r"partition_(\d{1,9})", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)
_MOST: Final = 2**63 - 2


def partition_number(name: str) -> int | None:
    """The number in a name such as ``partition_3``; None in another name.

    >>> partition_number("partition_3"), partition_number("3")
    (3, None)
    """
    match = _PARTITION.fullmatch(name)
    return None if match is None else int(match[1])


def storm_offset(path: str, data: bytes | None) -> tuple[TopicPartition, int]:
    """The partition in a znode of Storm's spout, and the next offset: the lowest one that was not acknowledged.

    Raises:
        MalformedZnode: it has other content.
    """
    document = _json_node(path, data)
    number = partition_number(path.rpartition("/")[2])
    topic = document.get("topic")
    if number is None or not isinstance(topic, str) or document.get("partition", number) != number:
        raise MalformedZnode(path, "topic or partition is missing, or another one than in its path")
    return TopicPartition(topic, number), _offset(path, document.get("offset"))


def receiver_offset(path: str, data: bytes | None) -> int:
    """The next offset after the last processed one, which the newer receiver stores as a number.

    Raises:
        MalformedZnode: it has other content.
    """
    text = (data or b"").decode("ascii", "replace").strip()
    return _offset(path, int(text) if re.fullmatch(r"\d{1,19}", text, re.ASCII) else text) + 1


def older_receiver_offset(path: str, data: bytes | None) -> int:
    """The same of the older receiver, which stores JSON.

    Raises:
        MalformedZnode: it has other content.
    """
    return _offset(path, _json_node(path, data).get("offset")) + 1


def _json_node(path: str, data: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise MalformedZnode(path, f"not JSON: {(data or b'')[:80]!r} ({error})") from None
    if not isinstance(document, dict):
        raise MalformedZnode(path, f"not a JSON object: {(data or b'')[:80]!r}")
    return document


def _offset(path: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise MalformedZnode(path, f"not an offset: {str(value)[:80]!r}")
    return value


# -- Spark ------------------------------------------------------------------------------------------------------------


def parse_starting_offsets(name: str, text: str) -> dict[TopicPartition, int]:
    """The offsets in the JSON of Spark's option ``startingOffsets``.

    Args:
        name: of the file, for messages.
        text: the JSON, ``{"topic": {"0": 23}}``.

    Raises:
        ZkConsumerError: another form, or -1 (latest) and -2 (earliest), which are no positions.
    """
    try:
        document = json.loads(text)
        offsets = {
            TopicPartition(topic, int(number)): offset
            for topic, numbers in document.items()
            for number, offset in numbers.items()
            if _require(isinstance(topic, str) and _NUMBER.fullmatch(number) is not None, "a partition")
        }
        for offset in offsets.values():
            _require(isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset <= _MOST, "an offset")
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ZkConsumerError(
            f'{name} does not hold offsets in the form {{"topic": {{"0": 23}}}}, with numbers from 0 on: {error}'
        ) from None
    return offsets


def _require(holds: bool, expected: str) -> bool:
    if not holds:
        raise ValueError(f"something is not {expected}")
    return True


def format_starting_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """The JSON of ``startingOffsets``, in the order of partitions."""
    document: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        document.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(document) + "\n"


def last_committed(names_of_offsets: Iterable[str], names_of_commits: Iterable[str]) -> tuple[int, bool] | None:
    """The last batch of a checkpoint that is finished, and whether a later one was begun; None if there is none.

    A batch that was begun and not finished is read again by the query, so its end is no position.

    Args:
        names_of_offsets: files in ``offsets``.
        names_of_commits: files in ``commits``.
    """
    begun = {int(name) for name in names_of_offsets if _NUMBER.fullmatch(name)}
    finished = begun & {int(name) for name in names_of_commits if _NUMBER.fullmatch(name)}
    return (max(finished), max(begun) > max(finished)) if finished else None


def parse_offset_log(name: str, text: str) -> dict[TopicPartition, int]:
    """The offsets of Kafka sources in a file of a checkpoint's offset log: a line for each source of the query.

    Args:
        name: of the file, for messages.
        text: its content; version 1.

    Raises:
        ZkConsumerError: another version, no Kafka source, or two sources that read one partition.
    """
    lines = text.splitlines()
    if not lines or lines[0].strip() != "v1":
        raise ZkConsumerError(
            f"{name} is of version {lines[0].strip()[:20] if lines else '?'} of the offset log, and only v1 is known; "
            "write the offsets into a file for spark-options"
        )
    offsets_of_sources: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines[2:], 3):
        if line.strip() == "-":  # a source that has not begun
            continue
        offsets = parse_starting_offsets(f"{name}, line {number},", line)
        if twice := sorted(offsets_of_sources.keys() & offsets.keys()):
            raise ZkConsumerError(f"{name}: two sources of the query read {twice[0]}; write one of them into a file")
        offsets_of_sources |= offsets
    if not offsets_of_sources:
        raise ZkConsumerError(f"{name} has no offsets of a Kafka source")
    return offsets_of_sources
