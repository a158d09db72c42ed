"""ZkConsumerDataSource and its readers, which Spark pickles and calls. They hold options; others do the work.

Spark creates a reader in two processes, one of which only pickles it and ends, so a constructor must not open any
connection (notes.md#sparks-data-source-api). Driver side: :mod:`zkconsumer.spark.driver` and
:mod:`zkconsumer.spark.batchplan`. Executor side: :mod:`zkconsumer.spark.taskreading`.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from zkconsumer.errors import ConfigError, UsageError
from zkconsumer.spark.rangereader import RangeReader, brief

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from zkconsumer.spark.rules.options import SourceOptions


class ZkConsumerDataSource(DataSource):
    """``format("zkconsumer")``: reads Kafka topics as a member of a ZooKeeper-based consumer group.

    Every reader of a stream is a member: two queries in one group share the partitions, and neither reads all records.
    Under one driver that is refused, unless each has a ``memberName``. A batch read is not a member, and commits
    nothing.

    Options, columns and guarantees: spark.md#options, architecture.md#spark-source.

    Raises:
        ConfigError: at ``load()``, naming every option that cannot be used.
    """

    @brief
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

    @brief
    def reader(self, schema: StructType) -> ZkConsumerReader:
        """Create the reader for ``spark.read``.

        Raises:
            ConfigError: the options or the schema cannot be used for a batch read.
        """
        from zkconsumer.spark.rows import choose_columns
        from zkconsumer.spark.rules.options import check_batch

        check_batch(self._options)
        return ZkConsumerReader(self._options, choose_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Create the reader for ``spark.readStream``, or one that raises the reason why there can be no stream.

        An error raised here does not reach the user: PySpark then stops a reader that it does not have, and the query
        fails with an UnboundLocalError.
        """
        from zkconsumer.spark.release import require_stream_reader
        from zkconsumer.spark.rows import choose_columns
        from zkconsumer.spark.rules.options import check_streaming

        try:
            create = require_stream_reader()
            check_streaming(self._options)
            return create(self._options, choose_columns(schema))
        except (ConfigError, UsageError) as error:
            return RefusedStreamReader(error)


class ZkConsumerReader(RangeReader, DataSourceReader):
    """Batch read: from the group's offsets, or the options, to the ends of the logs. Joins no group."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @brief
    def partitions(self) -> list[InputPartition]:
        """Plan the read; called once, on the driver."""
        from zkconsumer.spark.batchplan import plan_batch_read
        from zkconsumer.spark.javastores import with_pem_files

        tasks = plan_batch_read(with_pem_files(self._options))
        # Spark makes one task of an empty list; before 4.2 it passed None, and no InputPartition, to read().
        return [InputPartition(task) for task in tasks] or [InputPartition(None)]


class RefusedStreamReader(DataSourceStreamReader):
    """Raises an error at the first call, whichever that is: a query with a checkpoint does not begin as one without."""

    def __init__(self, error: ConfigError | UsageError) -> None:
        self._error = error

    @brief
    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815  Spark's names
