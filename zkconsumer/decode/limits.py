"""The number of rows of a batch that fit into a number of bytes."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np


def rows_within(batch: Any, max_bytes: int) -> int:
    """The number of leading rows with at most ``max_bytes`` of data together; at least one.

    A row's data are its key, its value, and the names and values of its headers, if the batch has that column.

    Args:
        batch: in the schema of ``decode/schema.py``, not empty; may be a slice.
        max_bytes: the limit.
    """
    ends = [_ends(batch.column("key")), _ends(batch.column("value"))]
    headers = batch.schema.get_field_index("headers")
    if headers >= 0:
        ends += _header_ends(batch.column(headers))

    def data_bytes(rows: int) -> int:
        return sum(int(end[rows]) - int(end[0]) for end in ends)

    # A search among the ends that Arrow keeps anyway, without a computation for each row of a long batch.
    return max(1, bisect_right(range(1, batch.num_rows + 1), max_bytes, key=data_bytes))


def _ends(column: Any) -> Any:
    """The end of each value of a binary or string column in its data, preceded by the beginning of the first."""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * np.int32().itemsize)


def _header_ends(column: Any) -> list[Any]:
    if column.null_count == len(column):
        return []
    pairs = column.offsets.to_numpy()
    return [_ends(column.values.field(name))[pairs] for name in ("key", "value")]
