"""The Spark source ``zkconsumer``: the driver is a member of the consumer group, executors fetch.

See spark.md#options, architecture.md#spark-source.

Importing this package does not import pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zkconsumer.spark.monitor import QueryMonitor

__all__ = ["register"]


def register(spark: SparkSession) -> QueryMonitor:
    """Register ``format("zkconsumer")`` with a session, and monitor the session's queries of this source.

    Spark finds the format without this call if its look-up sees the top-level module ``pyspark_zkconsumer``: in every
    normal installation, but not in a development install whose finder hides top-level modules, nor if an archive is on
    ``sys.path`` of the driver only.

    Returns:
        The monitor with lag, rows and owned partitions; later calls with the same session return the same one.

    Raises:
        UsageError: this release of Spark cannot run the source.
    """
    from zkconsumer.spark.release import register_source, require_python_sources

    require_python_sources()

    from zkconsumer.spark.lookup import require_source
    from zkconsumer.spark.monitor import attach

    register_source(spark, require_source())
    return attach(spark)
