"""Records that have the time of their creation, and the log of a consumer that reads them.

The time is that of ``time.monotonic_ns()``, which on Linux is the same for all processes, and ``System.nanoTime()`` of
a JVM. A consumer writes two numbers for each record to a file that it has mapped into its memory: when the record was
created, and when the consumer had it. So the log costs neither a system call nor a message to another process.
"""

from __future__ import annotations

import mmap
import struct
import time
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np

VALUE_BYTES: Final = 100
STAMP_BYTES: Final = 8
_MARK: Final = b"\xffcreated"
_CRC_AT: Final = 17
_CHECKED_FROM: Final = 21
_PAIR_BYTES: Final = 16
_NS_PER_MS: Final = 1_000_000


def stampable_batch(records: int) -> bytes:
    """A batch of format 2 whose values have room for the time; :func:`with_stamp` fills it in."""
    from zkconsumer.sandbox.producer import FORMAT_2, Record, encode_batches

    record = Record(_MARK.ljust(VALUE_BYTES, b"x"), None, time.time_ns() // 1_000_000)
    (batch,) = encode_batches([record] * records, magic=FORMAT_2)
    return batch


def with_stamp(batch: bytes, created_ns: int) -> bytes:
    """The batch of :func:`stampable_batch`, whose values begin with a time; far cheaper than encoding it again."""
    from crc32c import crc32c

    filled = bytearray(batch.replace(_MARK, created_ns.to_bytes(STAMP_BYTES, "big")))
    struct.pack_into(">I", filled, _CRC_AT, crc32c(memoryview(filled)[_CHECKED_FROM:]))
    return bytes(filled)


def created_ns(value: bytes) -> int:
    """The time with which a value begins."""
    return int.from_bytes(value[:STAMP_BYTES], "big")


def all_created_ns(values: Any) -> np.ndarray[Any, Any]:
    """The times of an Arrow array of values, each of :data:`VALUE_BYTES`."""
    import numpy as np

    _, offsets, data = values.buffers()
    (start,) = np.frombuffer(offsets, np.int32, 1, 4 * values.offset)
    rows = np.frombuffer(data, np.uint8, len(values) * VALUE_BYTES, int(start)).reshape(-1, VALUE_BYTES)
    return np.ascontiguousarray(rows[:, :STAMP_BYTES]).view(">i8").ravel()


class LogWriter:
    """Writes the log of a consumer. Used by one thread.

    Args:
        path: file of :class:`LogFile`.
    """

    def __init__(self, path: Path) -> None:
        import numpy as np

        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        self._numbers = memoryview(mapped).cast("q")
        self._pairs = np.frombuffer(mapped, np.int64).reshape(-1, 2)
        self._next = 0

    def note(self, created: int, now: int) -> None:
        """Add a record."""
        at = self._next
        self._numbers[at] = created
        self._numbers[at + 1] = now
        self._next = at + 2

    def note_all(self, created: np.ndarray[Any, Any], now: int) -> None:
        """Add records that the consumer had at the same time."""
        rows = self._pairs[self._next // 2 :][: len(created)]
        rows[:, 0] = created
        rows[:, 1] = now
        self._next += 2 * len(created)


class Delays(NamedTuple):
    """How long records took, in ms.

    Attributes:
        records: number of the records.
        p50: of the half that was faster, the slowest; NaN without records.
        p99: of 99 %.
    """

    records: int
    p50: float
    p99: float


class LogFile:
    """The file of a log, which its reader makes.

    Args:
        path: of the file.
        records: the most that are written; what is not written takes no room on the disk.
    """

    def __init__(self, path: Path, records: int) -> None:
        import numpy as np

        self.path = path
        self.bytes = records * _PAIR_BYTES
        with path.open("wb") as file:
            file.truncate(self.bytes)
        self._pairs = np.memmap(path, np.int64, "r").reshape(-1, 2)

    def __len__(self) -> int:
        """Number of the records so far."""
        return bisect_left(range(len(self._pairs)), True, key=lambda row: self._pairs[row, 1] == 0)

    def delays(self, began_ns: int, ended_ns: int) -> Delays:
        """Of the records that were created in this time."""
        import numpy as np

        pairs = self._pairs[: len(self)]
        created = pairs[:, 0]
        taken = pairs[(created >= began_ns) & (created < ended_ns)]
        if not len(taken):
            return Delays(0, float("nan"), float("nan"))
        p50, p99 = np.percentile((taken[:, 1] - taken[:, 0]) / _NS_PER_MS, (50, 99), method="inverted_cdf")
        return Delays(len(taken), float(p50), float(p99))
