"""ZkConsumerStreamReader, the driver side of a stream. Importing this module needs Spark 4.2 (:mod:`.release`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from zkconsumer.spark.rangereader import RangeReader, brief

if TYPE_CHECKING:
    from zkconsumer.spark.driver import QueryDriver
    from zkconsumer.spark.rules.options import SourceOptions


class ZkConsumerStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming read. The long-lived process on Spark's driver creates the :class:`QueryDriver` at the first call."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._driver: QueryDriver | None = None

    @brief
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The start of a query without checkpoint, which depends on the group only."""
        from zkconsumer.spark.rules.offsetsjson import initial_offset

        return initial_offset(self._options.config.group_id)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """The limit by ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``; Spark has no type for both together."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @brief
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Join the group, and fix the offsets up to which this run reads."""
        self._query().prepare_available_now()

    @brief
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

    @brief
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of the batch that ends at ``end``."""
        return [InputPartition(task) for task in self._query().partitions(start, end)]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: :meth:`latestOffset` has committed this offset already (notes.md#order-of-sparks-calls)."""

    def stop(self) -> None:
        """Leave the group; called when the process must end."""
        if self._driver is not None:
            self._driver.stop()

    def _query(self) -> QueryDriver:
        if self._driver is None:
            from zkconsumer.spark.driver import QueryDriver
            from zkconsumer.spark.javastores import with_pem_files

            self._driver = QueryDriver(with_pem_files(self._options))
        return self._driver
