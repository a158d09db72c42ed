"""How long records are on the wire, from the beginning of what a broker sends at an offset."""

from __future__ import annotations

import struct
from typing import Final

_HEADER: Final = struct.Struct(
    ">qi4xb4xhi"
)  # base offset, length, (leader epoch,) format, (crc,) attributes, last delta
_OLD_ATTRIBUTES: Final = 17
_COMPRESSION: Final = 0x07
_LENGTH_ENDS: Final = 12  # the length counts what follows it
_FORMAT_2: Final = 2


def bytes_per_offset(records: memoryview) -> float | None:
    """Bytes for each offset of the first batch, compressed as it is; None if they cannot be seen without decoding it.

    A batch counts with the offsets of records that compaction has removed, as they are part of a range, too. In formats
    0 and 1 a compressed message does not say how many it contains.
    """
    if len(records) < _HEADER.size:
        return None
    _, length, magic, _, last_delta = _HEADER.unpack_from(records)
    size = _LENGTH_ENDS + length
    if magic < _FORMAT_2:
        return None if records[_OLD_ATTRIBUTES] & _COMPRESSION else float(size)
    return size / (last_delta + 1) if last_delta >= 0 else None
