"""Make the picture in docs/serve.md: ``python -m tests.web.screenshot docs/images/serve.png``.

A real ZooKeeper and Kafka, a topic that is written to all the time, a slow consumer, and a second one that joins it.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.fixtures.browser import chromium
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import ConsumerClosed
from zkconsumer.sandbox import Sandbox

GROUP, TOPIC, PARTITIONS = "archive", "clicks", 4
ALONE_S, TOGETHER_S = 20, 25


def consume(connect: str, member: str, records_per_s: int, running: ExitStack) -> None:
    """Join the group, and read slowly on a thread of its own."""
    config = ConsumerConfig(
        zookeeper_connect=connect,
        group_id=GROUP,
        consumer_id=member,
        auto_offset_reset="smallest",
        auto_commit_interval_ms=500,
    )
    connector = running.enter_context(ConsumerConnector(config))
    stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]

    def read() -> None:
        try:
            for _ in stream:
                time.sleep(1 / records_per_s)
        except ConsumerClosed:
            pass

    threading.Thread(target=read, daemon=True).start()


def produce(servers: str, is_over: Callable[[], bool]) -> None:
    """Write to all partitions, to the later ones more."""
    while not is_over():
        records = [{"value": b"v", "partition": p} for p in range(PARTITIONS) for _ in range(4 + 3 * p)]
        produce_records(servers, TOPIC, records)
        time.sleep(0.5)


def main(picture: Path) -> None:
    with ExitStack() as running:
        box = running.enter_context(Sandbox())
        Topics(box.bootstrap_servers).create(TOPIC, PARTITIONS)
        over = threading.Event()
        producer = threading.Thread(target=produce, args=(box.bootstrap_servers, over.is_set))
        producer.start()
        running.callback(producer.join)
        running.callback(over.set)
        consume(box.zookeeper_connect, "host-a", 35, running)
        served = running.enter_context(serving(box.zookeeper_connect, "--interval", "500ms"))
        time.sleep(ALONE_S)
        consume(box.zookeeper_connect, "host-b", 70, running)
        time.sleep(TOGETHER_S)
        profile = Path(running.enter_context(tempfile.TemporaryDirectory()))
        browser = running.enter_context(chromium(profile, 1280, 1000))
        browser.get(f"{served.url}/#{GROUP}")
        eventually(lambda: browser.find_elements("css selector", ".scatterlayer .trace"))
        picture.parent.mkdir(exist_ok=True)
        browser.save_screenshot(str(picture))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
