"""Preparer: verifies the batches that were scanned and decompresses them, up to the first fault."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from crc32c import crc32c

from zkconsumer.fetch import batchtable as b
from zkconsumer.fetch.decompress import DecompressError, Scratch
from zkconsumer.fetch.memory import ChunkMemory


class Fault(NamedTuple):
    """What is wrong with a batch.

    Attributes:
        offset: at which it begins.
        reason: what is wrong.
        last: its last offset, if its header can be believed.
        end: position after its bytes; -1 where that is unknown.
    """

    offset: int
    reason: str
    last: int
    end: int


class Preparer:
    """Checksums and decompression of one chunk after the other. One thread uses it.

    Args:
        kernel: the module :mod:`zkconsumer.fetch.kernel`.
        messageset: the module :mod:`zkconsumer.fetch.messageset`.
        memory: for what is decompressed.
        check_crcs: verify checksums.
        max_decompressed_bytes: limit for all batches of a chunk together, and so for each.
    """

    def __init__(
        self,
        kernel: ModuleType,
        messageset: ModuleType,
        memory: ChunkMemory,
        *,
        check_crcs: bool,
        max_decompressed_bytes: int,
    ) -> None:
        self._k = kernel
        self._m = messageset
        self._reasons = {
            messageset.CUT_OFF: "the lengths in a message contradict each other",
            messageset.BAD_CRC: "the checksum of a message is wrong",
            messageset.BAD_ORDER: "a message's offset is not between its neighbours'",
            messageset.NESTED: "a compressed message contains compressed messages",
            messageset.BAD_FORMAT: "a compressed message contains messages of another format",
        }
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self.scratch = Scratch(memory)

    def prepare(self, records: memoryview, raw: Any, table: Any, requested: int) -> tuple[Any, Fault | None]:
        """Verify, decompress into the scratch buffer and enter the new places into the table.

        Args:
            records: the bytes that were scanned.
            raw: the same as array.
            table: the rows found in them; changed in place.
            requested: batches before this offset are left alone.

        Returns:
            The table up to the fault, and the fault if there is one.
        """
        self.scratch.reset()
        floor = 0
        for number, row in enumerate(table.tolist()):
            last = row[b.BASE_OFFSET] + row[b.LAST_DELTA]
            if last >= requested:
                if row[b.FORMAT] < 2:
                    fault = self._set(records, raw, row, table[number], floor, requested)
                else:
                    fault = self._batch(records, row, table, number)
                if fault is not None:
                    # What a run of messages has before its fault is sound; nothing else has a part that is.
                    kept = row[b.FORMAT] < 2 and table[number, b.END] > row[b.START]
                    return table[: number + kept], fault
            floor = last + 1
        return table, None

    def _batch(self, records: memoryview, row: list[int], table: Any, number: int) -> Fault | None:
        """One batch of format 2."""
        if self._check_crcs:
            found = crc32c(records[row[b.START] + self._k.CRC_START : row[b.END]])
            if found != row[b.CRC]:
                reason = f"checksum {found:#010x} of a batch of {row[b.COUNT]} should be {row[b.CRC]:#010x}"
                return Fault(row[b.BASE_OFFSET], reason, row[b.BASE_OFFSET] + row[b.LAST_DELTA], row[b.END])
        codec = row[b.ATTRIBUTES] & b.CODEC_MASK
        if codec == 0 or row[b.SOURCE] == b.NOTHING:
            return None
        try:
            start = self._decompress(codec, records[row[b.BODY] : row[b.END]], table[number])
            if row[b.COUNT] * self._k.SMALLEST_RECORD > self.scratch.used - start:
                raise DecompressError(f"a batch of {row[b.COUNT]} holds {self.scratch.used - start} bytes")
        except DecompressError as error:
            return Fault(row[b.BASE_OFFSET], str(error), row[b.BASE_OFFSET] + row[b.LAST_DELTA], row[b.END])
        return None

    def _set(
        self, records: memoryview, raw: Any, row: list[int], target: Any, floor: int, requested: int
    ) -> Fault | None:
        """A run of messages, or a compressed message: of formats 0 and 1."""
        codec = row[b.ATTRIBUTES] & b.CODEC_MASK
        extent = (row[b.START], row[b.END], row[b.FORMAT], 0, floor, codec != 0, requested, self._check_crcs)
        count, stop, last, why = self._m.verify(raw, *extent)
        if why != self._m.SOUND:
            target[b.COUNT], target[b.END], target[b.BODY_END] = count, stop, stop
            target[b.LAST_DELTA] = last - row[b.BASE_OFFSET]
            offset = int.from_bytes(records[stop : stop + 8], "big", signed=True)
            length = int.from_bytes(records[stop + b.LENGTH_AT : stop + b.LENGTH_END], "big")
            return Fault(offset, self._reasons[why], offset, stop + b.LENGTH_END + length)
        if codec == 0:
            return None
        try:
            self._open(codec, records, row, target, floor, requested)
        except DecompressError as error:
            target[b.END] = row[b.START]
            return Fault(row[b.BASE_OFFSET], str(error), row[b.BASE_OFFSET] + row[b.LAST_DELTA], row[b.END])
        return None

    def _open(self, codec: int, records: memoryview, row: list[int], target: Any, floor: int, requested: int) -> None:
        """Decompress a message of formats 0 and 1 and verify what is inside.

        Raises:
            DecompressError: with what is wrong inside.
        """
        outer = row[b.BASE_OFFSET]
        start = self._decompress(codec, records[row[b.BODY] : row[b.END]], target, before_format_2=True)
        end = self.scratch.used
        count, last = self._m.extent(self.scratch.data, start, end)
        if count == 0:
            raise DecompressError("the lengths in a compressed message contradict each other")
        if not 0 <= last <= outer:
            raise DecompressError(f"the last offset in a compressed message is {last}, its own {outer}")
        shift = outer - last if row[b.FORMAT] == 1 else 0
        inside = (start, end, row[b.FORMAT], shift, floor, False, requested, self._check_crcs)
        _, _, _, why = self._m.verify(self.scratch.data, *inside)
        if why != self._m.SOUND:
            raise DecompressError(self._reasons[why])
        target[b.COUNT] = count
        target[b.SHIFT] = shift

    def _decompress(self, codec: int, body: memoryview, target: Any, *, before_format_2: bool = False) -> int:
        """Decompress behind what is there and enter the place; returns where it begins."""
        start = self.scratch.used
        # Behind other batches a fault may just mean that the chunk is full: fetched first, the batch will tell.
        limit = self._max_decompressed_bytes - start
        self.scratch.add(codec, body, limit, before_format_2=before_format_2)
        target[b.SOURCE], target[b.BODY], target[b.BODY_END] = b.SCRATCH, start, self.scratch.used
        return start
