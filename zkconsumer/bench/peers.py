"""The contestants of the fetch benchmark that are Python: each reads a topic from its start, in a process of its own.

``python -m zkconsumer.bench.peers NAME TASK`` runs one and prints a line of JSON. All of them keep their default
settings, but verify checksums. The clock starts with the first records and stops with the last, or when the time is
over: what a slow one needs for the whole topic is not of interest.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from zkconsumer.bench.contest import OURS

BATCHES: Final = f"{OURS}, Arrow batches"
RECORDS: Final = f"{OURS}, records"
SOCKET: Final = "raw socket"
AIOKAFKA: Final = "aiokafka"
CONFLUENT: Final = "confluent-kafka"
KAFKA_PYTHON: Final = "kafka-python"
SLOW: Final = f"{OURS}, slow reader"

_POLL_MS: Final = 1000
_MANY: Final = 10_000
_PARTITION_BYTES: Final = 1 << 20
_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.05


class Task(NamedTuple):
    """What to read. ``seconds`` limits the time from the first record on."""

    zookeeper: str
    bootstrap: str
    group: str
    topic: str
    partitions: int
    records: int
    seconds: float


class Run(NamedTuple):
    """How it went.

    Attributes:
        records: read from the first ones on.
        seconds: that it took.
        peak_mib: the process's peak memory.
        began: when the first ones were there, on the clock that all processes of the machine share.
    """

    records: int
    seconds: float
    peak_mib: float
    began: float = 0.0


class Clock:
    """Counts records; the first ones start the time and do not count, since reading them took place before."""

    def __init__(self, task: Task) -> None:
        self._left = task.records
        self._limit = task.seconds
        self.began = 0.0
        self.counted = 0
        self.elapsed = 0.0

    def note(self, records: int) -> bool:
        """Note records that were just handed out; True if this was enough."""
        now = time.monotonic()
        self._left -= records
        if not self.began:
            self.began = now if records else 0.0
            return self._left <= 0
        self.counted += records
        self.elapsed = now - self.began
        return self._left <= 0 or self.elapsed >= self._limit


def read_batches(task: Task, pause_s: float = 0.0) -> Clock:
    """Our consumer as a member of a group, batch by batch; a slow reader pauses for each."""
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
    """Our consumer, record by record; the clock is looked at now and then."""
    clock = Clock(task)
    connector, stream = _our_stream(task)
    with connector:
        next(stream)
        clock.note(1)
        left = task.records - 1
        while True:
            count = min(_MANY, left)
            for _ in islice(stream, count):
                pass
            left -= count
            if clock.note(count):
                break
    return clock


def _our_stream(task: Task) -> tuple[Any, Any]:
    from zkconsumer import ConsumerConfig, ConsumerConnector

    config = ConsumerConfig(
        zookeeper_connect=task.zookeeper, group_id=task.group, auto_offset_reset="smallest", auto_commit_enable=False
    )
    connector = ConsumerConnector(config)
    return connector, connector.create_message_streams({task.topic: 1})[task.topic][0]


def read_socket(task: Task) -> Clock:
    """The limit: the same bytes through the same protocol into one buffer; of the batches only the headers are read."""
    from zkconsumer.fetch.decode import Decoder
    from zkconsumer.kafka.connection import BrokerConnection
    from zkconsumer.kafka.fetch_protocol import FLEXIBLE, decode_fetch, fetch_version, send_fetch
    from zkconsumer.kafka.fetch_session import PartitionFetch, without_session

    clock, decoder = Clock(task), Decoder()
    host, _, port = task.bootstrap.split(",")[0].rpartition(":")
    connection = BrokerConnection(host, int(port), client_id="bench", timeout_ms=_TIMEOUT_MS)
    connection.connect()
    version = fetch_version(connection)
    each = task.records // task.partitions
    offsets = dict.fromkeys(range(task.partitions), 0)

    def ask() -> int:
        wanted = [PartitionFetch(task.topic, n, at, _PARTITION_BYTES) for n, at in offsets.items() if at < each]
        return send_fetch(
            connection, without_session(wanted), max_wait_ms=100, min_bytes=1, max_bytes=50 * _PARTITION_BYTES
        )

    try:
        asked = ask()
        while True:
            got = 0
            body = connection.receive(asked, flexible=version >= FLEXIBLE)
            for part in decode_fetch(version, body).partitions:
                after = decoder.next_offset(offsets[part.partition], part.records)
                got += after - offsets[part.partition]
                offsets[part.partition] = after
            if min(offsets.values()) < each:
                asked = ask()  # the bytes are of no use, so the next ones may come at once
            if clock.note(got):
                return clock
    finally:
        connection.close()


def read_aiokafka(task: Task) -> Clock:
    """The client aiokafka by its quickest call, ``getmany``."""
    return asyncio.run(_read_aiokafka(task))


async def _read_aiokafka(task: Task) -> Clock:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    clock = Clock(task)
    consumer = AIOKafkaConsumer(bootstrap_servers=task.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(task.topic, number) for number in range(task.partitions)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        while True:
            got = await consumer.getmany(timeout_ms=_POLL_MS)
            if clock.note(sum(map(len, got.values()))):
                return clock
    finally:
        await consumer.stop()


def read_confluent(task: Task) -> Clock:
    """The client confluent-kafka by its quickest call, ``consume``."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    clock = Clock(task)
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(task.topic, number, OFFSET_BEGINNING) for number in range(task.partitions)])
        while not clock.note(len(consumer.consume(_MANY, 1.0))):
            pass
        return clock
    finally:
        consumer.close()


def read_kafka_python(task: Task) -> Clock:
    """The client kafka-python."""
    from zkconsumer.kafka.library import load_kafka_python

    load_kafka_python()
    from kafka import KafkaConsumer, TopicPartition

    clock = Clock(task)
    consumer = KafkaConsumer(bootstrap_servers=task.bootstrap, enable_auto_commit=False)
    try:
        partitions = [TopicPartition(task.topic, number) for number in range(task.partitions)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while not clock.note(sum(map(len, consumer.poll(_POLL_MS, max_records=_MANY).values()))):
            pass
        return clock
    finally:
        consumer.close()


PEERS: Final[dict[str, tuple[str, Callable[[Task], Clock]]]] = {
    SOCKET: ("zkconsumer", read_socket),
    BATCHES: ("zkconsumer", read_batches),
    RECORDS: ("zkconsumer", read_records),
    AIOKAFKA: ("aiokafka", read_aiokafka),
    CONFLUENT: ("confluent_kafka", read_confluent),
    KAFKA_PYTHON: ("kafka", read_kafka_python),
    SLOW: ("zkconsumer", partial(read_batches, pause_s=_PAUSE_S)),
}
"""Contestant to the package that it needs, and what reads."""


def main() -> None:
    """Run one contestant as the command line says."""
    _, read = PEERS[sys.argv[1]]
    clock = read(Task(*json.loads(sys.argv[2])))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(Run(clock.counted, clock.elapsed, peak_mib, clock.began)))  # noqa: T201 - read by the parent


if __name__ == "__main__":
    main()
