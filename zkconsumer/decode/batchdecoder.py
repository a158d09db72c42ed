"""BatchDecoder: the bytes of one partition from a fetch response become one Arrow batch.

Message formats 0, 1 and 2 are read, also in one response (a log that was converted half-way). Transactions: control
batches are skipped; aborted records are delivered unless the caller says which are aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from zkconsumer.decode import batchtable as b
from zkconsumer.decode import kernels
from zkconsumer.decode.assemble import Assembler, Columns, Indexed, Notes
from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.decode.schema import SCHEMA, SCHEMA_WITH_HEADERS, schema_of
from zkconsumer.decode.unpack import Unpacker
from zkconsumer.decode.verify import Fault, Verifier, by_format, fault_in
from zkconsumer.errors import CorruptRecord, RecordTooLarge

if TYPE_CHECKING:
    from zkconsumer.decode.transactions import AbortedTransaction

MAX_DECOMPRESSED_BYTES: Final = 128 << 20
"""Default limit for what one chunk may decompress to. A chunk that holds more is cut short between two batches; a
single batch that is longer is refused."""

_LONGEST_COLUMN: Final = 2**31 - 1
"""Arrow's limit for the bytes of a column: for what was received of a chunk and what is decompressed, together."""
_MAX_RECORDS: Final = 1 << 22
_MAX_ROWS: Final = 1 << 16
_MAX_FORMAT_CHANGES: Final = 64
"""A chunk is cut short, between two batches, after so many records, batches, or changes between old and new format.
Real chunks have fewer; bytes made to harm could otherwise cost a hundred times their own size of memory, or time."""

_FIRST_ROWS: Final = 64
_NOTHING: Final = memoryview(b"")
_NOT_READ: Final = -1
_NO_TOTALS: Final = np.zeros(b.TOTALS, np.int64)


class ScannedChunk(NamedTuple):
    """One partition's bytes, of which only the headers of the batches were looked at.

    Attributes:
        topic: of the partition.
        partition: its number.
        requested: the offset that was fetched; records before it do not count.
        records: the bytes.
        table: the batches that were found in them, see ``decode/batchtable.py``.
        done: rows of the table that were decoded already.
        next_offset: where to fetch next, if the headers are true.
        fault: what is known to be wrong with the batch behind the last one of the table.
    """

    topic: str
    partition: int
    requested: int
    records: memoryview
    table: Any
    done: int
    next_offset: int
    fault: Fault | None = None

    @property
    def nbytes(self) -> int:
        """Memory that the bytes take."""
        return len(self.records)

    def has_records(self) -> bool:
        """False if all that is left are markers of transactions and the like; True says that there may be some."""
        return bool((self.table[self.done :, b.SOURCE] != b.NOTHING).any())

    def ends_before(self, fault: Fault, rows: Any) -> ScannedChunk:
        """The same without the batches from a fault on, where these rows are what is valid and not done."""
        table = np.vstack((self.table[: self.done], rows))
        return self._replace(table=table, next_offset=_after(rows, self.requested), fault=fault)


class _Ahead(NamedTuple):
    """What was found in bytes that will be scanned next; the table is the decoder's own."""

    records: memoryview
    requested: int
    table: Any
    fault: Fault | None


class Survey(NamedTuple):
    """What ``kernel.survey`` finds in a table."""

    records: int
    body_bytes: int
    sources: int
    times: int


class PreparedChunk(NamedTuple):
    """One partition's bytes, verified and decompressed, and what :meth:`BatchDecoder.complete` needs to decode them.

    ``totals`` alone, which the kernel writes, records what was decoded of it so far; see :meth:`BatchDecoder._index`.

    Attributes:
        chunk: the bytes, without the batches from the first fault on.
        fault: what is wrong with the batch after the last one of the table; None if that is not known yet.
        table: the batches to read, see ``decode/batchtable.py``.
        times: types of their timestamps.
        pieces: the table in pieces of one kind, see :func:`~zkconsumer.decode.verify.by_format`.
        raw: the bytes as array.
        scratch: what was decompressed.
        values: where the values go; often a part of ``raw`` or ``scratch``.
        columns: columns of the result.
        notes: what is written for the assembler.
        totals: for each piece what was read up to its end, a row each.
    """

    chunk: ScannedChunk
    fault: Fault | None
    table: Any
    times: int
    pieces: list[tuple[Any, bool]]
    raw: Any
    scratch: Any
    values: Any
    columns: Columns
    notes: Notes
    totals: Any


