"""The task of a contestant in the fetch benchmark, its clock, and its result."""

from __future__ import annotations

import time
from typing import NamedTuple


class Task(NamedTuple):
    """The parameters of a reading.

    Attributes:
        zookeeper: connection string, for members of a group.
        bootstrap: brokers, for clients without ZooKeeper.
        group: a new group.
        topic: topic to read from its start.
        partitions: number of partitions of the topic.
        records: number of records in the topic.
        seconds: duration of the reading, from the first record on.
        kafka: release of the brokers.
        ca_location: certificate to verify brokers with; empty without TLS.
        prepared: file with the requests of the plain drain.
    """

    zookeeper: str
    bootstrap: str
    group: str
    topic: str
    partitions: int
    records: int
    seconds: float
    kafka: str = "3.9.1"
    ca_location: str = ""
    prepared: str = ""


class Run(NamedTuple):
    """The result of a contestant.

    Attributes:
        records: number of records read after the first ones.
        seconds: duration.
        peak_mib: the process's peak memory.
        began: time of the first ones, on the clock that all processes of the machine share.
    """

    records: int
    seconds: float
    peak_mib: float
    began: float = 0.0


class Clock:
    """Counts records; the first ones start the clock and are not counted, since they were read before that."""

    def __init__(self, task: Task) -> None:
        self.left = task.records
        self._limit = task.seconds
        self.began = 0.0
        self.counted = 0
        self.elapsed = 0.0

    def note(self, records: int) -> bool:
        """Count records that were just returned; True if the task is complete."""
        now = time.monotonic()
        self.left -= records
        if not self.began:
            self.began = now if records else 0.0
            return self.left <= 0
        self.counted += records
        self.elapsed = now - self.began
        return self.left <= 0 or self.elapsed >= self._limit
