"""Rules of offsets that are about to be written, for all commands: are they in their logs, and do they move back."""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.core.lag import outside_log
from zkconsumer.core.offsetreset import LogRange
from zkconsumer.model import TopicPartition


def outside_logs(
    offsets: Mapping[TopicPartition, int | None], logs: Mapping[TopicPartition, LogRange | None]
) -> list[TopicPartition]:
    """The partitions whose offset is not in the log, sorted: consumers begin there at ``auto.offset.reset``.

    Args:
        offsets: by partition; None is no offset.
        logs: the offsets of each log; a partition whose log is unknown is not in the result.
    """
    return sorted(
        partition
        for partition, offset in offsets.items()
        if (log := logs.get(partition)) is not None and outside_log(offset, log.start, log.end)
    )


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
    found = []
    for partition, offset in new.items():
        former, log = stored.get(partition), logs.get(partition)
        if offset is not None and former is not None and offset < (former if log is None else log.clamp(former)):
            found.append(partition)
    return sorted(found)
