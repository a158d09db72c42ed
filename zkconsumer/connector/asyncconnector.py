"""AsyncConsumerConnector: the consumer for programs that run in an event loop.

It is a :class:`~zkconsumer.connector.connector.ConsumerConnector` whose streams wait in the loop, and whose calls that
wait for servers are made on threads of their own. Membership, fetching and commits are the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Self, overload

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.connector.asyncstream import AsyncMessageStream, ReadyStream
from zkconsumer.connector.connector import ConsumerConnector, PartitionState
from zkconsumer.connector.consumermetrics import Sample
from zkconsumer.connector.decoder import DecodedMessage, Decoder
from zkconsumer.connector.loopcalls import AsyncRebalanceListener, LoopListener, T, await_on, call_outside
from zkconsumer.connector.stream import M, MessageStream
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import UsageError
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.readyreader import ReadyReader
from zkconsumer.group.memberdescription import MemberDescription
from zkconsumer.group.rules.subscription import TopicFilter
from zkconsumer.model import Message, TopicPartition
from zkconsumer.process.threads import start_thread
from zkconsumer.process.wakeup import Notifier, WakeUp


class _ReadyConnector(ConsumerConnector):
    """A connector whose streams never wait, and are decoded by a pool of at least one thread."""

    def _new_wakeup(self) -> WakeUp:
        return Notifier()

    def _new_stream(self, queue: ChunkQueue, name: str, kind: type[M], commit: Callable[[], None]) -> MessageStream[M]:
        assert self._pool is not None
        assert isinstance(queue.changed, Notifier)
        settings = DecoderSettings.from_config(self._config)
        reader = ReadyReader(queue, settings, self._pool, queue.changed)
        return ReadyStream(queue, reader, name=name, kind=kind, commit=commit)

    def _decoding_threads(self, streams: int) -> int:
        del streams  # the loop's thread reads all of them, and decodes none
        return max(1, super()._decoding_threads(1))


class _Opening:
    """A connector that a thread makes; if nothing awaits it any more, it is shut down.

    The event loop may cancel every task that knows of it: 1. a thread connects; 2. all tasks are cancelled, as
    ``asyncio.run`` does at its end; 3. the thread has a connector, which no task would shut down.
    """

    def __init__(self, make: Callable[[], _ReadyConnector]) -> None:
        self._make = make
        self._lock = threading.Lock()  # guards both
        self._made: _ReadyConnector | None = None
        self._is_abandoned = False

    def run(self) -> _ReadyConnector:
        """Connect; on a thread."""
        made = self._make()
        with self._lock:
            self._made, is_abandoned = made, self._is_abandoned
        if is_abandoned:
            made.shutdown()
        return made

    def abandon(self) -> None:
        """Shut it down, on the thread that connects, or on another one; returns at once."""
        with self._lock:
            made, self._is_abandoned = self._made, True
        if made is not None:
            start_thread(threading.Thread(target=made.shutdown, name="zkconsumer-abandoned", daemon=True))


class AsyncConsumerConnector:
    """As :class:`ConsumerConnector`, for the tasks of one event loop; an asynchronous context manager.

    ``async with`` connects, and shuts down on exit. Methods that wait for servers are coroutines; the others return at
    once. Cancelling a task that awaits one of them does not stop the operation: a commit may still be stored; a join
    may still succeed, and the consumer then leaves the group at :meth:`shutdown`.

    Args:
        config: the consumer's properties. ``decode.threads`` is at least 1: nothing is decoded on the loop's thread.
        before_commit: as for :class:`ConsumerConnector`, but a coroutine function, which runs on the event loop.
    """

    def __init__(self, config: ConsumerConfig, *, before_commit: Callable[[], Awaitable[None]] | None = None) -> None:
        self._config = config
        self._before_commit = before_commit
        self._listener: AsyncRebalanceListener | None = None
        self._connector: _ReadyConnector | None = None
        self._opening: asyncio.Task[None] | None = None
        self._attempt: _Opening | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect; ``async with`` does it. To be called once.

        Raises:
            ZooKeeperUnavailable, ChrootMissing, BrokerUnavailable, ConfigError, UsageError: as the constructor of
                :class:`ConsumerConnector`; UsageError also if it was opened before.
        """
        if self._opening is not None:
            raise UsageError("this connector was opened before; create a new one")
        self._loop = asyncio.get_running_loop()
        self._opening = self._loop.create_task(self._open(self._loop))
        await asyncio.shield(self._opening)
        return self

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        call = self._before_commit
        before_commit = None if call is None else lambda: await_on(loop, call)
        self._attempt = _Opening(lambda: _ReadyConnector(self._config, before_commit=before_commit))
        try:
            self._connector = await call_outside(self._attempt.run, self._thread_name("open"))
        except asyncio.CancelledError:
            self._attempt.abandon()
            raise
        if self._listener is not None:
            self._connector.set_rebalance_listener(LoopListener(self._listener, loop))

    async def shutdown(self) -> None:
        """End the streams, commit, and leave the group; see :meth:`ConsumerConnector.shutdown`.

        Also if :meth:`open` was cancelled: then it waits until the connection is made, and ends it. A task that is
        cancelled here does not wait any longer, and the consumer leaves nevertheless.
        """
        if self._opening is not None:
            self._require_loop()
            try:
                await asyncio.wait([self._opening])
            except asyncio.CancelledError:
                if self._attempt is not None:
                    self._attempt.abandon()
                raise
        if self._connector is not None:
            self._require_loop()
            await call_outside(self._connector.shutdown, self._thread_name("shutdown"), daemon=False)

    async def __aenter__(self) -> Self:
        try:
            return await self.open()
        except asyncio.CancelledError:
            await self.shutdown()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    # -- streams ----------------------------------------------------------------------------------------------------

    @overload
    async def create_message_streams(
        self, topics: Mapping[str, int]
    ) -> dict[str, list[AsyncMessageStream[Message]]]: ...

    @overload
    async def create_message_streams(
        self, topics: Mapping[str, int], key_decoder: Decoder | None, value_decoder: Decoder | None = ...
    ) -> dict[str, list[AsyncMessageStream[DecodedMessage]]]: ...

    @overload
    async def create_message_streams(
        self, topics: Mapping[str, int], *, value_decoder: Decoder | None
    ) -> dict[str, list[AsyncMessageStream[DecodedMessage]]]: ...

    async def create_message_streams(
        self, topics: Mapping[str, int], key_decoder: Decoder | None = None, value_decoder: Decoder | None = None
    ) -> dict[str, list[AsyncMessageStream[Message]]] | dict[str, list[AsyncMessageStream[DecodedMessage]]]:
        """See :meth:`ConsumerConnector.create_message_streams`; each stream is to be read by one task."""
        connector = self._opened()
        made = await self._outside(lambda: connector.create_message_streams(topics, key_decoder, value_decoder), "join")
        return {topic: self._wrap(streams) for topic, streams in made.items()}

    @overload
    async def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, streams: int = ...
    ) -> list[AsyncMessageStream[Message]]: ...

    @overload
    async def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        streams: int = ...,
        *,
        key_decoder: Decoder | None,
        value_decoder: Decoder | None = ...,
    ) -> list[AsyncMessageStream[DecodedMessage]]: ...

    @overload
    async def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, streams: int = ..., *, value_decoder: Decoder | None
    ) -> list[AsyncMessageStream[DecodedMessage]]: ...

    async def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        streams: int = 1,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> list[AsyncMessageStream[Message]] | list[AsyncMessageStream[DecodedMessage]]:
        """See :meth:`ConsumerConnector.create_message_streams_by_filter`."""
        connector = self._opened()
        made = await self._outside(
            lambda: connector.create_message_streams_by_filter(
                topic_filter, streams, key_decoder=key_decoder, value_decoder=value_decoder
            ),
            "join",
        )
        return self._wrap(made)

    async def assign(self, partitions: Mapping[TopicPartition, int | None]) -> AsyncMessageStream[Message]:
        """See :meth:`ConsumerConnector.assign`."""
        connector = self._opened()
        (stream,) = self._wrap([await self._outside(lambda: connector.assign(partitions), "assign")])
        return stream

    async def subscribe(self, topics: Collection[str] | TopicFilter) -> None:
        """See :meth:`ConsumerConnector.subscribe`."""
        connector = self._opened()
        await self._outside(lambda: connector.subscribe(topics), "subscribe")

    async def unsubscribe(self) -> None:
        """See :meth:`ConsumerConnector.unsubscribe`."""
        await self.shutdown()

    def wakeup(self) -> None:
        """See :meth:`ConsumerConnector.wakeup`; any thread may call it, and a signal handler."""
        self._opened().wakeup()

    def end_streams(self) -> None:
        """See :meth:`ConsumerConnector.end_streams`."""
        self._opened().end_streams()

    # -- offsets ----------------------------------------------------------------------------------------------------

    async def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None, *, force: bool = False) -> None:
        """See :meth:`ConsumerConnector.commit_offsets`."""
        connector, copy = self._opened(), None if offsets is None else dict(offsets)
        await self._outside(lambda: connector.commit_offsets(copy, force=force), "commit")

    def uncommitted(self) -> dict[TopicPartition, tuple[int | None, int]]:
        """See :meth:`ConsumerConnector.uncommitted`."""
        return self._opened().uncommitted()

    # -- control and state ------------------------------------------------------------------------------------------

    def set_rebalance_listener(self, listener: AsyncRebalanceListener) -> None:
        """Set the listener that rebalances call on the event loop; before streams are created."""
        self._listener = listener
        if self._connector is not None and self._loop is not None:
            self._connector.set_rebalance_listener(LoopListener(listener, self._loop))

    def pause(self, *partitions: TopicPartition) -> None:
        """See :meth:`ConsumerConnector.pause`."""
        self._opened().pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """See :meth:`ConsumerConnector.resume`."""
        self._opened().resume(*partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """See :meth:`ConsumerConnector.paused`."""
        return self._opened().paused()

    @property
    def release_s(self) -> float:
        """See :attr:`ConsumerConnector.release_s`."""
        return self._opened().release_s

    def may_hand_out(self, partition: TopicPartition) -> bool:
        """See :meth:`ConsumerConnector.may_hand_out`; a task asks before it begins with a record that has waited."""
        return self._opened().may_hand_out(partition)

    def describe(self) -> MemberDescription:
        """See :meth:`ConsumerConnector.describe`."""
        return self._opened().describe()

    def partition_states(self) -> list[PartitionState]:
        """See :meth:`ConsumerConnector.partition_states`."""
        return self._opened().partition_states()

    def metrics(self) -> list[Sample]:
        """See :meth:`ConsumerConnector.metrics`."""
        return self._opened().metrics()

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """See :attr:`ConsumerConnector.metrics_address`."""
        return self._opened().metrics_address

    @property
    def consumer_id(self) -> str:
        """See :attr:`ConsumerConnector.consumer_id`."""
        return self._opened().consumer_id

    # -- inside -----------------------------------------------------------------------------------------------------

    def _opened(self) -> _ReadyConnector:
        if self._connector is None:
            raise UsageError("the connector is not open; use it in `async with`, or await open() first")
        return self._connector

    def _wrap(self, streams: Collection[MessageStream[M]]) -> list[AsyncMessageStream[M]]:
        ready = [stream for stream in streams if isinstance(stream, ReadyStream)]
        return [AsyncMessageStream(stream, self._config.consumer_timeout_ms) for stream in ready]

    async def _outside(self, call: Callable[[], T], what: str) -> T:
        self._require_loop()
        return await call_outside(call, self._thread_name(what))

    def _require_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise UsageError("the connector belongs to another event loop; create one in each loop that needs it")

    def _thread_name(self, what: str) -> str:
        return f"{self._config.group_id}-{what}"