class DecodedChunk(NamedTuple):
    """What came of one partition's bytes.

    Attributes:
        batch: the records, a ``pyarrow.RecordBatch`` in the schema of ``decode/schema.py``; None where there is none.
        next_offset: where to fetch next; also past control batches, aborted ones and what compaction removed. The
            requested offset where not even one batch was complete.
        nbytes: memory that the batch owns.
        rest: what comes next and is not decoded yet; None where that is nothing.
    """

    batch: Any
    next_offset: int
    nbytes: int
    rest: ScannedChunk | None = None


def warm(*, everything: bool = False) -> str | None:
    """Load the decode kernel, which takes half a second (compiling it: some seconds). Idempotent.

    Args:
        everything: also what only some chunks need; it would be loaded, or compiled, when the first of them is read.

    Returns:
        The directory that holds the compiled kernel for the next process; None where none can be kept.
    """
    if everything:
        kernels.load_all()
    scan = kernels.kernel().scan
    from zkconsumer.decode.compiled import cache_directory

    return cache_directory(scan)


def _after(table: Any, requested: int) -> int:
    """The offset behind the batches of a table."""
    if not len(table):
        return requested
    return max(requested, int(table[-1, b.BASE_OFFSET] + table[-1, b.LAST_DELTA]) + 1)


