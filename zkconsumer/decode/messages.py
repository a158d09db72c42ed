"""Batches as :class:`zkconsumer.model.Message` objects, built by the message kernel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from zkconsumer.decode.kernelloader import messagekernel
from zkconsumer.model import Message

MOST_AT_ONCE: Final = 2048
"""Number of messages built together: large enough that the cost per call matters little, and small enough that the
objects stay in the processor's cache until the user has them."""

_TIMESTAMP_TYPES: Final = (0, 1)
_NO_HEADERS: Final = ()
_NOTHING: Final = np.empty(0, np.uint8)

M = TypeVar("M", bound=Message)


def records(batch: Any) -> Iterator[Message]:
    """The messages of a batch, in order; only some of them exist at a time."""
    starts = range(0, batch.num_rows, MOST_AT_ONCE)
    return chain.from_iterable(build(Message, batch.slice(start, MOST_AT_ONCE)) for start in starts)


def build(kind: type[M], batch: Any) -> list[M]:
    """The messages of a batch of one partition, in the schema of ``decode/schema.py`` with or without headers.

    Timestamps are in milliseconds; dates after the year 294,000, which the column cannot hold, have its maximum.
    Python's garbage collector does not track them if ``kind`` is :class:`~zkconsumer.model.Message` itself.

    Args:
        kind: class of the messages; its constructor is not called.
        batch: the records.

    Raises:
        MemoryError: there is not enough memory for all messages.
    """
    count = batch.num_rows
    if not count:
        return []
    messages: list[Any] = [None] * count
    topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
    headers = _headers(batch)
    shared = (kind, topic, partition, None, *_TIMESTAMP_TYPES, _NO_HEADERS)
    of_headers = 0 if headers is None else id(headers)
    tracked = kind is not Message  # its class may refer to decoders, and these to who keeps the messages
    if messagekernel().build(id(messages), *map(id, shared), of_headers, *columns(batch), tracked) < count:
        raise MemoryError(f"not enough memory for {count} messages; lower fetch.message.max.bytes")
    return messages


def columns(batch: Any) -> tuple[Any, ...]:
    """The columns of a batch that the kernel reads, as arrays."""
    return (
        batch.column("offset").to_numpy(),
        batch.column("timestamp").view(pa.int64()).to_numpy(),
        batch.column("timestampType").to_numpy(),
        *_binary(batch.column("key")),
        *_binary(batch.column("value")),
    )


def _binary(column: Any) -> tuple[Any, Any, Any]:
    """The validity of each row of a binary column (empty if all are valid), the end of each row, and the bytes."""
    _, ends, data = column.buffers()
    first, count = column.offset, len(column)
    valid = _NOTHING if column.null_count == 0 else column.is_valid().cast(pa.uint8()).to_numpy()
    places = np.frombuffer(ends, np.int32, count + 1, 4 * first)
    return valid, places, _NOTHING if data is None or not data.size else np.frombuffer(data, np.uint8)


def _headers(batch: Any) -> list[tuple[tuple[str, bytes | None], ...]] | None:
    """The headers of each record; None if no record has any."""
    index = batch.schema.get_field_index("headers")
    column = None if index < 0 else batch.column(index)
    if column is None or column.null_count == len(column):
        return None
    flat = column.flatten()
    pairs = zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True)
    lengths = column.value_lengths().fill_null(0).to_pylist()
    return list(map(tuple, map(islice, repeat(pairs), lengths)))
