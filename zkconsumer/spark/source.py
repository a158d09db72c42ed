"""ZkConsumerDataSource and its readers, which Spark pickles and calls. They hold options; others do the work.

Spark creates a reader in two processes, one of which only pickles it and ends, so a constructor must not open any
connection (notes.md#sparks-data-source-api). Driver side: :mod:`zkconsumer.spark.driver` and
:mod:`zkconsumer.spark.batchplan`. Executor side: :mod:`zkconsumer.spark.taskreading`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from zkconsumer.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from zkconsumer.spark.driver import QueryDriver
    from zkconsumer.spark.rules.microbatch import RangePartition
    from zkconsumer.spark.rules.options import SourceOptions


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _brief(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Raise errors that the user's options cause without the way through this package.

    Spark prints the whole traceback up to three times, and the sentence that helps is at its end.
    """

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except (ConfigError, UsageError) as error:
            raise error.with_traceback(None) from None

    return call


class ZkConsumerDataSource(DataSource):
    """``format("zkconsumer")``: reads Kafka topics as a member of a ZooKeeper-based consumer group.

    Every reader of a stream is a member: two queries in one group share the partitions, and neither reads all records.
    Under one driver that is refused, unless each has a ``memberName``. A batch read is not a member, and commits
    nothing.

    Options, columns and guarantees: spark.md#options, architecture.md#spark-source.

    Raises:
        ConfigError: at ``load()``, naming every option that cannot be used.
    """

    @_brief
    def __init__(self, options: MutableMapping[str, str]) -> None:
        from zkconsumer.spark.rules.options import parse_options

        super().__init__(options)
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "zkconsumer"

    def schema(self) -> StructType:
        """The schema of Spark's own Kafka source. Not called if the user sets a schema, see :func:`choose_columns`."""
        from zkconsumer.spark.rows import spark_schema

        return spark_schema(self._options.include_headers)

    @_brief
    def reader(self, schema: StructType) -> ZkConsumerReader:
        """Create the reader for ``spark.read``.

        Raises:
            ConfigError: the options or the schema cannot be used for a batch read.
        """
        from zkconsumer.spark.rows import choose_columns
        from zkconsumer.spark.rules.options import check_batch

        check_batch(self._options)
        return ZkConsumerReader(self._options, choose_columns(schema))

    def streamReader(self, schema: StructType) -> ZkConsumerStreamReader:  # noqa: N802  Spark's name
        """Create the reader for ``spark.readStream``. Its methods raise the error for options that cannot be used.

        An error raised here does not reach the user: PySpark 4.2 then stops a reader that it does not have, and the
        query fails with an UnboundLocalError.
        """
        from zkconsumer.spark.rows import choose_columns
        from zkconsumer.spark.rules.options import check_streaming

        try:
            check_streaming(self._options)
            return ZkConsumerStreamReader(self._options, choose_columns(schema))
        except ConfigError as error:
            return ZkConsumerStreamReader(self._options, (), error)


class _RangeReader:
    """The executor side of both readers."""

    _options: SourceOptions
    _columns: tuple[str, ...]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch the ranges of one task; runs on an executor."""
        from zkconsumer.spark.javastores import with_pem_files
        from zkconsumer.spark.taskreading import read_ranges

        task: RangePartition | None = partition.value
        if task is None:  # Spark passes None if there is no partition
            return iter(())
        return read_ranges(with_pem_files(self._options), task, self._columns)


class ZkConsumerReader(_RangeReader, DataSourceReader):
    """Batch read: from the group's offsets, or the options, to the ends of the logs. Joins no group."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @_brief
    def partitions(self) -> list[InputPartition]:
        """Plan the read; called once, on the driver."""
        from zkconsumer.spark.batchplan import plan_batch_read
        from zkconsumer.spark.javastores import with_pem_files

        return [InputPartition(task) for task in plan_batch_read(with_pem_files(self._options))]


class ZkConsumerStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming read. The long-lived process on Spark's driver creates the :class:`QueryDriver` at the first call."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...], refusal: ConfigError | None = None) -> None:
        self._options = options
        self._columns = columns
        self._refusal = refusal
        self._driver: QueryDriver | None = None

    @_brief
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The start of a query without checkpoint, which depends on the group only.

        Raises:
            ConfigError: the options or the schema cannot be used for a stream.
        """
        from zkconsumer.spark.rules.offsetsjson import initial_offset

        self._require_usable()
        return initial_offset(self._options.config.group_id)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """The limit by ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``; Spark has no type for both together."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @_brief
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Join the group, and fix the offsets up to which this run reads."""
        self._query().prepare_available_now()

    @_brief
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Commit ``start``, the end of the last finished batch, and plan the next one.

        Trigger once passes ReadAllAvailable, even if the options set limits.
        """
        if isinstance(limit, ReadAllAvailable):
            return self._query().latest_offset(start, None)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._query().latest_offset(start, most, self._options.min_offsets_per_trigger)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """Position and log end of every owned partition, for the query's progress."""
        return self._query().report()

    @_brief
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of the batch that ends at ``end``."""
        return [InputPartition(task) for task in self._query().partitions(start, end)]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: :meth:`latestOffset` has committed this offset already (notes.md#order-of-sparks-calls)."""

    def stop(self) -> None:
        """Leave the group; called when the process must end."""
        if self._driver is not None:
            self._driver.stop()

    def _require_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _query(self) -> QueryDriver:
        self._require_usable()
        if self._driver is None:
            from zkconsumer.spark.driver import QueryDriver
            from zkconsumer.spark.javastores import with_pem_files

            self._driver = QueryDriver(with_pem_files(self._options))
        return self._driver
