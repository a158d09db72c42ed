"""Capture the fetch responses of real brokers of every release, with the rows that an independent client reads.

``python -m tests.golden.capture [RELEASE ...]``, in the repository's root, starts each release in the sandbox, produces
a fixed set of records with every codec, and writes ``tests/golden/kafka-RELEASE.json``: per topic the rows that
confluent-kafka (librdkafka) reads, and per Fetch version the response body received by this package's connection.
Version 0 and, where they exist, version 3 make brokers from 0.11 to 3.9 convert to message formats 0 and 1; the oldest
version of Kafka 4 is 4.
``tests/unit/decode/test_golden.py`` decodes the captures. No other step is needed to renew them; all content is fixed
except the times of transactions and of log-append time, producer ids, and the compressed bytes.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.fixtures.brokers import FULLY_TESTED, VersionedBroker
from zkconsumer.errors import ProtocolError
from zkconsumer.model import Broker
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fetchmessages import FETCH, NEWEST_VERSION, encode_fetch
from zkconsumer.wire.fetchsession import PartitionFetch, without_session

HERE = Path(__file__).parent
_T0 = 1_600_000_000_000
_FORMAT_2_SINCE = (0, 11)
_TIMESTAMPS_SINCE = (0, 10)
_CONVERTS_UNTIL = (3,)  # message.format.version has no effect from 3.0 on
_READ_COMMITTED_SINCE = 4  # Fetch version
_FLEXIBLE = 12


def sample(release: tuple[int, ...]) -> list[dict[str, Any]]:
    """Records with null, empty, repeated and long parts, as far as the release supports them."""
    records: list[dict[str, Any]] = [
        {"key": b"k", "value": b"first"},
        {"key": b"tombstone", "value": None},
        {"key": None, "value": b""},
        {"key": b"", "value": b"long " * 40},
        {"key": bytes(range(0, 256, 8)), "value": "grüße".encode()},
    ]
    headers = [[], [("a", b"1"), ("a", None), ("ü", b"")], [("b", b"\xff\x00")], [], [("", b"x")]]
    for number, record in enumerate(records):
        if release >= _TIMESTAMPS_SINCE:
            record["timestamp"] = _T0 + [0, 5, 3, 1000, -1000][number]
        if release >= _FORMAT_2_SINCE:
            record["headers"] = headers[number]
    return records


def encode(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def row(message: Any) -> list[Any]:
    """offset, timestamp (ms), timestamp type (0 create, 1 append; both null for none), key, value, headers."""
    kind, timestamp = message.timestamp()
    headers = [[name, encode(value)] for name, value in message.headers() or ()]
    times = (None, None) if kind == 0 else (timestamp, kind - 1)
    return [message.offset(), *times, encode(message.key()), encode(message.value()), headers]


def fetch(connection: BrokerConnection, topic: str, version: int, isolation: str) -> str | None:
    """The body of a response with the whole only partition of a topic."""
    body = encode_fetch(
        version,
        without_session([PartitionFetch(topic, 0, 0, 1 << 20)]),
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation=isolation,
    )
    flexible = version >= _FLEXIBLE
    answer = connection.receive(connection.send(FETCH, version, body, flexible=flexible), flexible=flexible)
    return encode(bytes(answer))


class Capture:
    """One release's captures."""

    def __init__(self, broker: VersionedBroker) -> None:
        self.broker = broker
        self.topics: dict[str, Any] = {}
        self._connection = BrokerConnection.from_config(Broker(0, *self._address()), config())
        self._connection.connect()
        self._versions = self._fetch_versions()

    def _address(self) -> tuple[str, int]:
        host, _, port = self.broker.sandbox.bootstrap_servers.rpartition(":")
        return host, int(port)

    def _fetch_versions(self) -> list[int]:
        newest = self._connection.version(FETCH, "Fetch", 0, NEWEST_VERSION)
        oldest = next(version for version in range(newest + 1) if self._supports(version))
        return sorted({oldest, max(oldest, min(3, newest)), newest})

    def _supports(self, version: int) -> bool:
        try:
            return self._connection.version(FETCH, "Fetch", version, version) == version
        except ProtocolError:
            return False

    def plain(self, name: str, codec: str, settings: dict[str, str] | None = None) -> None:
        """Two batches of the sample in a new topic."""
        topic = self.broker.create_topic(name, config=settings)
        release = self.broker.release
        if settings and "message.format.version" in settings:
            release = min(release, _TIMESTAMPS_SINCE)  # then it refuses headers and converts timestamps
        records = sample(release)
        for _ in range(2):
            self.broker.produce(topic, records, compression_codec=codec, linger_ms=100)
        self.keep(topic, {"read_uncommitted": 2 * len(records)})

    def transactions(self, name: str) -> None:
        """Committed, aborted, interleaved and open ones, and records without a transaction."""
        topic = self.broker.create_topic(name)
        first, second = (self._transactional(f"{name}-{number}") for number in range(2))

        def send(producer: Any, value: bytes) -> None:
            producer.produce(topic, value, key=b"k")
            producer.flush()

        def run(producer: Any, values: Sequence[bytes], end: Callable[[], None]) -> None:
            producer.begin_transaction()
            for value in values:
                send(producer, value)
            end()

        run(first, [b"committed 0", b"committed 1"], first.commit_transaction)
        run(first, [b"aborted 0", b"aborted 1"], first.abort_transaction)
        first.begin_transaction()
        second.begin_transaction()
        send(first, b"interleaved, aborted")
        send(second, b"interleaved, committed")
        self.broker.produce(topic, [b"plain"])
        send(first, b"interleaved, aborted")
        first.abort_transaction()
        send(second, b"interleaved, committed")
        second.commit_transaction()
        run(first, [b"committed after abort"], first.commit_transaction)
        first.begin_transaction()
        send(first, b"open")
        self.broker.produce(topic, [b"plain, behind an open one"])
        self.keep(topic, {"read_uncommitted": 12, "read_committed": 6})
        first.abort_transaction()

    def _transactional(self, name: str) -> Any:
        producer = Producer({**self.broker.client_settings, "transactional.id": name})
        producer.init_transactions()
        return producer

    def keep(self, topic: str, counts: dict[str, int]) -> None:
        """Record the rows of the independent client, and the responses of this package's connection."""
        for isolation, count in counts.items():
            settings: dict[str, Any] = {} if len(counts) == 1 else {"isolation.level": isolation}
            rows = [row(message) for message in self.broker.consume(topic, count, **settings)]
            versions = [v for v in self._versions if isolation == "read_uncommitted" or v >= _READ_COMMITTED_SINCE]
            responses = {str(version): fetch(self._connection, topic, version, isolation) for version in versions}
            self.topics[f"{topic}, {isolation}"] = {"rows": rows, "responses": responses}

    def run(self) -> None:
        """Capture all topics that this release supports."""
        release = self.broker.release
        for codec in self.broker.codecs:
            self.plain(codec, codec)
        if release >= _TIMESTAMPS_SINCE:
            for codec in ("none", "gzip"):
                self.plain(f"{codec}-append-time", codec, {"message.timestamp.type": "LogAppendTime"})
        if _TIMESTAMPS_SINCE <= release < _CONVERTS_UNTIL:
            for version in ("0.8.2", "0.10.0"):
                for codec in ("none", "snappy", "lz4"):
                    self.plain(f"{codec}-as-of-{version}", codec, {"message.format.version": version})
        if release >= _FORMAT_2_SINCE:
            self.transactions("transactions")
        self._connection.close()


def config() -> Any:
    from zkconsumer.config.consumerconfig import ConsumerConfig

    return ConsumerConfig(group_id="capture", zookeeper_connect="unused:1")


def main() -> None:
    for release in sys.argv[1:] or FULLY_TESTED:
        began = time.monotonic()
        with Sandbox(kafka_version=release, progress=Progress()) as box:
            capture = Capture(VersionedBroker(box))
            capture.run()
        path = HERE / f"kafka-{release}.json"
        path.write_text(json.dumps(capture.topics, indent=0, ensure_ascii=False) + "\n")
        print(f"{path}: {len(capture.topics)} captures, {path.stat().st_size} bytes, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
