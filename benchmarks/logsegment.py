"""Log segments: fills partitions by writing the broker's files before the broker opens them.

With a producer, batches of one record would take minutes, and warm the broker. A broker that creates a partition opens
the files in its directory, checks every batch and builds the index. So each partition has exactly the specified
batches.

A block of some MiB of different batches is encoded once and repeated with increasing offsets. The batches' checksums do
not cover these, except for compressed messages of format 0, which are encoded again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.content import compress, plain_bytes, random_share, records
from benchmarks.datasets import DataSet
from zkconsumer.sandbox.producer import Record, encode_batches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_SAMPLE_RECORDS: Final = 1000
_ANY_SIZE: Final = 1 << 30
_V2_HEADER: Final = 61
_V2_CHECKED_FROM: Final = 21
_LENGTH_END: Final = 12
_INDEX_ENTRY: Final = struct.Struct(">ii")
"""Offset, relative to the segment's first one, and position in the segment."""

CUT_BYTES: Final = 1 << 20
"""Size of the responses for which :attr:`Log.cuts` are computed."""


class LogSizes(NamedTuple):
    """Sizes of the parts of a log, in bytes.

    Attributes:
        block: size of the records that are generated once and then repeated with other offsets.
        roll: size at which a segment ends; brokers roll at 1 GiB.
        cut: size of the responses for which :attr:`Log.cuts` are computed.
    """

    block: int = 16 << 20
    roll: int = 1_000_000_000
    cut: int = CUT_BYTES


BROKER_SIZES: Final = LogSizes()
"""Sizes like those of a broker."""


class Log(NamedTuple):
    """The written segments of a partition.

    Attributes:
        records: number of them; offsets begin with 0.
        size: size in bytes.
        cuts: offsets at which requests for :attr:`LogSizes.cut` bytes continue: the response before has no room for
            more, or its segment ends.
    """

    records: int
    size: int
    cuts: tuple[int, ...]


class Block(NamedTuple):
    """Encoded batches, or messages, that follow each other.

    Attributes:
        body: their bytes.
        starts: position of each; its first eight bytes are the offset field.
        fields: values of the offset fields.
        firsts: offset of the first record in each.
        records: total number of records.
    """

    body: bytes | bytearray
    starts: NDArray[np.int64]
    fields: NDArray[np.int64]
    firsts: NDArray[np.int64]
    records: int

    def at(self, offset: int) -> Block:
        """The same batches, with offsets that are larger by ``offset``."""
        import numpy as np

        body = bytearray(self.body)
        fields = self.fields + offset
        as_bytes = fields.astype(">i8").view(np.uint8).reshape(-1, 8)
        np.frombuffer(body, np.uint8)[self.starts[:, None] + np.arange(8)] = as_bytes
        return Block(body, self.starts, fields, self.firsts + offset, self.records)


def write_log(directory: Path, data: DataSet, sizes: LogSizes = BROKER_SIZES) -> Log:
    """Write one partition of a data set as the files that a broker keeps, into an empty directory."""
    share = 0.2 if data.codec == "none" else random_share(data, lambda sample: encode(data, sample))
    sample = records(data, _SAMPLE_RECORDS, share)
    wanted = data.total_bytes // data.partitions * len(sample) // sum(map(plain_bytes, sample))
    offset = size = cut_at = 0
    position, due = sizes.roll, 0
    cuts: list[int] = []
    path = directory
    for block in _blocks(data, share, wanted, sizes.block):
        if position >= sizes.roll:
            path = directory / f"{offset:020}.log"
            cuts.append(offset)
            position = cut_at = 0
            due = 0
        with path.open("ab") as file:
            file.write(block.body)
        if data.append_bytes:
            due = _add_to_index(path, block, position, due, data.append_bytes)
        end = position + len(block.body)
        while cut_at + sizes.cut < end:
            entry = int(block.starts.searchsorted(cut_at + sizes.cut - position, "right")) - 1
            cut_at = position + int(block.starts[entry])
            cuts.append(int(block.firsts[entry]))
        offset, size, position = offset + block.records, size + len(block.body), end
        if offset >= wanted:
            break
    return Log(offset, size, tuple(cuts))


