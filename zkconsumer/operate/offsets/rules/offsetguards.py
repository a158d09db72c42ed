"""Rules of offsets that are about to be written, for all commands: are they in their logs, and do they move back."""

from __future__ import annotations

from collections.abc import Container, Mapping

from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import outside_log
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange, how_far


def outside_logs(
    offsets: Mapping[TopicPartition, int | None],
    logs: Mapping[TopicPartition, LogRange | None],
    recreated: Container[str] = (),
) -> list[TopicPartition]:
    """The partitions whose offset is not in the log, sorted: consumers begin there at ``auto.offset.reset``.

    Args:
        offsets: by partition; None is no offset.
        logs: the offsets of each log; a partition whose log is unknown is not in the result.
        recreated: topics that were deleted and created again since the offsets were stored.
    """
    return sorted(
        partition
        for partition, offset in offsets.items()
        if (log := _own_log(partition, logs, recreated)) is not None and outside_log(offset, log.start, log.end)
    )


def nearest_in_log(
    partition: TopicPartition,
    offset: int,
    logs: Mapping[TopicPartition, LogRange | None],
    recreated: Container[str] = (),
) -> int:
    """The nearest offset at which the log can be read; of a topic that was created again, where its log starts.

    An offset is used only for the topic that it was stored for (adr/0025). The offset itself where the log is unknown.
    """
    log = _own_log(partition, logs, recreated)
    return offset if log is None else log.clamp(offset)


def _own_log(
    partition: TopicPartition, logs: Mapping[TopicPartition, LogRange | None], recreated: Container[str]
) -> LogRange | None:
    """The offsets at which what was stored of a partition can continue; None if the log is unknown."""
    log = logs.get(partition)
    return LogRange(log.start, log.start) if log is not None and partition.topic in recreated else log


def moving_back(
    new: Mapping[TopicPartition, int | None],
    stored: Mapping[TopicPartition, int | None],
    logs: Mapping[TopicPartition, LogRange | None],
) -> list[TopicPartition]:
    """The partitions of which records would be read again if the new offset replaced the stored one, sorted.

    Args:
        new: offsets to write, by partition; None is no offset.
        stored: the offsets that they replace.
        logs: the offsets of each log, as far as it is known; records that a log no longer has are not read again.
    """
    return sorted(p for p, offset in new.items() if (how_far([stored.get(p)], offset, logs.get(p)) or 0) < 0)
