"""The table of batches that the decoding steps share: numbers of columns, codes, and layouts.

``native/kernels.h`` has the same numbers.

One row is a record batch (format 2), a compressed message with the messages inside it (formats 0 and 1), or a run of
uncompressed messages of one format and the same attributes.
"""

from __future__ import annotations

from array import array
from typing import Final

# Columns, int64.
START: Final = 0  # position in the raw bytes
END: Final = 1  # position after it
BASE_OFFSET: Final = 2  # for a compressed message: its own offset, which is the last one inside
LAST_DELTA: Final = 3  # last offset minus base offset; compaction keeps it when it removes records
FORMAT: Final = 4  # 0, 1 or 2
CRC: Final = 5  # format 2 only
ATTRIBUTES: Final = 6
BASE_TIMESTAMP: Final = 7  # format 2 only
MAX_TIMESTAMP: Final = 8  # for a compressed message: its own timestamp
PRODUCER_ID: Final = 9  # format 2 only
COUNT: Final = 10  # number of records: as announced (format 2), or as found
SOURCE: Final = 11  # memory of the records: RAW, SCRATCH; or NOTHING
BODY: Final = 12  # position of the first record in the source
BODY_END: Final = 13
SHIFT: Final = 14  # formats 0 and 1: number to add to an offset inside
KEPT: Final = 15  # records at or after the requested offset
COLUMNS: Final = 16

RAW: Final = 0
SCRATCH: Final = 1
NOTHING: Final = -1

# Bits of the result of a survey.
IN_RAW: Final = 1
IN_COMPRESSED: Final = 2  # in the raw bytes, not decompressed yet
IN_SCRATCH: Final = 4
IN_OLD_FORMAT: Final = 8
TIME_CREATED: Final = 1
TIME_APPENDED: Final = 2
TIME_NONE: Final = 4

# Why a scan stopped.
COMPLETE: Final = 0  # end of the bytes, or an incomplete batch
TABLE_FULL: Final = 1
BAD_LENGTH: Final = 2
OTHER_FORMAT: Final = 3  # a batch for the other scan
BAD_HEADER: Final = 4

# Indices of the totals that an index function reports, and continues from.
ROWS: Final = 0  # rows that were read without a fault
RECORDS: Final = 1
KEY_BYTES: Final = 2
VALUE_BYTES: Final = 3
HEADER_COUNT: Final = 4
HEADER_KEY_BYTES: Final = 5
HEADER_VALUE_BYTES: Final = 6
HEADER_BYTES: Final = 7  # size of the headers as they are in the records
HAS_NULL_KEY: Final = 8
HAS_NULL_VALUE: Final = 9
TOTALS: Final = 10

# Bits of the attributes; those of formats 0 and 1 are the first two.
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

# Results of a check of messages.
VALID: Final = 0
CUT_OFF: Final = 1  # lengths are inconsistent
BAD_CRC: Final = 2
BAD_ORDER: Final = 3  # an offset is not between its neighbours
NESTED: Final = 4  # compressed although it must not be, or the other way round
BAD_INNER_FORMAT: Final = 5  # a message of another format inside a compressed one

BATCH_HEADER_BYTES: Final = 61
"""Length of the header of a batch of format 2; the records follow."""
CRC_START: Final = 21
"""The checksum of such a batch covers everything from here to its end."""
SMALLEST_RECORD: Final = 7
"""A record in it has at least seven fields of one byte."""

MAGIC_AT: Final = 16
"""Position of the format's number in a batch and, by design, in a message of the older formats too."""
LENGTH_AT: Final = 8
LENGTH_END: Final = 12
"""Position from which a batch's length counts. In format 2 the leader's epoch is there, which no checksum covers."""
LAST_DELTA_AT: Final = 23
"""In a batch of format 2."""

MICROS: Final = 1000
MAX_MILLIS: Final = (2**63 - 1) // MICROS
MAX_BASE_OFFSET: Final = 2**63 - 1 - 2**32
NO_TIMESTAMP: Final = -1
"""Timestamp (ms) and type of records of format 0, which has none, as in the JVM and in Spark's Kafka source."""


class BatchTable:
    """Rows of the table, one after the other in one block of 64-bit integers. A slice shares the block.

    Args:
        words: the integers.
    """

    __slots__ = ("words",)

    def __init__(self, words: memoryview) -> None:
        self.words: Final = words

    @classmethod
    def allocate(cls, rows: int) -> BatchTable:
        """Rows of zeros."""
        return cls(memoryview(bytearray(8 * COLUMNS * rows)).cast("q"))

    @classmethod
    def joined(cls, *tables: BatchTable) -> BatchTable:
        """A copy of the rows of several tables."""
        return cls(memoryview(bytearray().join(table.words.cast("B") for table in tables)).cast("q"))

    def __len__(self) -> int:
        return len(self.words) // COLUMNS

    def __getitem__(self, rows: slice) -> BatchTable:
        start, stop, _ = rows.indices(len(self))
        return BatchTable(self.words[start * COLUMNS : max(start, stop) * COLUMNS])

    def row(self, number: int) -> list[int]:
        """The numbers of a row; from the end if ``number`` is negative."""
        start = (number if number >= 0 else len(self) + number) * COLUMNS
        return self.words[start : start + COLUMNS].tolist()

    def put(self, number: int, row: list[int]) -> None:
        """Replace a row."""
        start = number * COLUMNS
        self.words[start : start + COLUMNS] = array("q", row)

    def last_offset(self) -> int:
        """The last offset of the last row; there is one."""
        row = self.row(-1)
        return row[BASE_OFFSET] + row[LAST_DELTA]
