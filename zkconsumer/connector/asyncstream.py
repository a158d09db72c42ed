"""AsyncMessageStream: a stream that a task of an event loop reads, record by record or batch by batch.

It hands out what :class:`~zkconsumer.connector.stream.MessageStream` hands out, which is asked only for what is ready:
then nothing waits and nothing is decoded on the event loop's thread, and a record is claimed and returned without a
trip through the loop. A task can be cancelled only where it waits for something to become ready, which is before
anything is claimed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zkconsumer.connector.loopcalls import call_outside
from zkconsumer.connector.stream import MessageStream, nothing_arrived, stream_ended
from zkconsumer.errors import ConsumerTimeout, UsageError, WokenUp
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.readyreader import ReadyReader
from zkconsumer.fetch.unfinisheditems import BACKSTOP_S
from zkconsumer.model import Message

if TYPE_CHECKING:
    import pyarrow as pa

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class ReadyStream(MessageStream[M]):
    """A stream that never waits: ConsumerTimeout means that nothing is ready.

    Args:
        queue: as of :class:`MessageStream`.
        ready: its reader.
        name: as of :class:`MessageStream`.
        kind: as of :class:`MessageStream`.
        commit: as of :class:`MessageStream`.

    Attributes:
        ready: the same.
    """

    def __init__(
        self,
        queue: ChunkQueue,
        ready: ReadyReader,
        *,
        name: str,
        kind: type[M],
        commit: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(queue, name=name, kind=kind, timeout_ms=0, reader=ready, commit=commit)
        self.ready = ready

    def is_holding_back(self) -> bool:
        """True if a partition is paused since too many of its records are not done."""
        unfinished = self._queue.unfinished
        return unfinished is not None and unfinished.is_holding_back()


class AsyncMessageStream(Generic[M]):
    """As :class:`MessageStream`, for one task of an event loop; ``async for`` reads it record by record.

    ``async for`` ends, and raises, as iterating a :class:`MessageStream` does, and the stream can be read again after
    the same errors. Cancelling a task that waits for the stream skips no record and hands none out twice. A record
    that a task has returned counts as handed out, even if no task awaits it.

    A request for the next record or batch releases the previous one. While records are ready, they are returned without
    yielding to the event loop, except once every 5 ms, so that other tasks run.

    One task reads a stream at a time, all on the event loop in which the connector was opened. A request of a second
    task raises UsageError while the first one waits.
    """

    def __init__(self, stream: ReadyStream[M], timeout_ms: int = -1) -> None:
        # stream: what is ready.
        # timeout_ms: consumer.timeout.ms; negative waits without limit.
        self._stream = stream
        self._ready, self._notifier = stream.ready, stream.ready.notifier
        self._timeout_s = None if timeout_ms < 0 else timeout_ms / 1000
        self._awaited: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncMessageStream {self.name}>"

    @property
    def name(self) -> str:
        """Id of the consumer thread that this stream is in its group."""
        return self._stream.name

    def __aiter__(self) -> AsyncIterator[M]:
        # A generator: each of its steps is done in C until it comes to the next record.
        return self._hand_out(iter(self._stream))

    async def __anext__(self) -> M:
        return await self._next(self._stream.__next__, self._timeout_s)

    async def next_message(self, *, timeout: float | None = None) -> M | None:
        """See :meth:`MessageStream.next_message`."""
        try:
            return await self._next(self._stream.__next__, self._timeout_s if timeout is None else timeout)
        except ConsumerTimeout:
            return None
        except StopAsyncIteration:
            raise stream_ended(self.name) from None

    async def peek(self) -> M:
        """See :meth:`MessageStream.peek`; ConsumerClosed after the shutdown."""
        try:
            return await self._next(self._stream.peek, self._timeout_s)
        except StopAsyncIteration:
            raise stream_ended(self.name) from None

    def batches(
        self, *, max_rows: int | None = None, max_bytes: int | None = None, headers: bool = False
    ) -> AsyncIterator[pa.RecordBatch]:
        """See :meth:`MessageStream.batches`; for ``async for``."""
        ready = self._stream.batches(max_rows=max_rows, max_bytes=max_bytes, headers=headers)
        return _Repeatable(lambda: self._hand_out(ready))

    async def next_batch(
        self,
        *,
        timeout: float | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        headers: bool = True,
    ) -> pa.RecordBatch | None:
        """See :meth:`MessageStream.next_batch`."""
        batches = self._stream.batches(max_rows=max_rows, max_bytes=max_bytes, headers=headers)
        try:
            return await self._next(batches.__next__, self._timeout_s if timeout is None else timeout)
        except ConsumerTimeout:
            return None
        except StopAsyncIteration:
            raise stream_ended(self.name) from None

    def release(self) -> None:
        """See :meth:`MessageStream.release`."""
        self._stream.release()

    def done(self, item: M | pa.RecordBatch) -> None:
        """See :meth:`MessageStream.done`."""
        self._stream.done(item)

    async def commit(self) -> None:
        """See :meth:`MessageStream.commit`."""
        await call_outside(self._stream.commit, f"{self.name}-commit")

    def close(self) -> None:
        """See :meth:`MessageStream.close`."""
        self._stream.close()

    async def _hand_out(self, ready: Iterator[T]) -> AsyncGenerator[T]:
        """The items, waiting in between, until the stream ends."""
        wait, is_first = _Wait(self, self._timeout_s), True
        while True:
            self._refuse_second_task()
            try:
                for item in ready:
                    is_first = True
                    yield item  # between the claim and this nothing can be raised
                return
            except WokenUp:
                raise
            except ConsumerTimeout:
                pass
            if is_first:
                wait.deadline, is_first = None, False
            await wait.once()

    async def _next(self, take: Callable[[], T], patience_s: float | None) -> T:
        """What ``take`` returns, as soon as it does not raise ConsumerTimeout; StopAsyncIteration at the end."""
        wait = _Wait(self, patience_s)
        while True:
            self._refuse_second_task()
            try:
                return take()
            except WokenUp:
                raise
            except ConsumerTimeout:
                pass
            except StopIteration:
                raise StopAsyncIteration from None
            await wait.once()

    def _refuse_second_task(self) -> None:
        if self._awaited is not None:
            raise UsageError(
                f"stream {self.name} is read by a task that waits for it, and by another one; create one stream per "
                "task, or await the first task"
            )

    async def _await_change(self, seconds: float | None) -> None:
        """Wait until the stream may have something, or so long; what became ready since it was asked ends the wait."""
        if self._ready.has_turn_ended:
            await asyncio.sleep(0)
            self._ready.begin_turn()
            return
        if self._stream.is_holding_back():
            seconds = BACKSTOP_S if seconds is None else min(seconds, BACKSTOP_S)
        loop = asyncio.get_running_loop()
        self._awaited = arrived = loop.create_future()
        self._notifier.call_back(partial(_tell, loop, arrived))
        timer = None
        try:
            if not self._notifier.wait(0):  # raised before: it would not call back
                timer = None if seconds is None else loop.call_later(seconds, _end, arrived)
                await arrived
        finally:
            self._notifier.call_back(None)
            self._awaited = None
            if timer is not None:
                timer.cancel()
        self._ready.begin_turn()


class _Repeatable(AsyncIterator[T]):
    """The items of generators: after an error, or the cancellation of a wait, the next one continues."""

    def __init__(self, generate: Callable[[], AsyncGenerator[T]]) -> None:
        self._generate = generate
        self._items: Any = generate()

    def __anext__(self) -> Awaitable[T]:
        if self._items.ag_frame is None:  # it has ended
            self._items = self._generate()
        following: Awaitable[T] = self._items.__anext__()
        return following


class _Wait:
    """The waits of one request, which together last no longer than it may."""

    __slots__ = ("_patience_s", "_stream", "deadline")

    def __init__(self, stream: AsyncMessageStream[Any], patience_s: float | None) -> None:
        self._stream = stream
        self._patience_s = patience_s
        self.deadline: float | None = None

    async def once(self) -> None:
        """Wait until the stream may have something.

        Raises:
            ConsumerTimeout: the patience is over.
        """
        patience_s, stream = self._patience_s, self._stream
        if patience_s is None:
            await stream._await_change(None)
            return
        now = asyncio.get_running_loop().time()
        self.deadline = now + patience_s if self.deadline is None else self.deadline
        if now >= self.deadline and not stream._ready.is_pending:
            raise nothing_arrived(stream.name, patience_s)
        await stream._await_change(None if stream._ready.is_pending else self.deadline - now)


def _tell(loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(_end, arrived)


def _end(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
