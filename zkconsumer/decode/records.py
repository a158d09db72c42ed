"""Records: the records of one partition as columns in plain buffers.

Messages and Arrow batches are made of them, each only when it is asked for; so a reader of messages does not load
pyarrow.
"""

from __future__ import annotations

from typing import Final

from zkconsumer.decode.buffers import Buffers


class Records:
    """Consecutive records of one partition; a slice shares the memory.

    Args:
        topic: of the partition.
        partition: its number.
        columns: the columns of batches that are made of it.
        buffers: the columns.
        start: first row in the buffers.
        num_rows: number of rows.
    """

    __slots__ = ("buffers", "columns", "num_rows", "partition", "start", "topic")

    def __init__(
        self, topic: str, partition: int, columns: tuple[str, ...], buffers: Buffers, start: int, num_rows: int
    ) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        self.columns: Final = columns
        self.buffers: Final = buffers
        self.start: Final = start
        self.num_rows: Final = num_rows

    def slice(self, start: int, count: int | None = None) -> Records:
        """The rows from ``start`` on, at most ``count``."""
        start = min(start, self.num_rows)
        rows = self.num_rows - start if count is None else min(count, self.num_rows - start)
        if rows == self.num_rows:
            return self
        return Records(self.topic, self.partition, self.columns, self.buffers, self.start + start, rows)

    @property
    def offsets(self) -> memoryview:
        """The offset of each record."""
        return self.buffers.offset[self.start : self.start + self.num_rows]
