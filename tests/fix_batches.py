"""Record batches as producers write them: kafka-python's encoder, then compression as clients frame it."""

import gzip
import struct
from typing import Any

import cramjam

from tests.fix_kafka import MemoryRecordsBuilder, calc_crc32c
from zkconsumer.sandbox.producer import Record

HEADER = 61
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "snappy-raw": 2, "lz4": 3, "zstd": 4}


def compress(codec: str, body: bytes) -> bytes:
    if codec == "gzip":
        return gzip.compress(body, 1, mtime=0)
    if codec == "snappy-raw":
        return bytes(cramjam.snappy.compress_raw(body))
    if codec == "snappy":
        framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
        for start in range(0, len(body), 32 * 1024):
            block = bytes(cramjam.snappy.compress_raw(body[start : start + 32 * 1024]))
            framed += struct.pack(">i", len(block)) + block
        return framed
    return bytes({"lz4": cramjam.lz4, "zstd": cramjam.zstd}[codec].compress(body))


def seal(batch: bytearray) -> bytes:
    """Make length and checksum fit the contents again."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, calc_crc32c(bytes(batch[21:])))
    return bytes(batch)


def spoil(batch: bytes) -> bytes:
    """The same with one bit of its last byte turned over."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


def build(records: list[Record], *, offset: int = 0, codec: str = "none", **changes: Any) -> bytes:
    """One batch; ``changes`` sets header fields: attributes (not the codec), last_delta, count, ..."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 30)
    for value, key, timestamp, headers in records:
        builder.append(timestamp, key, value, list(headers))
    builder.close()
    batch = bytearray(builder.buffer())
    if codec != "none":
        batch[HEADER:] = compress(codec, bytes(batch[HEADER:]))
    struct.pack_into(">q", batch, 0, offset)
    struct.pack_into(">h", batch, 21, CODECS[codec] | changes.get("attributes", 0))
    if "last_delta" in changes:
        struct.pack_into(">i", batch, 23, changes["last_delta"])
    if "max_timestamp" in changes:
        struct.pack_into(">q", batch, 35, changes["max_timestamp"])
    if "producer" in changes:
        struct.pack_into(">q", batch, 43, changes["producer"])
    if "count" in changes:
        struct.pack_into(">i", batch, 57, changes["count"])
    return seal(batch)


def empty(offset: int, last_delta: int, **changes: int) -> bytes:
    """What compaction leaves of a batch whose records are all gone."""
    batch = bytearray(build([Record(b"x")], offset=offset, last_delta=last_delta, count=0, **changes))
    return seal(batch[:HEADER])


ABORT, COMMIT = 0, 1


def control(offset: int, kind: int = COMMIT, *, producer: int = -1) -> bytes:
    """A marker at the end of a transaction."""
    marker = Record(b"\x00\x00\x00\x00\x00\x00", struct.pack(">hh", 0, kind))
    return build([marker], offset=offset, attributes=0x30, producer=producer)
