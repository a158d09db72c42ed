"""Batches and messages in bytes of a log, and checksums that fit them."""

import struct
import zlib

from tests.fixtures.kafka import calc_crc32c


def seal(data: bytes) -> bytes:
    """A copy with right checksums, as far as batches and messages can be found."""
    sealed = bytearray(data)
    for start, end, magic in frames(data):
        if magic < 2 and end - start >= 18:
            struct.pack_into(">I", sealed, start + 12, zlib.crc32(sealed[start + 16 : end]))
        elif magic == 2 and end - start >= 21:
            struct.pack_into(">I", sealed, start + 17, calc_crc32c(bytes(sealed[start + 21 : end])))
    return bytes(sealed)


def frames(data: bytes) -> list[tuple[int, int, int]]:
    """(start, end, magic) of each complete batch or message."""
    found, at = [], 0
    while len(data) - at > 16:
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if end <= at + 16 or end > len(data):
            break
        found.append((at, end, data[at + 16]))
        at = end
    return found
