"""Calls between an event loop and the threads of a consumer, in both directions, without blocking the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Set
from contextlib import suppress
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, TypeVar

from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.process.threads import start_thread

T = TypeVar("T")


class AsyncRebalanceListener:
    """As :class:`ConsumerRebalanceListener`, with coroutines that run on the event loop; a rebalance awaits them.

    They may commit and call ``shutdown``, which then takes place when they have returned. They must not wait for
    another rebalance. If the loop does not run them, the consumer leaves after a session timeout, without its last
    commit.
    """

    async def before_releasing_partitions(self, owned: Set[TopicPartition]) -> None:
        """See :meth:`ConsumerRebalanceListener.before_releasing_partitions`."""

    async def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[TopicPartition, ConsumerThreadId]
    ) -> Mapping[TopicPartition, int] | None:
        """See :meth:`ConsumerRebalanceListener.before_starting_fetchers`."""


class _ServedThread:
    """A thread that awaits a coroutine of the event loop, and meanwhile makes the calls that the coroutine asks for.

    So a commit by a listener is one of the rebalance thread, as that of a synchronous listener. The loop's thread
    alone puts calls and ends; so no call is put after the end.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.ended = False

    def put(self, call: Callable[[], None]) -> None:
        self._calls.put(call)

    def end(self) -> None:
        self.ended = True
        self._calls.put(None)

    def serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


_served: ContextVar[_ServedThread | None] = ContextVar("_served", default=None)
"""Set in the coroutines that a thread of the consumer awaits."""


async def call_outside(call: Callable[[], T], name: str, *, daemon: bool = True) -> T:
    """Make a call that may block, on a thread of its own; in a coroutine that a thread awaits, on that thread.

    Not in a pool: a call may wait for another one, a join for the commit of a listener. If the task is cancelled
    meanwhile, the call is finished, and its result or error dropped.

    Args:
        call: to make.
        name: of the thread.
        daemon: False if the end of the process is to wait for the call.

    Raises:
        ThreadLimit: the system does not allow another thread.
        Exception: what the call raised.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(error: BaseException | None, result: Any) -> None:
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def run() -> None:
        error, result = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 - the task gets it
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, error, result)

    served = _served.get()
    if served is not None and not served.ended:
        served.put(run)
    else:
        start_thread(threading.Thread(target=run, name=name, daemon=daemon))
    return await answer


def await_on(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function on a loop, and wait for it on this thread, which is another one; raises as it does."""
    served = _ServedThread()

    async def run() -> T:
        _served.set(served)
        try:
            return await call()
        finally:
            served.end()

    running: Coroutine[Any, Any, T] = run()
    try:
        result = asyncio.run_coroutine_threadsafe(running, loop)
    except RuntimeError:  # the loop is closed
        running.close()
        raise
    result.add_done_callback(lambda _: served.end())  # if the task is cancelled before its first step
    served.serve()
    return result.result()


class LoopListener(ConsumerRebalanceListener):
    """Calls the coroutines of a listener on the event loop, and waits for them on the rebalance thread."""

    def __init__(self, listener: AsyncRebalanceListener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop

    def before_releasing_partitions(self, owned: Set[TopicPartition]) -> None:
        """See :class:`ConsumerRebalanceListener`."""
        await_on(self._loop, lambda: self._listener.before_releasing_partitions(owned))

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[TopicPartition, ConsumerThreadId]
    ) -> Mapping[TopicPartition, int] | None:
        """See :class:`ConsumerRebalanceListener`."""
        return await_on(self._loop, lambda: self._listener.before_starting_fetchers(consumer_id, assignment))
