import asyncio
import threading
from contextlib import suppress

import pytest

from tests.fixtures.chunks import make_fetched_chunk, make_info
from zkconsumer.connector.asyncstream import AsyncMessageStream, ReadyStream
from zkconsumer.decode.decodersettings import DEFAULT_SETTINGS
from zkconsumer.errors import ConsumerClosed, ConsumerTimeout, RebalanceFailed, UsageError, WokenUp
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.decodeahead import DecodePool
from zkconsumer.fetch.readyreader import ReadyReader
from zkconsumer.model import Message
from zkconsumer.process.wakeup import Notifier

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def pool():
    made = DecodePool(1)
    yield made
    made.close()
    assert made.join(30)


@pytest.fixture
def queue():
    return ChunkQueue(max_bytes=1 << 30, max_chunks=1000, changed=Notifier())


@pytest.fixture
def info(queue):
    return make_info(queue)


@pytest.fixture
def make(queue, pool):
    """Make the stream of the queue."""

    def make_stream(timeout_ms=-1):
        reader = ReadyReader(queue, DEFAULT_SETTINGS, pool, queue.changed)
        return AsyncMessageStream(ReadyStream(queue, reader, name="g_c-0", kind=Message), timeout_ms)

    return make_stream


async def take(stream, count):
    return [(await anext(stream)).offset for _ in range(count)]


def later(call, *arguments):
    threading.Timer(0.03, call, arguments).start()


def test_records_and_batches_come_in_order_and_end_at_the_shutdown(make, queue, info):
    async def read():
        stream = make()
        for start in (0, 10, 20, 30):
            queue.put(make_fetched_chunk(info, start, 10))
        seen = []
        async for message in stream:
            seen.append(message.offset)
            if len(seen) == 15:
                break
        async for batch in stream.batches(max_rows=10):
            seen += batch["offset"].to_pylist()
            if len(seen) >= 30:
                break
        batch = await stream.next_batch()
        seen += batch["offset"].to_pylist()
        assert seen == [*range(40)]
        assert "headers" in batch.schema.names
        later(stream.close)
        assert [message async for message in stream] == []
        assert [batch async for batch in stream.batches()] == []
        for request in (stream.next_message, stream.next_batch, stream.peek):
            with pytest.raises(ConsumerClosed, match="has ended"):
                await request()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(read())


def test_a_stream_that_waits_costs_no_thread_and_is_woken_by_what_arrives(make, queue, info):
    async def read():
        stream = make()
        threads = threading.active_count()
        waiting = asyncio.create_task(take(stream, 3))
        await asyncio.sleep(0.05)
        assert threading.active_count() == threads
        later(queue.put, make_fetched_chunk(info, 0, 3))
        assert await waiting == [0, 1, 2]

    asyncio.run(read())


def test_a_timeout_leaves_the_stream_usable(make, queue, info):
    async def read():
        stream = make(timeout_ms=30)
        assert await stream.next_message() is None
        assert await stream.next_batch(timeout=0) is None
        for _ in range(2):
            with pytest.raises(ConsumerTimeout, match=r"within 0.03 s; iterate again"):
                [message async for message in stream]
        queue.put(make_fetched_chunk(info, 0, 3))
        assert (await stream.next_message(timeout=0)).offset == 0  # what is being decoded counts as ready
        assert (await stream.peek()).offset == 1
        assert await take(stream, 2) == [1, 2]

    asyncio.run(read())


def test_an_iterator_of_batches_continues_after_an_error_and_after_a_cancellation(make, queue, info):
    async def read():
        batches = make(timeout_ms=30).batches(max_rows=2)
        with pytest.raises(ConsumerTimeout):
            await anext(batches)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(batches), 0.005)
        queue.put(make_fetched_chunk(info, 0, 6))
        assert [(await anext(batches)).num_rows for _ in range(2)] == [2, 2]
        with pytest.raises(ConsumerTimeout):
            assert [batch.num_rows async for batch in batches] == []
        queue.close()
        assert [batch async for batch in batches] == []

    asyncio.run(read())


def test_a_wakeup_ends_one_wait(make, queue, info):
    async def read():
        stream = make()
        later(queue.wake)
        assert await stream.next_message() is None
        later(queue.wake)
        with pytest.raises(WokenUp):
            await anext(stream)
        queue.wake()
        queue.wake()
        queue.put(make_fetched_chunk(info, 0, 3))
        assert await stream.next_batch() is None
        assert await take(stream, 3) == [0, 1, 2]

    asyncio.run(read())


def test_errors_of_the_connector_are_raised(make, queue):
    async def read():
        stream = make()
        later(queue.close, RebalanceFailed("g", "c", ()))
        with pytest.raises(RebalanceFailed):
            [message async for message in stream]
        with pytest.raises(RebalanceFailed):
            await stream.next_batch()

    asyncio.run(read())


def test_a_second_task_gets_a_clear_error_and_a_later_one_may_read(make, queue, info):
    async def read():
        stream = make()
        first = asyncio.create_task(stream.next_message())
        await asyncio.sleep(0.02)
        for request in (stream.next_message(), stream.next_batch(), anext(aiter(stream))):
            with pytest.raises(UsageError, match="one stream per task"):
                await request
        queue.put(make_fetched_chunk(info, 0, 2))
        assert (await first).offset == 0
        assert await asyncio.create_task(take(stream, 1)) == [1]

    asyncio.run(read())


