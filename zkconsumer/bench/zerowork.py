"""ZeroWorkDataSource: rows that cost nothing to make, which is the ceiling of any source that Spark runs in Python.

Same schema, same number of tasks and batches of the same size as those of the source that it is compared with; only
the fetching and decoding are missing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from zkconsumer.spark.rows import spark_schema
from zkconsumer.spark.worker import acknowledge_quickly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_BATCH_BYTES: Final = 2 << 20
_RECORD_OVERHEAD: Final = 12
_TIMESTAMP_US: Final = 1_700_000_000_000_000


class ZeroWorkDataSource(DataSource):
    """``format("zerowork")``; options: ``topic``, ``records``, ``valueBytes``, ``tasks``, ``maxOffsetsPerTrigger``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "zerowork"

    def schema(self) -> StructType:
        """That of the Kafka sources."""
        return spark_schema(include_headers=False)

    def reader(self, schema: StructType) -> ZeroWorkReader:  # noqa: ARG002  Spark's signature
        """For ``spark.read``."""
        return ZeroWorkReader(self.options)

    def streamReader(self, schema: StructType) -> ZeroWorkStreamReader:  # noqa: ARG002, N802  Spark's signature
        """For ``spark.readStream``."""
        return ZeroWorkStreamReader(self.options)


class _Rows:
    """What both readers do."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._topic = options["topic"]
        self._records = int(options["records"])
        self._value_bytes = int(options["valueBytes"])
        self._tasks = int(options["tasks"])
        limit = options.get("maxOffsetsPerTrigger")
        self._limit = None if limit is None else int(limit)

    def _partitions(self, records: int) -> list[InputPartition]:
        return [InputPartition(share) for share in shares(records, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Hand out the same rows until there are enough."""
        acknowledge_quickly()
        rows = partition.value or 0  # None: Spark's stand-in for no partition
        yield from repeat(prebuilt(self._topic, self._value_bytes), rows)
        acknowledge_quickly()


class ZeroWorkReader(_Rows, DataSourceReader):
    """Batch read of all records."""

    def partitions(self) -> list[InputPartition]:
        """As many tasks as were asked for."""
        return self._partitions(self._records)


class ZeroWorkStreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream that has all its records from the beginning; an offset is the number of records read."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Nothing has been read."""
        return {"records": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """From ``maxOffsetsPerTrigger``."""
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Nothing: no records are added."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The end, or as far as the limit allows."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._records
        return {"records": min(start["records"] + most, self._records)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        return self._partitions(end["records"] - start["records"])

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing."""


def shares(records: int, tasks: int) -> list[int]:
    """Records of each task: alike but for one; tasks without any are left out."""
    each, more = divmod(records, tasks)
    return [share for share in (each + (number < more) for number in range(tasks)) if share]


def repeat(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """The same batch again and again, the last time only the part that is missing."""
    for _ in range(rows // batch.num_rows):
        yield batch
    if rows % batch.num_rows:
        yield batch.slice(0, rows % batch.num_rows)


@functools.cache
def prebuilt(topic: str, value_bytes: int) -> pa.RecordBatch:
    """A batch of as many rows as the real source makes of one partition's part of a response; once in a process."""
    import pyarrow as pa

    from zkconsumer.fetch.schema import SCHEMA

    rows = max(1, _BATCH_BYTES // (value_bytes + _RECORD_OVERHEAD))
    columns = (
        [None] * rows,
        [b"v" * value_bytes] * rows,
        [topic] * rows,
        [0] * rows,
        range(rows),
        [_TIMESTAMP_US] * rows,
        [0] * rows,
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
