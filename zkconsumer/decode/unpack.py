"""Unpacker: decompresses compressed batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.decompress import DecompressError, Scratch, TooLong
from zkconsumer.decode.kernelloader import messageset
from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.decode.verify import REASONS, Fault, fault_in


class Unpacker:
    """Decompresses the batches of a chunk into a scratch buffer. One thread uses it.

    Args:
        memory: provides the memory for decompressed bytes.
        check_crcs: whether to verify the checksums of messages inside compressed ones.
        max_decompressed_bytes: limit for all batches of a chunk together, and so for each batch.
    """

    def __init__(
        self,
        memory: ChunkMemory,
        *,
        check_crcs: bool,
        max_decompressed_bytes: int,
    ) -> None:
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self.scratch = Scratch(memory)

    def unpack(self, records: memoryview, table: Any, floor: int, requested: int) -> tuple[Any, Fault | None]:
        """Decompress into the scratch buffer and update the source and body of the rows.

        Args:
            records: the bytes that were scanned.
            table: rows that were verified; changed in place.
            floor: the smallest offset that the first message may have.
            requested: checksums of messages before this offset are not checked.

        Returns:
            The table up to the first batch that cannot be decompressed, and the fault of that batch, if any.
        """
        self.scratch.reset()
        try:
            return self._unpack(records, table, floor, requested)
        finally:
            self.scratch.fit()

    def _unpack(self, records: memoryview, table: Any, floor: int, requested: int) -> tuple[Any, Fault | None]:
        hidden = (table[:, b.ATTRIBUTES] & b.CODEC_MASK != 0) & (table[:, b.SOURCE] == b.RAW)
        numbers = np.flatnonzero(hidden)
        floors = np.concatenate(([floor], table[:-1, b.BASE_OFFSET] + table[:-1, b.LAST_DELTA] + 1))[numbers]
        rows = table[numbers].tolist()
        for number, row, smallest in zip(numbers.tolist(), rows, floors.tolist(), strict=True):
            try:
                if row[b.FORMAT] < 2:
                    self._message(records, row, table[number], smallest, requested)
                else:
                    self._batch(records, row, table[number])
            except DecompressError as error:
                fault = fault_in(row, str(error))._replace(too_long=isinstance(error, TooLong))
                return table[:number], fault
        return table, None

    def _batch(self, records: memoryview, row: list[int], target: Any) -> None:
        """Decompress one batch of format 2. Raises DecompressError if it is invalid."""
        start = self._decompress(records, row, target)
        if row[b.COUNT] * b.SMALLEST_RECORD > self.scratch.used - start:
            raise DecompressError(
                f"a batch of {row[b.COUNT]} records decompresses to only {self.scratch.used - start} bytes"
            )

    def _message(self, records: memoryview, row: list[int], target: Any, floor: int, requested: int) -> None:
        """Decompress a message of format 0 or 1, and verify those inside. Raises DecompressError if one is invalid."""
        outer = row[b.BASE_OFFSET]
        start = self._decompress(records, row, target)
        end = self.scratch.used
        count, last = messageset().extent(self.scratch.data, start, end)
        if count == 0:
            raise DecompressError("the lengths in a compressed message are inconsistent")
        if not 0 <= last <= outer:
            raise DecompressError(f"the last offset in a compressed message is {last}, but its own offset is {outer}")
        shift = outer - last if row[b.FORMAT] == 1 else 0
        inside = (start, end, row[b.FORMAT], shift, floor, requested, self._check_crcs)
        _, _, _, why = messageset().verify_inside(self.scratch.data, *inside)
        if why != b.VALID:
            raise DecompressError(REASONS[why])
        target[b.COUNT] = count
        target[b.SHIFT] = shift

    def _decompress(self, records: memoryview, row: list[int], target: Any) -> int:
        """Decompress after the bytes in the buffer and update the row; returns the position of the new bytes."""
        start = self.scratch.used
        codec, body = row[b.ATTRIBUTES] & b.CODEC_MASK, records[row[b.BODY] : row[b.BODY_END]]
        # After other batches a fault may just mean that the chunk is full: the batch is then read again by itself.
        self.scratch.add(codec, body, self._max_decompressed_bytes - start, before_format_2=row[b.FORMAT] < 2)
        target[b.SOURCE], target[b.BODY], target[b.BODY_END] = b.SCRATCH, start, self.scratch.used
        return start
