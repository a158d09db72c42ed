"""The kernels: functions that read and write plain buffers, and build messages.

:class:`~zkconsumer.decode.native.NativeKernels` calls a library in C. Where there is none,
:class:`~zkconsumer.decode.reference.ReferenceKernels` does the same in Python, a hundred times slower.

A chunk is decoded by one call of each function: ``scan`` finds the batches, ``verify`` checks their checksums,
``index`` reads every record once and writes all columns; between the two the caller decompresses.

Values are most of the bytes, so they stay in their memory: each is only moved down to the end of the previous one, over
the bytes between them. So the received bytes become the buffer of a column.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple, Protocol

from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.buffers import Columns, HeaderBytes, Notes
from zkconsumer.decode.records import Records


class TableSurvey(NamedTuple):
    """Sums over the batches of a table that have a source.

    Attributes:
        records: the number of records that they announce.
        body_bytes: the length of all bodies together.
        sources: the ``b.IN_...`` bits of their sources and states.
        times: the ``b.TIME_...`` bits of their timestamps' types.
    """

    records: int
    body_bytes: int
    sources: int
    times: int


class CheckProgress(NamedTuple):
    """How far a check of messages came.

    Attributes:
        rows: number of valid rows.
        messages: of the row after them, the number of valid messages.
        stop: position after these.
        last: offset of the last one.
        why: the result for the next message; ``b.VALID`` if there is no such row.
    """

    rows: int
    messages: int
    stop: int
    last: int
    why: int


class IndexTask(NamedTuple):
    """What an index function reads and writes.

    Attributes:
        raw: the bytes that were scanned.
        scratch: decompressed batches.
        table: rows of one kind, with current source and body; column KEPT is written.
        requested: records before this offset are skipped.
        values: receives the values one after the other. It may be a part of ``raw`` or ``scratch``, if that is the
            source of all rows. If it is empty, values are checked, but not copied.
        columns: receives offsets, timestamps, and the ends of the values.
        notes: receives keys and headers, if it has room for them, and what else the assembler needs.
        totals: of ``b.TOTALS`` items: on entry the totals of earlier rows of the chunk. On return all rows before
            ``totals[ROWS]`` of this table are valid; that row, if there is one, is faulty, and the other totals are
            those of the rows before it.
    """

    raw: memoryview
    scratch: memoryview
    table: BatchTable
    requested: int
    values: memoryview
    columns: Columns
    notes: Notes
    totals: memoryview


class HeaderColumns(NamedTuple):
    """The headers of some records as columns.

    Attributes:
        list_end: the number of headers up to the end of each record, preceded by a 0.
        present: a byte for each record, 0 if it has no headers.
        names: bytes of the names.
        name_end: end of each name, preceded by a 0.
        contents: bytes of the contents.
        content_end: end of each content, preceded by a 0.
        content_valid: a byte for each header, 0 for a null.
    """

    list_end: memoryview
    present: memoryview
    names: memoryview
    name_end: memoryview
    contents: memoryview
    content_end: memoryview
    content_valid: memoryview


class Kernels(Protocol):
    """The functions; ``messages`` selects formats 0 and 1."""

    def scan(self, raw: memoryview, table: BatchTable, state: array[int], requested: int, *, messages: bool) -> int:
        """Find batches and fill the table, one row for each.

        Args:
            raw: the bytes of one partition from a fetch response.
            table: its rows are overwritten.
            state: position of the first batch, number of rows that are filled already, last offset before (-1 at the
                beginning). On return the same after the last row.
            requested: batches that end before this offset get the source NOTHING, as do control batches.
            messages: whether to find messages of formats 0 and 1, and not batches of format 2.

        Returns:
            Why the scan stopped.
        """

    def verify(self, raw: memoryview, table: BatchTable, requested: int) -> tuple[int, int]:
        """Check the checksums of rows of format 2, up to the first wrong one.

        Returns:
            The number of rows before it, which are valid or end before the requested offset, and the checksum computed
            for it.
        """

    def verify_messages(
        self, raw: memoryview, table: BatchTable, floor: int, requested: int, *, check: bool
    ) -> CheckProgress:
        """Check rows of formats 0 and 1, up to the first fault. Rows before the requested offset are not checked.

        Args:
            raw: the bytes that hold them.
            table: the rows to check.
            floor: smallest offset that the first message may have.
            requested: checksums of messages before this offset are not checked.
            check: whether to verify checksums.
        """

    def extent(self, data: memoryview) -> tuple[int, int]:
        """Number of messages in ``data``, and the last one's offset; 0 if they do not end exactly at its end."""

    def verify_inside(
        self, data: memoryview, magic: int, shift: int, floor: int, requested: int, *, check: bool
    ) -> int:
        """Check the messages inside a compressed one, which ``extent`` has found.

        Args:
            data: the messages.
            magic: the format that all of them must have.
            shift: number to add to their offsets.
            floor: smallest offset that the first may have.
            requested: checksums of messages before this offset are not checked.
            check: whether to verify checksums.

        Returns:
            ``b.VALID``, or what is wrong with the first bad one.
        """

    def survey(self, table: BatchTable) -> TableSurvey:
        """Sums over a table."""

    def piece(self, table: BatchTable) -> int:
        """The number of leading rows of one kind: formats 0 and 1, or format 2."""

    def compressed(self, table: BatchTable) -> list[int]:
        """The numbers of the rows that have to be decompressed."""

    def within(self, table: BatchTable, most_records: int) -> int:
        """The number of rows with at most so many records; but at least one that has records."""

    def exclude_aborted(
        self, raw: memoryview, table: BatchTable, producers: array[int], of_producer: array[int], firsts: array[int]
    ) -> None:
        """Set the source of batches of aborted transactions to NOTHING.

        Args:
            raw: the bytes that hold the batches.
            table: rows of all formats.
            producers: ids of the producers of the transactions, ascending.
            of_producer: for each transaction the place of its producer.
            firsts: for each transaction its first offset, ascending.
        """

    def index(self, task: IndexTask, *, messages: bool) -> None:
        """Read every record of the rows of a table, up to the first fault. Rows of formats 0 and 1 are verified."""

    def bitmap(self, valid: memoryview) -> tuple[bytearray, int]:
        """A bit for each byte, and the number of those that are not 0."""

    def header_columns(self, headers: HeaderBytes, start: int, rows: int) -> HeaderColumns:
        """The headers of ``rows`` records from ``start`` on."""

    def header_tuples(self, headers: HeaderBytes, start: int, rows: int) -> list[tuple[Any, ...]]:
        """The headers of ``rows`` records from ``start`` on, each a tuple of pairs of name and content."""

    def messages(self, kind: type[Any], records: Records, headers: list[Any] | None) -> list[Any]:
        """A message for each record.

        Args:
            kind: class of the messages: ``Message``, or derived from it without further fields.
            records: the records; their own headers are ignored.
            headers: the headers of each record; None if no record has any.

        Returns:
            The messages; fewer than there are records only if memory is exhausted.
        """
