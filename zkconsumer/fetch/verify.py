"""Verifier: checksums of the batches that were scanned, and the structure of messages that no compression hides."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from zkconsumer.fetch import batchtable as b


class Fault(NamedTuple):
    """What is wrong with a batch.

    Attributes:
        offset: at which it begins.
        reason: what is wrong.
        last: its last offset, if its header can be believed.
        end: position after its bytes; -1 where that is unknown.
        too_long: True if it is valid as far as known, but longer than the limit.
    """

    offset: int
    reason: str
    last: int
    end: int
    too_long: bool = False


def fault_in(row: list[int], reason: str) -> Fault:
    """A fault of the batch in a row of the table."""
    return Fault(row[b.BASE_OFFSET], reason, row[b.BASE_OFFSET] + row[b.LAST_DELTA], row[b.END])


def reasons(messageset: ModuleType) -> dict[int, str]:
    """What the codes mean that ``messageset.verify`` answers with."""
    return {
        messageset.CUT_OFF: "the lengths in a message contradict each other",
        messageset.BAD_CRC: "the checksum of a message is wrong",
        messageset.BAD_ORDER: "a message's offset is not between its neighbours'",
        messageset.NESTED: "a compressed message contains compressed messages",
        messageset.BAD_FORMAT: "a compressed message contains messages of another format",
    }


class Verifier:
    """Verifies batches where they were received.

    Args:
        kernel: the module :mod:`zkconsumer.fetch.kernel`.
        messageset: the module :mod:`zkconsumer.fetch.messageset`.
        check_crcs: verify checksums.
    """

    def __init__(self, kernel: ModuleType, messageset: ModuleType, *, check_crcs: bool) -> None:
        self._k = kernel
        self._m = messageset
        self._reasons = reasons(messageset)
        self._check_crcs = check_crcs

    def verify(self, records: memoryview, raw: Any, table: Any, floor: int, requested: int) -> tuple[Any, Fault | None]:
        """Verify the batches of a table, up to the first fault.

        Args:
            records: the bytes that were scanned.
            raw: the same as array.
            table: the rows found in them; left as they are, so that they can be verified again.
            floor: the smallest offset that the first message may have.
            requested: batches before this offset are left alone.

        Returns:
            The table up to the fault, and the fault if there is one. Where only a part of the last row is valid, the
            table is a copy in which that row ends before the fault.
        """
        for number, row in enumerate(table.tolist()):
            last = row[b.BASE_OFFSET] + row[b.LAST_DELTA]
            if last >= requested:
                if row[b.FORMAT] < 2:
                    part, fault = self._messages(records, raw, row, floor, requested)
                else:
                    part, fault = None, self._batch(records, row)
                if fault is not None:
                    return (table[:number] if part is None else np.vstack((table[:number], part))), fault
            floor = last + 1
        return table, None

    def _batch(self, records: memoryview, row: list[int]) -> Fault | None:
        """One batch of format 2."""
        if not self._check_crcs:
            return None
        found = crc32c(records[row[b.START] + self._k.CRC_START : row[b.END]])
        if found == row[b.CRC]:
            return None
        return fault_in(row, f"checksum {found:#010x} of a batch of {row[b.COUNT]} should be {row[b.CRC]:#010x}")

    def _messages(
        self, records: memoryview, raw: Any, row: list[int], floor: int, requested: int
    ) -> tuple[list[int] | None, Fault | None]:
        """A run of messages, or a compressed message: of formats 0 and 1.

        Returns:
            The row for the messages of the run before a fault, None if there is none; and the fault if there is one.
        """
        compressed = row[b.ATTRIBUTES] & b.CODEC_MASK != 0
        extent = (row[b.START], row[b.END], row[b.FORMAT], 0, floor, compressed, requested, self._check_crcs)
        count, stop, last, why = self._m.verify(raw, *extent)
        if why == self._m.SOUND:
            return None, None
        offset = int.from_bytes(records[stop : stop + 8], "big", signed=True)
        length = int.from_bytes(records[stop + b.LENGTH_AT : stop + b.LENGTH_END], "big")
        fault = Fault(offset, self._reasons[why], offset, stop + b.LENGTH_END + length)
        if stop == row[b.START]:
            return None, fault
        part = row.copy()
        part[b.COUNT], part[b.END], part[b.BODY_END] = count, stop, stop
        part[b.LAST_DELTA] = last - row[b.BASE_OFFSET]
        return part, fault
