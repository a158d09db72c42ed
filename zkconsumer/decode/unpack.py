"""Unpacker: decompresses compressed batches."""

from __future__ import annotations

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.decode.decompress import DecompressError, Scratch, TooLong
from zkconsumer.decode.kernels import Kernels
from zkconsumer.decode.memory import ChunkMemory
from zkconsumer.decode.verify import REASONS, Fault, fault_in


class Unpacker:
    """Decompresses the batches of a chunk into a scratch buffer. One thread uses it.

    Args:
        kernels: the kernels.
        memory: provides the memory for decompressed bytes.
        settings: whether to verify the checksums of messages inside compressed ones, and the limit for all batches of
            a chunk together, and so for each batch.
    """

    def __init__(self, kernels: Kernels, memory: ChunkMemory, settings: DecoderSettings) -> None:
        self._kernels = kernels
        self._check_crcs, self._max_decompressed_bytes = settings
        self.scratch = Scratch(memory)

    def unpack(
        self, records: memoryview, table: BatchTable, floor: int, requested: int
    ) -> tuple[BatchTable, Fault | None]:
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

    def _unpack(
        self, records: memoryview, table: BatchTable, floor: int, requested: int
    ) -> tuple[BatchTable, Fault | None]:
        for number in self._kernels.compressed(table):
            row = table.row(number)
            try:
                if row[b.FORMAT] < 2:
                    smallest = table[:number].last_offset() + 1 if number else floor
                    self._message(records, row, smallest, requested)
                else:
                    self._batch(records, row)
            except DecompressError as error:
                fault = fault_in(row, str(error))._replace(too_long=isinstance(error, TooLong))
                return table[:number], fault
            table.put(number, row)
        return table, None

    def _batch(self, records: memoryview, row: list[int]) -> None:
        """Decompress one batch of format 2. Raises DecompressError if it is invalid."""
        start = self._decompress(records, row)
        if row[b.COUNT] * b.SMALLEST_RECORD > self.scratch.used - start:
            raise DecompressError(
                f"a batch of {row[b.COUNT]} records decompresses to only {self.scratch.used - start} bytes"
            )

    def _message(self, records: memoryview, row: list[int], floor: int, requested: int) -> None:
        """Decompress a message of format 0 or 1, and verify those inside. Raises DecompressError if one is invalid."""
        outer = row[b.BASE_OFFSET]
        start = self._decompress(records, row)
        end = self.scratch.used
        inside = self.scratch.data[start:end]
        count, last = self._kernels.extent(inside)
        if count == 0:
            raise DecompressError("the lengths in a compressed message are inconsistent")
        if not 0 <= last <= outer:
            raise DecompressError(f"the last offset in a compressed message is {last}, but its own offset is {outer}")
        shift = outer - last if row[b.FORMAT] == 1 else 0
        why = self._kernels.verify_inside(inside, row[b.FORMAT], shift, floor, requested, check=self._check_crcs)
        if why != b.VALID:
            raise DecompressError(REASONS[why])
        row[b.COUNT], row[b.SHIFT] = count, shift

    def _decompress(self, records: memoryview, row: list[int]) -> int:
        """Decompress after the bytes in the buffer and update the row; returns the position of the new bytes."""
        start = self.scratch.used
        codec, body = row[b.ATTRIBUTES] & b.CODEC_MASK, records[row[b.BODY] : row[b.BODY_END]]
        # After other batches a fault may just mean that the chunk is full: the batch is then read again by itself.
        self.scratch.add(codec, body, self._max_decompressed_bytes - start, before_format_2=row[b.FORMAT] < 2)
        row[b.SOURCE], row[b.BODY], row[b.BODY_END] = b.SCRATCH, start, self.scratch.used
        return start
