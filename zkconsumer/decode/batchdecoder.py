"""BatchDecoder: decodes the bytes of one partition in a fetch response into columns.

It reads message formats 0, 1 and 2, even mixed in one response (a log that was partly converted). Control batches of
transactions are skipped; aborted records are delivered unless the caller specifies the aborted transactions.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.assemble import Assembler, Indexed, memory_of
from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.buffers import ALL_COLUMNS, COLUMNS, Columns, Notes
from zkconsumer.decode.columns import trim as trim_columns
from zkconsumer.decode.decodersettings import DEFAULT_SETTINGS, DecoderSettings
from zkconsumer.decode.kernelloader import kernels
from zkconsumer.decode.kernels import IndexTask, Kernels, TableSurvey
from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.decode.offsetchecks import integer, plausible
from zkconsumer.decode.records import Records
from zkconsumer.decode.transactions import AbortedTransaction, exclude_aborted
from zkconsumer.decode.unpack import Unpacker
from zkconsumer.decode.verify import Fault, Verifier, by_format, fault_in
from zkconsumer.errors import CorruptRecord, RecordTooLarge

_LONGEST_COLUMN: Final = 2**31 - 1
"""Arrow's limit for the bytes of a column, and so for the received and decompressed bytes of a chunk together."""
_MAX_FORMAT_CHANGES: Final = 64
"""Number of changes between old and new format after which a chunk is cut between two batches."""

_FIRST_ROWS: Final = 64
_NOTHING: Final = memoryview(b"")
_KEPT_NOTES_BYTES: Final = 1 << 25
_NOT_READ: Final = -1
_UNKNOWN: Final = -1
_WITH_LEADER_EPOCH: Final = 2  # the format
_INT32: Final = struct.Struct(">i")
_NO_TOTALS: Final = (0,) * b.TOTALS


class ChunkLimits(NamedTuple):
    """Limits of a chunk. A chunk that exceeds one of them is cut between two batches.

    Real chunks have fewer records and batches; without limits, malicious bytes could cost a hundred times their size in
    memory, or much time.

    Attributes:
        records: records to decode at a time.
        batches: batches to scan at a time, at least 64.
        received_bytes: bytes to scan at a time; None: chosen so that together with the decompressed bytes a column
            stays within Arrow's limit.
    """

    records: int = 1 << 22
    batches: int = 1 << 16
    received_bytes: int | None = None


CHUNK_LIMITS: Final = ChunkLimits()
"""The default limits of a decoder."""


class ScannedChunk(NamedTuple):
    """One partition's bytes, of which only the headers of the batches were read.

    Attributes:
        topic: of the partition.
        partition: its number.
        requested: the offset that was fetched; records before it are dropped.
        records: the bytes.
        table: the batches that were found in them, see ``decode/batchtable.py``.
        done: rows of the table that were decoded already.
        next_offset: where to fetch next, if the headers are true.
        fault: what is known to be wrong with the batch after the last one of the table.
        verified: the checksums of the table's batches have been verified.
    """

    topic: str
    partition: int
    requested: int
    records: memoryview
    table: BatchTable
    done: int
    next_offset: int
    fault: Fault | None = None
    verified: bool = False

    @property
    def nbytes(self) -> int:
        """Memory of the bytes."""
        return len(self.records)

    def leader_epoch(self) -> int | None:
        """Epoch of the leader that wrote the last batch; None if its format has none, or there is no batch."""
        if not len(self.table) or (row := self.table.row(-1))[b.FORMAT] != _WITH_LEADER_EPOCH:
            return None
        (epoch,) = _INT32.unpack_from(self.records, row[b.START] + b.LENGTH_END)
        return int(epoch)

    def plain_messages(self) -> int:
        """How many messages of formats 0 and 1 are at the end that are not compressed; 0 where a batch is."""
        if not len(self.table):
            return 0
        row = self.table.row(-1)
        is_plain = row[b.FORMAT] != _WITH_LEADER_EPOCH and not row[b.ATTRIBUTES] & b.CODEC_MASK
        return row[b.LAST_DELTA] + 1 if is_plain else 0

    def has_records(self) -> bool:
        """False if only control batches and similar are left; True if there may be records."""
        return kernels().survey(self.table[self.done :]).sources != 0

    def ends_before(self, fault: Fault, rows: BatchTable) -> ScannedChunk:
        """A copy without the batches from a fault on; ``rows`` are the valid rows that are not decoded yet."""
        table = BatchTable.joined(self.table[: self.done], rows)
        return self._replace(table=table, next_offset=_after(rows, self.requested), fault=fault)


