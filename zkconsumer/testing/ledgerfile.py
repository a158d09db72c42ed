"""Files of a ledger: one for each process that writes, one line for each record."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from zkconsumer.testing.ledger import Ledger, Record, decode, encode

SUFFIX = ".ledger.jsonl"


class LedgerFile:
    """Appends records to one file; for any thread.

    A record is in the file when :meth:`append` returns, even if the process is killed then: each line is one call of
    the operating system, and nothing is buffered.

    Args:
        path: of the file, which is created; give it the suffix :data:`SUFFIX`.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, *records: Record) -> None:
        """Write records."""
        os.write(self._file, "".join(f"{encode(record)}\n" for record in records).encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_ledger(directory: Path, further: Iterable[Record] = ()) -> Ledger:
    """All records of the files in a directory, and ``further`` ones.

    The last line of a file may lack its end, if its process was killed meanwhile: it is ignored.

    Raises:
        UsageError: a line is not one of a ledger.
    """
    records: list[Record] = []
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
        records += [decode(line) for line in whole.splitlines()]
    return Ledger([*records, *further])
