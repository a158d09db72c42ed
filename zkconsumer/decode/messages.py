"""Records as :class:`zkconsumer.model.Message` objects."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, TypeVar

from zkconsumer.decode.kernelloader import kernels
from zkconsumer.decode.records import Records
from zkconsumer.model import Message

MOST_AT_ONCE: Final = 2048
"""Number of messages built together: large enough that the cost per call matters little, and small enough that the
objects stay in the processor's cache until the user has them."""

M = TypeVar("M", bound=Message)


def records(batch: Any) -> Iterator[Message]:
    """The messages of a batch, in order; only some of them exist at a time. See :func:`build`."""
    starts = range(0, batch.num_rows, MOST_AT_ONCE)
    return chain.from_iterable(build(Message, batch.slice(start, MOST_AT_ONCE)) for start in starts)


def build(kind: type[M], batch: Any) -> list[M]:
    """The messages of records of one partition.

    Timestamps are in milliseconds; dates after the year 294,000, which the column cannot hold, have its maximum.
    Python's garbage collector does not track them if ``kind`` is :class:`~zkconsumer.model.Message` itself.

    Args:
        kind: class of the messages; its constructor is not called.
        batch: the records, or a batch in the schema of ``decode/schema.py``, with or without headers.

    Raises:
        MemoryError: there is not enough memory for all messages.
    """
    count = batch.num_rows
    if not count:
        return []
    if isinstance(batch, Records):
        plain, header_bytes = batch, batch.buffers.headers
        headers = None if header_bytes is None else kernels().header_tuples(header_bytes, plain.start, count)
    else:
        from zkconsumer.decode.arrow import headers_of, records_of

        plain, headers = records_of(batch), headers_of(batch)
    messages: list[M] = kernels().messages(kind, plain, headers)
    if len(messages) < count:
        raise MemoryError(f"not enough memory for {count} messages; lower fetch.message.max.bytes")
    return messages
