"""Verifier: checks the checksums of scanned batches, and the structure of uncompressed messages."""

from __future__ import annotations

from typing import Final, NamedTuple

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.kernels import Kernels


class Fault(NamedTuple):
    """A fault of a batch.

    Attributes:
        offset: first offset of the batch.
        reason: description for error messages.
        last: its last offset, if its header is valid.
        end: position after its bytes; -1 if unknown.
        too_long: True if it is valid as far as known, but longer than the limit.
        doubtful: see :class:`~zkconsumer.errors.CorruptRecord`.
    """

    offset: int
    reason: str
    last: int
    end: int
    too_long: bool = False
    doubtful: bool = False


def fault_in(row: list[int], reason: str) -> Fault:
    """A fault of the batch in a row of the table."""
    return Fault(row[b.BASE_OFFSET], reason, row[b.BASE_OFFSET] + row[b.LAST_DELTA], row[b.END])


REASONS: Final = {
    b.CUT_OFF: "the lengths in a message are inconsistent",
    b.BAD_CRC: "the checksum of a message is wrong",
    b.BAD_ORDER: "a message's offset is not between its neighbours'",
    b.NESTED: "a compressed message contains compressed messages",
    b.BAD_INNER_FORMAT: "a compressed message contains messages of another format",
}
"""Descriptions of the results of a check of messages."""


class Verifier:
    """Verifies batches in the memory into which they were received.

    Args:
        kernels: the kernels.
        check_crcs: whether to verify checksums.
    """

    def __init__(self, kernels: Kernels, *, check_crcs: bool) -> None:
        self._kernels = kernels
        self._check_crcs = check_crcs

    def verify(self, raw: memoryview, table: BatchTable, floor: int, requested: int) -> tuple[BatchTable, Fault | None]:
        """Verify the batches of a table, up to the first fault.

        Args:
            raw: the bytes that were scanned.
            table: the rows found in them; not changed, so that they can be verified again.
            floor: the smallest offset that the first message may have.
            requested: batches before this offset are not verified.

        Returns:
            The table up to the fault, and the fault if there is one. If only a part of the last row is valid, the table
            is a copy in which that row ends before the fault.
        """
        done = 0
        for rows, is_old in by_format(self._kernels, table):
            valid, fault = (
                self._messages(raw, rows, floor, requested) if is_old else self._batches(raw, rows, requested)
            )
            if fault is not None:
                return (BatchTable.joined(table[:done], valid) if is_old else table[: done + len(valid)]), fault
            done += len(rows)
            floor = rows.last_offset() + 1
        return table, None

    def _batches(self, raw: memoryview, rows: BatchTable, requested: int) -> tuple[BatchTable, Fault | None]:
        """Rows of format 2: those before the fault, and the fault."""
        if not self._check_crcs:
            return rows, None
        good, checksum = self._kernels.verify(raw, rows, requested)
        if good == len(rows):
            return rows, None
        row = rows.row(good)
        reason = f"checksum {checksum:#010x} of a batch of {row[b.COUNT]} records should be {row[b.CRC]:#010x}"
        return rows[:good], fault_in(row, reason)

    def _messages(
        self, raw: memoryview, rows: BatchTable, floor: int, requested: int
    ) -> tuple[BatchTable, Fault | None]:
        """Rows of formats 0 and 1: those before the fault, the last one possibly in part; and the fault."""
        good, count, stop, last, why = self._kernels.verify_messages(
            raw, rows, floor, requested, check=self._check_crcs
        )
        if why == b.VALID:
            return rows, None
        offset = int.from_bytes(raw[stop : stop + 8], "big", signed=True)
        length = int.from_bytes(raw[stop + b.LENGTH_AT : stop + b.LENGTH_END], "big")
        fault = Fault(offset, REASONS[why], offset, stop + b.LENGTH_END + length)
        return (with_part(rows, good, count, stop, last) if count else rows[:good]), fault


def with_part(table: BatchTable, number: int, count: int, stop: int, last: int) -> BatchTable:
    """The rows up to row ``number``, a run of messages, which ends in the copy after its first messages.

    Args:
        table: the rows.
        number: of the last row.
        count: of messages that it keeps, at least 1.
        stop: position after them.
        last: offset of the last one.
    """
    valid = BatchTable.joined(table[: number + 1])
    row = valid.row(number)
    row[b.COUNT], row[b.END], row[b.BODY_END], row[b.LAST_DELTA] = count, stop, stop, last - row[b.BASE_OFFSET]
    valid.put(number, row)
    return valid


def by_format(kernels: Kernels, table: BatchTable) -> list[tuple[BatchTable, bool]]:
    """The table in pieces of one kind: formats 0 and 1 (True), or format 2 (False)."""
    pieces = []
    while len(table):
        rows = kernels.piece(table)
        pieces.append((table[:rows], table.row(0)[b.FORMAT] < 2))
        table = table[rows:]
    return pieces