def _add_to_index(path: Path, block: Block, position: int, due: int, every: int) -> int:
    """Add a block, which begins at a position in a segment, to its index.

    Args:
        path: of the segment.
        block: what was appended to it.
        position: where it begins.
        due: position from which on the next entry may be.
        every: bytes between two entries.

    Returns:
        The position from which on the entry after these may be.
    """
    with path.with_suffix(".index").open("ab") as index:
        for start, first in zip((block.starts + position).tolist(), block.firsts.tolist(), strict=True):
            if start >= due:
                index.write(_INDEX_ENTRY.pack(first - int(path.stem), start))
                due = start + every
    return due


def encode(data: DataSet, content: Sequence[Record], offset: int = 0) -> list[bytes]:
    """Records as batches of format 2, or as messages of format 0 or 1 whose offsets begin with ``offset``."""
    slices = [content[at : at + data.batch_records] for at in range(0, len(content), data.batch_records)]
    if data.magic == 2:
        return [batch(data.codec, part) for part in slices]
    if data.codec == "none":
        return [_message(data.magic, offset + at, record) for at, record in enumerate(content)]
    wrapped = []
    for part in slices:
        first = offset if data.magic == 0 else 0  # inner offsets are relative since format 1
        inner = b"".join(_message(data.magic, first + at, record) for at, record in enumerate(part))
        offset += len(part)
        outer = Record(compress(data.codec, inner), None, part[-1].timestamp)
        wrapped.append(_message(data.magic, offset - 1, outer, _CODECS[data.codec]))
    return wrapped


def _blocks(data: DataSet, share: float, wanted: int, block_bytes: int) -> Iterator[Block]:
    """An endless sequence of blocks."""
    sample = records(data, _SAMPLE_RECORDS, share)
    count = min(wanted, block_bytes * len(sample) // sum(map(plain_bytes, sample)))
    content = records(data, -(-count // data.batch_records) * data.batch_records, share)
    template = _block(data, content, 0)
    absolute = data.magic == 0 and data.codec != "none"
    offset = 0
    while True:
        block = _block(data, content, offset) if absolute else template.at(offset)
        yield block
        offset += block.records


def _block(data: DataSet, content: Sequence[Record], offset: int) -> Block:
    import numpy as np

    encoded = encode(data, content, offset)
    each = len(content) // len(encoded)
    firsts = np.arange(offset, offset + len(content), each)
    starts = np.cumsum([0, *map(len, encoded[:-1])])
    last = data.magic < 2  # the offset of a compressed message is that of the last record in it
    return Block(b"".join(encoded), starts, firsts + (each - 1) * last, firsts, len(content))


def batch(codec: str, content: Sequence[Record]) -> bytes:
    """One batch of format 2 whose first offset is 0."""
    from crc32c import crc32c

    (plain,) = encode_batches(content, batch_bytes=_ANY_SIZE)
    if codec == "none":
        return plain
    body = compress(codec, plain[_V2_HEADER:])
    checked = struct.pack(">h", _CODECS[codec]) + plain[_V2_CHECKED_FROM + 2 : _V2_HEADER] + body
    length = struct.pack(">i", _V2_CHECKED_FROM - _LENGTH_END + len(checked))
    crc = struct.pack(">I", crc32c(checked))
    return plain[: _LENGTH_END - 4] + length + plain[_LENGTH_END : _V2_CHECKED_FROM - 4] + crc + checked


def _message(magic: int, offset: int, record: Record, attributes: int = 0) -> bytes:
    """One message of format 0 or 1."""
    timestamp = struct.pack(">q", record.timestamp) if magic else b""
    checked = struct.pack(">bb", magic, attributes) + timestamp + _field(record.key) + _field(record.value)
    return struct.pack(">qiI", offset, 4 + len(checked), zlib.crc32(checked)) + checked


def _field(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content
