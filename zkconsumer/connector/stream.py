"""MessageStream: what a user iterates, record by record or Arrow batch by Arrow batch.

Two things matter for each record: what it costs, and that no interrupt skips it. So all that happens once per record is
one step of an iterator that is written in C (:func:`successive`): the record is claimed, built and returned, and the
interpreter cannot raise an exception in between. Everything else is done once per chunk, in Python, before the first
record of the chunk is claimed; an interrupt there leaves the chunk in the queue, or the next request puts it back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zkconsumer.errors import ConsumerClosed, ConsumerTimeout, UsageError
from zkconsumer.fetch.chunkqueue import ChunkQueue, Ended
from zkconsumer.fetch.chunkreader import ChunkReader, Item
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.handedout import HandOver
from zkconsumer.fetch.unfinished import NOTHING, unfinished_batch, unfinished_messages
from zkconsumer.model import Message
from zkconsumer.process.forks import Owner, call_in_child

if TYPE_CHECKING:
    import pyarrow as pa

    from zkconsumer.decode.records import Records

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def successive(ask: Callable[[], Iterator[T] | None]) -> Iterator[T]:
    """The items of one iterator after the other.

    Taking an item of the present iterator cannot be interrupted half-way, if that is true of the iterator itself: only
    what is done between two iterators is written in Python.

    Args:
        ask: returns the next iterator, None at the end. Its exceptions go to the caller, who may continue.
    """
    coming: deque[Iterator[T] | None] = deque()

    def prepare(_: None) -> T:
        """Put the next iterator in its place, if that was not done before an interrupt; never returns an item."""
        if not coming:
            following = ask()
            coming.extend((None,) if following is None else (following, preparing))
        raise StopIteration

    # This one has no items and never ends: whenever ``chain`` comes to it, it prepares what follows.
    preparing: Iterator[T] = map(prepare, repeat(None))
    coming.append(preparing)
    return chain.from_iterable(iter(coming.popleft, None))


class MessageStream(Generic[M]):
    """The records of one consumer thread, in order within each partition.

    Iterating ends when the connector is shut down. It raises ConsumerTimeout when no record arrives within
    ``consumer.timeout.ms``, WokenUp after ``wakeup`` of the connector, AuthenticationFailed when brokers keep refusing
    this consumer, and ConfigError when a file that the properties name cannot be used; after each of them the stream
    can be iterated again, and connections are tried again meanwhile. When the connector failed, it raises the cause.

    A stream that owns partitions of a topic which brokers keep refusing to serve raises TopicUnreadable, usually its
    subclass TopicAuthorizationFailed, once, and again only if the topic could be read in between. If offsets are stored
    in Kafka and a permission on the group is missing, every stream raises GroupAuthorizationFailed once. Every stream
    raises ZooKeeperRefused or MemberRefused once if ZooKeeper, or the coordinator of the group, keeps refusing this
    member. The stream can be iterated again: refused requests are repeated meanwhile, and other topics continue.

    A request for the next record or batch releases the previous one: from then on automatic commits cover it, as
    ``commit.on`` specifies. With ``commit.on=done`` they cover the records that :meth:`done` declares done.

    Only one thread uses a stream, the first that iterates; another may follow once that thread has ended. In a forked
    child every request raises UsageError, even with an iterator that was created before the fork.
    """

    def __init__(
        self,
        queue: ChunkQueue,
        *,
        name: str,
        kind: type[M],
        timeout_ms: int = -1,
        reader: ChunkReader | None = None,
        commit: Callable[[], None] | None = None,
    ) -> None:
        # queue: the queue that the fetchers fill.
        # name: consumer thread id, for messages.
        # kind: class of the messages.
        # timeout_ms: consumer.timeout.ms; negative waits without limit.
        # reader: reads the queue; None for one with the default settings.
        # commit: commits the positions of the queue's partitions; None if nothing can be committed.
        self._queue = queue
        self._reader = reader or ChunkReader(queue)
        self._name = name
        self._timeout_s = None if timeout_ms < 0 else timeout_ms / 1000
        self._patience_s = self._timeout_s  # of the request in progress
        self._kind = kind
        self._owner = Owner()
        self._thread: threading.Thread | None = None
        self._begun: HandOver[M] | None = None
        self._commit = commit
        self._messages = successive(self._next_records)
        call_in_child(self._abandon_begun)

    def __repr__(self) -> str:
        return f"<MessageStream {self._name}>"

    @property
    def name(self) -> str:
        """Id of the consumer thread that this stream is in its group."""
        return self._name

    def __iter__(self) -> Iterator[M]:
        self._check_thread()
        return self._messages

    def __next__(self) -> M:
        # The interpreter raises asynchronous exceptions when a function begins, after calls and at the end of a loop's
        # body: not from the step of this loop, which claims the record, to the caller, whose it is then.
        for message in self._messages:
            return message
        raise StopIteration

    def next_message(self, *, timeout: float | None = None) -> M | None:
        """The next record; None if none arrives in time, or once after ``wakeup`` of the connector.

        Args:
            timeout: how long to wait, in seconds; None for ``consumer.timeout.ms``, by default without limit.

        Raises:
            ConsumerClosed: the connector was shut down.
            UsageError: another thread uses this stream.
            ZkConsumerError: as when the stream is iterated.
        """
        self._patience_s = self._timeout_s if timeout is None else timeout
        try:
            for message in self._messages:  # see __next__; what follows the claim calls nothing
                return message
        except ConsumerTimeout:
            return None
        finally:
            self._patience_s = self._timeout_s
        raise stream_ended(self._name)

    def peek(self) -> M:
        """The record that ``next`` will return, without taking it: no position moves, and nothing is released.

        It is a copy, which cannot be passed to :meth:`done`.
        Until it is taken, a rebalance, a pause or a lapsed lease may still withdraw it; then ``next`` returns another.

        Raises:
            StopIteration: the connector was shut down.
            ConsumerTimeout, WokenUp: no record arrived in time, or ``wakeup`` was called.
            UsageError: another thread uses this stream.
        """
        self._check_thread()
        if self._begun is not None:
            message = self._begun.next_item()
            if message is not None:
                return tuple.__new__(type(message), message)
        return self._look()

    def batches(
        self, *, max_rows: int | None = None, max_bytes: int | None = None, headers: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The same records as ``pyarrow.RecordBatch`` objects, each of one partition and never empty.

        Columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType.
        The iterator behaves like the stream itself, and both may be used in turn: the rest of a chunk that was begun
        record by record becomes a smaller batch.

        Args:
            max_rows: largest number of records in one batch; None for all that were fetched together.
            max_bytes: largest size of the data of one batch, that is of its keys, values and headers; a record that is
                larger comes alone. Batches that were fetched together share that memory: it is freed with the last.
            headers: add the column ``headers`` (list of structs of key and value, null if a record has none).

        Raises:
            UsageError: a limit is below 1, or another thread uses this stream.
        """
        self._check_thread()
        made = _batch_maker(max_rows, max_bytes, headers=headers)
        return successive(lambda: self._next_rows(max_rows, max_bytes, made))

    def next_batch(
        self,
        *,
        timeout: float | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        headers: bool = True,
    ) -> pa.RecordBatch | None:
        """The next batch; None if no record arrives in time, or once after ``wakeup`` of the connector.

        Args:
            timeout: as for :meth:`next_message`.
            max_rows: as for :meth:`batches`.
            max_bytes: as for :meth:`batches`.
            headers: include the column ``headers``. The default differs from that of :meth:`batches`.

        Raises:
            ConsumerClosed, UsageError, ZkConsumerError: as :meth:`next_message`; UsageError also for a limit below 1.
        """
        made = _batch_maker(max_rows, max_bytes, headers=headers)
        self._patience_s = self._timeout_s if timeout is None else timeout
        try:
            while (batches := self._next_rows(max_rows, max_bytes, made)) is not None:
                for batch in batches:  # see next_message; empty if the batch was taken back meanwhile
                    return batch
        except ConsumerTimeout:
            return None
        finally:
            self._patience_s = self._timeout_s
        raise stream_ended(self._name)

    def release(self) -> None:
        """Release everything that was handed out, without a request for more; for the reading thread."""
        self._owner.require(f"stream {self._name}")
        self._queue.finish()

    def done(self, item: M | pa.RecordBatch) -> None:
        """Declare a record or batch done, with ``commit.on=done``; any thread may, and in any order.

        Commits then cover it, once everything before it in its partition is done, too. Declared a second time, or after
        its partition was lost, it has no effect: the next owner reads the record again.

        Args:
            item: the object that this stream has handed out; neither a copy nor a part of it.

        Raises:
            UsageError: this stream has not handed it out; ``commit.on`` is not ``done``; or this process is a forked
                child.
        """
        unfinished = self._queue.unfinished
        if unfinished is None or not self._owner.is_here():
            self._owner.require(f"stream {self._name}")
            raise UsageError(
                f"stream {self._name}: done() needs the property commit.on=done; with the present one the next request "
                "releases a record"
            )
        unfinished.finish(item)

    def commit(self) -> None:
        """Commit what this stream has handed out, or with ``commit.on=done`` what is done of it; from any thread.

        Other streams are not affected. With ``commit.on=done`` the commit covers, in each partition, everything before
        the first record that is not done.

        Raises:
            NotOwner, RetriableError, MembershipLost, CommitRefused, OffsetsNotStored, GroupAuthorizationFailed: as
                :meth:`ConsumerConnector.commit_offsets <zkconsumer.ConsumerConnector.commit_offsets>` without offsets.
            ConsumerClosed: the connector was shut down.
        """
        self._owner.require(f"stream {self._name}")
        if self._commit is not None:
            self._commit()

    def close(self) -> None:
        """End the stream: its iterators stop. Positions stay as they are. In a forked child nothing is done.

        The consumer keeps the partitions of the stream, which no thread reads then, until it is shut down. If records
        wait for it, it is a stream that is not read, and ``max.stream.idle.ms`` applies.
        """
        if self._owner.spares(f"stream {self._name}"):
            return
        self._queue.close()

    def _abandon_begun(self) -> None:
        """In a child: the chunk that was begun is the parent's, too; so its rest is not handed out here."""
        if self._begun is not None:
            self._begun.abandon()

    def _look(self) -> M:
        """The first record of what waits in the queue; see :meth:`peek`."""
        from zkconsumer.decode.messages import build

        self._queue.withhold()  # the rest of a split batch, or one that an interrupt prevented from being handed out
        chunk = self._arrived(self._reader.look(self._patience_s))
        if chunk is None:
            raise StopIteration
        return build(self._kind, _records(chunk).slice(0, 1))[0]

    def _next_records(self) -> Iterator[M] | None:
        """Begin the next chunk and return its first records, None at the end; the rest is taken back."""
        from zkconsumer.decode.messages import MOST_AT_ONCE, build

        self._begun = None
        self._check_thread()
        while (chunk := self._arrived(self._reader.request(self._patience_s))) is not None:
            room = self._queue.room_for(chunk.info)
            records = _records(chunk).slice(0, MOST_AT_ONCE if room is None else min(room, MOST_AT_ONCE))
            messages = build(self._kind, records)
            unfinished = NOTHING if room is None else unfinished_messages(messages)
            handover = HandOver(chunk, messages, records.offsets, unfinished=unfinished)
            if self._queue.begin(handover):
                self._begun = handover
                return handover.claims
        self._messages = successive(self._next_records)  # an iterator that has ended stays so
        return None

    def _next_rows(
        self, max_rows: int | None, max_bytes: int | None, made: Callable[[Records], T]
    ) -> Iterator[T] | None:
        """Begin the next chunk and return what ``made`` makes of its first rows, as the only item; None at the end.

        The rest is taken back.
        """
        self._check_thread()
        while (chunk := self._arrived(self._reader.request(self._patience_s))) is not None:
            records, last = _first_rows(chunk, max_rows, max_bytes)
            # Indexes of batches: to distinguish a batch from the mark at the end would need a call into Python.
            parts = [made(records)]
            first = records.offsets[0]
            unfinished = (
                unfinished_batch(parts[0], records.num_rows, first, last) if self._queue.unfinished else NOTHING
            )
            handover = HandOver(chunk, [0], [last], records.num_rows, unfinished)
            if self._queue.begin(handover):
                return map(parts.__getitem__, handover.claims)  # in C, for the reason that successive() gives
        return None

    def _arrived(self, item: Item) -> Chunk | None:
        """The chunk that arrived, None at the end. Raises ConsumerTimeout where nothing arrived."""
        if item is None:
            raise nothing_arrived(self._name, self._patience_s)
        return None if isinstance(item, Ended) else item

    def _check_thread(self) -> None:
        self._owner.require(f"stream {self._name}")
        current = threading.current_thread()
        if self._thread is current:
            return
        if self._thread is not None and self._thread.is_alive():
            raise UsageError(
                f"stream {self._name} belongs to thread {self._thread.name}, and thread {current.name} iterates it "
                "too; create one stream per thread, or end the first thread"
            )
        self._thread = current