class BatchDecoder:
    """Decodes chunk after chunk, keeping its work buffers. One thread uses a decoder.

    Args:
        check_crcs: verify the checksum of every batch and message.
        headers: add the column ``headers``; :meth:`choose_columns` can choose others.
        max_decompressed_bytes: at most 1 GiB; None for :data:`MAX_DECOMPRESSED_BYTES`.
    """

    def __init__(
        self, *, check_crcs: bool = True, headers: bool = False, max_decompressed_bytes: int | None = None
    ) -> None:
        if max_decompressed_bytes is None:
            max_decompressed_bytes = MAX_DECOMPRESSED_BYTES
        self._k = kernels.kernel()
        self._max_bytes = _LONGEST_COLUMN - max_decompressed_bytes
        self.memory: Final = ChunkMemory()
        """Where to receive into what will be decoded."""
        self._verifier = Verifier(check_crcs=check_crcs)
        self._unpacker = Unpacker(self.memory, check_crcs=check_crcs, max_decompressed_bytes=max_decompressed_bytes)
        self._assembler = Assembler(self.memory)
        self._columns: tuple[str, ...] = tuple((SCHEMA_WITH_HEADERS if headers else SCHEMA).names)
        self._table = np.empty((_FIRST_ROWS, b.COLUMNS), np.int64)
        # None while a prepared chunk has them, and once the columns have changed.
        self._notes: Notes | None = Notes(0, 0, self._columns)
        self._ahead: _Ahead | None = None

    def choose_columns(self, columns: tuple[str, ...]) -> None:
        """Build batches of these columns, in this order; the others are not copied. Not while a chunk is prepared.

        Raises:
            KeyError: ``decode/schema.py`` has no column of a name.
        """
        schema_of(columns)
        if columns != self._columns:
            self._columns, self._notes = columns, None

    def decode(
        self,
        topic: str,
        partition: int,
        requested: int,
        records: memoryview = _NOTHING,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> DecodedChunk:
        """Verify and decode what was fetched of one partition.

        See :meth:`scan` for the arguments, and :meth:`finish`.

        Raises:
            CorruptRecord: the first batch fails its checksum or contradicts itself.
            RecordTooLarge: it decompresses to more than ``max_decompressed_bytes``.
        """
        return self.finish(self.scan(topic, partition, requested, records, aborted))

    def scan(
        self,
        topic: str,
        partition: int,
        requested: int,
        records: memoryview = _NOTHING,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> ScannedChunk:
        """Find the batches in what was fetched of one partition.

        A fault ends the chunk before the batch that has it; only where that is the first batch an error is raised, so
        that everything in front of it reaches the user. The same holds for :meth:`verify` and :meth:`finish`.

        Args:
            topic: of the partition.
            partition: its number.
            requested: the offset that was fetched; records before it are dropped (a broker sends whole batches).
            records: the bytes. They are given away, since the batch may keep their memory and change what is in it; if
                they are read-only they are copied first.
            aborted: transactions whose records are left out, as the response lists them under read_committed.

        Raises:
            CorruptRecord: the first batch has an impossible header.
        """
        ahead, self._ahead = self._ahead, None
        seen = ahead is not None and ahead.records is records and ahead.requested == requested
        records = records[: self._max_bytes]
        if records.readonly:
            records = memoryview(bytearray(records))
        raw = np.frombuffer(records, np.uint8)
        table, fault = (ahead.table, ahead.fault) if ahead is not None and seen else self._scan(raw, requested)
        if aborted and (table[:, b.ATTRIBUTES] & b.TRANSACTIONAL).any():
            kernels.transactions().exclude_aborted(raw, table, aborted)
        chunk = ScannedChunk(topic, partition, requested, records, table.copy(), 0, _after(table, requested))
        if fault is not None and chunk.next_offset == requested:
            raise _error(chunk, raw, fault)
        return chunk

    def verify(self, chunk: ScannedChunk) -> ScannedChunk:
        """Verify checksums, and the structure of messages that no compression hides.

        Returns:
            The chunk, without the batches from the first fault on.

        Raises:
            CorruptRecord: the first batch has a fault.
        """
        raw, floor = np.frombuffer(chunk.records, np.uint8), _after(chunk.table[: chunk.done], 0)
        table, fault = self._verifier.verify(raw, chunk.table[chunk.done :], floor, chunk.requested)
        if fault is not None:
            chunk = chunk.ends_before(fault, table)
        if chunk.fault is not None and chunk.next_offset == chunk.requested:
            raise _error(chunk, raw, chunk.fault)
        return chunk

    def finish(self, chunk: ScannedChunk) -> DecodedChunk:
        """Verify, decompress and decode; once for each chunk, whose bytes are changed.

        A thread that may be interrupted uses :meth:`prepare` and :meth:`complete`.

        Raises:
            CorruptRecord: the first batch fails its checksum or contradicts itself.
            RecordTooLarge: it decompresses to more than ``max_decompressed_bytes``.
        """
        prepared = self.prepare(chunk)
        try:
            return self.complete(prepared)
        finally:
            self.recycle(prepared)

    def prepare(self, chunk: ScannedChunk) -> PreparedChunk:
        """Verify and decompress. The bytes are left as they are, so an interrupted call can be repeated.

        Raises:
            CorruptRecord: the first batch fails its checksum or contradicts itself.
            RecordTooLarge: it decompresses to more than ``max_decompressed_bytes``.
        """
        chunk = self.verify(chunk)
        raw = np.frombuffer(chunk.records, np.uint8)
        table = unpacked = chunk.table[chunk.done :]
        found, fault, scratch = Survey(*self._k.survey(table)), None, raw[:0]
        if found.sources & b.IN_COMPRESSED:
            floor = _after(chunk.table[: chunk.done], 0)
            # In a copy, since what does not fit this time is unpacked again.
            unpacked, fault = self._unpacker.unpack(chunk.records, table.copy(), floor, chunk.requested)
            scratch = self._unpacker.scratch.data[: self._unpacker.scratch.used]
            found = Survey(*self._k.survey(unpacked))
        if found.records > _MAX_RECORDS:
            unpacked = _within_limits(unpacked)
            found = Survey(*self._k.survey(unpacked))
        pieces = by_format(unpacked)
        totals = np.full((len(pieces), b.TOTALS), _NOT_READ, np.int64)
        notes, self._notes = self._notes, None
        if notes is None or notes.are_too_small(found.records, found.body_bytes):
            notes = Notes(found.records, found.body_bytes, self._columns)
        values = self._values(raw, scratch, unpacked, found) if "value" in self._columns else raw[:0]
        columns = Columns.allocate(self.memory, found.records)
        return PreparedChunk(chunk, fault, unpacked, found.times, pieces, raw, scratch, values, columns, notes, totals)

    def complete(self, prepared: PreparedChunk) -> DecodedChunk:
        """Decode what :meth:`prepare` returned. An interrupted call can be repeated, although bytes are moved.

        The result refers to ``prepared``'s bytes; see :meth:`recycle`.

        Raises:
            CorruptRecord: the first batch contradicts itself.
        """
        chunk = prepared.chunk
        indexed, contradiction = self._index(prepared)
        fault = contradiction or prepared.fault
        if contradiction is not None:  # some bytes of that batch were moved, so it can't be looked at again
            valid = chunk.table[chunk.done : chunk.done + len(indexed.table)]
            chunk = chunk.ends_before(contradiction, valid)
        done = chunk.done + len(indexed.table)
        next_offset, rest = chunk.next_offset, None
        if done < len(chunk.table):
            next_offset = _after(indexed.table, chunk.requested)
        if fault is not None and next_offset == chunk.requested:
            raise _error(chunk, prepared.raw, fault)
        if done < len(chunk.table) or chunk.fault is not None:
            rest = chunk._replace(requested=next_offset, done=done)
        if indexed.totals[b.RECORDS] == 0:
            return DecodedChunk(None, next_offset, 0, rest)
        batch, nbytes = self._assembler.batch(chunk.topic, chunk.partition, indexed, self._columns)
        return DecodedChunk(batch, next_offset, nbytes, rest)

    def recycle(self, prepared: PreparedChunk) -> None:
        """Use the notes of a chunk for the next one. It must not be completed again, since they will be overwritten."""
        self._notes = prepared.notes

    def next_offset(self, requested: int, records: memoryview) -> int:
        """What ``next_offset`` will be if all whole batches decode well; it looks at their headers only.

        What it found is kept for :meth:`scan`, where that gets the same ``records`` next.
        """
        table, fault = self._scan(np.frombuffer(records[: self._max_bytes], np.uint8), requested)
        self._ahead = _Ahead(records, requested, table, fault)
        return _after(table, requested)

    def _scan(self, raw: Any, requested: int) -> tuple[Any, Fault | None]:
        """Find the batches."""
        scan, is_old = self._k.scan, False
        rows, at, last, why = scan(raw, self._table, 0, 0, -1, requested)
        changes = 0
        while why in (b.TABLE_FULL, b.OTHER_FORMAT):
            if why == b.OTHER_FORMAT:
                changes += 1
                is_old = not is_old
                scan = kernels.messageset().scan if is_old else self._k.scan
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

    def _index(self, prepared: PreparedChunk) -> tuple[Indexed, Fault | None]:
        """Read all records once.

        A call of a kernel function is one step for an interrupt: either the totals of its piece are as they were made
        and no byte was moved, or the function has written them and moved what it was to move. In the second case it is
        not called again, also if the interrupt came right after it.
        """
        _, _, table, times, pieces, raw, scratch, values, columns, notes, totals = prepared
        requested, good, before = prepared.chunk.requested, 0, _NO_TOTALS
        for (rows, old), so_far in zip(pieces, totals, strict=True):
            if so_far[b.ROWS] == _NOT_READ:
                so_far[b.ROWS + 1 :] = before[b.ROWS + 1 :]
                index = kernels.messageset().index if old else self._k.index
                index(
                    raw, scratch, rows, requested, values, notes.keys, notes.headers,
                    notes.key_end, columns.value_end, notes.header_end, notes.key_valid, notes.value_valid,
                    notes.header_at, columns.offset, columns.timestamp, so_far,
                )  # fmt: skip
            before = so_far
            good += int(so_far[b.ROWS])
            if so_far[b.ROWS] < len(rows):
                break
        fault = None
        if good < len(table):
            bad = table[good].tolist()
            fault = fault_in(bad, f"a record in a batch of {bad[b.COUNT]} contradicts the lengths around it")
        return Indexed(table[:good], times, values, columns, notes, before.tolist()), fault

    def _values(self, raw: Any, scratch: Any, table: Any, found: Survey) -> Any:
        """Where the values go: to where all of them come from, if that is one place."""
        if not found.sources & b.IN_SCRATCH:
            # Not before these batches: what was there belongs to others by now.
            return raw[table[0, b.START] : table[-1, b.END]] if len(table) else raw
        if not found.sources & b.IN_RAW:
            return scratch
        return np.frombuffer(self.memory.take(found.body_bytes), np.uint8)


def _error(chunk: ScannedChunk, raw: Any, fault: Fault) -> CorruptRecord | RecordTooLarge:
    where = f"{chunk.topic}-{chunk.partition} at offset {fault.offset} (fetched from {chunk.requested})"
    if fault.too_long:
        return RecordTooLarge(f"{where}: {fault.reason}; raise decompressed.max.bytes to read it")
    resume_at = None if fault.end < 0 else _behind(raw, chunk.requested, fault)
    cure = "" if resume_at is None else f"; on.corrupt=skip goes on at {resume_at}"
    return CorruptRecord(f"{where}: {fault.reason}{cure}", resume_at)


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


def _within_limits(table: Any) -> Any:
    """The rows to read in one go, at least one that has records."""
    counts = np.where(table[:, b.SOURCE] == b.NOTHING, 0, table[:, b.COUNT])
    total = np.cumsum(counts)
    kept = max(int(np.flatnonzero(counts)[0]) + 1, int(np.searchsorted(total, _MAX_RECORDS, side="right")))
    return table[:kept]
