"""Unpacker: decompresses the batches that are compressed."""

from __future__ import annotations

from typing import Any

import numpy as np

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.decompress import DecompressError, Scratch, TooLong
from zkconsumer.decode.kernels import messageset
from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.decode.verify import REASONS, Fault, fault_in


class Unpacker:
    """Decompresses one chunk after the other into a scratch buffer. One thread uses it.

    Args:
        memory: for what is decompressed.
        check_crcs: verify the checksums of messages inside compressed ones.
        max_decompressed_bytes: limit for all batches of a chunk together, and so for each.
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
        """Decompress into the scratch buffer and enter the new places into the table.

        Args:
            records: the bytes that were scanned.
            table: rows that were verified; changed in place.
            floor: the smallest offset that the first message may have.
            requested: messages before this offset need no right checksum.

        Returns:
            The table up to the first batch that cannot be decompressed, and what is wrong with that.
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
        """One batch of format 2. Raises DecompressError with what is wrong inside."""
        start = self._decompress(records, row, target)
        if row[b.COUNT] * b.SMALLEST_RECORD > self.scratch.used - start:
            raise DecompressError(f"a batch of {row[b.COUNT]} holds {self.scratch.used - start} bytes")

    def _message(self, records: memoryview, row: list[int], target: Any, floor: int, requested: int) -> None:
        """A compressed message of formats 0 and 1, and those inside. Raises DecompressError with what is wrong."""
        outer = row[b.BASE_OFFSET]
        start = self._decompress(records, row, target)
        end = self.scratch.used
        count, last = messageset().extent(self.scratch.data, start, end)
        if count == 0:
            raise DecompressError("the lengths in a compressed message contradict each other")
        if not 0 <= last <= outer:
            raise DecompressError(f"the last offset in a compressed message is {last}, its own {outer}")
        shift = outer - last if row[b.FORMAT] == 1 else 0
        inside = (start, end, row[b.FORMAT], shift, floor, requested, self._check_crcs)
        _, _, _, why = messageset().verify_inside(self.scratch.data, *inside)
        if why != b.VALID:
            raise DecompressError(REASONS[why])
        target[b.COUNT] = count
        target[b.SHIFT] = shift

    def _decompress(self, records: memoryview, row: list[int], target: Any) -> int:
        """Decompress behind what is there and enter the place; returns where it begins."""
        start = self.scratch.used
        codec, body = row[b.ATTRIBUTES] & b.CODEC_MASK, records[row[b.BODY] : row[b.BODY_END]]
        # Behind other batches a fault may just mean that the chunk is full: read by itself, the batch will tell.
        self.scratch.add(codec, body, self._max_decompressed_bytes - start, before_format_2=row[b.FORMAT] < 2)
        target[b.SOURCE], target[b.BODY], target[b.BODY_END] = b.SCRATCH, start, self.scratch.used
        return start