class _Ahead(NamedTuple):
    """The batches found in advance in bytes that will be scanned next; the table belongs to the decoder."""

    records: memoryview
    requested: int
    table: BatchTable
    fault: Fault | None


class PreparedChunk(NamedTuple):
    """One partition's bytes, verified and decompressed: the input of :meth:`BatchDecoder.complete`.

    Only ``totals``, which the kernel writes, records how much was decoded so far; see :meth:`BatchDecoder._index`.

    Attributes:
        chunk: the bytes, without the batches from the first fault on.
        fault: the known fault of the batch after the last one of the table, or None.
        table: the batches to read, see ``decode/batchtable.py``.
        times: types of their timestamps.
        pieces: the table in pieces of one kind, see :func:`~zkconsumer.decode.verify.by_format`.
        scratch: the decompressed bytes.
        values: target of the values; often a part of the chunk's bytes or of ``scratch``.
        columns: columns of the result.
        notes: output of the index functions for the assembler.
        totals: for each piece the totals up to its end.
    """

    chunk: ScannedChunk
    fault: Fault | None
    table: BatchTable
    times: int
    pieces: list[tuple[BatchTable, bool]]
    scratch: memoryview
    values: memoryview
    columns: Columns
    notes: Notes
    totals: list[memoryview]


class DecodedChunk(NamedTuple):
    """The decoded bytes of one partition.

    Attributes:
        records: the records; None if there are none.
        next_offset: the offset to fetch next, also after control batches, aborted batches and compacted records. The
            requested offset if not even one batch was complete.
        nbytes: memory that the records own, in bytes. If several parts own it, the last one has it.
        rest: what follows. Bytes that are not decoded yet; or records that are, which are too many for one batch; None
            if there is nothing.
    """

    records: Records | None
    next_offset: int
    nbytes: int
    rest: ScannedChunk | DecodedChunk | None = None

    @property
    def batch(self) -> Any:
        """The records as a ``pyarrow.RecordBatch`` in the schema of ``decode/schema.py``; None if there are none."""
        from zkconsumer.decode.arrow import batch_of

        return None if self.records is None else batch_of(self.records)

    def parts(self) -> tuple[list[DecodedChunk], ScannedChunk | None]:
        """This and the following chunks that are decoded, and the rest that is not."""
        parts = [self]
        while isinstance(rest := parts[-1].rest, DecodedChunk):
            parts.append(rest)
        return parts, rest


def _after(table: BatchTable, requested: int) -> int:
    """The offset after the batches of a table."""
    return max(requested, table.last_offset() + 1) if len(table) else requested


