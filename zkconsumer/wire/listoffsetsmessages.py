"""ListOffsets messages, encoded by hand: Spark's driver requests the ends of thousands of logs at each trigger.

Layouts are those of Kafka's ``ListOffsetsRequest`` and ``ListOffsetsResponse`` message definitions. Version 5 is the
newest with anything used here (OFFSET_NOT_AVAILABLE); every broker that supports a later version supports this one,
too.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from zkconsumer.model import TopicPartition
from zkconsumer.wire.errorcodes import error_name, is_refusal
from zkconsumer.wire.fields import Fields, by_topic, encode_topics, reporting_malformed
from zkconsumer.wire.isolation import ISOLATION_LEVELS, READ_UNCOMMITTED
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH

LIST_OFFSETS_VERSIONS: Final = (0, 5)

_CONSUMER: Final = -1  # replica id of every client that is not a follower

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_SEGMENTS_ANSWER: Final = struct.Struct(">ih")  # partition, error
_ANSWER: Final = struct.Struct(">ih8xq")  # partition, error, (timestamp,) offset
_ANSWER_WITH_EPOCH: Final = struct.Struct(">ih8xqi")  # the same, leader epoch
_FIRST_WITH_EPOCHS: Final = 4
_NO_EPOCHS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Offsets:
    """Answer to a look-up of offsets.

    Attributes:
        found: the offset of each partition; None if no record has the requested timestamp or a later one.
        errors: error code of each partition without an answer.
        causes: text for the error, if it is more specific than the code: why the leader could not be asked.
        epochs: epoch of the leader that reported the end of the log, where it did; otherwise that of the record found.
    """

    found: dict[TopicPartition, int | None] = field(default_factory=dict)
    errors: dict[TopicPartition, int] = field(default_factory=dict)
    causes: dict[TopicPartition, str] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)

    def refused(self) -> dict[TopicPartition, int]:
        """The errors that a retry gets again until an operator removes their cause."""
        return {partition: code for partition, code in self.errors.items() if is_refusal(code)}

    def add(self, answer: Offsets) -> None:
        """Add the answer for other partitions."""
        self.found.update(answer.found)
        self.errors.update(answer.errors)
        self.causes.update(answer.causes)
        self.epochs.update(answer.epochs)

    def updated(self, later: Offsets) -> Offsets:
        """This answer, updated by a later one for some of its partitions."""
        answered = later.found.keys() | later.errors.keys()
        errors = {p: code for p, code in self.errors.items() if p not in answered}
        causes = {p: cause for p, cause in self.causes.items() if p not in answered}
        epochs = self.epochs | later.epochs
        return Offsets(self.found | later.found, errors | later.errors, causes | later.causes, epochs)

    def reasons(self) -> dict[str, list[TopicPartition]]:
        """Why partitions have no answer, for log lines: each reason, and its partitions."""
        by_reason: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition in sorted(self.errors):
            by_reason[self.causes.get(partition) or error_name(self.errors[partition])].append(partition)
        return by_reason


def encode_list_offsets(
    version: int,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: str = READ_UNCOMMITTED,
    max_offsets: int = 1,
    epochs: Mapping[TopicPartition, int] = _NO_EPOCHS,
) -> bytes:
    """Body of a request.

    Args:
        version: version of the request.
        wanted: per partition a timestamp in ms since the epoch, or that of the log start or log end.
        isolation: a value of ``isolation.level``; not sent before version 2.
        max_offsets: limit of segment offsets per partition in version 0; later versions return one offset.
        epochs: epochs of the leaders that are asked, as far as known; not sent before version 4.
    """
    if version == 0:
        of_one = struct.Struct(">iqi")
        encoded = {tp: of_one.pack(tp.partition, timestamp, max_offsets) for tp, timestamp in wanted.items()}
    elif version < _FIRST_WITH_EPOCHS:
        of_one = struct.Struct(">iq")
        encoded = {tp: of_one.pack(tp.partition, timestamp) for tp, timestamp in wanted.items()}
    else:
        of_one = struct.Struct(">iiq")
        encoded = {
            tp: of_one.pack(tp.partition, epochs.get(tp, UNKNOWN_EPOCH), timestamp) for tp, timestamp in wanted.items()
        }
    level = struct.pack(">b", ISOLATION_LEVELS[isolation]) if version >= 2 else b""
    topics = {topic: [encoded[tp] for tp in of_topic] for topic, of_topic in by_topic(wanted).items()}
    return _INT32.pack(_CONSUMER) + level + encode_topics(topics)


def decode_list_offsets(version: int, body: memoryview) -> Offsets:
    """Parse a response. Of the segment offsets in version 0, the first one, the newest, is the answer.

    Raises:
        ProtocolError: the response is malformed.
    """
    offsets = Offsets()
    if version == 0:
        for key, (error, segments) in decode_segment_offsets(body).items():
            if error:
                offsets.errors[key] = error
            else:
                offsets.found[key] = segments[0] if segments else None
        return offsets
    with reporting_malformed("ListOffsets", version):
        fields = Fields(body)
        if version >= 2:
            fields.take(_INT32)  # throttle time, which the connection heeds
        for _ in range(fields.count()):
            topic = fields.text()
            layout = _ANSWER if version < _FIRST_WITH_EPOCHS else _ANSWER_WITH_EPOCH
            for partition, error, offset, *epoch in fields.rows(layout):
                key = TopicPartition(topic, partition)
                if error:
                    offsets.errors[key] = error
                    continue
                offsets.found[key] = offset if offset >= 0 else None
                if epoch and epoch[0] != UNKNOWN_EPOCH:
                    offsets.epochs[key] = epoch[0]
        fields.end()
    return offsets


def decode_segment_offsets(body: memoryview) -> dict[TopicPartition, tuple[int, list[int]]]:
    """Parse a response of version 0: the error code and the segment offsets of each partition, newest first.

    Raises:
        ProtocolError: the response is malformed.
    """
    segment_offsets: dict[TopicPartition, tuple[int, list[int]]] = {}
    with reporting_malformed("ListOffsets", 0):
        fields = Fields(body)
        for _ in range(fields.count()):
            topic = fields.text()
            for _ in range(fields.count()):
                partition, error = fields.take(_SEGMENTS_ANSWER)
                segment_offsets[TopicPartition(topic, partition)] = error, [offset for (offset,) in fields.rows(_INT64)]
        fields.end()
    return segment_offsets
