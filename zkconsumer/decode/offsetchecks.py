"""Whether the offsets in headers can be true, which no checksum covers.

A broker sends batches in their order, from the one that holds the requested offset on, and none that ends after the
high watermark (adr/0028). A damaged offset usually contradicts this; there is no other evidence.

A batch is here what brokers handle as one: also each uncompressed message of formats 0 and 1, of which a row of the
table may have many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.verify import Fault, with_part


class _Batch(NamedTuple):
    """First and last offset of a batch according to its header, and the position after it."""

    base: int
    last: int
    end: int


def plausible(
    raw: memoryview, table: BatchTable, at: int, last: int, requested: int, end: int
) -> tuple[BatchTable, Fault | None]:
    """The rows before the first batch whose offsets cannot be true, and the fault of that batch, if there is one.

    Args:
        raw: the bytes that were scanned.
        table: the rows found in them; not changed.
        at: position after the last row; the header that may follow there is evidence, too.
        last: the last offset of the last row.
        requested: the offset that was fetched.
        end: the high watermark in the same answer; negative if unknown.
    """
    if not len(table):
        return table, None
    row = table.row(0)
    if row[b.BASE_OFFSET] + (row[b.LAST_DELTA] if row[b.FORMAT] == 2 else 0) < requested:
        first = next(_batches(raw, row))
        reason = f"the batch that should hold it has the offsets {first.base} to {first.last}"
        return table[:0], Fault(requested, reason, first.last, first.end)
    fault = None
    if len(raw) - at > b.MAGIC_AT and (following := integer(raw, at, 8)) <= last:
        table, fault = _without_overlap(raw, table, following, requested)
    if 0 <= end <= last and len(table) and end <= table.last_offset():
        return _within(raw, table, requested, end)
    return table, fault


def _without_overlap(
    raw: memoryview, table: BatchTable, following: int, requested: int
) -> tuple[BatchTable, Fault | None]:
    """Judge the last batch, since the next one begins before it ends, at ``following``: one of the two is damaged.

    It is the last batch of the table, unless that one begins right where the batch before it ends (then its offsets
    were not raised), or the next one also begins before that. In doubt both are refused, since a batch that is read
    with wrong offsets is lost without notice.
    """
    *before, batch = _batches(raw, table.row(-1))
    expected = before[-1].last + 1 if before else _expected(table, len(table) - 1, requested)
    if batch.base == expected or following <= expected:
        return table, None
    reason = f"a batch has the offsets {batch.base} to {batch.last}, and the next one begins at {following}"
    return _ending_with(table, len(table) - 1, before), Fault(expected, reason, batch.last, batch.end)


def _within(raw: memoryview, table: BatchTable, requested: int, end: int) -> tuple[BatchTable, Fault]:
    """End before the first batch that ends after the high watermark; there is one."""
    number = next(row for row in range(len(table)) if table[: row + 1].last_offset() >= end)
    before: list[_Batch] = []
    for batch in _batches(raw, table.row(number)):
        if batch.last >= end:
            break
        before.append(batch)
    expected = before[-1].last + 1 if before else _expected(table, number, requested)
    reason = f"a batch has the offsets {batch.base} to {batch.last}, but the partition ends at {end}"
    return _ending_with(table, number, before), Fault(expected, reason, end - 1, batch.end, doubtful=True)


def _ending_with(table: BatchTable, number: int, batches: list[_Batch]) -> BatchTable:
    """The rows before one, and of that row these batches, its first ones."""
    return with_part(table, number, len(batches), batches[-1].end, batches[-1].last) if batches else table[:number]


def _expected(table: BatchTable, number: int, requested: int) -> int:
    """The offset with which a row begins if no offset is missing before it."""
    return table[:number].last_offset() + 1 if number else requested


def _batches(raw: memoryview, row: list[int]) -> Iterator[_Batch]:
    """The batches of a row."""
    at = row[b.START]
    while at < row[b.END]:
        base = integer(raw, at, 8)
        at += b.LENGTH_END + integer(raw, at + b.LENGTH_AT, 4)
        yield _Batch(base, base + (row[b.LAST_DELTA] if row[b.FORMAT] == 2 else 0), at)


def integer(raw: memoryview, at: int, width: int) -> int:
    """The signed integer of ``width`` bytes at a position."""
    return int.from_bytes(raw[at : at + width], "big", signed=True)
