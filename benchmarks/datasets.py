"""DataSet: the content of a topic of the fetch benchmark, and the list of all data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_KAFKA: Final = "3.9.1"
_OLD: Final = "0.10.2.2"
_OLDEST: Final = "0.8.2.2"


class DataSet(NamedTuple):
    """The content of one topic, and the brokers that hold it.

    Attributes:
        name: name on the command line.
        batch_records: records in each batch, or in each compressed message of formats 0 and 1.
        value_bytes: shortest and longest value; lengths are distributed evenly.
        keys: whether each record has a key, of about ten bytes.
        headers: number of headers of each record.
        magic: record format, 0 to 2.
        codec: compression codec: none, gzip, snappy, lz4 or zstd.
        ratio: uncompressed size of the records divided by their compressed size.
        partitions: number of partitions, of equal size, spread over all brokers.
        brokers: number of brokers.
        kafka: release of the brokers.
        tls: whether clients connect by TLS.
        total_bytes: approximate size of all partitions before compression. The fastest contestant must not reach the
            end in the time of a measurement.
        single: whether the same data is also read from a single broker, for comparison.
        append_bytes: size of the message sets that a producer of format 0 or 1 has appended: a broker's index has one
            entry for each. 0: an index as of a broker that has recovered its log, with an entry for each 4 KiB.
    """

    name: str
    batch_records: int = 75
    value_bytes: tuple[int, int] = (20, 400)
    keys: bool = True
    headers: int = 0
    magic: int = 2
    codec: str = "none"
    ratio: float = 3.0
    partitions: int = 8
    brokers: int = 1
    kafka: str = _KAFKA
    tls: bool = False
    total_bytes: int = 5_000_000_000
    single: bool = False
    append_bytes: int = 0

    def __str__(self) -> str:
        shortest, longest = self.value_bytes
        size = _size(shortest) if shortest == longest else f"{shortest}-{longest} B"
        codec = "uncompressed" if self.codec == "none" else f"{self.codec} {self.ratio:g}:1"
        parts = [f"format {self.magic}", f"values of {size}", "keys" if self.keys else "no keys"]
        if self.headers:
            parts.append(f"{self.headers} headers")
        if self.magic == 2 or self.codec != "none":
            parts.append(f"{self.batch_records} a batch" if self.batch_records > 1 else "1 record a batch")
        if self.append_bytes:
            parts.append(f"appended by {_size(self.append_bytes)}")
        parts += [codec, _count(self.partitions, "partition"), _count(self.brokers, "broker") + f" {self.kafka}"]
        return ", ".join([*parts, "TLS"] if self.tls else parts)


_COMPRESSED: Final = 3_000_000_000
_SMALL_BATCHES: Final = 3_500_000_000
_FULL_BATCH: Final = 1 << 17
"""Bytes of a batch in the data sets that begin with ``large``, before compression."""


def _large(name: str, value: int, codec: str = "none", partitions: int = 8) -> DataSet:
    """Batches of 128 KiB without keys, as from a producer that is tuned for throughput."""
    total = DataSet._field_defaults["total_bytes"] if codec == "none" else _COMPRESSED
    return DataSet(
        name,
        batch_records=max(1, _FULL_BATCH // (value + 12)),
        value_bytes=(value, value),
        keys=False,
        codec=codec,
        partitions=partitions,
        total_bytes=total,
    )


_ALL: Final = (
    DataSet("batches-1000", batch_records=1000),
    DataSet("batches-75"),
    DataSet("batches-10", batch_records=10),
    DataSet("batches-1", batch_records=1, total_bytes=_SMALL_BATCHES),
    DataSet("headers", headers=2),
    DataSet("lz4-2", codec="lz4", ratio=2, total_bytes=_COMPRESSED),
    DataSet("lz4-5", codec="lz4", ratio=5, total_bytes=_COMPRESSED),
    DataSet("snappy-3", codec="snappy", ratio=3, total_bytes=_COMPRESSED),
    DataSet("gzip-5", codec="gzip", ratio=5, total_bytes=_COMPRESSED),
    DataSet("gzip-20", codec="gzip", ratio=20, batch_records=1000, value_bytes=(200, 1800), total_bytes=_COMPRESSED),
    DataSet("zstd-5", codec="zstd", ratio=5, total_bytes=_COMPRESSED),
    DataSet("zstd-20", codec="zstd", ratio=20, batch_records=1000, value_bytes=(200, 1800), total_bytes=_COMPRESSED),
    DataSet("format-1", magic=1, kafka=_OLD, total_bytes=_SMALL_BATCHES),
    DataSet("format-1-appends-16k", magic=1, kafka=_OLD, total_bytes=_SMALL_BATCHES, append_bytes=1 << 14),
    DataSet("format-1-appends-1m", magic=1, kafka=_OLD, total_bytes=_SMALL_BATCHES, append_bytes=1 << 20),
    DataSet("format-1-gzip", magic=1, kafka=_OLD, codec="gzip", total_bytes=_COMPRESSED),
    DataSet("format-1-snappy", magic=1, kafka=_OLD, codec="snappy", total_bytes=_COMPRESSED),
    DataSet("format-0", magic=0, kafka=_OLDEST, total_bytes=_SMALL_BATCHES),
    DataSet("format-0-gzip", magic=0, kafka=_OLDEST, codec="gzip", total_bytes=_COMPRESSED),
    DataSet("format-0-snappy", magic=0, kafka=_OLDEST, codec="snappy", total_bytes=_COMPRESSED),
    DataSet("tls", batch_records=15, value_bytes=(1024, 1024), tls=True),
    DataSet("partitions-200", partitions=200, brokers=3),
    DataSet("partitions-1000", partitions=1000, brokers=3),
    DataSet("brokers-2", brokers=2, single=True),
    _large("large-100", 100),
    _large("large-1k", 1024),
    _large("large-10k", 10_240),
    _large("large-lz4", 100, codec="lz4"),
    _large("large-zstd", 100, codec="zstd"),
    _large("large-1-partition", 100, partitions=1),
    _large("large-64-partitions", 100, partitions=64),
)

DATA_SETS: Final[Mapping[str, DataSet]] = {one.name: one for one in _ALL}
"""The data sets by name, in the order in which they are read."""


def _size(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count // 1024} KiB"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"
