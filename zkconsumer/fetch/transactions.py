"""Which batches of a response belong to aborted transactions (KIP-98), for ``isolation.level=read_committed``."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from zkconsumer.fetch import batchtable as b

AbortedTransaction = tuple[int, int]
"""Producer id and first offset, as the broker lists them with the records."""

_WITHOUT: Final = -1


def exclude_aborted(kernel: ModuleType, raw: Any, table: Any, aborted: Sequence[AbortedTransaction]) -> None:
    """Give the aborted batches in ``table`` the source NOTHING.

    A producer's transaction is open from the first offset that the broker lists to that producer's next abort marker.
    The list covers the whole response, so nothing has to be kept from one response to the next.

    Args:
        kernel: the module :mod:`zkconsumer.fetch.kernel`.
        raw: the bytes that hold the batches.
        table: the rows found in them; changed in place.
        aborted: at least one.
    """
    listed = np.array(sorted(aborted, key=lambda transaction: transaction[1]), np.int64)
    known, transactions = np.unique(listed[:, 0], return_inverse=True)
    ids = np.ascontiguousarray(table[:, b.PRODUCER_ID])
    producers = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    producers[known[producers] != ids] = _WITHOUT
    firsts = np.ascontiguousarray(listed[:, 1])
    is_open = np.zeros(len(known), np.uint8)
    kernel.exclude_aborted(raw, table, producers, transactions.astype(np.int64), firsts, is_open)