def test_another_loop_cannot_read_the_stream(make, queue, info):
    stream = make()
    queue.put(make_fetched_chunk(info, 0, 2))
    failures = []

    async def read():
        assert await take(stream, 1) == [0]
        other = threading.Thread(target=lambda: failures.append(_failure(take(stream, 3))))
        other.start()
        await asyncio.to_thread(other.join)

    asyncio.run(read())
    assert isinstance(failures[0], UsageError)


def _failure(coroutine):
    with suppress(UsageError):
        asyncio.run(coroutine)
        return None
    return UsageError()


async def _records(stream, seen):
    async for message in stream:
        seen.append(message.offset)
        if message.offset % 7 == 0:
            await asyncio.sleep(0)


async def _messages(stream, seen):
    while True:
        seen.append((await stream.next_message()).offset)


async def _batches(stream, seen):
    async for batch in stream.batches(max_rows=5):
        seen.extend(batch["offset"].to_pylist())


async def _next_batches(stream, seen):
    while True:
        seen.extend((await stream.next_batch(max_rows=5))["offset"].to_pylist())


async def _cancel(task):
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("read_all", [_records, _messages, _batches, _next_batches])
def test_cancelled_at_any_point_it_skips_no_record_and_hands_none_out_twice(make, queue, info, read_all):
    """Tasks are cancelled after every number of steps of the loop, while chunks arrive."""

    async def read():
        stream, seen, start = make(), [], 0
        for steps in range(300):
            task = asyncio.create_task(read_all(stream, seen))
            for _ in range(steps % 13):
                await asyncio.sleep(0)
            if steps % 3 == 0:
                queue.put(make_fetched_chunk(info, start, 11))
                start += 11
            if steps % 5 == 0:
                await asyncio.sleep(0.001)
            await _cancel(task)
        task = asyncio.create_task(read_all(stream, seen))
        while len(seen) < start:
            await asyncio.sleep(0.001)
        await _cancel(task)
        assert seen == [*range(start)]
        stream.release()
        assert queue.position(info, handed_out=True) == start

    asyncio.run(read())


def test_a_chunk_that_the_pool_cannot_decode_is_decoded_by_the_reader(make, queue, info, monkeypatch):
    def fail(*_):
        raise MemoryError

    async def read():
        monkeypatch.setattr("zkconsumer.fetch.decodeahead.decode_in_place", fail)
        queue.put(make_fetched_chunk(info, 0, 3))
        assert await take(make(), 3) == [0, 1, 2]

    asyncio.run(read())


def test_other_tasks_run_while_much_is_ready(make, queue, info, monkeypatch):
    monkeypatch.setattr("zkconsumer.fetch.readyreader._TURN_S", 0)

    async def read():
        stream = make()
        for start in range(0, 1000, 50):
            queue.put(make_fetched_chunk(info, start, 50))
        turns = []

        async def other():
            while True:
                turns.append(None)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        async for message in stream:
            if message.offset == 999:
                break
        task.cancel()
        assert len(turns) > 5

    asyncio.run(read())


@pytest.mark.parametrize("method", ["next_message", "next_batch"])
def test_a_request_that_is_cancelled_after_a_slow_body_has_released_what_was_before_it(
    make, queue, info, monkeypatch, method
):
    monkeypatch.setattr("zkconsumer.fetch.readyreader._TURN_S", 0)  # the body took longer

    async def read():
        stream = make()
        queue.put(make_fetched_chunk(info, 0, 3))
        assert (await stream.next_batch()).num_rows == 3
        assert info.position(handed_out=False) == 0
        await asyncio.sleep(0)
        waiting = asyncio.create_task(getattr(stream, method)())
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()
        assert info.position(handed_out=False) == 3

    asyncio.run(read())


def test_without_a_loop_nothing_that_arrives_fails(make, queue, info):
    stream = make()
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(anext(stream), 0.02))
    queue.changed.call_back(None)
    queue.put(make_fetched_chunk(info, 0, 1))
    assert asyncio.run(take(stream, 1)) == [0]


@pytest.fixture
def bounded(pool):
    """A stream of a queue whose partition waits at four unfinished records, and the queue."""
    queue = ChunkQueue(max_bytes=1 << 30, max_chunks=1000, changed=Notifier(), max_unfinished=4)
    info = make_info(queue)
    queue.unfinished.admit([info])
    reader = ReadyReader(queue, DEFAULT_SETTINGS, pool, queue.changed)
    queue.put(make_fetched_chunk(info, 0, 10))
    return AsyncMessageStream(ReadyStream(queue, reader, name="g_c-0", kind=Message)), queue


@pytest.mark.parametrize("by_thread", [True, False])
def test_what_is_done_lets_a_task_continue_that_waits_at_the_limit(bounded, by_thread):
    stream, _ = bounded

    async def read():
        held = [await anext(stream) for _ in range(4)]
        waiting = asyncio.create_task(take(stream, 2))
        await asyncio.sleep(0.05)
        assert not waiting.done()

        def finish():
            for message in held[:2]:
                stream.done(message)

        if by_thread:
            later(finish)
        else:
            finish()
        assert await waiting == [4, 5]
        assert await stream.next_message(timeout=0.05) is None, "four records are unfinished again"

    asyncio.run(read())


def test_a_done_that_an_interrupt_has_cut_is_found(bounded):
    """1. The records are finished; 2. the interrupt comes before the reader is woken: it looks for itself."""
    stream, queue = bounded

    async def read():
        held = [await anext(stream) for _ in range(4)]
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.05)
        for message in held:
            del queue.unfinished._of[message[:2]].items[id(message)]
        async with asyncio.timeout(20):
            assert (await waiting).offset == 4

    asyncio.run(read())
