"""What a contestant of the fetch benchmark is asked to do, the clock that it counts with, and the result."""

from __future__ import annotations

import time
from typing import NamedTuple


class Task(NamedTuple):
    """What to read.

    Attributes:
        zookeeper: for members of a group.
        bootstrap: brokers, for clients without ZooKeeper.
        group: a new one.
        topic: to read from its start.
        partitions: of the topic.
        records: in the topic.
        seconds: how long to read, from the first record on.
        kafka: release of the brokers.
        ca_location: certificate to verify brokers with, which are connected by TLS then; else empty.
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
    """How it went.

    Attributes:
        records: read from the first ones on.
        seconds: that it took.
        peak_mib: the process's peak memory.
        began: when the first ones were there, on the clock that all processes of the machine share.
    """

    records: int
    seconds: float
    peak_mib: float
    began: float = 0.0


class Clock:
    """Counts records; the first ones start the time and do not count, since reading them took place before."""

    def __init__(self, task: Task) -> None:
        self.left = task.records
        self._limit = task.seconds
        self.began = 0.0
        self.counted = 0
        self.elapsed = 0.0

    def note(self, records: int) -> bool:
        """Note records that were just handed out; True if this was enough."""
        now = time.monotonic()
        self.left -= records
        if not self.began:
            self.began = now if records else 0.0
            return self.left <= 0
        self.counted += records
        self.elapsed = now - self.began
        return self.left <= 0 or self.elapsed >= self._limit
