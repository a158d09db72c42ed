"""Contestants of the fetch benchmark that run in an event loop; they verify and decode as those of ``peers`` do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks.contest import OURS
from benchmarks.task import Clock, Task

ASYNC_BATCHES: Final = f"{OURS}, asyncio, Arrow batches"
ASYNC_RECORDS: Final = f"{OURS}, asyncio, records"
CONFLUENT_ASYNC: Final = "confluent-kafka, tuned, asyncio"

_MANY: Final = 10_000


def in_loop(read: Callable[[Task], Awaitable[Clock]]) -> Callable[[Task], Clock]:
    """A contestant that runs this coroutine function in an event loop of its own."""

    async def run(task: Task) -> Clock:
        return await read(task)

    return lambda task: asyncio.run(run(task))


async def read_batches(task: Task) -> Clock:
    """Zkconsumer as a member of a group, batch by batch."""
    clock = Clock(task)
    async with _our_connector(task) as connector:
        (stream,) = (await connector.create_message_streams({task.topic: 1}))[task.topic]
        async for batch in stream.batches():
            if clock.note(batch.num_rows):
                break
    return clock


async def read_records(task: Task) -> Clock:
    """zkconsumer, record by record; the clock is read only now and then."""
    clock = Clock(task)
    async with _our_connector(task) as connector:
        (stream,) = (await connector.create_message_streams({task.topic: 1}))[task.topic]
        await anext(stream)
        clock.note(1)
        counted, count = 0, min(_MANY, clock.left)
        async for message in stream:
            message.key, message.value  # noqa: B018 - decodes them, if that was deferred
            counted += 1
            if counted < count:
                continue
            if clock.note(count):
                break
            counted, count = 0, min(_MANY, clock.left)
    return clock


def _our_connector(task: Task) -> Any:
    from zkconsumer import AsyncConsumerConnector, ConsumerConfig

    security: dict[str, Any] = (
        {"security_protocol": "SSL", "ssl_ca_location": task.ca_location} if task.ca_location else {}
    )
    return AsyncConsumerConnector(
        ConsumerConfig(
            zookeeper_connect=task.zookeeper,
            group_id=task.group,
            auto_offset_reset="smallest",
            auto_commit_enable=False,
            **security,
        )
    )


def confluent_settings(task: Task, tuning: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of confluent-kafka's consumers, the synchronous one and that for event loops."""
    settings: dict[str, Any] = {
        "bootstrap.servers": task.bootstrap,
        "group.id": task.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "check.crcs": True,
        **tuning,
    }
    if task.ca_location:
        settings |= {"security.protocol": "SSL", "ssl.ca.location": task.ca_location}
    if task.kafka.startswith(("0.8", "0.9")):
        settings |= {"api.version.request": False, "broker.version.fallback": task.kafka}
    return settings


def note_messages(clock: Clock, got: Sequence[Any]) -> bool:
    """Touch what confluent-kafka's ``consume`` returned, and note it; True if that was the last of it.

    Raises:
        RuntimeError: the last message is an error.
    """
    if got and (error := got[-1].error()) is not None:
        raise RuntimeError(error.str())
    for message in got:
        message.key()
        message.value()
    return clock.note(len(got))


async def read_confluent(task: Task, tuning: Mapping[str, Any]) -> Clock:
    """The asyncio consumer of confluent-kafka with its fastest call, ``consume``."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition
    from confluent_kafka.aio import AIOConsumer

    clock = Clock(task)
    consumer = AIOConsumer(confluent_settings(task, tuning))
    try:
        partitions = [TopicPartition(task.topic, number, OFFSET_BEGINNING) for number in range(task.partitions)]
        await consumer.assign(partitions)
        while True:
            got = await consumer.consume(_MANY, 1.0)
            if note_messages(clock, got):
                return clock
    finally:
        await consumer.close()
