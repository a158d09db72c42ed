"""Which batches of a response belong to aborted transactions (KIP-98), for ``isolation.level=read_committed``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from zkconsumer.decode import batchtable as b
from zkconsumer.decode.compiled import BYTES, INT64S, OUT_BYTES, TABLE, compiled, int16_at, njit, types, varint

AbortedTransaction = tuple[int, int]
"""Producer id and first offset, as the broker lists them with the records."""

_WITHOUT: Final = -1
_FIELDS_BEFORE_KEY: Final = 3  # in a marker: timestamp and offset deltas, length of the key


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _is_abort(raw: Any, at: Any, end: Any) -> Any:
    """True for an abort marker: the key of its record is a version and a type of two bytes each, and its type is 0."""
    _, at = varint(raw, at, end)
    at += 1  # attributes
    for _ in range(_FIELDS_BEFORE_KEY):
        if at <= 0:
            return False
        _, at = varint(raw, at, end)
    return 0 < at <= end - 4 and int16_at(raw, at + 2) == 0


@compiled(types.void(BYTES, TABLE, INT64S, INT64S, INT64S, OUT_BYTES))
def _exclude(raw, table, producers, transactions, firsts, is_open):  # type: ignore[no-untyped-def]
    """Set the source of batches of aborted transactions to NOTHING.

    Args:
        raw: the bytes that hold the batches.
        table: rows of all formats.
        producers: for each row the index of its producer, -1 for a producer without aborted transactions.
        transactions: for each aborted transaction the index of its producer.
        firsts: for each aborted transaction its first offset, ascending.
        is_open: for each producer 0; overwritten.
    """
    begun = 0
    for current in range(len(table)):
        row = table[current]
        while begun < len(firsts) and firsts[begun] <= row[b.BASE_OFFSET] + row[b.LAST_DELTA]:
            is_open[transactions[begun]] = 1
            begun += 1
        producer = producers[current]
        if producer < 0 or not is_open[producer]:
            continue
        if row[b.ATTRIBUTES] & b.CONTROL:
            if _is_abort(raw, row[b.BODY], row[b.BODY_END]):
                is_open[producer] = 0
        elif row[b.ATTRIBUTES] & b.TRANSACTIONAL:
            row[b.SOURCE] = b.NOTHING


def exclude_aborted(raw: Any, table: Any, aborted: Sequence[AbortedTransaction]) -> None:
    """Set the source of the aborted batches in ``table`` to NOTHING.

    A producer's transaction is open from the first offset that the broker lists to that producer's next abort marker.
    The list covers the whole response, so no state is kept between responses.

    Args:
        raw: the bytes that hold the batches.
        table: the rows found in them; changed in place.
        aborted: the aborted transactions, at least one.
    """
    listed = np.array(sorted(aborted, key=lambda transaction: transaction[1]), np.int64)
    known, transactions = np.unique(listed[:, 0], return_inverse=True)
    ids = np.ascontiguousarray(table[:, b.PRODUCER_ID])
    producers = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    producers[known[producers] != ids] = _WITHOUT
    firsts = np.ascontiguousarray(listed[:, 1])
    is_open = np.zeros(len(known), np.uint8)
    _exclude(raw, table, producers, transactions.astype(np.int64), firsts, is_open)  # type: ignore[no-untyped-call]
