import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from zkconsumer.connector.loopcalls import AsyncRebalanceListener, LoopListener, await_on, call_outside
from zkconsumer.errors import UsageError

pytestmark = pytest.mark.timeout(60)


def test_a_call_runs_on_a_thread_of_its_own_and_its_result_or_error_comes_back():
    def fail():
        raise UsageError("no")

    async def run():
        assert await call_outside(threading.current_thread, "outside") is not threading.current_thread()
        with pytest.raises(UsageError, match="no"):
            await call_outside(fail, "outside")

    asyncio.run(run())


def test_a_call_whose_task_is_cancelled_is_finished():
    begun, may_end, ended = (threading.Event() for _ in range(3))

    def call():
        begun.set()
        may_end.wait(30)
        ended.set()

    async def run():
        task = asyncio.create_task(call_outside(call, "outside"))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_end.set()
        assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(run())


def test_a_call_that_ends_after_its_loop_fails_nothing():
    may_end = threading.Event()

    async def run():
        asyncio.create_task(call_outside(lambda: may_end.wait(30), "late-call"))  # noqa: RUF006 - the loop ends it
        await asyncio.sleep(0.01)

    asyncio.run(run())
    may_end.set()
    for thread in threading.enumerate():
        if thread.name == "late-call":
            thread.join(30)


class Listener(AsyncRebalanceListener):
    """Makes calls outside, also from a task that outlives it."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.later: asyncio.Task[threading.Thread] | None = None

    async def before_releasing_partitions(self, owned):
        self.threads += [threading.current_thread(), await call_outside(threading.current_thread, "outside")]

        async def after():
            await asyncio.sleep(0.05)
            return await call_outside(threading.current_thread, "outside")

        self.later = asyncio.create_task(after())

    async def before_starting_fetchers(self, consumer_id, assignment):
        if consumer_id == "fails":
            raise UsageError("it fails")
        return {}


def test_a_listener_runs_on_the_loop_and_what_it_calls_on_the_thread_that_waits_for_it():
    async def run():
        listener, loop = Listener(), asyncio.get_running_loop()
        called = LoopListener(listener, loop)
        waiting = []

        def rebalance():
            waiting.append(threading.current_thread())
            called.before_releasing_partitions(frozenset())
            assert called.before_starting_fetchers("g_c", {}) == {}
            with pytest.raises(UsageError, match="it fails"):
                called.before_starting_fetchers("fails", {})

        await asyncio.to_thread(rebalance)
        assert listener.threads == [threading.current_thread(), *waiting]
        assert await listener.later not in (*waiting, threading.current_thread())

    asyncio.run(run())


def test_a_loop_that_is_closed_fails_the_call():
    loop = asyncio.new_event_loop()
    loop.close()

    async def nothing():
        return None

    with pytest.raises(RuntimeError, match="closed"):
        await_on(loop, nothing)


def test_a_coroutine_that_is_cancelled_before_its_first_step_is_not_awaited_for_ever():
    """As by an application that cancels all its tasks at a signal, or by the end of ``asyncio.run``."""
    began, outcomes = threading.Event(), []

    async def listen():
        began.set()

    async def run():
        loop = asyncio.get_running_loop()

        def wait():
            try:
                await_on(loop, listen)
            except BaseException as error:  # noqa: BLE001 - what it raises is compared
                outcomes.append(type(error))

        waiting = threading.Thread(target=wait, daemon=True)
        tasks = asyncio.all_tasks()
        waiting.start()
        while not (new := asyncio.all_tasks() - tasks):
            await asyncio.sleep(0)
        assert not began.is_set()
        for task in new:
            task.cancel()
        await asyncio.to_thread(waiting.join, 30)

    asyncio.run(run())
    assert outcomes == [CancelledError]


def test_the_end_of_the_process_can_wait_for_a_call():
    async def run():
        return [(await call_outside(threading.current_thread, "t", daemon=daemon)).daemon for daemon in (True, False)]

    assert asyncio.run(run()) == [True, False]
