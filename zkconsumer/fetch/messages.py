"""Records: batches as :class:`zkconsumer.model.Message` objects. Columns are converted in bulk, messages one by one.

Why one by one: a message is a tuple, which Python's garbage collector tracks. Ten thousand of them built at once make
it run again and again over objects that are all alive (measured: 1.5 M messages/s of 100 bytes, 3.5 M with the
collector switched off). The columns' bytes and integers are not tracked; a message that is built when it is asked for
and dropped before the next one costs the collector nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, repeat
from typing import Any, Generic, TypeVar

import pyarrow as pa

from zkconsumer.model import Message

_MICROS = 1000
_NO_TIMESTAMP = -1
_NO_HEADERS: tuple[()] = ()

Headers = tuple[tuple[str, bytes | None], ...]
M = TypeVar("M", bound=Message)


def records(batch: Any) -> Iterator[Message]:
    """The messages of a batch; see :func:`records_as`."""
    return records_as(Message, batch)


def warm() -> None:
    """Load what pyarrow loads at the first conversion, which is pandas where it is installed. Idempotent.

    It takes some 0.3 s. Otherwise the thread that reads would load it, where an interrupt can leave packages half
    imported.
    """
    _objects(pa.array([b""]))


def records_as(kind: type[M], batch: Any) -> Iterator[M]:
    """The messages of a batch in order; see :class:`Records`. The iterator does not need the batch any more."""
    return iter(Records(kind, batch))


class Records(Generic[M]):
    """The messages of a batch in the schema of ``fetch/schema.py``, with or without headers.

    Timestamps come back in milliseconds; dates beyond the year 294,000, which the column cannot hold, stay at its end.

    Args:
        kind: class of the messages; it must not need its constructor, which is not called.
        batch: the records.

    Attributes:
        offsets: of the records.
    """

    def __init__(self, kind: type[M], batch: Any) -> None:
        # zip and tuple.__new__ run in C; kind(...) would be a Python call for each record.
        self._build: Callable[[Iterable[Any]], M] = partial(tuple.__new__, kind)
        count = batch.num_rows
        kinds: list[int | None] = batch.column("timestampType").to_numpy().tolist()
        timestamps: list[int | None] = _timestamps(batch.column("timestamp"))
        if _NO_TIMESTAMP in kinds:
            timestamps = [None if kind == _NO_TIMESTAMP else at for at, kind in zip(timestamps, kinds, strict=True)]
            kinds = [None if kind == _NO_TIMESTAMP else kind for kind in kinds]
        topic, partition = batch.column("topic"), batch.column("partition")
        self._topic = topic[0].as_py() if count else ""  # a batch is of one partition
        self._partition = partition[0].as_py() if count else 0
        self.offsets: list[int] = batch.column("offset").to_numpy().tolist()
        self._columns = (timestamps, kinds, _objects(batch.column("key")), _objects(batch.column("value")))
        self._headers = _Headers(batch)

    def __iter__(self) -> Iterator[M]:
        return self.claimed(iter(self.offsets))

    def __getitem__(self, row: int) -> M:
        timestamps, kinds, keys, values = self._columns
        places = self._topic, self._partition, self.offsets[row]
        return self._build((*places, timestamps[row], kinds[row], keys[row], values[row], self._headers[row]))

    def claimed(self, offsets: Iterator[int]) -> Iterator[M]:
        """The messages in order, as long as ``offsets`` gives their offsets.

        A step of this iterator is one step for an interrupt, if that is true of ``offsets``.
        """
        topics, partitions = repeat(self._topic), repeat(self._partition)
        return map(self._build, zip(topics, partitions, offsets, *self._columns, self._headers, strict=False))


def _timestamps(column: Any) -> list[int | None]:
    millis: list[int | None] = (column.view(pa.int64()).to_numpy() // _MICROS).tolist()
    return millis


def _objects(column: Any) -> list[bytes | None]:
    """A binary column as ``bytes`` and None; a conversion in C, several times faster than ``to_pylist``."""
    if column.null_count == len(column):
        return [None] * len(column)
    values: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return values


class _Headers:
    """The headers of each record of a batch; built when they are asked for."""

    def __init__(self, batch: Any) -> None:
        self._count = batch.num_rows
        index = batch.schema.get_field_index("headers")
        column = None if index < 0 else batch.column(index)
        self._column = None if column is None or column.null_count == self._count else column
        self._built: list[Headers] | None = None

    def __iter__(self) -> Iterator[Headers]:
        if self._column is None:
            return repeat(_NO_HEADERS, self._count)
        flat = self._column.flatten()
        pairs = zip(flat.field(0).to_pylist(), _objects(flat.field(1)), strict=True)
        lengths = self._column.value_lengths().fill_null(0).to_pylist()
        # Each record takes as many pairs from the one iterator as it has; nothing of it is built ahead, nor in Python.
        return map(tuple, map(islice, repeat(pairs), lengths))

    def __getitem__(self, row: int) -> Headers:
        if self._column is None:
            return _NO_HEADERS
        if self._built is None:
            self._built = list(self)
        return self._built[row]
