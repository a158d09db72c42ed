"""Decoder: the bytes of one partition from a fetch response become one Arrow batch.

Uncompressed and compressed record batches (format 2) are read. Transactions: control batches are skipped, aborted
records are delivered, as by the JVM consumer of the time, which reads uncommitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from crc32c import crc32c

from zkconsumer.errors import CorruptRecord, ProtocolError, ZkConsumerError
from zkconsumer.fetch.assemble import Assembler, Columns, Indexed
from zkconsumer.fetch.decompress import DecompressError, Scratch

if TYPE_CHECKING:
    from types import ModuleType

MAX_DECOMPRESSED_BYTES: Final = 128 << 20
"""Limit for what one chunk may decompress to. A chunk that holds more is cut short between two batches and the rest
fetched again; a single batch that is longer is refused. It also keeps a column below Arrow's 2 GiB, since what is not
compressed cannot be longer than the response that it came in."""

_FIRST_ROWS: Final = 64
_FIRST_RECORDS: Final = 1 << 14
_NOTHING: Final = memoryview(b"")


class DecodedChunk(NamedTuple):
    """What came of one partition's bytes.

    Attributes:
        batch: the records, a ``pyarrow.RecordBatch`` in the schema of ``fetch/schema.py``; None where there is none.
        next_offset: where to fetch next; also past control batches and what compaction removed. The requested offset
            where not even one batch was complete.
        nbytes: memory that the batch owns.
    """

    batch: Any
    next_offset: int
    nbytes: int


class _Place(NamedTuple):
    """Where the bytes came from, for messages."""

    topic: str
    partition: int
    requested: int

    def at(self, offset: int) -> str:
        return f"{self.topic}-{self.partition} at offset {offset} (fetched from {self.requested})"


def warm() -> None:
    """Load the decode kernel, which takes half a second (compiling it: some seconds); harmless when repeated."""
    _kernel()


def _kernel() -> ModuleType:
    from zkconsumer.fetch import kernel  # imports numba

    return kernel


class Decoder:
    """Decodes chunk after chunk, keeping its work buffers. One thread uses a decoder.

    Args:
        check_crcs: verify the CRC32C of every batch.
        headers: add the column ``headers``.
        max_decompressed_bytes: see :data:`MAX_DECOMPRESSED_BYTES`.
    """

    def __init__(
        self, *, check_crcs: bool = True, headers: bool = False, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    ) -> None:
        self._k = _kernel()
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._assembler = Assembler(self._k, headers=headers)
        self._scratch = Scratch()
        self._table = np.empty((_FIRST_ROWS, self._k.COLUMNS), np.int64)
        self._positions = np.empty((3, _FIRST_RECORDS), np.int64)

    def decode(self, topic: str, partition: int, requested: int, records: memoryview = _NOTHING) -> DecodedChunk:
        """Decode what was fetched of one partition.

        A fault ends the chunk before the batch that has it; only where that is the first batch an error is raised, so
        that everything in front of it reaches the user.

        Args:
            topic: of the partition.
            partition: its number.
            requested: the offset that was fetched; records before it are dropped (a broker sends whole batches).
            records: the bytes; may be reused as soon as this returns.

        Raises:
            CorruptRecord: the first batch fails its checksum or contradicts itself.
            ProtocolError: the first batch has a message format that is not read yet.
        """
        place = _Place(topic, partition, requested)
        raw = np.frombuffer(records, np.uint8)
        # Each step may cut the table at a fault, which then lies in front of all faults found before it.
        table, fault = self._scan(raw, place)
        table, fault = self._prepare(records, table, place, fault)
        indexed, fault = self._index(raw, table, place, fault)
        table = indexed.table
        next_offset = requested
        if len(table):
            next_offset = max(requested, int(table[-1, self._k.BASE_OFFSET] + table[-1, self._k.LAST_DELTA]) + 1)
        if fault is not None and next_offset == requested:
            raise fault
        if indexed.totals[self._k.RECORDS] == 0:
            return DecodedChunk(None, next_offset, 0)
        batch, nbytes = self._assembler.batch(topic, partition, indexed)
        return DecodedChunk(batch, next_offset, nbytes)

    def _scan(self, raw: Any, place: _Place) -> tuple[Any, ZkConsumerError | None]:
        """Find the batches."""
        k = self._k
        while True:
            rows, at, why = k.scan(raw, self._table, place.requested)
            if why != k.TABLE_FULL:
                break
            self._table = np.empty((2 * len(self._table), k.COLUMNS), np.int64)
        fault: ZkConsumerError | None = None
        if why == k.OLD_FORMAT:
            # The place where the message sets of formats 0 and 1 will branch off.
            fault = ProtocolError(
                f"{place.at(int.from_bytes(raw[at : at + 8].tobytes(), 'big'))}: message format {raw[at + k.MAGIC_AT]} "
                "cannot be read yet; only format 2 (brokers and topics from 0.11 on) can"
            )
        elif why != k.COMPLETE:
            what = "the length of a batch is impossible" if why == k.BAD_LENGTH else "a batch header contradicts itself"
            fault = CorruptRecord(f"{place.at(place.requested)}: {what} (byte {at} of {len(raw)})")
        return self._table[:rows], fault

    def _prepare(
        self, records: memoryview, table: Any, place: _Place, fault: ZkConsumerError | None
    ) -> tuple[Any, ZkConsumerError | None]:
        """Verify checksums, decompress into the scratch buffer and enter the new places into the table."""
        k = self._k
        self._scratch.reset()
        for number, row in enumerate(table.tolist()):
            if row[k.BASE_OFFSET] + row[k.LAST_DELTA] < place.requested:
                continue
            if self._check_crcs:
                found = crc32c(records[row[k.START] + k.CRC_START : row[k.END]])
                if found != row[k.CRC]:
                    reason = f"checksum {found:#010x} of a batch of {row[k.COUNT]} should be {row[k.CRC]:#010x}"
                    return table[:number], CorruptRecord(f"{place.at(row[k.BASE_OFFSET])}: {reason}")
            codec = row[k.ATTRIBUTES] & k.CODEC_MASK
            if codec == 0 or row[k.SOURCE] == k.NOTHING:
                continue
            start = self._scratch.used
            limit = self._max_decompressed_bytes
            try:
                self._scratch.add(codec, records[row[k.BODY] : row[k.END]], limit if start == 0 else limit - start)
                if row[k.COUNT] * k.SMALLEST_RECORD > self._scratch.used - start:
                    raise DecompressError(f"a batch of {row[k.COUNT]} holds {self._scratch.used - start} bytes")
            except DecompressError as error:
                # Behind other batches it may just be that the chunk is full: fetched first, it will tell.
                return table[:number], CorruptRecord(f"{place.at(row[k.BASE_OFFSET])}: {error}")
            table[number, k.SOURCE] = k.SCRATCH
            table[number, k.BODY] = start
            table[number, k.BODY_END] = self._scratch.used
        return table, fault

    def _index(
        self, raw: Any, table: Any, place: _Place, fault: ZkConsumerError | None
    ) -> tuple[Indexed, ZkConsumerError | None]:
        """Read all records once."""
        k = self._k
        capacity = int(table[table[:, k.SOURCE] != k.NOTHING, k.COUNT].sum())
        if capacity > self._positions.shape[1]:
            self._positions = np.empty((3, max(capacity, 2 * self._positions.shape[1])), np.int64)
        ends = [np.empty(capacity + 1, np.int32) for _ in range(3)]
        for column in ends:
            column[0] = 0
        offset, timestamp = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        columns = Columns._make([*ends, *self._positions, offset, timestamp])
        totals = np.zeros(k.TOTALS, np.int64)
        scratch = self._scratch.data
        k.index(raw, scratch, table, place.requested, *columns, totals)
        good = int(totals[k.ROWS])
        if good < len(table):
            bad = table[good].tolist()
            reason = f"a record in a batch of {bad[k.COUNT]} contradicts the lengths around it"
            fault = CorruptRecord(f"{place.at(bad[k.BASE_OFFSET])}: {reason}")
        return Indexed(raw, scratch, table[:good], columns, totals.tolist()), fault
