"""The captures that ``capture.py`` made, one for each release, topic, isolation level and Fetch version."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fixtures.fetchresponses import decode_fetch
from zkconsumer.wire.fetchmessages import FetchedPartition

HERE = Path(__file__).parent

Row = tuple[int, int | None, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Capture(NamedTuple):
    """A response, and the rows that librdkafka read: offset, timestamp, its type, key, value, headers."""

    release: str
    topic: str
    version: int
    response: bytes
    rows: list[Row]

    def __str__(self) -> str:
        return f"{self.release} {self.topic} v{self.version}"

    @property
    def fetched(self) -> FetchedPartition:
        (partition,) = decode_fetch(self.version, memoryview(self.response)).partitions
        return partition


def captures() -> Iterator[Capture]:
    """All captures."""
    for path in sorted(HERE.glob("kafka-*.json")):
        for topic, content in json.loads(path.read_text()).items():
            rows = [
                (offset, timestamp, kind, _bytes(key), _bytes(value), tuple((n, _bytes(v)) for n, v in headers))
                for offset, timestamp, kind, key, value, headers in content["rows"]
            ]
            for version, response in content["responses"].items():
                yield Capture(path.stem.removeprefix("kafka-"), topic, int(version), base64.b64decode(response), rows)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
