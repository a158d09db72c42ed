"""MessageStream: what a user iterates, record by record or Arrow batch by Arrow batch.

Cost per record is what matters here. ``__next__`` makes two calls into C: ``claim`` makes the next record the user's,
and only then the message is built (why in this order: ``fetch/chunks.py``; why not all at once: ``fetch/messages.py``).
All else is done once per chunk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeVar

from zkconsumer.errors import ConsumerTimeout, UsageError
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.chunks import Chunk, HandOver
from zkconsumer.fetch.queues import ChunkQueue, Ended
from zkconsumer.model import Message

M = TypeVar("M", bound=Message)


class MessageStream(Generic[M]):
    """The records of one consumer thread, in order within each partition.

    Iterating ends when the connector is shut down. It raises ConsumerTimeout when nothing arrives within
    ``consumer.timeout.ms``, and can go on afterwards; likewise AuthenticationFailed where brokers go on refusing this
    consumer, and ConfigError where a file that the settings name cannot be used, since both are tried again meanwhile.
    It raises the cause when the connector failed. Asking for the next record or batch releases the one before: from
    then on automatic commits cover it (``commit.on``, DESIGN 3.1).

    One thread uses a stream, the first that iterates; another may follow once that thread has ended.

    Args:
        queue: where the fetchers put what they fetch.
        name: of the consumer thread, for messages.
        kind: class of the messages.
        timeout_ms: ``consumer.timeout.ms``; negative waits for ever.
        reader: of the queue; one with the default settings where none is given.
    """

    def __init__(
        self, queue: ChunkQueue, *, name: str, kind: type[M], timeout_ms: int = -1, reader: ChunkReader | None = None
    ) -> None:
        self.queue = queue
        self._reader = reader or ChunkReader(queue)
        self.name = name
        self._timeout_s = None if timeout_ms < 0 else timeout_ms / 1000
        self._kind = kind
        self._thread: threading.Thread | None = None
        self._handover: HandOver | None = None
        self._claim: Callable[[], int] = deque[int]().popleft
        self._records: Iterator[M] = iter(())
        self._build: Callable[[], M] = self._records.__next__
        self._peeked: M | None = None

    def __repr__(self) -> str:
        return f"<MessageStream {self.name}>"

    def __iter__(self) -> Iterator[M]:
        self._check_thread()
        return self

    def __next__(self) -> M:
        try:
            self._claim()
        except IndexError:
            self._refill()
        return self._build()

    def peek(self) -> M:
        """The record that ``next`` gives next, without taking it: no position moves, and nothing is released.

        Until it is taken, a rebalance, a pause or a lapsed lease may still withdraw it; then ``next`` gives another.

        Raises:
            StopIteration: the connector was shut down.
            ConsumerTimeout: nothing arrived in time.
            UsageError: another thread uses this stream.
        """
        from zkconsumer.fetch.messages import records_as

        self._check_thread()
        if self._handover is None or self._handover.is_drained():
            chunk = self._arrived(self._reader.look(self._timeout_s))
            return next(records_as(self._kind, chunk.batch.slice(0, 1)))
        if self._peeked is None:
            self._peeked, self._build = self._build(), self._build_peeked
        return self._peeked

    def batches(
        self, *, max_rows: int | None = None, max_bytes: int | None = None, headers: bool = False
    ) -> Iterator[Any]:
        """The same records as ``pyarrow.RecordBatch`` objects, each of one partition and never empty.

        Columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType.
        The iterator behaves as the stream itself does, and may be mixed with it: records of a chunk that was begun
        record by record come as a smaller batch.

        Args:
            max_rows: largest number of records in one batch; None gives what was fetched together.
            max_bytes: largest size of the data of one batch, that is of its keys, values and headers; a record that is
                larger comes alone. Batches that were fetched together share that memory: it is freed with the last.
            headers: add the column ``headers`` (list of structs of key and value, null where there are none).

        Raises:
            UsageError: a limit is below 1, or another thread uses this stream.
        """
        self._check_thread()
        for limit in (max_rows, max_bytes):
            if limit is not None and limit < 1:
                raise UsageError(f"max_rows and max_bytes must be at least 1, and not {limit}; None is no limit")
        return _Batches(self, max_rows, max_bytes, headers)

    def next_batch(self, max_rows: int | None = None, max_bytes: int | None = None) -> Any:
        """One batch, with headers; see :meth:`batches`.

        Raises:
            StopIteration: the connector was shut down.
            ConsumerTimeout: nothing arrived in time.
            UsageError: another thread uses this stream.
        """
        self._check_thread()
        self.queue.withhold()
        while True:
            chunk = self._first_rows(self._next_chunk(), max_rows, max_bytes)
            handover = HandOver(chunk, [chunk.next_offset])
            if self.queue.begin(handover):
                try:
                    handover.claim()
                except IndexError:  # taken back between these two lines
                    continue
                return chunk.batch

    def release(self) -> None:
        """Say that the application is done with everything it got, without asking for more; by the reading thread."""
        self.queue.release()

    def _first_rows(self, chunk: Chunk, max_rows: int | None, max_bytes: int | None) -> Chunk:
        """Cut a chunk that is too long; the rest goes back to the front of the queue."""
        if max_rows is None and max_bytes is None:
            return chunk
        from zkconsumer.fetch.limits import rows_within

        rows: int = chunk.batch.num_rows if max_rows is None else min(max_rows, chunk.batch.num_rows)
        if max_bytes is not None:
            rows = min(rows, rows_within(chunk.batch, max_bytes))
        if rows == chunk.batch.num_rows:
            return chunk
        self.queue.put_back(chunk._replace(batch=chunk.batch.slice(rows)))
        first = chunk.batch.slice(0, rows)
        return chunk._replace(batch=first, next_offset=first.column("offset")[rows - 1].as_py() + 1)

    def close(self) -> None:
        """End the stream: its iterators stop. Positions stay as they are."""
        self.queue.close()

    def _build_peeked(self) -> M:
        """What :meth:`peek` has built already; takes the place of ``_build`` for one record."""
        message = self._peeked
        assert message is not None
        self._peeked, self._build = None, self._records.__next__
        return message

    def _refill(self) -> None:
        """Begin the next chunk and claim its first record."""
        from zkconsumer.fetch.messages import positions, records_as

        self._check_thread()
        while True:
            chunk = self._next_chunk()
            handover = HandOver(chunk, positions(chunk.batch))
            built = records_as(self._kind, chunk.batch)
            if self.queue.begin(handover):
                self._handover, self._claim = handover, handover.claim
                self._records, self._build, self._peeked = built, built.__next__, None
                try:
                    self._claim()
                except IndexError:  # taken back between these two lines
                    continue
                return

    def _next_chunk(self) -> Chunk:
        return self._arrived(self._reader.take(self._timeout_s))

    def _arrived(self, chunk: Chunk | Literal[Ended.END] | None) -> Chunk:
        if chunk is None:
            raise ConsumerTimeout(f"nothing arrived for {self.name} within {self._timeout_s} s; iterate again to go on")
        if isinstance(chunk, Ended):
            raise StopIteration
        return chunk

    def _check_thread(self) -> None:
        current = threading.current_thread()
        if self._thread is current:
            return
        if self._thread is not None and self._thread.is_alive():
            raise UsageError(
                f"stream {self.name} belongs to thread {self._thread.name}, and thread {current.name} iterates it too; "
                "ask for one stream per thread, or let the first thread end"
            )
        self._thread = current


class _Batches:
    """Iterator of a stream's batches; unlike a generator it goes on after an exception."""

    def __init__(self, stream: MessageStream[Any], max_rows: int | None, max_bytes: int | None, headers: bool) -> None:
        from zkconsumer.fetch.schema import SCHEMA

        self._stream = stream
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._columns = None if headers else SCHEMA.names

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._stream.next_batch(self._max_rows, self._max_bytes)
        return batch if self._columns is None else batch.select(self._columns)
