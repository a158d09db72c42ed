"""Load: fills topics for the benchmarks quickly: a few batches are encoded once and appended repeatedly."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from benchmarks.logsegment import batch
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox.admin import create_topics
from zkconsumer.sandbox.producer import Record, append_batches
from zkconsumer.wire.brokerclient import BrokerClient

_TIMEOUT_MS: Final = 60_000
_BATCH_BYTES: Final = 1 << 17
"""Size of a batch before compression; between a producer's default of 16 KiB and the limit of 1 MiB."""
_TIMESTAMP_MS: Final = 1_700_000_000_000
_WORDS: Final = 512
"""Number of different words of eight letters in values: lz4 and zstd at least halve them, like JSON."""


class Load(NamedTuple):
    """The content of a topic.

    Attributes:
        value_bytes: length of each value; there are no keys and no headers.
        codec: compression, a name that :func:`~benchmarks.logsegment.batch` knows.
        partitions: number of partitions, with equal numbers of records.
        total_bytes: approximate size of all values together.
        only_on: id of the broker that leads all partitions; None spreads them.
    """

    value_bytes: int = 100
    codec: str = "none"
    partitions: int = 8
    total_bytes: int = 300_000_000
    only_on: int | None = None

    @property
    def topic(self) -> str:
        """Name of the topic with this load."""
        place = "" if self.only_on is None else f"-on-{self.only_on}"
        return f"load-{self.value_bytes}-{self.codec}-{self.partitions}-{self.total_bytes}{place}"

    @property
    def records(self) -> int:
        """Number of records in the topic: whole batches in every partition."""
        return self.batches * self.partitions * self.batch_records

    @property
    def batch_records(self) -> int:
        """Records in one batch."""
        return max(1, _BATCH_BYTES // (self.value_bytes + 12) * 15 // 16)

    @property
    def batches(self) -> int:
        """Batches in each partition."""
        return max(1, self.total_bytes // (self.batch_records * self.value_bytes * self.partitions))

    def __str__(self) -> str:
        size = f"{self.value_bytes} B" if self.value_bytes < 1024 else f"{self.value_bytes // 1024} KiB"
        codec = "uncompressed" if self.codec == "none" else self.codec
        return f"{size}, {codec}, {self.partitions} partition{'s' * (self.partitions > 1)}"


def fill(live_brokers: Callable[[], Sequence[Broker]], load: Load) -> None:
    """Create the load's topic and append its records.

    Raises:
        BrokerUnavailable, ProtocolError: see :func:`~zkconsumer.sandbox.producer.produce`.
    """
    client = BrokerClient(live_brokers, client_id="zkconsumer-bench", timeout_ms=_TIMEOUT_MS)
    try:
        create_topics(client, {load.topic: load.partitions}, only_on=load.only_on, timeout_s=_TIMEOUT_MS / 1000)
    finally:
        client.close()
    partitions = [TopicPartition(load.topic, number) for number in range(load.partitions)]
    append_batches(live_brokers, dict.fromkeys(partitions, [batch(load.codec, _records(load))] * load.batches))


def _records(load: Load) -> list[Record]:
    chance = random.Random(load.value_bytes)  # the same values in every run
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8)) for _ in range(_WORDS)]

    def value() -> bytes:
        return "".join(chance.choices(words, k=load.value_bytes // 8 + 1)).encode()[: load.value_bytes]

    return [Record(value(), None, _TIMESTAMP_MS + number) for number in range(load.batch_records)]
