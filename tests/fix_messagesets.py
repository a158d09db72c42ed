"""Message sets of formats 0 and 1: kafka-python's encoder, and compression around it as old clients did it."""

import struct
import zlib
from collections.abc import Sequence

import xxhash

from tests.fix_batches import CODECS, compress
from tests.fix_kafka import LegacyRecordBatchBuilder
from zkconsumer.sandbox.producer import Record

LOG_APPEND_TIME = 0x08
OVERHEAD = {0: 26, 1: 34}
OLD_CODECS = ["gzip", "snappy", "snappy-raw", "lz4", "lz4-wrong-checksum"]


def reseal(message: bytearray) -> bytes:
    """Make length and checksum of one message fit the contents again."""
    struct.pack_into(">i", message, 8, len(message) - 12)
    struct.pack_into(">I", message, 12, zlib.crc32(message[16:]))
    return bytes(message)


def message(record: Record, magic: int, offset: int, attributes: int = 0) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1 << 30)
    builder.append(offset, record.timestamp, record.key, record.value)
    encoded = bytearray(builder.build())
    encoded[17] = attributes
    return reseal(encoded)


def message_set(records: Sequence[Record], magic: int, offsets: Sequence[int], attributes: int = 0) -> bytes:
    return b"".join(message(r, magic, at, attributes) for r, at in zip(records, offsets, strict=True))


def compress_old(codec: str, body: bytes) -> bytes:
    if codec != "lz4-wrong-checksum":
        return compress(codec, body)
    frame = bytearray(compress("lz4", body))
    at = 6 + (8 if frame[4] & 0x08 else 0)
    assert frame[at] == xxhash.xxh32_intdigest(bytes(frame[4:at])) >> 8 & 0xFF
    frame[at] = xxhash.xxh32_intdigest(bytes(frame[:at])) >> 8 & 0xFF  # with the magic bytes
    return bytes(frame)


def wrap(inner: bytes, magic: int, offset: int, codec: str, *, timestamp: int = 0, attributes: int = 0) -> bytes:
    """A compressed message around ``inner``."""
    number = CODECS[codec.removesuffix("-wrong-checksum")]
    return message(Record(compress_old(codec, inner), None, timestamp), magic, offset, number | attributes)


def compressed_set(
    records: Sequence[Record], magic: int, offsets: Sequence[int], codec: str, *, base: int | None = None, **outer: int
) -> bytes:
    """``records`` with these offsets, compressed; ``base`` is what the offsets inside are relative to (format 1)."""
    first = 0 if magic == 0 else offsets[0] if base is None else base
    return wrap(message_set(records, magic, [at - first for at in offsets]), magic, offsets[-1], codec, **outer)
