"""Records what a monitor sees of consumers that keep up, fall back, hang, end or are reset, on a real broker.

``python -m tests.golden.lagtraces`` renews ``lagtraces.json``. A tick of the recording takes 0.2 s and is written down
as 10 s, so that the traces cover what alarms judge.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.fixtures.sandbox import Topics
from zkconsumer.sandbox import Sandbox

FILE = Path(__file__).with_name("lagtraces.json")
TICK_S, RECORDED_S = 0.2, 10

Tick = tuple[int, int | None, bool]
"""How many records are produced, what is committed (None: nothing is), and whether the member runs."""


def _keeps_up() -> Iterator[Tick]:
    end = 0
    for number in range(20):
        end += 5 + number % 3
        yield 5 + number % 3, end - (2 if number % 4 else 1), True


def _drains() -> Iterator[Tick]:
    yield 100, 10, True
    for number in range(19):
        yield 2, 20 + 6 * number, True


def _falls_back() -> Iterator[Tick]:
    yield 10, 1, True
    for number in range(19):
        yield 5, 4 + 3 * number, True


def _commits_without_progress() -> Iterator[Tick]:
    yield 10, 5, True
    for _ in range(19):
        yield 1, 5, True


def _hangs() -> Iterator[Tick]:
    for number in range(8):
        yield 5, 3 + 5 * number, True
    for _ in range(12):
        yield 5, None, True


def _ends_with_lag() -> Iterator[Tick]:
    for number in range(8):
        yield 5, 3 + 5 * number, True
    for _ in range(12):
        yield 5, None, False


def _is_reset() -> Iterator[Tick]:
    for number in range(15):
        yield 5, 5 * number, True
    yield 5, 10, True
    for number in range(4):
        yield 5, 15 + number, True


def _is_idle() -> Iterator[Tick]:
    yield 10, 10, True
    for _ in range(19):
        yield 0, None, True


def _ends_without_lag() -> Iterator[Tick]:
    yield 10, 10, True
    for _ in range(19):
        yield 0, None, False


def _loses_records() -> Iterator[Tick]:
    """The log is deleted up to its end at the last tick."""
    for number in range(8):
        yield 5, 3 + 5 * number, True
    for _ in range(11):
        yield 5, None, True
    yield -1, None, True


TRACES: dict[str, Callable[[], Iterator[Tick]]] = {
    name.removeprefix("_").replace("_", " "): function
    for name, function in list(globals().items())
    if name.startswith("_") and getattr(function, "__module__", "") == __name__
}


def _record(servers: str, topic: str, ticks: Iterator[Tick]) -> list[dict[str, Any]]:
    partition = TopicPartition(topic, 0)
    producer, admin = Producer({"bootstrap.servers": servers}), AdminClient({"bootstrap.servers": servers})
    seen = []
    with closing(Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False})) as consumer:
        for number, (produced, committed, is_live) in enumerate(ticks):
            if produced < 0:
                end = consumer.get_watermark_offsets(partition)[1]
                admin.delete_records([TopicPartition(topic, 0, end)])[partition].result(60)
            for _ in range(produced):
                producer.produce(topic, b"record", partition=0)
            producer.flush(60)
            if committed is not None:
                consumer.commit(offsets=[TopicPartition(topic, 0, committed)], asynchronous=False)
            stored = consumer.committed([partition], timeout=60)[0].offset
            start, end = consumer.get_watermark_offsets(partition, timeout=60)
            seen.append(
                {
                    "at": number * RECORDED_S,
                    "is_commit": committed is not None,
                    "committed": stored if stored >= 0 else None,
                    "log_start": start,
                    "log_end": end,
                    "owner_live": is_live,
                }
            )
            time.sleep(TICK_S)
    return seen


def record() -> None:
    """Record every trace, and write the file."""
    with Sandbox() as box:
        topics = Topics(box.bootstrap_servers)
        traces = {}
        for name, ticks in TRACES.items():
            topic = topics.create(name.replace(" ", "-"))
            traces[name] = _record(box.bootstrap_servers, topic, ticks())
    lines = {name: ",\n  ".join(map(json.dumps, trace)) for name, trace in traces.items()}
    body = ",\n".join(f" {json.dumps(name)}: [\n  {text}\n ]" for name, text in lines.items())
    FILE.write_text(f"{{\n{body}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    record()
