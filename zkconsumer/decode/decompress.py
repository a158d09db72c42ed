"""Scratch: decompresses record batches one after the other into one buffer of bounded size."""

from __future__ import annotations

from typing import Any, Final

import cramjam
import xxhash

from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.errors import DecoderUnavailable

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_STREAMS: Final = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
_TOO_SMALL: Final = "failed to write whole buffer"  # cramjam's message if the output did not fit
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"  # snappy-java's framing, which Kafka uses
_XERIAL_HEADER: Final = 16  # magic, version, oldest compatible version
_SNAPPY_RATIO: Final = 22  # at most 64 bytes from 3; a block that announces more is damaged
_FIRST_GUESS: Final = 4  # decompressed bytes per compressed byte; a wrong guess costs a second attempt
_KEPT_BYTES: Final = 32 << 20
_SMALL: Final = 1 << 16  # a copy of less is not worthwhile
_WASTE: Final = 4
_LZ4_MAGIC_BYTES: Final = 4
_LZ4_CONTENT_SIZE: Final = 0x08  # flags in the first byte of an lz4 frame descriptor
_LZ4_DICTIONARY: Final = 0x01


class DecompressError(Exception):
    """Compressed bytes are malformed or exceed the limit; the caller adds their source to the message."""


class TooLong(DecompressError):
    """The decompressed bytes would exceed the limit."""


def require_known_errors() -> None:
    """Check that the errors of the installed cramjam mean what this module takes them for.

    cramjam has one type of error for an output that does not fit and for malformed bytes, and only its text differs. If
    another release changes the text, every batch above the first guess would be taken for damaged.

    Raises:
        DecoderUnavailable: they do not.
    """
    for name, stream in (("gzip", cramjam.gzip), ("lz4", cramjam.lz4), ("zstd", cramjam.zstd)):
        whole = memoryview(bytes(stream.compress(b"zkconsumer")))
        small, large = memoryview(bytearray(1)), memoryview(bytearray(100))
        if _is_too_small(stream, whole, small) and not _is_too_small(stream, whole[: len(whole) // 2], large):
            continue
        raise DecoderUnavailable(
            f"cramjam {cramjam.__version__} does not report as expected that an output does not fit ({name}); install "
            "release 2.14, which this version of zkconsumer was tested with"
        )


def _is_too_small(stream: Any, compressed: memoryview, output: memoryview) -> bool:
    """True if decompressing fails in the way that means that the output is too small."""
    try:
        stream.decompress_into(compressed, output)
    except cramjam.DecompressionError as error:
        return _TOO_SMALL in str(error)
    return False


require_known_errors()


class Scratch:
    """A buffer that grows as needed, up to a limit for each batch. One thread uses it.

    Args:
        memory: provides the buffer.
    """

    def __init__(self, memory: ChunkMemory) -> None:
        self._memory = memory
        self._expected = 0
        self.data = memoryview(bytearray())
        """The buffer."""
        self.used = 0
        """Bytes in use."""

    def reset(self) -> None:
        """Release the buffer, which batches may still use; the next one begins with the size of this one."""
        self._expected = min(len(self.data) or self._expected, _KEPT_BYTES)
        self.data = memoryview(bytearray())
        self.used = 0

    def fit(self) -> None:
        """Move to a smaller buffer if most of this one is unused: a batch keeps its whole buffer in memory."""
        if len(self.data) > _SMALL and len(self.data) > _WASTE * self.used:
            smaller = self._memory.take(self.used)
            smaller[:] = self.data[: self.used]
            self.data = smaller

    def add(self, codec: int, compressed: memoryview, limit: int, *, before_format_2: bool = False) -> None:
        """Decompress one batch after those in the buffer.

        Args:
            codec: number of the codec, as in a batch's attributes.
            compressed: the records of the batch.
            limit: maximum decompressed bytes.
            before_format_2: True for message format 0 or 1, which has no zstd, and where Kafka's lz4 writers included
                the magic bytes in the header checksum, so that no other reader accepts it (KAFKA-3160).

        Raises:
            DecompressError: malformed, or an unknown codec.
            TooLong: the result would exceed the limit.
        """
        if codec == SNAPPY:
            self._add_snappy(compressed, limit)
            return
        stream = _STREAMS.get(codec)
        if stream is None or (before_format_2 and codec == ZSTD):
            raise DecompressError(f"compression codec {codec} is unknown")
        if before_format_2 and codec == LZ4:
            compressed = _with_right_header_checksum(compressed)
        room = min(limit, max(_FIRST_GUESS * len(compressed), len(self.data) - self.used))
        while True:
            self._reserve(room)
            try:
                self.used += stream.decompress_into(compressed, self._view(room))
                return
            except cramjam.DecompressionError as error:
                if _TOO_SMALL not in str(error):
                    raise DecompressError(str(error)) from error
                if room >= limit:
                    raise _too_long(limit) from error
            room = min(limit, 2 * room)

    def _add_snappy(self, compressed: memoryview, limit: int) -> None:
        if bytes(compressed[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
            self._add_block(
                compressed, limit, self.used
            )  # a single block without framing, as written by some producers
            return
        at = _XERIAL_HEADER
        before = self.used
        while at < len(compressed):
            length = int.from_bytes(compressed[at : at + 4], "big", signed=True)
            at += 4
            if not 0 <= length <= len(compressed) - at:
                raise DecompressError("snappy block is cut off")
            self._add_block(compressed[at : at + length], limit, before)
            at += length

    def _add_block(self, block: memoryview, limit: int, start: int) -> None:
        """Decompress one block of a batch that begins at ``start`` in the buffer."""
        try:
            length: int = cramjam.snappy.decompress_raw_len(block)
            if length > _SNAPPY_RATIO * len(block):
                raise DecompressError(f"a snappy block of {len(block)} bytes announces {length} decompressed bytes")
            if self.used - start + length > limit:
                raise _too_long(limit)
            self._reserve(length)
            self.used += cramjam.snappy.decompress_raw_into(block, self._view(length))
        except cramjam.DecompressionError as error:
            raise DecompressError(str(error)) from error

    def _reserve(self, count: int) -> None:
        if self.used + count > len(self.data):
            larger = self._memory.take(max(self.used + count, 2 * len(self.data), self._expected))
            larger[: self.used] = self.data[: self.used]
            self.data = larger

    def _view(self, count: int) -> memoryview:
        return self.data[self.used : self.used + count]


def _too_long(limit: int) -> TooLong:
    return TooLong(f"a batch would decompress to more than {limit} bytes")


def _with_right_header_checksum(frame: memoryview) -> memoryview:
    """An lz4 frame with the header checksum that the format specifies; a copy if it was wrong."""
    if len(frame) <= _LZ4_MAGIC_BYTES:
        return frame
    flags = frame[_LZ4_MAGIC_BYTES]
    length = 2 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    at = _LZ4_MAGIC_BYTES + length
    right = xxhash.xxh32_intdigest(frame[_LZ4_MAGIC_BYTES:at]) >> 8 & 0xFF
    if at >= len(frame) or frame[at] == right:
        return frame
    repaired = bytearray(frame)
    repaired[at] = right
    return memoryview(repaired)
