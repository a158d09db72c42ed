"""The Spark source ``zkconsumer``: the driver is a member of the consumer group, executors fetch (DESIGN 3.3 and 4.7).

Importing this package does not import pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zkconsumer.spark.monitor import QueryMonitor

__all__ = ["register"]


def register(spark: SparkSession) -> QueryMonitor:
    """Make ``format("zkconsumer")`` known to a session, and watch the session's queries of this source.

    The format is found without this call where Spark's look-up sees the top-level module ``pyspark_zkconsumer``: in
    every normal installation, but not in a development install whose finder hides top-level modules, nor where an
    archive is on ``sys.path`` of the driver only.

    Returns:
        What shows lag, rows and owned partitions; a second call with the same session returns the same.

    Raises:
        UsageError: this release of Spark cannot run the source.
    """
    from zkconsumer.spark.lookup import require_source
    from zkconsumer.spark.monitor import attach

    source = require_source()
    spark.dataSource.register(source)
    return attach(spark)
