"""The Python contestants of the fetch benchmark: each reads a topic from its start, in a separate process.

``python -m benchmarks.peers NAME TASK`` runs one and prints a line of JSON. All verify checksums. Those that return
records also access key and value of each, so that late decoding is included.

An interpreter whose zkconsumer is another release runs this module, too. So nothing that is imported at the top imports
zkconsumer, and the readers that use it use its public names only.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks import asyncpeers
from benchmarks.asyncpeers import ASYNC_BATCHES, ASYNC_RECORDS, CONFLUENT_ASYNC, in_loop
from benchmarks.contest import OURS
from benchmarks.machine import peak_memory_mib
from benchmarks.task import Clock, Run, Task

BATCHES: Final = f"{OURS}, Arrow batches"
RECORDS: Final = f"{OURS}, records"
DRAIN: Final = "plain drain"
AIOKAFKA: Final = "aiokafka"
CONFLUENT: Final = "confluent-kafka"
TUNED: Final = "confluent-kafka, tuned"
SLOW: Final = f"{OURS}, slow reader"

_POLL_MS: Final = 1000
_MANY: Final = 10_000
_PAUSE_S: Final = 0.05
_TUNING: Final = {
    "fetch.queue.backoff.ms": 0,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_048_576,
}


def read_batches(task: Task, pause_s: float = 0.0) -> Clock:
    """Zkconsumer as a member of a group, batch by batch; a slow reader pauses at each batch."""
    clock = Clock(task)
    connector, stream = _our_stream(task)
    with connector:
        for batch in stream.batches():
            if pause_s:
                time.sleep(pause_s)
            if clock.note(batch.num_rows):
                break
    return clock


def read_records(task: Task) -> Clock:
    """zkconsumer, record by record; the clock is read only now and then."""
    clock = Clock(task)
    connector, stream = _our_stream(task)
    with connector:
        next(stream)
        clock.note(1)
        while True:
            count = min(_MANY, clock.left)
            for message in islice(stream, count):
                message.key, message.value  # noqa: B018 - decodes them, if that was deferred
            if clock.note(count):
                break
    return clock


def _our_stream(task: Task) -> tuple[Any, Any]:
    from zkconsumer import ConsumerConfig, ConsumerConnector

    security: dict[str, Any] = (
        {"security_protocol": "SSL", "ssl_ca_location": task.ca_location} if task.ca_location else {}
    )
    config = ConsumerConfig(
        zookeeper_connect=task.zookeeper,
        group_id=task.group,
        auto_offset_reset="smallest",
        auto_commit_enable=False,
        **security,
    )
    connector = ConsumerConnector(config)
    return connector, connector.create_message_streams({task.topic: 1})[task.topic][0]


def read_drain(task: Task) -> Clock:
    """Receive the same bytes without parsing them."""
    from benchmarks.drain import Prepared, drain

    clock = Clock(task)
    clock.counted, clock.elapsed, clock.began = drain(Prepared.load(Path(task.prepared)), task.seconds)
    return clock


def read_aiokafka(task: Task) -> Clock:
    """The client aiokafka with its fastest call, ``getmany``."""
    return asyncio.run(_read_aiokafka(task))


async def _read_aiokafka(task: Task) -> Clock:
    import ssl

    from aiokafka import AIOKafkaConsumer, TopicPartition

    clock = Clock(task)
    security: dict[str, Any] = {}
    if task.ca_location:
        security = {
            "security_protocol": "SSL",
            "ssl_context": ssl.create_default_context(cafile=task.ca_location),
        }
    consumer = AIOKafkaConsumer(bootstrap_servers=task.bootstrap, enable_auto_commit=False, **security)
    await consumer.start()
    try:
        partitions = [TopicPartition(task.topic, number) for number in range(task.partitions)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        while True:
            got = await consumer.getmany(timeout_ms=_POLL_MS)
            for records in got.values():
                for record in records:
                    record.key, record.value  # noqa: B018 - as for the others
            if clock.note(sum(map(len, got.values()))):
                return clock
    finally:
        await consumer.stop()


def read_confluent(task: Task, tuning: Mapping[str, Any] = MappingProxyType({})) -> Clock:
    """The client confluent-kafka with its fastest call, ``consume``."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    clock = Clock(task)
    consumer = Consumer(asyncpeers.confluent_settings(task, tuning))
    try:
        consumer.assign([TopicPartition(task.topic, number, OFFSET_BEGINNING) for number in range(task.partitions)])
        while True:
            got = consumer.consume(_MANY, 1.0)
            if asyncpeers.note_messages(clock, got):
                return clock
    finally:
        consumer.close()


PEERS: Final[dict[str, tuple[str, Callable[[Task], Clock]]]] = {
    BATCHES: ("zkconsumer", read_batches),
    RECORDS: ("zkconsumer", read_records),
    TUNED: ("confluent_kafka", partial(read_confluent, tuning=_TUNING)),
    CONFLUENT: ("confluent_kafka", read_confluent),
    AIOKAFKA: ("aiokafka", read_aiokafka),
    ASYNC_BATCHES: ("zkconsumer", in_loop(asyncpeers.read_batches)),
    ASYNC_RECORDS: ("zkconsumer", in_loop(asyncpeers.read_records)),
    CONFLUENT_ASYNC: ("confluent_kafka.aio", in_loop(partial(asyncpeers.read_confluent, tuning=_TUNING))),
    DRAIN: ("zkconsumer", read_drain),
    SLOW: ("zkconsumer", partial(read_batches, pause_s=_PAUSE_S)),
}
"""Contestant to the package that it needs, and its function."""


def labels(beside: Sequence[str]) -> dict[str, str]:
    """What follows the name of a contestant that runs in another environment, to the interpreter of that environment.

    Args:
        beside: the interpreters, each the ``bin/python`` of a virtual environment with zkconsumer.
    """
    return {f" of {Path(python).absolute().parents[2].name}": python for python in beside}


def main() -> None:
    """Run the contestant that the command line specifies."""
    _, read = PEERS[sys.argv[1]]
    clock = read(Task(*json.loads(sys.argv[2])))
    # The peak of getrusage starts with the memory of the process that started this one.
    print(json.dumps(Run(clock.counted, clock.elapsed, peak_memory_mib(os.getpid()), clock.began)))  # noqa: T201 - read by the parent


if __name__ == "__main__":
    main()
