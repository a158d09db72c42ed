"""Records for the benchmark: keys, headers and values of different lengths with a given compression ratio."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.datasets import DataSet
from zkconsumer.sandbox.producer import Record

_TIMESTAMP_MS: Final = 1_700_000_000_000
_SEED: Final = 14
_STRETCH: Final = 256
"""Length of a stretch of text: it begins with random bytes; the rest is the same in all, as in log lines."""
_SAMPLE_RECORDS: Final = 1000
_STEPS: Final = 10
_XERIAL: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
"""The header that snappy-java, and so every Java producer, writes before its blocks."""
_XERIAL_BLOCK: Final = 32 * 1024

Encode = Callable[[Sequence[Record]], Sequence[bytes]]
"""Encodes records into compressed batches."""


def records(data: DataSet, count: int, random_share: float = 0.2) -> list[Record]:
    """``count`` records, equal in each run; ``random_share`` of the bytes of their values are incompressible."""
    chance = random.Random(_SEED)
    shortest, longest = data.value_bytes
    common = bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=_STRETCH))
    fresh = round(_STRETCH * random_share)

    def text(length: int) -> bytes:
        stretches = (chance.randbytes(fresh) + common[fresh:] for _ in range(length // _STRETCH + 1))
        return b"".join(stretches)[:length]

    headers = [(f"header-{number}", b"content of header %d" % number) for number in range(data.headers)]
    return [
        Record(
            value=text(chance.randint(shortest, longest)),
            key=b"user-%05d" % chance.randrange(100_000) if data.keys else None,
            timestamp=_TIMESTAMP_MS + number,
            headers=headers,
        )
        for number in range(count)
    ]


def random_share(data: DataSet, encode: Encode) -> float:
    """The share of random bytes with which the batches of ``encode`` have the data set's compression ratio.

    Raises:
        ValueError: there is none: keys and lengths alone need more bytes.
    """
    plain = data._replace(codec="none")
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        sample = records(plain, max(_SAMPLE_RECORDS, 2 * data.batch_records), middle)
        ratio = sum(plain_bytes(record) for record in sample) / sum(map(len, encode(sample)))
        low, high = (middle, high) if ratio > data.ratio else (low, middle)
    if high == 1 / (1 << _STEPS):
        raise ValueError(f"{data.codec} does not compress {data.name} to 1/{data.ratio:g}; lower its ratio")
    return (low + high) / 2


def compress(codec: str, body: bytes) -> bytes:
    """A body compressed and framed as Java producers do."""
    import cramjam

    if codec == "snappy":
        starts = range(0, len(body), _XERIAL_BLOCK)
        blocks = [bytes(cramjam.snappy.compress_raw(body[start : start + _XERIAL_BLOCK])) for start in starts]
        return _XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    if codec == "lz4":  # brokers refuse frames whose blocks depend on each other, cramjam's default
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(body)
        return bytes(compressor.finish())
    return bytes({"gzip": cramjam.gzip, "zstd": cramjam.zstd}[codec].compress(body))


def plain_bytes(record: Record) -> int:
    """Approximate uncompressed size of a record: seven bytes plus key, value and headers."""
    headers = sum(len(name) + len(value or b"") + 2 for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers + 7
