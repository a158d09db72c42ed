"""The records of one group in the log of ``__consumer_offsets``: all of them, while the log is not compacted."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.chaos.assignments import AssignmentHistory, ReconciledGroup, generation_of
from zkconsumer.testing.ledger import Committed, Record

_TOPIC: Final = "__consumer_offsets"
_KEY_VERSIONS: Final = (0, 1)
"""Keys of later versions are of the groups themselves."""
_ANSWER_S: Final = 30.0


def commit_of(key: bytes, value: bytes | None) -> tuple[str, str, int, int] | None:
    """Group, topic, partition and offset of a record; None if it is no commit, or the deletion of one."""
    (version,) = struct.unpack_from(">h", key)
    if version not in _KEY_VERSIONS or value is None:
        return None
    group, at = _text(key, 2)
    topic, at = _text(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    (offset,) = struct.unpack_from(">q", value, 2)
    return group, topic, partition, offset


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    return data[at + 2 : end].decode(), end


def read_history(bootstrap_servers: str, group: str, clock_difference: float) -> Iterator[Record]:
    """All commits of a group so far, and its assignments if brokers coordinate it; none before the first of them.

    Args:
        bootstrap_servers: of the cluster.
        group: name of the group.
        clock_difference: monotonic time minus the brokers' time in seconds since the epoch.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False, "log_level": 3}
    )
    try:
        topic = consumer.list_topics(timeout=_ANSWER_S).topics.get(_TOPIC)
        assignments, reconciled = AssignmentHistory(group), ReconciledGroup(group)
        for number in sorted(topic.partitions) if topic is not None else ():
            for message in _read_partition(consumer, number):
                at = message.timestamp()[1] / 1000 + clock_difference
                yield from _records(message, group, assignments, reconciled, at)
    finally:
        consumer.close()


def _records(
    message: Message, group: str, assignments: AssignmentHistory, reconciled: ReconciledGroup, at: float
) -> Iterator[Record]:
    key, value, position = message.key() or b"", message.value(), message.offset() or 0
    commit = commit_of(key, value)
    if commit is not None and commit[0] == group:
        _, topic, partition, offset = commit
        yield Committed(topic, partition, offset, "kafka", "", 0, position, 0, 0, at)
    generation = generation_of(key, value)
    if generation is not None and generation[0] == group:
        yield from assignments.records(generation[1], position, at)
    members = reconciled.after(key, value)
    if members is not None:
        yield from assignments.records(members, position, at)


def _read_partition(consumer: Consumer, number: int) -> Iterator[Message]:
    _, end = consumer.get_watermark_offsets(TopicPartition(_TOPIC, number), timeout=_ANSWER_S)
    if end == 0:
        return
    consumer.assign([TopicPartition(_TOPIC, number, OFFSET_BEGINNING)])
    while consumer.position([TopicPartition(_TOPIC, number)])[0].offset < end:
        message = consumer.poll(_ANSWER_S)
        assert message is not None, f"{_TOPIC}-{number} was not read to its end {end}"
        assert message.error() is None, message.error()
        yield message
