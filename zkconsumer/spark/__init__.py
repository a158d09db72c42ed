"""The Spark source ``zkconsumer``: the driver is a member of the consumer group, executors fetch (DESIGN 3.3 and 4.7).

Importing this package does not import pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("zkconsumer")`` known to a session in which the automatic look-up does not find it.

    The look-up finds the top-level module ``pyspark_zkconsumer`` of every normal installation; a development install
    whose finder hides top-level modules, or an archive on ``sys.path`` of the driver only, needs this call.
    """
    from zkconsumer.spark.source import ZkConsumerDataSource

    spark.dataSource.register(ZkConsumerDataSource)
