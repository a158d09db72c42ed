"""find_source: the class that Spark finds as ``format("zkconsumer")``, even if it cannot run."""

from __future__ import annotations

from collections.abc import MutableMapping

import pyspark
from pyspark.sql.datasource import DataSource

from zkconsumer.errors import UsageError
from zkconsumer.spark.release import why_unavailable


def find_source() -> type[DataSource]:
    """The source, or a stand-in that raises at ``load()`` if the source cannot be imported.

    Spark imports all ``pyspark_*`` modules at its first look-up, and a failing import ends the look-up: the sources of
    all other packages would be missing.
    """
    try:
        return require_source()
    except UsageError:
        return UnavailableDataSource


class UnavailableDataSource(DataSource):
    """``format("zkconsumer")`` in an environment that cannot import the source.

    Raises:
        UsageError: at ``load()``, with the reason.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        require_source()
        # The class was pickled in a process that could not import the source, but this process can.
        raise UsageError('format("zkconsumer") could not be imported when Spark looked it up; start a new session')

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "zkconsumer"


def require_source() -> type[DataSource]:
    """The source.

    Raises:
        UsageError: it cannot be imported; the message has the reason.
    """
    try:
        from zkconsumer.spark.source import ZkConsumerDataSource
    except ImportError as error:
        raise UsageError(why_unavailable(pyspark.__version__, str(error))) from error
    return ZkConsumerDataSource
