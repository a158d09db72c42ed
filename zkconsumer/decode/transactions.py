"""Which batches of a response belong to aborted transactions (KIP-98), for ``isolation.level=read_committed``."""

from __future__ import annotations

from array import array
from collections.abc import Collection

from zkconsumer.decode.batchtable import BatchTable
from zkconsumer.decode.kernels import Kernels

AbortedTransaction = tuple[int, int]
"""Producer id and first offset, as the broker lists them with the records."""


def exclude_aborted(
    kernels: Kernels, raw: memoryview, table: BatchTable, aborted: Collection[AbortedTransaction]
) -> None:
    """Set the source of the aborted batches in ``table`` to NOTHING.

    A producer's transaction is open from the first offset that the broker lists to that producer's next abort marker.
    The list covers the whole response, so no state is kept between responses.

    Args:
        kernels: the kernels.
        raw: the bytes that hold the batches.
        table: the rows found in them; changed in place.
        aborted: the aborted transactions.
    """
    listed = sorted(aborted, key=lambda transaction: transaction[1])
    producers = sorted({producer for producer, _ in aborted})
    places = {producer: place for place, producer in enumerate(producers)}
    of_producer = array("q", [places[producer] for producer, _ in listed])
    firsts = array("q", [first for _, first in listed])
    kernels.exclude_aborted(raw, table, array("q", producers), of_producer, firsts)
