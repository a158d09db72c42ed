"""Records: the records of one partition as columns in plain buffers.

Messages and Arrow batches are made of them, each only when it is asked for; so a reader of messages does not load
pyarrow.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from zkconsumer.decode.arrow import BatchMaker

HEADERS_COLUMN: Final = "headers"
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Names of the columns of a batch without headers; ``schema.py`` has their types."""
ALL_COLUMNS: Final = (*COLUMNS, HEADERS_COLUMN)


class BinaryColumn(NamedTuple):
    """A column of bytes.

    Attributes:
        valid: a bit for each row, the lowest first; 0 for a null. None if no row is null.
        end: end of each row in ``data``, preceded by the beginning of the first.
        data: the bytes of all rows.
    """

    valid: Any
    end: memoryview
    data: memoryview


class HeaderBytes(NamedTuple):
    """The headers of records, as they are in the records.

    Attributes:
        data: the bytes.
        end: the number of headers up to the end of each record, preceded by a 0.
        at: position of the headers of each record that has any.
    """

    data: memoryview
    end: memoryview
    at: memoryview


class Buffers(NamedTuple):
    """The columns of a chunk. They may be longer than needed.

    Attributes:
        offset: of each record.
        timestamp: in microseconds.
        types: types of the timestamps: one for all records, or one for each.
        key: None if all keys are null.
        value: the values.
        headers: None if no record has any.
    """

    offset: memoryview
    timestamp: memoryview
    types: int | memoryview
    key: BinaryColumn | None
    value: BinaryColumn
    headers: HeaderBytes | None


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

    __slots__ = ("_batch", "buffers", "columns", "num_rows", "partition", "start", "topic")

    def __init__(
        self, topic: str, partition: int, columns: tuple[str, ...], buffers: Buffers, start: int, num_rows: int
    ) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        self.columns: Final = columns
        self.buffers: Final = buffers
        self.start: Final = start
        self.num_rows: Final = num_rows
        self._batch: Any = None

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

    @property
    def batch(self) -> Any:
        """The same records as a ``pyarrow.RecordBatch``, in the schema of ``decode/schema.py``."""
        if self._batch is None:
            self._batch = batch_maker().batch(self, self.columns)
        return self._batch


_of_thread = threading.local()


def batch_maker() -> BatchMaker:
    """The maker of the batches of this thread; the first one loads pyarrow."""
    maker: BatchMaker | None = getattr(_of_thread, "maker", None)
    if maker is None:
        from zkconsumer.decode.arrow import BatchMaker

        maker = _of_thread.maker = BatchMaker()
    return maker


def trim() -> None:
    """Free memory of this thread's maker of batches that was not needed lately."""
    maker: BatchMaker | None = getattr(_of_thread, "maker", None)
    if maker is not None:
        maker.constants.trim()
