"""ZeroWorkDataSource: rows that cost nothing to create, the ceiling of any source that Spark runs in Python.

It has the same schema, number of tasks and batch sizes as the source that it is compared with; only fetching and
decoding are missing. A task returns distinct batches in rotation, together larger than the processor's cache, since the
batches of a real source come from memory, too. With the option ``distinct=false`` it returns one batch repeatedly,
which stays in the cache, so that Spark reads it faster than it could read fetched records.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from zkconsumer.spark.rows import choose_columns, spark_schema
from zkconsumer.spark.worker import acknowledge_quickly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_BATCH_BYTES: Final = 2 << 20
_RECORD_OVERHEAD: Final = 12
_TIMESTAMP_US: Final = 1_700_000_000_000_000
_ASSUMED_CACHE_BYTES: Final = 64 << 20
_MOST_DISTINCT_BYTES: Final = 512 << 20


class ZeroWorkDataSource(DataSource):
    """``format("zerowork")``; a schema chooses columns as it does in the real source.

    Options: ``topic``, ``records``, ``valueBytes``, ``tasks``, ``distinct``, ``maxOffsetsPerTrigger``.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "zerowork"

    def schema(self) -> StructType:
        """The schema of the Kafka sources."""
        return spark_schema(include_headers=False)

    def reader(self, schema: StructType) -> ZeroWorkReader:
        """Create the reader for ``spark.read``."""
        return ZeroWorkReader(self.options, choose_columns(schema))

    def streamReader(self, schema: StructType) -> ZeroWorkStreamReader:  # noqa: N802  Spark's name
        """Create the reader for ``spark.readStream``."""
        return ZeroWorkStreamReader(self.options, choose_columns(schema))


class _Rows:
    """The common part of both readers."""

    def __init__(self, options: Mapping[str, str], columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._topic = options["topic"]
        self._records = int(options["records"])
        self._value_bytes = int(options["valueBytes"])
        self._tasks = int(options["tasks"])
        self._distinct = options.get("distinct", "true") == "true"
        limit = options.get("maxOffsetsPerTrigger")
        self._limit = None if limit is None else int(limit)

    def _partitions(self, records: int) -> list[InputPartition]:
        return [InputPartition(share) for share in shares(records, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the batches in rotation until there are enough rows."""
        acknowledge_quickly()
        rows = partition.value or 0  # Spark passes None if there is no partition
        batches = _rotation(self._topic, self._value_bytes, _beyond_cache() if self._distinct else 1)
        for batch in take(batches, rows):
            yield batch.select(self._columns)
        acknowledge_quickly()


class ZeroWorkReader(_Rows, DataSourceReader):
    """Batch read of all records."""

    def partitions(self) -> list[InputPartition]:
        """The specified number of tasks."""
        return self._partitions(self._records)


class ZeroWorkStreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream with all its records from the beginning; an offset is the number of records read."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The offset before the first record."""
        return {"records": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """The limit by ``maxOffsetsPerTrigger``."""
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Do nothing: no records are added."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The end, or an earlier offset because of the limit."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._records
        return {"records": min(start["records"] + most, self._records)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        return self._partitions(end["records"] - start["records"])

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing."""


def shares(records: int, tasks: int) -> list[int]:
    """Number of records of each task, which differ by at most one; tasks without records are excluded."""
    each, more = divmod(records, tasks)
    return [share for share in (each + (number < more) for number in range(tasks)) if share]


def take(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The next batches until there are enough rows; the last one may be cut."""
    while rows:
        batch = next(batches)
        yield batch if batch.num_rows <= rows else batch.slice(0, rows)
        rows -= min(rows, batch.num_rows)


@functools.cache
def _rotation(topic: str, value_bytes: int, total_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rotation for all tasks of a process, so that a small task continues after the previous one."""
    return itertools.cycle(prebuilt(topic, value_bytes, total_bytes))


def _beyond_cache() -> int:
    """Bytes that exceed every cache of this machine: twice the largest one, up to a limit that fits into memory."""
    try:
        cache = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (ValueError, OSError):  # a system that does not report it
        cache = 0
    return min(2 * (cache if cache > 0 else _ASSUMED_CACHE_BYTES), _MOST_DISTINCT_BYTES)


def prebuilt(topic: str, value_bytes: int, total_bytes: int) -> tuple[pa.RecordBatch, ...]:
    """Batches with as many rows as those of the real source for one partition's part of a response.

    Args:
        topic: topic of all rows.
        value_bytes: length of each value.
        total_bytes: minimum size of all values together. Each batch has its own memory, except for topic, partition and
            timestamp type, which the real source's batches share, too.
    """
    import pyarrow as pa

    from zkconsumer.decode.schema import SCHEMA

    rows = max(1, _BATCH_BYTES // (value_bytes + _RECORD_OVERHEAD))
    topics, zeros = pa.repeat(pa.scalar(topic), rows), pa.repeat(pa.scalar(0, pa.int32()), rows)
    made = []
    for first in range(0, -(-total_bytes // value_bytes), rows):
        own = {
            "key": [None] * rows,
            "value": [b"v" * value_bytes] * rows,
            "offset": range(first, first + rows),
            "timestamp": [_TIMESTAMP_US] * rows,
        }
        shared = {"topic": topics, "partition": zeros, "timestampType": zeros}
        arrays = [shared[f.name] if f.name in shared else pa.array(own[f.name], f.type) for f in SCHEMA]
        made.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return tuple(made)
