"""What the release of Spark can run, and how releases differ: batch reads since 4.0, streams since 4.2.

An import decides, and the version number is only in the message: distributions of Spark have numbers of their own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyspark
from pyspark.errors import AnalysisException

from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from zkconsumer.spark.streamreader import ZkConsumerStreamReader

_OLDEST = (4, 0)
"""The first release that has ``pyspark.sql.datasource``: sources that are written in Python."""
_OLDEST_STREAMS = (4, 2)
"""The first release that has ``pyspark.sql.streaming.datasource``: read limits and AvailableNow for Python sources."""


def require_python_sources() -> None:
    """Do nothing if Spark can have sources that are written in Python.

    Raises:
        UsageError: it cannot; the message has the reason.
    """
    try:
        from pyspark.sql import datasource  # noqa: F401
    except ImportError as error:
        raise UsageError(why_unavailable(pyspark.__version__, str(error))) from error


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register the source with a session, unless the session has it.

    Spark 4.0 refuses a format that its look-up has found by itself; later releases replace it.
    """
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def require_stream_reader() -> type[ZkConsumerStreamReader]:
    """The reader of streams.

    Raises:
        UsageError: it cannot be imported; the message has the reason.
    """
    try:
        from zkconsumer.spark.streamreader import ZkConsumerStreamReader
    except ImportError as error:
        raise UsageError(why_no_streams(pyspark.__version__, str(error))) from error
    return ZkConsumerStreamReader


def why_unavailable(version: str, cause: str) -> str:
    """Error text with the reason, which importing the source under this release of pyspark has raised."""
    if _is_before(_OLDEST, version):
        return (
            f'format("zkconsumer") needs Spark {_written(_OLDEST)} or later, and {_written(_OLDEST_STREAMS)} for '
            f"streams, but this is {version} ({cause}); upgrade Spark on the cluster, and pyspark on the driver to "
            'the same release. The section "Spark 2.4 to 3.5" of docs/spark.md has what works without'
        )
    return f'format("zkconsumer") cannot be imported: {cause}; check the installation on the driver and on executors'


def why_no_streams(version: str, cause: str) -> str:
    """Error text with the reason, which importing the reader of streams under this release of pyspark has raised."""
    if _is_before(_OLDEST_STREAMS, version):
        return (
            f'streams of format("zkconsumer") need Spark {_written(_OLDEST_STREAMS)} or later, but this is {version}, '
            "with which batch reads (spark.read) work. For streams upgrade Spark on the cluster, and pyspark on the "
            "driver to the same release"
        )
    return f'streams of format("zkconsumer") cannot be imported: {cause}; check the installation on the driver'


def _is_before(oldest: tuple[int, int], version: str) -> bool:
    return tuple(map(int, re.findall(r"\d+", version)[:2])) < oldest


def _written(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