def next_records(stream: MessageStream[Any], max_rows: int | None = None) -> Records:
    """As :meth:`MessageStream.next_batch`, but in plain buffers, so without pyarrow; for commands, not for users."""
    while True:
        parts = stream._next_rows(max_rows, None, _unchanged)
        if parts is None:
            raise StopIteration
        for part in parts:  # here, not in a function shared with next_batch: an interrupt after it would lose records
            return part


def is_unfinished(stream: MessageStream[M], message: M) -> bool:
    """False for a record whose partition was lost after it was handed out, so another member reads it; not for users.

    With ``commit.on=done``; False also for a record that is done.
    """
    unfinished = stream._queue.unfinished
    return unfinished is not None and unfinished.holds(message)


def _batch_maker(max_rows: int | None, max_bytes: int | None, *, headers: bool) -> Callable[[Records], pa.RecordBatch]:
    """What makes batches with these columns; the limits are checked.

    Raises:
        UsageError: a limit is below 1.
    """
    for limit in (max_rows, max_bytes):
        if limit is not None and limit < 1:
            raise UsageError(f"max_rows and max_bytes must be at least 1, not {limit}; None means no limit")
    from zkconsumer.decode.arrow import batch_of
    from zkconsumer.decode.buffers import COLUMNS

    columns = None if headers else COLUMNS
    return lambda records: batch_of(records, columns)


def _unchanged(records: Records) -> Records:
    return records


def _records(chunk: Chunk) -> Records:
    """The records of a chunk that a reader has decoded."""
    assert chunk.records is not None
    return chunk.records


def _first_rows(chunk: Chunk, max_rows: int | None, max_bytes: int | None) -> tuple[Records, int]:
    """The first rows of a chunk within the limits, at least one; and the last offset that they cover."""
    records = _records(chunk)
    rows = records.num_rows if max_rows is None else min(max_rows, records.num_rows)
    if max_bytes is not None:
        from zkconsumer.decode.limits import rows_within

        rows = min(rows, rows_within(records, max_bytes))
    if rows == records.num_rows:
        return records, chunk.next_offset - 1
    return records.slice(0, rows), records.offsets[rows - 1]


def stream_ended(name: str) -> ConsumerClosed:
    """For a request to a stream of this name after the shutdown."""
    return ConsumerClosed(f"stream {name} has ended: its connector was shut down")


def nothing_arrived(name: str, patience_s: float | None) -> ConsumerTimeout:
    """For a request that has waited so long, in s."""
    return ConsumerTimeout(f"no record arrived for stream {name} within {patience_s} s; iterate again to continue")