class BatchDecoder:
    """Decodes chunks one after the other, and reuses its work buffers. One thread uses a decoder.

    Args:
        settings: those of the user, or the defaults.
        headers: whether to add the column ``headers``; :meth:`choose_columns` can choose other columns.
        limits: limits of a chunk; None for :data:`CHUNK_LIMITS`.
        functions: the kernels; None for those of this platform.

    Raises:
        DecoderUnavailable: the kernels cannot be loaded.
    """

    def __init__(
        self,
        settings: DecoderSettings = DEFAULT_SETTINGS,
        *,
        headers: bool = False,
        limits: ChunkLimits | None = None,
        functions: Kernels | None = None,
    ) -> None:
        self._k = functions or kernels()
        limits = CHUNK_LIMITS if limits is None else limits
        longest = _LONGEST_COLUMN - settings.max_decompressed_bytes
        self._max_bytes = longest if limits.received_bytes is None else limits.received_bytes
        self._max_records, self._max_rows = limits.records, limits.batches
        self.memory: Final = ChunkMemory()
        """Memory to receive the bytes into that will be decoded."""
        self._verifier = Verifier(self._k, check_crcs=settings.check_crcs)
        self._unpacker = Unpacker(self._k, self.memory, settings)
        self._assembler = Assembler(self._k, self.memory)
        self._columns: tuple[str, ...] = ALL_COLUMNS if headers else COLUMNS
        self._table = BatchTable.allocate(_FIRST_ROWS)
        # None while a prepared chunk has them, and after a change of the columns.
        self._notes: Notes | None = Notes(0, 0, self._columns)
        self._ahead: _Ahead | None = None

    def choose_columns(self, columns: tuple[str, ...]) -> None:
        """Build batches of these columns, in this order. Must not be called while there is a prepared chunk.

        Raises:
            KeyError: there is no column of this name.
        """
        if unknown := [name for name in columns if name not in ALL_COLUMNS]:
            raise KeyError(unknown[0])
        if columns != self._columns:
            self._columns, self._notes = columns, None

    def decode(
        self,
        topic: str,
        partition: int,
        requested: int,
        records: memoryview = _NOTHING,
        aborted: Collection[AbortedTransaction] = (),
        end: int = _UNKNOWN,
    ) -> DecodedChunk:
        """Verify and decode the fetched bytes of one partition.

        See :meth:`scan` for the arguments, and :meth:`finish`.

        Raises:
            CorruptRecord: the first batch fails its checksum or is inconsistent.
            RecordTooLarge: the first batch decompresses to more than ``max_decompressed_bytes``.
        """
        return self.finish(self.scan(topic, partition, requested, records, aborted, end))

    def scan(
        self,
        topic: str,
        partition: int,
        requested: int,
        records: memoryview = _NOTHING,
        aborted: Collection[AbortedTransaction] = (),
        end: int = _UNKNOWN,
    ) -> ScannedChunk:
        """Find the batches in the fetched bytes of one partition.

        A fault ends the chunk before the batch that has it. An error is raised only if that is the first batch, so that
        all records before it reach the user. The same holds for :meth:`verify` and :meth:`finish`.

        Args:
            topic: of the partition.
            partition: its number.
            requested: the offset that was fetched; records before it are dropped (a broker sends whole batches).
            records: the bytes. The caller must not use them afterwards, since the batch may keep and change their
                memory; read-only bytes are copied first.
            aborted: transactions whose records are skipped, as the response lists them under read_committed.
            end: the high watermark that the response has for the partition; negative if unknown.

        Raises:
            CorruptRecord: the first batch has an invalid header, or offsets that cannot be true.
        """
        ahead, self._ahead = self._ahead, None
        seen = ahead is not None and ahead.records is records and ahead.requested == requested
        records = records[: self._max_bytes]
        if records.readonly:
            records = memoryview(bytearray(records))
        table, fault = (ahead.table, ahead.fault) if ahead is not None and seen else self._scan(records, requested, end)
        if aborted:
            exclude_aborted(self._k, records, table, aborted)
        chunk = ScannedChunk(
            topic, partition, requested, records, BatchTable.joined(table), 0, _after(table, requested)
        )
        if fault is not None and chunk.next_offset == requested:
            raise _error(chunk, fault)
        return chunk

    def verify(self, chunk: ScannedChunk) -> ScannedChunk:
        """Verify checksums, and the structure of uncompressed messages. Idempotent.

        Returns:
            The chunk, without the batches from the first fault on.

        Raises:
            CorruptRecord: the first batch has a fault.
        """
        if not chunk.verified:
            floor = _after(chunk.table[: chunk.done], 0)
            table, fault = self._verifier.verify(chunk.records, chunk.table[chunk.done :], floor, chunk.requested)
            chunk = (chunk if fault is None else chunk.ends_before(fault, table))._replace(verified=True)
        if chunk.fault is not None and chunk.next_offset == chunk.requested:
            raise _error(chunk, chunk.fault)
        return chunk

    def finish(self, chunk: ScannedChunk) -> DecodedChunk:
        """Verify, decompress and decode; once for each chunk, since its bytes are changed.

        A thread that may be interrupted uses :meth:`prepare` and :meth:`complete` instead.

        Raises:
            CorruptRecord: the first batch fails its checksum or is inconsistent.
            RecordTooLarge: the first batch decompresses to more than ``max_decompressed_bytes``.
        """
        prepared = self.prepare(chunk)
        try:
            return self.complete(prepared)
        finally:
            self.recycle(prepared)

    def prepare(self, chunk: ScannedChunk) -> PreparedChunk:
        """Verify and decompress. The bytes are not changed, so an interrupted call can be repeated.

        Raises:
            CorruptRecord: the first batch fails its checksum or is inconsistent.
            RecordTooLarge: the first batch decompresses to more than ``max_decompressed_bytes``.
        """
        chunk = self.verify(chunk)
        table = unpacked = chunk.table[chunk.done :]
        survey, fault, scratch = self._k.survey(table), None, chunk.records[:0]
        if survey.sources & b.IN_COMPRESSED:
            floor = _after(chunk.table[: chunk.done], 0)
            # In a copy, since batches that do not fit this time are unpacked again.
            unpacked, fault = self._unpacker.unpack(chunk.records, BatchTable.joined(table), floor, chunk.requested)
            scratch = self._unpacker.scratch.data[: self._unpacker.scratch.used]
            survey = self._k.survey(unpacked)
        if survey.records > self._max_records:
            unpacked = unpacked[: self._k.within(unpacked, self._max_records)]
            survey = self._k.survey(unpacked)
        pieces = by_format(self._k, unpacked)
        totals = [memoryview(array("q", [_NOT_READ] * b.TOTALS)) for _ in pieces]
        notes, self._notes = self._notes, None
        if notes is None or notes.are_too_small(survey.records, survey.body_bytes):
            notes = Notes(survey.records, survey.body_bytes, self._columns)
        raw = chunk.records
        values = self._values(raw, scratch, unpacked, survey) if "value" in self._columns else raw[:0]
        columns = Columns.allocate(self.memory, survey.records)
        return PreparedChunk(chunk, fault, unpacked, survey.times, pieces, scratch, values, columns, notes, totals)

    def complete(self, prepared: PreparedChunk) -> DecodedChunk:
        """Decode the result of :meth:`prepare`. An interrupted call can be repeated, although bytes are moved.

        The result refers to ``prepared``'s bytes; see :meth:`recycle`.

        Raises:
            CorruptRecord: the first batch is inconsistent.
        """
        chunk = prepared.chunk
        indexed, contradiction = self._index(prepared)
        fault = contradiction or prepared.fault
        if contradiction is not None:  # some bytes of that batch were moved, so it cannot be read again
            valid = chunk.table[chunk.done : chunk.done + len(indexed.table)]
            chunk = chunk.ends_before(contradiction, valid)
        done = chunk.done + len(indexed.table)
        next_offset, rest = chunk.next_offset, None
        if done < len(chunk.table):
            next_offset = _after(indexed.table, chunk.requested)
        if fault is not None and next_offset == chunk.requested:
            raise _error(chunk, fault)
        if done < len(chunk.table) or chunk.fault is not None:
            rest = chunk._replace(requested=next_offset, done=done)
        if indexed.totals[b.RECORDS] == 0:
            return DecodedChunk(None, next_offset, 0, rest)
        parts = self._assembler.records(chunk.topic, chunk.partition, indexed, self._columns)
        nbytes = memory_of(indexed, parts[0], parts[0].num_rows)
        decoded = DecodedChunk(parts.pop(), next_offset, nbytes, rest)
        while parts:
            part = parts.pop()
            decoded = DecodedChunk(part, part.offsets[-1] + 1, 0, decoded)
        return decoded

    def recycle(self, prepared: PreparedChunk) -> None:
        """Reuse the notes of a chunk for the next one. The chunk must not be completed again afterwards."""
        self._notes = prepared.notes if prepared.notes.nbytes <= _KEPT_NOTES_BYTES else None
        if self._unpacker.scratch.used:
            self._unpacker.scratch.reset()

    def trim(self) -> None:
        """Free memory that was not needed lately; to be called before a wait, too."""
        self.memory.trim()
        trim_columns()

    def next_offset(self, requested: int, records: memoryview, end: int = _UNKNOWN) -> int:
        """The ``next_offset`` if all whole batches decode without a fault; reads only their headers.

        The result is kept for :meth:`scan`, if its next call gets the same ``records``, and the same other arguments.
        """
        table, fault = self._scan(records[: self._max_bytes], requested, end)
        self._ahead = _Ahead(records, requested, table, fault)
        return _after(table, requested)

    def _scan(self, raw: memoryview, requested: int, end: int) -> tuple[BatchTable, Fault | None]:
        """Find the batches of a partition's bytes."""
        is_old, changes = False, 0
        state = array("q", (0, 0, -1))
        while True:
            why = self._k.scan(raw, self._table, state, requested, messages=is_old)
            if why == b.OTHER_FORMAT:
                changes += 1
                is_old = not is_old
            elif why == b.TABLE_FULL and state[1] < self._max_rows:
                self._table = BatchTable.joined(self._table, self._table)
            else:
                break
            if changes > _MAX_FORMAT_CHANGES or state[1] == self._max_rows:
                why = b.COMPLETE
                break
        at, rows, last = state
        if why == b.TABLE_FULL:
            why = b.COMPLETE
        table, misplaced = plausible(raw, self._table[:rows], at, last, requested, end)
        if misplaced is not None or why == b.COMPLETE:
            return table, misplaced
        reason = "the length of a batch is invalid" if why == b.BAD_LENGTH else "a batch header is inconsistent"
        framed = why == b.BAD_HEADER
        stop = at + b.LENGTH_END + integer(raw, at + b.LENGTH_AT, 4)
        where = (_claimed_last(raw, at), stop) if framed else (-1, -1)
        return table, Fault(max(requested, last + 1), f"{reason} (byte {at} of {len(raw)})", *where)

    def _index(self, prepared: PreparedChunk) -> tuple[Indexed, Fault | None]:
        """Read all records once.

        A call of a kernel function is atomic for an interrupt: either the totals of its piece have their initial values
        and no byte was moved, or the function has written them and moved all bytes. In the second case it is not called
        again, even if the interrupt came right after it.
        """
        chunk, _, table, times, pieces, scratch, values, columns, notes, totals = prepared
        good, before = 0, list(_NO_TOTALS)
        for (rows, old), so_far in zip(pieces, totals, strict=True):
            if so_far[b.ROWS] == _NOT_READ:
                so_far[b.ROWS + 1 :] = array("q", before[b.ROWS + 1 :])
                task = IndexTask(chunk.records, scratch, rows, chunk.requested, values, columns, notes, so_far)
                self._k.index(task, messages=old)
            before = so_far.tolist()
            good += before[b.ROWS]
            if before[b.ROWS] < len(rows):
                break
        fault = None
        if good < len(table):
            bad = table.row(good)
            fault = fault_in(bad, f"a record in a batch of {bad[b.COUNT]} contradicts the lengths around it")
        return Indexed(table[:good], times, values, columns, notes, before), fault

    def _values(self, raw: memoryview, scratch: memoryview, table: BatchTable, survey: TableSurvey) -> memoryview:
        """The target of the values: their source, if all of them have the same one."""
        if not survey.sources & b.IN_SCRATCH:
            # Not before these batches: that memory belongs to others by now.
            return raw[table.row(0)[b.START] : table.row(-1)[b.END]] if len(table) else raw
        if not survey.sources & b.IN_RAW:
            return scratch
        return self.memory.take(survey.body_bytes)


