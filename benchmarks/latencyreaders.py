"""The Python contestants of the latency benchmark: each reads a topic from its end, until its process is killed.

``python -m benchmarks.latencyreaders NAME TASK`` runs one. All have their default settings, as members of a group that
commits by itself. Each notes every record in the :mod:`log <benchmarks.stamps>` as soon as it has it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.peers import AIOKAFKA, BATCHES, CONFLUENT, RECORDS
from benchmarks.stamps import LogWriter, all_created_ns, created_ns

_POLL_S: Final = 60.0


class LatencyTask(NamedTuple):
    """What a contestant reads.

    Attributes:
        zookeeper: connection string, for members of a group in ZooKeeper.
        bootstrap: brokers, for the others.
        group: a new group.
        topic: topic to read from its end.
        log: path of the log.
    """

    zookeeper: str
    bootstrap: str
    group: str
    topic: str
    log: str


def read_records(task: LatencyTask, log: LogWriter) -> None:
    """zkconsumer, record by record."""
    for message in _our_stream(task):
        log.note(created_ns(message.value), time.monotonic_ns())


def read_batches(task: LatencyTask, log: LogWriter) -> None:
    """Zkconsumer, batch by batch: all records of a batch are there when the batch is."""
    for batch in _our_stream(task).batches():
        now = time.monotonic_ns()
        log.note_all(all_created_ns(batch.column("value")), now)


def _our_stream(task: LatencyTask) -> Any:
    from zkconsumer import ConsumerConfig, ConsumerConnector

    connector = ConsumerConnector(ConsumerConfig(zookeeper_connect=task.zookeeper, group_id=task.group))
    return connector.create_message_streams({task.topic: 1})[task.topic][0]


def read_confluent(task: LatencyTask, log: LogWriter) -> None:
    """confluent-kafka with ``poll``, which returns one record; ``consume`` would wait for more."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": task.bootstrap, "group.id": task.group})
    consumer.subscribe([task.topic])
    while True:
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        if (error := message.error()) is not None:
            raise RuntimeError(error.str())
        value = message.value()
        assert value is not None
        log.note(created_ns(value), time.monotonic_ns())


def read_aiokafka(task: LatencyTask, log: LogWriter) -> None:
    """aiokafka, record by record."""
    asyncio.run(_read_aiokafka(task, log))


async def _read_aiokafka(task: LatencyTask, log: LogWriter) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(task.topic, bootstrap_servers=task.bootstrap, group_id=task.group)
    await consumer.start()
    async for message in consumer:
        log.note(created_ns(message.value), time.monotonic_ns())


READERS: Final[dict[str, tuple[str, Callable[[LatencyTask, LogWriter], None]]]] = {
    RECORDS: ("zkconsumer", read_records),
    BATCHES: ("zkconsumer", read_batches),
    CONFLUENT: ("confluent_kafka", read_confluent),
    AIOKAFKA: ("aiokafka", read_aiokafka),
}
"""Contestant to the package that it needs, and its function."""


def main() -> None:
    """Run the contestant that the command line specifies."""
    _, read = READERS[sys.argv[1]]
    task = LatencyTask(*json.loads(sys.argv[2]))
    read(task, LogWriter(Path(task.log)))


if __name__ == "__main__":
    main()
