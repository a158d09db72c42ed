"""Which batches of a response belong to aborted transactions (KIP-98), for ``isolation.level=read_committed``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from zkconsumer.fetch import batchtable as b

AbortedTransaction = tuple[int, int]
"""Producer id and first offset, as the broker lists them with the records."""

_ABORT_MARKER: Final = b"\x00\x00"
_FIELDS_BEFORE_KEY: Final = 4  # length, (one byte of attributes), timestamp and offset deltas, length of the key


def exclude_aborted(raw: Any, table: Any, aborted: Sequence[AbortedTransaction]) -> None:
    """Give the aborted batches in ``table`` the source NOTHING.

    A producer's transaction is open from the first offset that the broker lists to that producer's next abort marker.
    The list covers the whole response, so nothing has to be kept from one response to the next.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    open_producers: set[int] = set()
    for number, row in enumerate(table.tolist()):
        producer = row[b.PRODUCER_ID]
        while waiting and waiting[-1][1] <= row[b.BASE_OFFSET] + row[b.LAST_DELTA]:
            open_producers.add(waiting.pop()[0])
        if producer not in open_producers:
            continue
        if row[b.ATTRIBUTES] & b.CONTROL:
            if _is_abort(raw[row[b.BODY] : row[b.BODY_END]].tobytes()):
                open_producers.discard(producer)
        elif row[b.ATTRIBUTES] & b.TRANSACTIONAL:
            table[number, b.SOURCE] = b.NOTHING


def _is_abort(record: bytes) -> bool:
    """True for an abort marker; its key is a version and a type, two bytes each. Nothing is copied but the record."""
    at = 0
    for field in range(_FIELDS_BEFORE_KEY):
        while at < len(record) and record[at] >= 0x80:
            at += 1
        at += 2 if field == 0 else 1  # the attributes follow the length
    return record[at + 2 : at + 4] == _ABORT_MARKER
