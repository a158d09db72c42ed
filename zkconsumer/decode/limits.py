"""The number of records that fit into a number of bytes."""

from __future__ import annotations

from bisect import bisect_right

from zkconsumer.decode.buffers import HeaderBytes
from zkconsumer.decode.kernelloader import kernels
from zkconsumer.decode.records import Records


def rows_within(records: Records, max_bytes: int) -> int:
    """The number of leading records with at most ``max_bytes`` of data together; at least one.

    A record's data are its key, its value, and the names and values of its headers, if they were decoded.

    Args:
        records: not empty.
        max_bytes: the limit.
    """
    start, buffers = records.start, records.buffers
    ends: list[memoryview | _Ends] = [
        column.end[start:] for column in (buffers.key, buffers.value) if column is not None
    ]
    if buffers.headers is not None:
        ends += _header_ends(buffers.headers, start, records.num_rows)

    def data_bytes(rows: int) -> int:
        return sum(end[rows] - end[0] for end in ends)

    # A search among the ends that are kept anyway, without a computation for each record.
    return max(1, bisect_right(range(1, records.num_rows + 1), max_bytes, key=data_bytes))


class _Ends:
    """The end of the headers' names or contents of each record.

    Args:
        of_header: ends of these, preceded by a 0.
        of_record: number of headers up to the end of each record, preceded by a 0.
    """

    def __init__(self, of_header: memoryview, of_record: memoryview) -> None:
        self._of_header = of_header
        self._of_record = of_record

    def __getitem__(self, rows: int) -> int:
        return int(self._of_header[self._of_record[rows]])


def _header_ends(headers: HeaderBytes, start: int, rows: int) -> list[_Ends]:
    columns = kernels().header_columns(headers, start, rows)
    return [_Ends(ends, columns.list_end) for ends in (columns.name_end, columns.content_end)]
