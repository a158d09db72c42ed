"""Feed: produces the records in order, on a thread, up to a given share and at a given rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from demo.flights import Records
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox.producer import Record, produce

_SLICE = 4_000
"""Records produced together; at the demo's rate a few slices per second, so that the flow is steady."""


class Feed:
    """Produces into an existing, empty topic, from construction to the end of its ``with`` block.

    Args:
        brokers: brokers of the cluster.
        topic: topic with as many partitions as the records use.
        records: records to produce.
    """

    def __init__(self, brokers: Collection[Broker], topic: str, records: Records) -> None:
        self._brokers = tuple(brokers)
        self._topic = topic
        self._records = records
        self._changed = threading.Condition()
        self._limit = 0
        self._rate: float | None = None
        self._done = 0
        self._ending = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    @property
    def done(self) -> int:
        """Number of records that the brokers have acknowledged."""
        return self._done

    def release(self, share: float, rate: float | None = None) -> int:
        """Let the feed continue to this share of all records, at ``rate`` records/s (None: as fast as possible).

        Returns:
            The number of records at which it stops.
        """
        with self._changed:
            self._limit, self._rate = round(share * len(self._records)), rate
            self._changed.notify_all()
            return self._limit

    def expect_alive(self) -> None:
        """Raise ZkConsumerError if producing has failed."""
        if self._failure is not None:
            raise ZkConsumerError(f"producing failed after {self._done:,} records: {self._failure}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._may_continue():
                begun = time.monotonic()
                until = min(self._done + _SLICE, self._limit)
                self._produce(self._done, until)
                count, self._done = until - self._done, until
                if self._rate is not None:
                    self._keep_pace(begun + count / self._rate - time.monotonic())
        except Exception as error:  # noqa: BLE001 - passed to the thread that waits
            self._failure = error

    def _may_continue(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._limit > self._done)
            return not self._ending

    def _keep_pace(self, seconds: float) -> None:
        """Wait to keep the rate, or until the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending, max(0.0, seconds))

    def _produce(self, start: int, until: int) -> None:
        rows = slice(start, until)
        keys, values = (
            column[rows].cast(pa.binary()).to_pylist() for column in (self._records.keys, self._records.values)
        )
        timestamps = self._records.timestamps[rows].tolist()
        partitions = self._records.partitions[rows]
        produce(
            lambda: self._brokers,
            {
                TopicPartition(self._topic, int(number)): [
                    Record(values[row], keys[row], timestamps[row]) for row in np.flatnonzero(partitions == number)
                ]
                for number in np.unique(partitions)
            },
        )
