"""The number of tasks that the cluster runs at a time, which only the user's process can ask Spark for.

It writes the number to a file in a directory of the driver, where the processes of sources find it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from zkconsumer.spark.readerclaim import driver_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_FILE = "zkconsumer-parallelism"


def publish_parallelism(spark: SparkSession) -> None:
    """Write what Spark knows now; executors that come later change it. Without a context in this process do nothing."""
    try:
        context = spark.sparkContext
        disk = context._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()  # type: ignore[union-attr]
        path = Path(disk.localDirs()[0].getPath(), _FILE)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(str(context.defaultParallelism), encoding="ascii")
        new.rename(path)
    except Exception as error:  # noqa: BLE001  py4j's and Spark's: a session of Spark Connect, a driver that ends
        _log.debug("the parallelism of the cluster is unknown: %s", error)


def known_parallelism() -> int | None:
    """The published number; None if it is unknown. For a process that Spark has started on the driver."""
    directory = driver_directory(os.environ)
    try:
        return None if directory is None else int((directory / _FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