def _error(chunk: ScannedChunk, fault: Fault) -> CorruptRecord | RecordTooLarge:
    where = f"{chunk.topic}-{chunk.partition} at offset {fault.offset} (fetched from {chunk.requested})"
    if fault.too_long:
        return RecordTooLarge(f"{where}: {fault.reason}; raise decompressed.max.bytes to read it")
    resume_at = None if fault.end < 0 else _offset_after(chunk.records, chunk.requested, fault)
    remedy = "" if resume_at is None else f"; on.corrupt=skip continues at {resume_at}"
    return CorruptRecord(f"{where}: {fault.reason}{remedy}", resume_at, doubtful=fault.doubtful)


def _offset_after(raw: memoryview, requested: int, fault: Fault) -> int | None:
    """The offset after a faulty batch: the smallest one according to its header and that of the next batch.

    Either may be damaged. An offset that is too small leads to the same batch again; one that is too large would skip
    valid records.
    """
    claims = [fault.last + 1]
    if fault.end + 8 <= len(raw):  # no byte was moved there: moves end at the faulty batch
        claims.append(integer(raw, fault.end, 8))
    return min((claim for claim in claims if requested < claim <= b.MAX_BASE_OFFSET), default=None)


def _claimed_last(raw: memoryview, at: int) -> int:
    """The last offset of the batch at ``at`` according to its header."""
    base = integer(raw, at, 8)
    return base + integer(raw, at + b.LAST_DELTA_AT, 4) if raw[at + b.MAGIC_AT] == 2 else base
