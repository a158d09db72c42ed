"""Decoder: the bytes of one partition from a fetch response become one Arrow batch.

Message formats 0, 1 and 2 are read, also in one response (a log that was converted half-way). Transactions: control
batches are skipped; aborted records are delivered unless the caller says which are aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from zkconsumer.errors import CorruptRecord
from zkconsumer.fetch import batchtable as b
from zkconsumer.fetch.assemble import Assembler, Columns, Indexed, Notes
from zkconsumer.fetch.memory import ChunkMemory
from zkconsumer.fetch.prepare import Fault, Preparer
from zkconsumer.fetch.transactions import AbortedTransaction, exclude_aborted

if TYPE_CHECKING:
    from types import ModuleType

MAX_DECOMPRESSED_BYTES: Final = 128 << 20
"""Limit for what one chunk may decompress to. A chunk that holds more is cut short between two batches and the rest
fetched again; a single batch that is longer is refused."""

_MAX_BYTES: Final = 2**31 - 1 - MAX_DECOMPRESSED_BYTES
"""More of a response is not looked at in one go: together with what is decompressed a column stays below Arrow's
2 GiB."""
_MAX_RECORDS: Final = 1 << 22
_MAX_ROWS: Final = 1 << 16
_MAX_FORMAT_CHANGES: Final = 64
"""A chunk is cut short, between two batches, after so many records, batches, or changes between old and new format.
Real chunks have fewer; bytes made to harm could otherwise cost a hundred times their own size of memory, or time."""

_FIRST_ROWS: Final = 64
_NOTHING: Final = memoryview(b"")


class DecodedChunk(NamedTuple):
    """What came of one partition's bytes.

    Attributes:
        batch: the records, a ``pyarrow.RecordBatch`` in the schema of ``fetch/schema.py``; None where there is none.
        next_offset: where to fetch next; also past control batches, aborted ones and what compaction removed. The
            requested offset where not even one batch was complete.
        nbytes: memory that the batch owns.
    """

    batch: Any
    next_offset: int
    nbytes: int


def warm() -> str | None:
    """Load the decode kernel, which takes half a second (compiling it: some seconds); harmless when repeated.

    Returns:
        The directory that holds the compiled kernel for the next process; None where none can be kept.
    """
    kernel, _ = _kernel()
    from zkconsumer.fetch.compiled import cache_directory

    return cache_directory(kernel.scan)


def _after(table: Any, requested: int) -> int:
    """The offset behind the batches of a table."""
    if not len(table):
        return requested
    return max(requested, int(table[-1, b.BASE_OFFSET] + table[-1, b.LAST_DELTA]) + 1)


def _kernel() -> tuple[ModuleType, ModuleType]:
    from zkconsumer.fetch import kernel, messageset  # imports numba

    return kernel, messageset


class Decoder:
    """Decodes chunk after chunk, keeping its work buffers. One thread uses a decoder.

    Args:
        check_crcs: verify the checksum of every batch and message.
        headers: add the column ``headers``.
        max_decompressed_bytes: see :data:`MAX_DECOMPRESSED_BYTES`, which it must not exceed.
    """

    def __init__(
        self, *, check_crcs: bool = True, headers: bool = False, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    ) -> None:
        self._k, self._m = _kernel()
        self.memory: Final = ChunkMemory()
        """Where to receive into what will be decoded."""
        self._preparer = Preparer(
            self._k, self._m, self.memory, check_crcs=check_crcs, max_decompressed_bytes=max_decompressed_bytes
        )
        self._assembler = Assembler(self._k, headers=headers)
        self._table = np.empty((_FIRST_ROWS, b.COLUMNS), np.int64)
        self._notes = Notes(0, 0)

    def decode(
        self,
        topic: str,
        partition: int,
        requested: int,
        records: memoryview = _NOTHING,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> DecodedChunk:
        """Decode what was fetched of one partition.

        A fault ends the chunk before the batch that has it; only where that is the first batch an error is raised, so
        that everything in front of it reaches the user.

        Args:
            topic: of the partition.
            partition: its number.
            requested: the offset that was fetched; records before it are dropped (a broker sends whole batches).
            records: the bytes. They are given away, since the batch may keep their memory and change what is in it; if
                they are read-only they are copied first.
            aborted: transactions whose records are left out, as the response lists them under read_committed.

        Raises:
            CorruptRecord: the first batch fails its checksum or contradicts itself.
        """
        records = records[:_MAX_BYTES]
        if records.readonly:
            records = memoryview(bytearray(records))
        raw = np.frombuffer(records, np.uint8)
        # Each step may cut the table at a fault, which then lies in front of all faults found before it.
        table, fault = self._scan(raw, requested)
        if aborted:
            exclude_aborted(raw, table, aborted)
        table, earlier = self._preparer.prepare(records, raw, table, requested)
        fault = earlier or fault
        indexed, earlier = self._index(raw, table, requested)
        fault = earlier or fault
        table = indexed.table
        next_offset = _after(table, requested)
        if fault is not None and next_offset == requested:
            raise _error(f"{topic}-{partition}", raw, requested, fault)
        if indexed.totals[b.RECORDS] == 0:
            return DecodedChunk(None, next_offset, 0)
        batch, nbytes = self._assembler.batch(topic, partition, indexed)
        return DecodedChunk(batch, next_offset, nbytes)

    def next_offset(self, requested: int, records: memoryview) -> int:
        """What ``next_offset`` will be if all whole batches decode well; it looks at their headers only."""
        table, _ = self._scan(np.frombuffer(records[:_MAX_BYTES], np.uint8), requested)
        return _after(table, requested)

    def _scan(self, raw: Any, requested: int) -> tuple[Any, Fault | None]:
        """Find the batches."""
        scan, other = self._k.scan, self._m.scan
        rows, at, last, why = scan(raw, self._table, 0, 0, -1, requested)
        changes = 0
        while why in (b.TABLE_FULL, b.OTHER_FORMAT):
            if why == b.OTHER_FORMAT:
                changes += 1
                scan, other = other, scan
            elif rows < _MAX_ROWS:
                self._table = np.concatenate([self._table, np.empty_like(self._table)])
            if changes > _MAX_FORMAT_CHANGES or rows == _MAX_ROWS:
                if last >= requested:
                    return self._table[:rows], None
                rows = changes = 0  # nothing of what is requested yet
            rows, at, last, why = scan(raw, self._table, at, rows, last, requested)
        if why == b.COMPLETE:
            return self._table[:rows], None
        what = "the length of a batch is impossible" if why == b.BAD_LENGTH else "a batch header contradicts itself"
        framed = why == b.BAD_HEADER
        end = at + b.LENGTH_END + int.from_bytes(raw[at + b.LENGTH_AT : at + b.LENGTH_END].tobytes(), "big")
        where = (_claimed_last(raw, at), end) if framed else (-1, -1)
        return self._table[:rows], Fault(max(requested, last + 1), f"{what} (byte {at} of {len(raw)})", *where)

    def _index(self, raw: Any, table: Any, requested: int) -> tuple[Indexed, Fault | None]:
        """Read all records once."""
        capacity = int(table[table[:, b.SOURCE] != b.NOTHING, b.COUNT].sum())
        if capacity > _MAX_RECORDS:
            table, capacity = _within_limits(table)
        scratch = self._preparer.scratch.data[: self._preparer.scratch.used]
        values, body_bytes = self._values(raw, scratch, table)
        if self._notes.are_too_small(capacity, body_bytes):
            self._notes = Notes(capacity, body_bytes)
        columns = Columns.allocate(self.memory, capacity)
        totals = np.zeros(b.TOTALS, np.int64)
        good = 0
        for rows, old in _by_format(table):
            index = self._m.index if old else self._k.index
            notes = self._notes
            index(
                raw, scratch, rows, requested, values, notes.keys, notes.headers,
                notes.key_end, columns.value_end, notes.header_end, notes.key_valid, notes.value_valid,
                notes.header_at, columns.offset, columns.timestamp, totals,
            )  # fmt: skip
            good += int(totals[b.ROWS])
            if totals[b.ROWS] < len(rows):
                break
        fault = None
        if good < len(table):
            bad = table[good].tolist()
            reason = f"a record in a batch of {bad[b.COUNT]} contradicts the lengths around it"
            fault = Fault(bad[b.BASE_OFFSET], reason, bad[b.BASE_OFFSET] + bad[b.LAST_DELTA], bad[b.END])
        return Indexed(table[:good], values, columns, self._notes, totals.tolist()), fault

    def _values(self, raw: Any, scratch: Any, table: Any) -> tuple[Any, int]:
        """Where the values go: to where all of them come from, if that is one place; and the length of all bodies."""
        sources = table[:, b.SOURCE]
        lengths = table[:, b.BODY_END] - table[:, b.BODY]
        body_bytes = int(lengths[sources != b.NOTHING].sum())
        if not (sources == b.SCRATCH).any():
            return raw, body_bytes
        if not (sources == b.RAW).any():
            return scratch, body_bytes
        return np.frombuffer(self.memory.take(body_bytes), np.uint8), body_bytes


def _error(partition: str, raw: Any, requested: int, fault: Fault) -> CorruptRecord:
    resume_at = None if fault.end < 0 else _behind(raw, requested, fault)
    cure = "" if resume_at is None else f"; on.corrupt=skip goes on at {resume_at}"
    return CorruptRecord(
        f"{partition} at offset {fault.offset} (fetched from {requested}): {fault.reason}{cure}", resume_at
    )


def _behind(raw: Any, requested: int, fault: Fault) -> int | None:
    """Where to go on behind a batch that is at fault: the least of what its header and its successor's say.

    Either may be damaged. What is too small is fetched again and ends behind the same batch, what is too large would
    skip what is sound.
    """
    claims = [fault.last + 1]
    if fault.end + 8 <= len(raw):  # nothing was moved to there: that ends with the batch at fault
        claims.append(_integer(raw, fault.end, 8))
    return min((claim for claim in claims if requested < claim <= b.MAX_BASE_OFFSET), default=None)


def _claimed_last(raw: Any, at: int) -> int:
    """The last offset of the batch at ``at``, as its header says."""
    base = _integer(raw, at, 8)
    return base + _integer(raw, at + b.LAST_DELTA_AT, 4) if raw[at + b.MAGIC_AT] == 2 else base


def _integer(raw: Any, at: int, width: int) -> int:
    return int.from_bytes(raw[at : at + width].tobytes(), "big", signed=True)


def _within_limits(table: Any) -> tuple[Any, int]:
    """The rows to read in one go, at least one that has records, and how many records they announce."""
    counts = np.where(table[:, b.SOURCE] == b.NOTHING, 0, table[:, b.COUNT])
    total = np.cumsum(counts)
    kept = max(int(np.flatnonzero(counts)[0]) + 1, int(np.searchsorted(total, _MAX_RECORDS, side="right")))
    return table[:kept], int(total[kept - 1])


def _by_format(table: Any) -> list[tuple[Any, bool]]:
    """The table in pieces of one kind: of formats 0 and 1 (True), or of format 2."""
    old = table[:, b.FORMAT] < 2
    if not old.any():
        return [(table, False)] if len(table) else []
    cuts = np.flatnonzero(np.diff(old)) + 1
    return [(piece, bool(piece[0, b.FORMAT] < 2)) for piece in np.split(table, cuts) if len(piece)]
